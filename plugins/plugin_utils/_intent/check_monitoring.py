# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is wrong with monitoring and would be seen late: in an alert that nobody gets, or a port that others have. One
sentence a mistake. Private to the collection."""

import ipaddress
import re
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import urlsplit

from ...module_utils._key import Key
from . import gateway, monitoring
from .hosts import node_address
from .records import Groups, HostVars, Service, Services
from .services import managed
from .values import IPV4, key_errors, number, plain, shown

PORTS = {"monitoring_port": 9090, "monitoring_alertmanager_port": 9093}
# The rules look back one minute.
INTERVAL = Key("monitoring_interval", int, "", 5, bounds=(1, 15))
RETENTION = Key(
    "monitoring_retention",
    object,
    "",
    "15d",
    form=(re.compile(r"^([0-9]+(ms|[smhdwy]))+\Z"), "a duration", "write 15d"),
)
# journald would go on without what it cannot read.
JOURNAL_SIZE = Key(
    "monitoring_journal_max_use",
    object,
    "",
    "2G",
    form=(re.compile(r"^[1-9][0-9]*[KMGT]?\Z"), "a size", "write 2G"),
)
JOURNAL_DAYS = Key("monitoring_journal_days", int, "", 14)


def monitoring_errors(services: Services, groups: Groups, hostvars: HostVars) -> list[str]:
    """services: already validated one by one. No host of monitoring is contacted."""
    hosts = monitoring.hosts(groups)
    if not hosts:
        return []
    service_of = managed(services, groups)
    found: list[str] = []
    for host in dict.fromkeys([*groups.get("llama_nodes", []), *gateway.all_hosts(groups)]):
        found += [
            sentence for sentence in _key_errors(hostvars[host], (JOURNAL_SIZE, JOURNAL_DAYS)) if sentence not in found
        ]
    for host in dict.fromkeys([*hosts, *gateway.all_hosts(groups)]):
        told = _port_errors(host, groups, hostvars, service_of, services)
        if host in hosts:
            told = _address_errors(host, hostvars) + _setting_errors(hostvars[host]) + told
        found += [sentence for sentence in told if sentence not in found]
    return found


def _installs(facts: Mapping[str, Any]) -> bool:
    return str(facts.get("monitoring_prometheus") or "install") == "install"


def _address_errors(host: str, hostvars: HostVars) -> list[str]:
    facts = hostvars[host]
    found = []
    if not gateway.addresses(host, hostvars):
        found.append(
            "llama_monitoring: %s comes to its nodes from %s, an IPv4 address is needed: give it llama_address in "
            "hosts.yml" % (host, plain(node_address(host, hostvars)))
        )
    listen = str(facts.get("monitoring_listen") or "127.0.0.1")
    if not _installs(facts):
        return found
    if not IPV4.match(listen):
        found.append(
            "monitoring_listen: %s seen, an IPv4 address of %s is needed: write 127.0.0.1, or one of a private network"
            % (shown(listen), host)
        )
    elif ipaddress.ip_address(listen).is_unspecified or ipaddress.ip_address(listen).is_global:
        found.append(
            "monitoring_listen: %s seen, one private address of %s is needed, since Prometheus asks nobody for a "
            "password: write 127.0.0.1, or one of a private network" % (listen, host)
        )
    return found


def _setting_errors(facts: Mapping[str, Any]) -> list[str]:
    found = _key_errors(facts, (INTERVAL, RETENTION))
    webhooks = facts.get("monitoring_webhooks") or []
    if isinstance(webhooks, (str, Mapping)):
        return [*found, "monitoring_webhooks: no list seen, a list of URLs is needed: write [URL]"]
    # What is in the URL of a webhook may be the key to it.
    found += [
        "monitoring_webhooks: no URL seen in place %d, http:// or https:// and a host are needed: correct it" % place
        for place, url in enumerate(webhooks, 1)
        if not _is_url(url)
    ]
    return found


def _key_errors(facts: Mapping[str, Any], keys: Iterable[Key]) -> list[str]:
    found = []
    for key in keys:
        given = facts.get(key.name, key.default)
        found += key_errors(key.name, number(given) if key.type is int else str(given), key)
    return found


def _is_url(text: Any) -> bool:
    try:
        parts = urlsplit(str(text))
        return parts.scheme in ("http", "https") and bool(parts.hostname) and " " not in str(text)
    except ValueError:
        return False


def _port_errors(
    host: str, groups: Groups, hostvars: HostVars, service_of: list[Service], services: Services
) -> list[str]:
    """What monitoring listens on, beside what services and the gateway do."""
    facts = hostvars[host]
    wanted: dict[str, Any] = {}
    if host in monitoring.hosts(groups) and _installs(facts):
        wanted.update({name: facts.get(name, port) for name, port in PORTS.items()})
    if host in gateway.all_hosts(groups) and str(facts.get("monitoring_export") or "auto") != "textfile":
        wanted["monitoring_sampler_port"] = facts.get("monitoring_sampler_port", monitoring.SAMPLER_PORT)
    taken = {
        port: f"llama_services.{entry}" for port, entry in gateway.claims(service_of, host, services, groups).items()
    }
    if host in gateway.hosts(groups):
        tiers = gateway.setting("gateway_tiers", facts)
        named = gateway.tiers(services)
        taken.update({int(port): f"gateway_tiers.{tier}" for tier, port in tiers.items() if tier in named})
        taken[int(gateway.setting("gateway_port", facts))] = "gateway_port"
    return gateway.port_errors(host, wanted, taken)
