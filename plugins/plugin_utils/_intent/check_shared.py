# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The mistakes of services together, and in routes, targets, addresses and API keys, one sentence each.
Private to the collection."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from . import gateway, monitoring
from .builds import VISIBLE
from .hosts import expand
from .inventory import Inventory
from .records import Models, Services, Settings
from .rules import broken
from .values import did_you_mean, is_a, plain, shown, type_errors, unknown_key

# Valid in an HTTP header, in a line of a key file and in nginx' configuration.
API_KEY = re.compile(r"^(?!#)(?!.*[\"$\\])[!-~]+\Z")
TASK = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}\Z")
# The public placeholder key of the example inventory.
EXAMPLE_KEY = "put-a-key-of-your-own-here"


# metric -> whether less is better.
METRICS = {"tokens_per_second": False, "first_token_seconds": True}
LEVELS = ("target", "acceptable", "critical")
# Connections by which several hosts may have one address: another setting tells them apart.
SSH = ("ssh", "smart", "paramiko", "paramiko_ssh", "libssh", "ansible.netcommon.libssh")
WAY = ("ansible_host", "ansible_port", "ansible_ssh_common_args", "ansible_ssh_extra_args")


def shared_errors(one: Inventory) -> list[str]:
    """Two services on one port of one node, and two primaries. A port that is not given is free, see ports()."""
    found = []
    taken = {(host, port): name for host in one.nodes for port, name in gateway.reserved(one.hostvars[host]).items()}
    for name, service in one.services.items():
        heads = expand(service["head"], one.groups) if "port" in service else []
        claims = [(host, service["port"], "port") for host in heads]
        claims += [(host, service["rpc_port"], "rpc_port") for host in expand(service.get("workers", ""), one.groups)]
        for host, port, key in claims:
            own = f"llama_services.{name}.{key}"
            other = taken.setdefault((host, port), own)
            if other != own:
                found.append(
                    f"{own}: {port} on {host} is taken by {other}, a port of its own is needed: choose another"
                )
    primary = [name for name, service in one.services.items() if service.get("primary")]
    if len(primary) > 1:
        found.append(
            "llama_services.%s.primary: true seen for %s too, only one service may have the units llama-rpc "
            "and llama-head, false is needed: remove the key" % (primary[1], primary[0])
        )
    return found + _visible_errors(one)


def _visible_errors(one: Inventory) -> list[str]:
    """Cards that only heads, or only workers, of a node may use: the plan has one list for both."""
    using = [service for service in one.services.values() if service.get("cards") != []]
    sides = {"head_server_environment": "head", "rpc_worker_environment": "workers"}
    found = []
    for node in one.nodes:
        runs = {
            kind for kind in sides.values() if any(node in expand(each.get(kind, ""), one.groups) for each in using)
        }
        for name in VISIBLE.values() if len(runs) == len(sides) else ():
            given = {variable: (one.hostvars[node].get(variable) or {}).get(name) for variable in sides}
            if len(set(map(str, given.values()))) > 1:
                variable = next(key for key, text in given.items() if text is not None)
                other = next(key for key in sides if key != variable)
                found.append(
                    f"{variable}.{name}: {shown(given[variable])} seen for {node}, the same in {other} is needed, "
                    "since heads and workers run there: write it in both, or name the cards of each service"
                )
    return found


def machine_errors(one: Inventory) -> list[str]:
    """Two names of one machine: ports, cards and units are counted by name, so both would get the same ones."""
    found, taken = [], dict[tuple[str, ...], str]()
    for host in dict.fromkeys([*one.hosts, *monitoring.hosts(one.groups)]):
        facts = one.hostvars[host]
        by_ssh = facts.get("ansible_host") and str(facts.get("ansible_connection") or "ssh") in SSH
        way = tuple(str(facts.get(name) or ("22" if name == "ansible_port" else "")) for name in WAY)
        other = taken.setdefault(way, host) if by_ssh else host
        if other != host:
            found.append(
                "ansible_host: %s seen for %s and %s, an address of its own is needed: correct it, or write %s in "
                "every group of that machine" % (way[0], other, host, other)
            )
    addresses: dict[str, str] = {}
    for node in one.nodes:
        own = one.hostvars[node].get("llama_address")
        other = addresses.setdefault(str(own), node) if own else node
        if other != node:
            found.append(
                f"llama_address: {own} seen for {other} and {node}, an address of its own is needed: correct it"
            )
    return found


def answers(service: Settings, models: Models) -> str:
    """The kind of requests that a service takes: chat, embeddings or reranking."""
    model = models[service["model"]] if "model" in service else {}
    return next((key for key in ("embeddings", "reranking") if service.get(key, model.get(key))), "chat")


