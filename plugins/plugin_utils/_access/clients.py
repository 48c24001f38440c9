# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which clients reach a head's port, what firewalld has to be told for it, and whether another firewall keeps them out.
Private to the collection."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping, Sequence
from typing import Any

from ...module_utils._settings import is_stopped
from .._intent.networks import networks_of

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
RULE = 'rule family="ipv4" source address="%s" port port="%d" protocol="tcp" accept'
# "2: eth0    inet 10.0.0.31/24 brd 10.0.0.255 scope global eth0"
SHOWN = re.compile(r"^\d+: (\S+)\s+inet (\S+)", re.MULTILINE)
# Ours filters RPC alone, and firewalld's is asked and told by firewall-cmd.
TABLE = re.compile(r"^table (?!inet llama_cluster |\S+ firewalld )((?:ip|inet) \S+) \{\Z")
CHAIN = re.compile(r"^chain (\S+) \{\Z")
BASE = re.compile(r"^type filter hook (\S+) .*policy (\S+);\Z")
# What refuses everything that came so far.
REFUSES = re.compile(r"^(counter packets \d+ bytes \d+ )?(log .*)?\b(drop|reject( with .*)?)\Z")
# No connection of a client begins by what these accept.
ELSE = re.compile(
    r'\biif(name)? "lo"|xt match "(conntrack|state)"|\bfib daddr type '
    r"(multi|broad)cast|\b(udp|icmp|ipv6-icmp|igmp|sctp|ip6|esp|ah)\b(?!.*\btcp\b)"
)
STATES = re.compile(r"\bct state (?:vmap )?(\{[^}]*\}|\S+)")
PORTS = re.compile(r"\bdport (\{[^}]*\}|\S+)")
SOURCES = re.compile(r"\bip saddr (\{[^}]*\}|\S+)")
TARGETS = re.compile(r"\bip daddr (\{[^}]*\}|\S+)")


def client_access(
    instances: Sequence[Mapping[str, Any]],
    interfaces: Mapping[str, str],
    clients: Any,
    source: str = "",
    ruleset: str = "",
    host: str = "",
) -> list[dict[str, Any]]:
    """-> [{service, port, address, interface, networks, rules, admits, refused}] of a node's heads but stopped ones.

    instances: of head_instances; interfaces: {address: what `ip -oneline -4 address show to ADDRESS` says}; clients:
    networks, none of them for the head's own; ruleset: of `nft list ruleset`. interface is empty where no interface has
    the address; rules: {rich rule of firewalld: interface}; admits: whether networks have source; refused: a sentence
    for each network that a firewall other than firewalld keeps from the port.
    """
    found = []
    wanted = networks_of(clients)
    closed = _closed(ruleset)
    for head in instances:
        if is_stopped(head):  # whoever took its port would be sent what its clients still send
            continue
        match = SHOWN.search(interfaces.get(head["address"], ""))
        interface, own = match.groups() if match else ("", None)
        networks = wanted or ([ipaddress.IPv4Network(own, strict=False)] if own else [])
        # Nobody comes from elsewhere to an address of the loopback, or from one.
        networks = [] if interface == "lo" else [one for one in networks if not one.is_loopback]
        found.append(
            {
                "refused": [
                    _refusal(head, network, place, ruleset, host)
                    for *place, rules in closed
                    for network in networks
                    if not any(_admits(rule, network, head) for rule in rules)
                ],
                "service": head["service"],
                "port": head["port"],
                "address": head["address"],
                "interface": interface,
                "networks": [str(network) for network in networks],
                "rules": {RULE % (network, head["port"]): interface for network in networks},
                "admits": bool(source) and any(ipaddress.ip_address(source) in network for network in networks),
            }
        )
    return found


def _refusal(head: Mapping[str, Any], network: Network, place: Sequence[str], ruleset: str, host: str) -> str:
    table, chain = place
    words = (head["service"], table, host, network, head["port"])
    return (
        "llama_services.%s.port: table %s of %s keeps %s from port %d, an open port is needed: run `%s` there and keep "
        "it in that firewall's configuration, or name other networks in llama_clients"
        % (*words, _line(table, chain, ruleset, str(network), head["port"]))
    )


def _closed(ruleset: str) -> list[tuple[str, str, list[str]]]:
    """-> [(table, chain, rules that accept)] of the input chains through which nothing comes unless a rule accepts it;
    rules: of the whole table."""
    accepting: dict[str | None, list[str]] = {}
    inputs: set[tuple[str, str]] = set()
    closed: list[tuple[str, str]] = []
    table = hook = None
    chain = ""
    for line in (line.strip() for line in ruleset.splitlines()):
        rule = re.sub(r' comment ".*"$', "", line)
        if line.startswith("table "):
            named = TABLE.match(line)
            table = named and named.group(1)
        elif begun := CHAIN.match(line):
            chain, hook = begun.group(1), None
        elif based := BASE.match(line):
            hook, policy = based.groups()
            if table and hook == "input":
                inputs.add((table, chain))
                closed += [(table, chain)] if policy == "drop" else []
        elif table and (table, chain) in inputs and (table, chain) not in closed and REFUSES.match(rule):
            closed.append((table, chain))
        elif hook in (None, "input") and (rule.endswith("accept") or " vmap " in rule):
            accepting.setdefault(table, []).append(rule)
    return [(table, chain, accepting.get(table, [])) for table, chain in closed]


def _admits(rule: str, network: Network, head: Mapping[str, Any]) -> bool:
    """Whether a rule may let somebody of a network in to a head. What cannot be read counts as yes: a refusal must not
    be wrong."""
    states, ports, sources, targets = (pattern.search(rule) for pattern in (STATES, PORTS, SOURCES, TARGETS))
    return not (
        ELSE.search(rule)
        or states
        and "new" not in states.group(1)
        or ports
        and not any(_has_port(part, head["port"]) for part in _parts(ports))
        or sources
        and not any(_overlaps(part, network) for part in _parts(sources))
        or targets
        and not any(_overlaps(part, head["address"]) for part in _parts(targets))
    )


def _parts(match: re.Match[str]) -> list[str]:
    return [part.strip() for part in match.group(1).strip("{} ").split(",")]


def _has_port(text: str, port: int) -> bool:
    first, _dash, last = text.partition("-")
    return int(first) <= port <= int(last or first) if first.isdigit() else True


def _overlaps(text: str, other: Network | str) -> bool:
    try:
        return ipaddress.ip_network(text, strict=False).overlaps(ipaddress.ip_network(other))
    except ValueError:
        return True


def _line(table: str, chain: str, ruleset: str, network: str, port: int) -> str:
    """The command that lets a network in, of the tool that made the table."""
    if table != "ip filter" or chain != "INPUT":
        return "nft insert rule %s %s ip saddr %s tcp dport %d accept" % (table, chain, network, port)
    if "chain ufw-" in ruleset:
        return "ufw allow proto tcp from %s to any port %d" % (network, port)
    return "iptables -I INPUT -s %s -p tcp --dport %d -j ACCEPT" % (network, port)
