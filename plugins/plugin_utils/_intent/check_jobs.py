# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The mistakes of services that SLURM runs, and of the variables slurm_*, one sentence each. Private to the
collection."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from ...module_utils._key import Key
from ...module_utils._settings import is_stopped, value
from . import jobs
from .check_nodes import PATH
from .inventory import Inventory
from .records import Service
from .services import managed
from .values import NAMES, did_you_mean, is_a, key_errors, plain, shown

NAME = re.compile(r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}\Z")
FOLDERS = ("slurm_script_dir", "slurm_log_dir", "slurm_local_log_dir")
TYPES = {
    "slurm_scripts": dict,
    "slurm_qos": dict,
    "slurm_associations": list,
    "slurm_yield_to": list,
    "slurm_reserve": bool,
}
# A QoS that site.yml writes. GraceTime in seconds, as a service has it.
QOS = {
    "priority": Key("priority", int, "", bounds=(0, None)),
    "grace_time": Key("grace_time", int, "", bounds=(0, None)),
    "preempt_mode": Key("preempt_mode", str, "", choices=("requeue", "cancel", "cluster")),
    "preempt": Key("preempt", list, "", empty=True),
}
ASSOCIATION = {
    "user": Key("user", str, "", required=True),
    "account": Key("account", str, "", required=True),
    "qos": Key("qos", list, "", empty=True),
}


def job_errors(one: Inventory) -> list[str]:
    """one: each of its services is sound by itself."""
    hosts, wanted = jobs.hosts(one.groups), managed(one.services, one.groups, "slurm")
    if len(hosts) > 1:
        return [
            f"group llama_slurm: {', '.join(hosts)} seen, one host is needed, where sbatch runs: keep one in hosts.yml"
        ]
    if not hosts:
        return [
            f"llama_services.{service.name}.launcher: slurm seen without a host in group llama_slurm, the one where "
            "sbatch runs is needed: add it in hosts.yml"
            for service in wanted
        ]
    facts = one.hostvars[hosts[0]]
    found = list(_variable_errors(one, facts))
    if wanted:
        found += _user_errors(one, facts)
        found += _front_errors(one, wanted)
    for service in wanted:
        found += _service_errors(one, service)
    found = found or [*_name_errors(wanted, facts), *_grace_errors(wanted, facts), *_card_errors(one, wanted)]
    return list(dict.fromkeys(found))


def _variable_errors(one: Inventory, facts: Mapping[str, Any]) -> Iterator[str]:
    for name in FOLDERS:
        path = jobs.setting(name, facts)
        if not isinstance(path, str) or not PATH.match(path):
            yield f"{name}: {shown(path)} seen, an absolute path of letters, digits and ._/- is needed: correct it"
    for name, kind in TYPES.items():
        if not isinstance(jobs.setting(name, facts), kind):
            yield f"{name}: {shown(jobs.setting(name, facts))} seen, {NAMES[kind]} is needed: correct it"
            return
    for name, file in jobs.setting("slurm_scripts", facts).items():
        if name not in one.services:
            step = did_you_mean(name, one.services, ": correct the name")
            known = ", ".join(one.services)
            yield f"slurm_scripts.{plain(name)}: no service of that name, one of {known} is needed{step}"
        elif not NAME.match(str(file)):
            yield f"slurm_scripts.{plain(name)}: {shown(file)} seen, the name of a file is needed: correct it"
    for name, given in jobs.setting("slurm_qos", facts).items():
        yield from _entry_errors(f"slurm_qos.{plain(name)}", given, QOS)
        if not NAME.match(str(name)):
            yield f"slurm_qos.{plain(name)}: a name of letters, digits and . _ - is needed: rename it"
    for number, given in enumerate(jobs.setting("slurm_associations", facts)):
        yield from _entry_errors(f"slurm_associations[{number}]", given, ASSOCIATION)
    for name in jobs.setting("slurm_yield_to", facts):
        if not NAME.match(str(name)):
            yield f"slurm_yield_to: {shown(name)} seen, names of partitions are needed: correct it"


def _entry_errors(entry: str, given: Any, keys: Mapping[str, Key]) -> Iterator[str]:
    if not isinstance(given, Mapping):
        yield f"{entry}: {shown(given)} seen, a map is needed: write {{{', '.join(keys)}}}"
        return
    for name, key in keys.items():
        if name not in given:
            if key.required:
                yield f"{entry}.{name}: missing, it is needed: add it"
            continue
        wrong = key_errors(f"{entry}.{name}", given[name], key)
        yield from wrong
        texts = given[name] if isinstance(given[name], list) else [given[name]] if key.type is str else []
        if not wrong and not all(NAME.match(str(text)) for text in texts):
            yield f"{entry}.{name}: {shown(given[name])} seen, letters, digits and . _ - are needed: correct it"
    for name in given:
        if name not in keys:
            yield f"{entry}.{plain(name)}: unknown key{did_you_mean(name, keys, '; known keys: ' + ', '.join(keys))}"


