# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The mistakes of monitoring that would be seen late: alerts without a receiver, ports that are taken. One
sentence a mistake. Private to the collection."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import urlsplit

from ...module_utils._key import Key
from . import gateway, monitoring
from .hosts import node_address
from .inventory import Inventory
from .rules import Row, broken
from .values import IPV4, key_errors, number, plain, shown

PORTS = {"monitoring_port": 9090, "monitoring_alertmanager_port": 9093}
SETTINGS = (
    # The rules look back one minute.
    Key("monitoring_interval", int, "", 5, bounds=(1, 15)),
    Key(
        "monitoring_retention",
        str,
        "",
        "15d",
        form=(re.compile(r"^([0-9]+(ms|[smhdwy]))+\Z"), "a duration", "write 15d"),
    ),
)
# journald would go on without what it cannot read.
JOURNAL = (
    Key(
        "monitoring_journal_max_use",
        str,
        "",
        "2G",
        form=(re.compile(r"^[1-9][0-9]*[KMGT]?\Z"), "a size", "write 2G"),
    ),
    Key("monitoring_journal_days", int, "", 14),
)


def monitoring_errors(one: Inventory) -> list[str]:
    """one: its services are already validated. No host of monitoring is contacted."""
    hosts = monitoring.hosts(one.groups)
    found: list[str] = []
    sampled = monitoring.sampled(one.groups)
    for host in sampled if hosts else ():
        found += _key_errors(one.hostvars[host], JOURNAL)
    for host in dict.fromkeys([*hosts, *sampled]) if hosts else ():
        if host in hosts:
            found += broken(str, _rules(one, host)) + _key_errors(one.hostvars[host], SETTINGS)
        found += _port_errors(one, host)
    return list(dict.fromkeys(found))


def _key_errors(facts: Mapping[str, Any], keys: Iterable[Key]) -> list[str]:
    found = []
    for key in keys:
        given = facts.get(key.name, key.default)
        found += key_errors(key.name, number(given) if key.type is int else str(given), key)
    return found


def _rules(one: Inventory, host: str) -> list[Row]:
    facts = one.hostvars[host]
    listen, webhooks = str(facts.get("monitoring_listen") or "127.0.0.1"), facts.get("monitoring_webhooks") or []
    address = ipaddress.ip_address(listen) if IPV4.match(listen) else None
    many = not isinstance(webhooks, (str, Mapping))
    return [
        (
            "llama_monitoring",
            not gateway.addresses(host, one.hostvars),
            f"{host} comes to its nodes from {plain(node_address(host, one.hostvars))}, an IPv4 address is needed: "
            "give it llama_address in hosts.yml",
        ),
        (
            "monitoring_listen",
            _installs(facts) and not address,
            f"{shown(listen)} seen, an IPv4 address of {host} is needed: write 127.0.0.1, or one of a private network",
        ),
        (
            "monitoring_listen",
            _installs(facts) and address and (address.is_unspecified or address.is_global),
            f"{listen} seen, one private address of {host} is needed, since Prometheus has no password: write "
            "127.0.0.1, or one of a private network",
        ),
        ("monitoring_webhooks", not many, "no list seen, a list of URLs is needed: write [URL]"),
        # The URL of a webhook may hold its key.
        *(
            (
                "monitoring_webhooks",
                not _is_url(url),
                f"no URL seen in place {place}, http:// or https:// and a host are needed: correct it",
            )
            for place, url in enumerate(webhooks if many else (), 1)
        ),
    ]


def _installs(facts: Mapping[str, Any]) -> bool:
    return str(facts.get("monitoring_prometheus") or "install") == "install"


def _is_url(text: Any) -> bool:
    try:
        parts = urlsplit(str(text))
        return parts.scheme in ("http", "https") and bool(parts.hostname) and " " not in str(text)
    except ValueError:
        return False


def _port_errors(one: Inventory, host: str) -> list[str]:
    """Mistakes in the ports of monitoring."""
    facts, wanted, taken = one.hostvars[host], dict[str, Any](), one.claims(host)
    if host in monitoring.hosts(one.groups) and _installs(facts):
        wanted.update({name: facts.get(name, port) for name, port in PORTS.items()})
    if host in monitoring.sampled(one.groups) and str(facts.get("monitoring_export") or "auto") != "textfile":
        wanted["monitoring_sampler_port"] = facts.get("monitoring_sampler_port", monitoring.SAMPLER_PORT)
    if host in one.fronts:
        tiers, named = gateway.setting("gateway_tiers", facts), gateway.tiers(one.services)
        taken.update({int(port): f"gateway_tiers.{tier}" for tier, port in tiers.items() if tier in named})
        taken[int(gateway.setting("gateway_port", facts))] = "gateway_port"
    return gateway.port_errors(host, wanted, taken)
