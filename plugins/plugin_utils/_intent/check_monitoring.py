# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is wrong with monitoring and would be seen late: in an alert that nobody gets, or a port that others have. One
sentence a mistake. Private to the collection."""

import ipaddress
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from . import gateway, monitoring
from .hosts import node_address
from .records import Groups, HostVars, Service, Services
from .services import managed
from .values import IPV4, is_a, number, plain, shown

PORTS = {"monitoring_port": 9090, "monitoring_alertmanager_port": 9093}
# The rules look back one minute.
INTERVAL = (1, 15)
# As journald writes sizes.
JOURNAL_SIZE = re.compile(r"^[1-9][0-9]*[KMGT]?\Z")
RETENTION = re.compile(r"^([0-9]+(ms|[smhdwy]))+\Z")


def monitoring_errors(services: Services, groups: Groups, hostvars: HostVars) -> list[str]:
    """services: sound for themselves. Of the hosts of monitoring nobody is asked anything."""
    hosts = monitoring.hosts(groups)
    if not hosts:
        return []
    service_of = managed(services, groups)
    found: list[str] = []
    for host in dict.fromkeys([*groups.get("llama_nodes", []), *gateway.all_hosts(groups)]):
        found += [sentence for sentence in _journal_errors(hostvars[host]) if sentence not in found]
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
    found = []
    interval = number(facts.get("monitoring_interval", 5))
    if not is_a(interval, int) or not INTERVAL[0] <= interval <= INTERVAL[1]:
        found.append(
            "monitoring_interval: %s seen, %d to %d seconds are needed: choose another number"
            % (shown(interval), *INTERVAL)
        )
    retention = facts.get("monitoring_retention", "15d")
    if not RETENTION.match(str(retention)):
        found.append(f"monitoring_retention: {shown(retention)} seen, a duration is needed: write 15d")
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


def _journal_errors(facts: Mapping[str, Any]) -> list[str]:
    """journald would go on without what it cannot read."""
    found = []
    size, days = facts.get("monitoring_journal_max_use", "2G"), number(facts.get("monitoring_journal_days", 14))
    if not JOURNAL_SIZE.match(str(size)):
        found.append(f"monitoring_journal_max_use: {shown(size)} seen, a size is needed: write 2G")
    if not is_a(days, int) or days < 1:
        found.append(f"monitoring_journal_days: {shown(days)} seen, a number of days is needed: write 14")
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