def _user_errors(one: Inventory, facts: Mapping[str, Any]) -> Iterator[str]:
    user, node = jobs.setting("slurm_user", facts), one.hostvars[one.nodes[0]]
    own = [node.get("node_setup_user") or "llama", node.get("node_setup_rpc_user") or "llama-rpc"]
    own += ["root", "llama-registry"]
    if not user:
        yield (
            "slurm_user: nothing seen, the user whose jobs they are is needed, with one number on all machines: "
            "write slurm_user: NAME"
        )
    elif not NAME.match(str(user)):
        yield f"slurm_user: {shown(user)} seen, the name of an account is needed: correct it"
    elif user in own:
        yield (
            f"slurm_user: {user} seen, an account of its own is needed, neither root nor one of systemd's services: "
            "name another one"
        )


def _front_errors(one: Inventory, wanted: list[Service]) -> Iterator[str]:
    for host in one.fronts:
        if not one.hostvars[host].get("gateway_registry_dir"):
            yield (
                f"gateway_registry_dir: nothing seen for {host}, a directory that nodes and gateway share is needed "
                f"for {', '.join(service.name for service in wanted)}, whose jobs register there: name one"
            )


def _service_errors(one: Inventory, service: Service) -> Iterator[str]:
    entry, own = f"llama_services.{service.name}", service.settings
    nodes, gres = [*service.heads, *service.workers], own.get("gres", "")
    if len(service.heads) > 1:
        yield (
            f"{entry}.head: {', '.join(service.heads)} seen, one host is needed with launcher slurm: make each replica "
            "a service of its own"
        )
    elif own.get("nodes", len(nodes)) != len(nodes):
        yield (
            f"{entry}.nodes: {own['nodes']} seen, {len(nodes)} is needed, head and workers: correct it or drop the key"
        )
    for key, other in (("memory_max", "mem"), ("rpc_memory_max", "mem")):
        if key in own:
            yield f"{entry}.{key}: seen with launcher slurm, {other} is needed for it: write {other}, for each node"
    if service.name in one.api_keys:
        yield (
            f"llama_api_keys.{service.name}: seen with launcher slurm, keys of the gateway are needed, since a script "
            "holds no secret: move it to gateway_keys"
        )
    count, cards = gres.rpartition(":")[2], value(own, "cards")
    if gres.startswith("gpu:") and (isinstance(cards, list) or is_a(cards, int) and str(cards) != count):
        yield (
            f"{entry}.cards: {shown(cards)} seen beside gres {gres}, {count} is needed, since SLURM chooses the cards: "
            "correct it or drop gres"
        )


def _name_errors(wanted: list[Service], facts: Mapping[str, Any]) -> Iterator[str]:
    """A job of a name waits for the end of another one of that name."""
    names, scripts = dict[str, str](), dict[str, str]()
    for service in wanted:
        name = value(service.settings, "job_name") or f"llama-{service.name}"
        other = names.setdefault(name, service.name)
        if other != service.name:
            yield (
                f"llama_services.{service.name}.job_name: {name} seen for {other} too, a name of its own is needed: "
                "choose another"
            )
        path = jobs.script_path(service.name, facts)
        other = scripts.setdefault(path, service.name)
        if other != service.name:
            yield f"slurm_scripts.{service.name}: {path} seen for {other} too, a file of its own is needed: rename it"


def _grace_errors(wanted: list[Service], facts: Mapping[str, Any]) -> Iterator[str]:
    for service in wanted:
        qos, grace = service.settings.get("qos"), value(service.settings, "grace")
        written = (jobs.setting("slurm_qos", facts).get(qos) or {}).get("grace_time", grace)
        if written != grace:
            yield (
                f"llama_services.{service.name}.grace: {grace} seen, the grace_time of slurm_qos.{qos} is {written}, "
                "one number is needed: correct one of them"
            )


def _card_errors(one: Inventory, wanted: list[Service]) -> Iterator[str]:
    """A job and a unit on one card: neither knows of the other."""
    for job in wanted:
        for unit in managed(one.services, one.groups):
            both = {*job.heads, *job.workers} & {*unit.heads, *unit.workers}
            shared = [node for node in one.nodes if node in both and _meet(one, job, unit, node)]
            if shared and not is_stopped(job.settings) and not is_stopped(unit.settings):
                # SLURM chooses the cards of a gres, whatever both lists have.
                step = "drop gres and write cards for both" if "gres" in job.settings else "write cards for both"
                yield (
                    f"llama_services.{job.name}.launcher: slurm seen on {', '.join(shared)} beside {unit.name}, which "
                    f"systemd starts on the same cards, cards of its own are needed for each: {step}, name another "
                    f"node for one, or write launcher: slurm for {unit.name}"
                )


def _meet(one: Inventory, job: Service, unit: Service, node: str) -> bool:
    """Whether both may use a card of a node."""
    if not all(jobs.on_cards(service, one.hostvars[node], one.builds) for service in (job, unit)):
        return False
    cards = [value(service.settings, "cards") for service in (job, unit)]
    sets = [set(given) if isinstance(given, list) else None for given in cards]
    # SLURM chooses the cards of a gres.
    return None in sets or "gres" in job.settings or bool(set.intersection(*(one for one in sets if one is not None)))
