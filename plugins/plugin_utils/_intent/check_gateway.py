# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The mistakes of the gateway: tiers, fallbacks, names, ports, files of TLS and keys, one sentence a mistake.
Private to the collection."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from typing import Any

from ...module_utils._gateway.request import BODY
from ...module_utils._key import Key
from ...module_utils._settings import is_stopped
from . import gateway
from .check_nodes import ADDRESS
from .check_shared import API_KEY, answers
from .hosts import node_address
from .inventory import Inventory
from .rules import broken
from .values import did_you_mean, key_errors, number, plain, shown, unknown_key
from .variables import known_now

NAME = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}\Z")
ABSOLUTE = re.compile(r"^/[^\x00-\x20\x7f;{}'\"\\$]+\Z")
# How many requests may wait, and seconds.
SETTINGS = (
    Key("gateway_auth", str, "", choices=("required", "log_only")),
    Key("gateway_unknown_model", str, "", choices=("404", "400", "default")),
    Key("gateway_queue", int, "", bounds=(0, 100000)),
    Key("gateway_patience", int, "", bounds=(0, 3600)),
)
PARTS = ("certificate", "key")
SIZE = re.compile(r"^([1-9][0-9]{0,9})([kKmMgG]?)\Z")
UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


def gateway_errors(one: Inventory) -> list[str]:
    """one: its services and routes are already validated. No host of the gateway is contacted."""
    if not one.fronts:
        return [
            "llama_services.%s.%s: seen without a gateway, a host in group llama_gateway is needed for it: add one in "
            "hosts.yml or drop the key" % (name, key)
            for name, service in one.services.items()
            for key in ("tier", "fallback")
            if key in service
        ]
    found = _tier_errors(one) + _fallback_errors(one) + _name_errors(one)
    for host in one.fronts:
        facts = one.hostvars[host]
        found += _setting_errors(facts, one.routes) + _tls_errors(facts) + _key_errors(facts.get("gateway_keys"))
        found += _address_errors(one, host) + _port_errors(one, host)
    return list(dict.fromkeys(found))


def _tier_errors(one: Inventory) -> list[str]:
    tiers = gateway.tiers(one.services)  # the last service of each
    return [
        "llama_services.%s.tier: %s seen for %s too, one service for each tier is needed: drop one of them"
        % (tiers[service["tier"]], plain(service["tier"]), name)
        for name, service in one.services.items()
        if "tier" in service and tiers[service["tier"]] != name
    ]


def _fallback_errors(one: Inventory) -> list[str]:
    found, circles = [], set[frozenset[str]]()
    services = one.services
    kinds = {name: answers(service, one.models) for name, service in services.items()}
    for name, other in [(name, service["fallback"]) for name, service in services.items() if "fallback" in service]:
        entry, way = f"llama_services.{name}.fallback", [name]
        while way[-1] in services and "fallback" in services[way[-1]] and way.count(way[-1]) == 1:
            way.append(services[way[-1]]["fallback"])
        if other == name:
            found.append(f"{entry}: itself seen, another service is needed: name another one or drop the key")
        elif other not in services:
            step = did_you_mean(other, services, ": correct the name")
            found.append(f"{entry}: {plain(other)} is no service, one of {', '.join(services)} is needed{step}")
        elif kinds[name] != kinds[other]:
            found.append(
                "%s: %s seen, which is for %s, one for %s is needed, as %s is: name another one or drop the key"
                % (entry, other, kinds[other], kinds[name], name)
            )
        elif way[-1] == name and frozenset(way) not in circles:
            circles.add(frozenset(way))
            found.append(f"{entry}: the circle {' -> '.join(way)} seen, an end is needed: drop one of them")
    return found


def _name_errors(one: Inventory) -> list[str]:
    """Names by which requests could mean either of two services that run."""
    taken: dict[str, str] = {}
    found: dict[str, str] = {}
    for name, service, known in one.names():
        other = name if is_stopped(service) else taken.setdefault(known, name)
        if other != name:
            key = next(key for key in ("names", "models", "model") if key in service)
            found.setdefault(
                name,
                "llama_services.%s.%s: %s seen as a name of %s too, a name of only one service is needed behind a "
                "gateway: give one of them names of its own, such as names: [%s], or make both one service with "
                "replicas" % (name, key, known, other, name),
            )
    return list(found.values())


def _setting_errors(facts: Mapping[str, Any], routes: Any) -> list[str]:
    found = []
    for key in SETTINGS:
        given = gateway.setting(key.name, facts)
        found += key_errors(key.name, str(given) if key.choices else number(given), key)
    if str(gateway.setting("gateway_unknown_model", facts)) == "default" and not (routes or {}).get("default"):
        found.append(
            "gateway_unknown_model: default seen without llama_routes.default, a model that answers is needed: name it "
            "there"
        )
    # The engine holds a body whole, and has a limit of its own.
    given = gateway.setting("gateway_max_body", facts)
    size = SIZE.match(str(given))
    if not size or int(size.group(1)) * UNITS[size.group(2).lower()] > BODY:
        found.append("gateway_max_body: %s seen, a size up to %dm is needed: write 32m" % (shown(given), BODY >> 20))
    return found