def route_errors(one: Inventory) -> list[str]:
    """llama_routes: {default: NAME, tasks: {task: NAME}}, where a name is a model that some service serves, or an alias
    of it. Tasks stand in paths and in a header."""
    routes, services = one.routes, one.services
    found = type_errors("llama_routes", routes, dict)
    tasks = {} if found or routes.get("tasks") is None else routes["tasks"]
    found += type_errors("llama_routes.tasks", tasks, dict)
    if found:
        return found
    targets = [("default", routes["default"])] if "default" in routes else []
    targets += [(f"tasks.{plain(task)}", name) for task, name in tasks.items()]
    found = [wrong for route, name in targets for wrong in type_errors(f"llama_routes.{route}", name, str)]
    if found:
        return found
    served = {known for _name, _service, known in one.names()}
    kinds = {answers(service, one.models) for service in services.values()}
    of_default = (
        [answers(service, one.models) for _name, service, known in one.names() if known == targets[0][1]]
        if targets
        else []
    )
    no_chat = "default" in routes and of_default and "chat" not in of_default and "chat" in kinds
    rows = [
        *((plain(key), key not in ("default", "tasks"), "unknown key; known keys: default, tasks") for key in routes),
        *(
            (
                f"tasks.{plain(task)}",
                not TASK.match(str(task)),
                "the name stands in paths, letters, digits, dots and dashes are needed: rename it",
            )
            for task in tasks
        ),
        *(
            (
                route,
                name in services and name not in served,
                f"{name} is a service, a name of what it serves is needed: write "
                + next((known for own, _service, known in one.names() if own == name), ""),
            )
            for route, name in targets
        ),
        *(
            (
                route,
                name not in served and name not in services,
                f"{plain(name)} is served by no service, one of {', '.join(sorted(served))} is needed"
                + did_you_mean(name, served, ": correct it"),
            )
            for route, name in targets
        ),
    ]
    # Requests whose model and task are not known are chats.
    chat = (
        "default",
        no_chat,
        f"{routes.get('default')} seen, which is for {min(of_default, default='')}, a model for chat is needed: name "
        "one that a service without that key serves",
    )
    return broken(lambda key: f"llama_routes.{key}", rows) or broken(lambda key: f"llama_routes.{key}", [chat])


def target_errors(targets: Any, services: Services) -> list[str]:
    """targets: {SERVICE: {metric: {target, acceptable, critical, source}}}"""
    found = type_errors("llama_targets", targets, dict)
    for name, own in {} if found else targets.items():
        entry = f"llama_targets.{plain(name)}"
        if name not in services:
            step = did_you_mean(name, services, ": correct the name")
            found.append(f"{entry}: no service of that name, one of {', '.join(services)} is needed{step}")
        elif not isinstance(own, dict):
            found += type_errors(entry, own, dict)
        else:
            found += [unknown_key(entry, metric, METRICS) for metric in own if metric not in METRICS]
            found += [wrong for metric in own for wrong in _level_errors(f"{entry}.{metric}", own[metric], metric)]
    return found


def _level_errors(entry: str, levels: Any, metric: str) -> list[str]:
    given: list[Any] = [levels.get(level) for level in LEVELS] if isinstance(levels, dict) else []
    numbers = [level for level in given if is_a(level, float) and level > 0]
    ordered = sorted(numbers, reverse=not METRICS.get(metric))
    if metric not in METRICS or (given and given == ordered and set(levels) <= {*LEVELS, "source"}):
        return []
    return [
        f"{entry}: {shown(levels)} seen, target, acceptable and critical are needed, numbers above 0, the best first, "
        "and source if you like: correct them"
    ]


def api_key_errors(api_keys: Any, services: Services) -> list[str]:
    """llama_api_keys: {SERVICE: [KEY]}. No sentence shows a key."""
    if not isinstance(api_keys, dict):
        return ["llama_api_keys: no map seen, a map of service to list of keys is needed: write SERVICE: [KEY]"]
    found = []
    for name, keys in api_keys.items():
        entry = f"llama_api_keys.{name}"
        if name not in services:
            found.append(
                "%s: no service of that name, one of %s is needed%s"
                % (
                    entry,
                    ", ".join(sorted(services)),
                    did_you_mean(
                        name, services, ": rename it, or move it to gateway_keys if it is the key of a client"
                    ),
                )
            )
        elif not isinstance(keys, list) or not keys:
            seen, step = (
                ("an empty list", "add a key or remove the entry") if keys == [] else ("no list", "write [KEY]")
            )
            found.append(f"{entry}: {seen} seen, a list of at least one key is needed: {step}")
        else:
            found.extend(
                '%s: key %d is no plain text, letters, digits and punctuation but ", $ and \\, and no # in front, are '
                "needed: choose another" % (entry, number)
                for number, key in enumerate(keys, 1)
                # A key from a vault may be an object that only becomes text.
                if isinstance(key, (int, float, dict, list, type(None))) or not API_KEY.match(str(key))
            )
    return found


def example_keys(api_keys: Mapping[str, Any]) -> list[str]:
    """Sentences for keys that the example inventory's vault.yml came with."""
    return [
        "llama_api_keys.%s: %s seen, a key of your own is needed: print one with `openssl rand -hex 32` and write it "
        "in group_vars/all/vault.yml" % (name, EXAMPLE_KEY)
        for name, keys in api_keys.items()
        if EXAMPLE_KEY in [str(key) for key in keys]
    ]
