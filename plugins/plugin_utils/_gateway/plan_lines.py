# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lines of a plan about the gateway: address, TLS, names, keys. Private to the collection."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .._intent import gateway
from .._intent.hosts import expand, node_address
from .._intent.notes import intent_notes
from .._intent.ports import ports
from .._intent.records import Groups, HostVars, Models, Services
from .._intent.variables import known_now
from .config import gateway_config


def gateway_plan_lines(
    services: Services,
    models: Models,
    groups: Groups,
    hostvars: HostVars,
    routes: Any = None,
    plan: Mapping[str, Any] | None = None,
    only: str = "",
) -> list[str]:
    """The arguments are valid. only: the one service that is planned; then there are no lines."""
    if only:
        return []
    notes = [f"note: {note}" for note in intent_notes(services, models, groups, hostvars, routes)]
    hosts = gateway.hosts(groups)
    if not hosts:
        port_of = ports(services)
        at = [
            "%s http://%s:%d/v1" % (name, node_address(head, hostvars), port_of[name])
            for name, one in sorted(services.items())
            for head in expand(one["head"], groups)
        ]
        return [f"no gateway, clients come to each service: {', '.join(at)}", *notes]
    facts = hostvars[hosts[0]]
    address = known_now(hostvars, hosts[0], "gateway_address") or node_address(hosts[0], hostvars)
    settings = {"plan": plan or {}, "routes": routes or {}, "address": address}
    config = gateway_config(services, models, groups, hostvars, hosts[0], settings)
    (base,) = config["base_urls"]
    plain = base.partition("://")[2].rsplit(":", 1)[0]
    by_tier = gateway.tiers(services)
    tiers = [
        "%s http://%s:%d/v1 (%s)" % (name, plain, one["port"], by_tier[name]) for name, one in config["tiers"].items()
    ]
    tls = gateway.setting("gateway_tls", facts)
    served = [
        f"{name} = {', '.join((known for one in own['models'] for known in [one['name'], *one['aliases']]))}"
        for name, own in config["services"].items()
        if own["models"]
    ]
    by_model: dict[str, list[str]] = {}
    for task, model in sorted(config["routes"]["tasks"].items()):
        by_model.setdefault(model, []).append(task)
    tasks = [f"{', '.join(own)} -> {model}" for model, own in by_model.items()]
    default = config["routes"]["default"]
    more = ([f"default {default}"] if default else []) + (["tasks " + "; ".join(tasks)] if tasks else [])
    return [
        f"gateway: {base}/v1 on {', '.join(hosts)}{', tiers ' + ', '.join(tiers) if tiers else ''}",
        "  TLS: %s" % ("%s, key %s" % (tls["certificate"], tls["key"]) if tls else "none, plain HTTP"),
        f"  names: {'; '.join([*served, *more])}",
        f"  keys: {_keys(facts)}",
        *notes,
    ]


def _keys(facts: Mapping[str, Any]) -> str:
    names = ", ".join(map(str, gateway.setting("gateway_keys", facts)))
    if str(gateway.setting("gateway_auth", facts)) == "log_only":
        return "not needed (gateway_auth: log_only)" + (f", known to the log: {names}" if names else "")
    return names or "one, which site.yml generates on the host"