def _tls_errors(facts: Mapping[str, Any]) -> list[str]:
    tls = gateway.setting("gateway_tls", facts)
    if not tls:
        return []
    if not isinstance(tls, Mapping):
        return [f"gateway_tls: {shown(tls)} seen, a map is needed: write {{certificate: PATH, key: PATH}}"]
    found = [unknown_key("gateway_tls", key, PARTS) for key in tls if key not in PARTS]
    for part in PARTS:
        path = tls.get(part)
        if not path:
            found.append(
                "gateway_tls: no %s seen, both files are needed: write {certificate: PATH, key: PATH}, or drop the "
                "variable for plain HTTP" % part
            )
        elif not ABSOLUTE.match(str(path)):
            found.append(
                f"gateway_tls.{part}: {shown(path)} seen, an absolute path without spaces is needed: correct it"
            )
    if not found and tls["certificate"] == tls["key"]:
        return ["gateway_tls.key: the file of the certificate seen, that of its key is needed: name that file"]
    return found


def _key_errors(keys: Any) -> list[str]:
    """gateway_keys: {NAME: KEY, or a list of keys}. No sentence shows a key."""
    if not keys:
        return []
    if not isinstance(keys, Mapping):
        return ["gateway_keys: no map seen, a map of name to key is needed: write NAME: KEY"]
    found, taken = [], dict[str, str]()
    for name, given in keys.items():
        own = list(given) if isinstance(given, (list, tuple)) and given else [given]
        other = next((other for key in own if (other := taken.setdefault(str(key), str(name))) != str(name)), None)
        entry = f"gateway_keys.{plain(name)}"
        if not NAME.match(str(name)):
            found.append(f"{entry}: the name stands in the log, letters, digits, dots and dashes are needed: rename it")
        # A key from a vault may be an object that only becomes text.
        elif any(
            isinstance(key, (int, float, Mapping, list, tuple, type(None))) or not API_KEY.match(str(key))
            for key in own
        ):
            found.append(
                '%s: no plain text seen, a key or a list of keys of letters, digits and punctuation but ", $ and \\, '
                "and no # in front, is needed: choose another key" % entry
            )
        elif other is not None:
            found.append(
                "%s: the key of %s seen, one of its own is needed, or the log could not tell them apart: choose another"
                % (entry, other)
            )
    return found


def _address_errors(one: Inventory, host: str) -> list[str]:
    facts, own = one.hostvars[host], node_address(host, one.hostvars)
    given = gateway.setting("gateway_addresses", facts)
    if not isinstance(given, (list, tuple)) or not given:
        return [f"gateway_addresses: {shown(given)} seen, a list of addresses is needed: write [10.0.0.5]"]
    wrong = [address for address in given if _number(address) is None]
    if wrong:
        return [f"gateway_addresses: {shown(wrong[0])} seen, addresses of {host} are needed: write [10.0.0.5]"]
    public_name = known_now(one.hostvars, host, "gateway_address")
    # Not what the tailnet and carriers have for themselves, 100.64.0.0/10.
    listens = [*given, own] if {"0.0.0.0", "::"} & {str(address) for address in given} else given
    public = [str(address) for address in listens if (number := _number(address)) and number.is_global]
    rows = (
        (
            "gateway_address",
            public_name not in (None, "") and not ADDRESS.match(str(public_name)) and not _number(public_name),
            f"{shown(public_name)} seen, a host name or an address is needed: write it without http://, port and path",
        ),
        (
            "llama_address",
            not ADDRESS.match(str(own)),
            f"{shown(own)} seen for {host}, an IPv4 address or a host name is needed: correct it",
        ),
        (
            "llama_gateway",
            not gateway.addresses(host, one.hostvars),
            f"{host} comes to its nodes from {plain(own)}, an IPv4 address is needed: give it llama_address in "
            "hosts.yml",
        ),
        (
            "gateway_auth",
            str(gateway.setting("gateway_auth", facts)) == "log_only" and public,
            f"log_only seen with the public address {[*public, ''][0]} of {host}, required is needed, or anybody could "
            "use the models: set it, or name private gateway_addresses",
        ),
    )
    return broken(str, rows)


def _number(text: Any) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(str(text))
    except ValueError:
        return None


def _port_errors(one: Inventory, host: str) -> list[str]:
    """Mistakes in the ports of the gateway and of the tiers in use."""
    facts, named = one.hostvars[host], gateway.tiers(one.services)
    tiers = gateway.setting("gateway_tiers", facts)
    if not isinstance(tiers, Mapping):
        return ["gateway_tiers: %s seen, a map of tier to port is needed: write {fast: 8080}" % shown(tiers)]
    found = [
        "llama_services.%s.tier: %s is not in gateway_tiers, one of %s is needed%s"
        % (name, plain(tier), ", ".join(map(str, tiers)), did_you_mean(tier, tiers, ": choose one, or add it there"))
        for tier, name in named.items()
        if tier not in tiers
    ]
    wanted = {"gateway_port": gateway.setting("gateway_port", facts)}
    wanted.update({f"gateway_tiers.{plain(tier)}": port for tier, port in tiers.items() if tier in named})
    return found + gateway.port_errors(host, wanted, {**gateway.reserved(facts), **one.claims(host)})
