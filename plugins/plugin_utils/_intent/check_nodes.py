# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is wrong with the variables of nodes, one sentence for a mistake whatever the number of its nodes. Private to
the collection."""

import ipaddress
import re
from collections.abc import Mapping, Sequence
from typing import Any

from ...module_utils._plan.devices import BY_SLOT, by_number
from ...module_utils._settings import LARGEST
from . import networks
from .records import HostVars
from .values import IPV4, NAMES, OCTET, hidden, is_a, named, near, plain, shown

Facts = Mapping[str, Any]
# Entry, value seen, what is needed, next step.
Mistake = tuple[str, str, str, str]
PATH = re.compile(r"^(/[A-Za-z0-9_+-][A-Za-z0-9._+-]*)+\Z")
# Files are made, and removed, as root: not in these and not below the first ones.
SYSTEM = re.compile(
    r"^/((bin|boot|dev|etc|lib|lib32|lib64|libx32|proc|run|sbin|sys|tmp|var/tmp|usr/(bin|lib|lib32|lib64|libexec|sbin))(/|\Z)"
    r"|(home|media|mnt|opt|root|srv|usr|usr/local|usr/share|usr/src|var|var/cache|var/lib|var/log|var/opt|var/spool)\Z)"
)
# A host name, or an address: one that is digits and dots alone has to be whole.
ADDRESS = re.compile(r"^((?=.*[A-Za-z])[A-Za-z0-9][A-Za-z0-9._-]{0,252}|%s(\.%s){3})\Z" % (OCTET, OCTET))
NUMA_NODE = re.compile(r"^[0-9]*\Z")
ABSOLUTE = re.compile(r"^/[^\x00-\x1f\x7f]*\Z")
VISIBLE = "a path outside /home, /root and /tmp is"
PATHS = ("llama_models_dir",)
# variable -> (what its text has to be, how that is said, next step); empty is none.
FORMS = {
    "llama_fabric_address": (IPV4, "an IPv4 address", "write the address of its fabric interface in hosts.yml"),
    "llama_fabric_interface": (
        re.compile(r"^[A-Za-z0-9][A-Za-z0-9._-]{0,14}\Z"),
        "the name of an interface such as ib0",
        "correct it",
    ),
    "llama_bundle": (ABSOLUTE, "an absolute path on this machine", "write it from / on"),
    "model_hub": (re.compile(r"^https?://[^/\s]"), "an http or https URL", "correct it"),
    "rpc_worker_numa_node": (NUMA_NODE, "the number of a NUMA node", "correct it"),
    "head_server_numa_node": (NUMA_NODE, "the number of a NUMA node", "correct it"),
}
# variable -> (lowest, highest). -e gives them as text.
NUMBERS = {"preflight_margin_mib": (0, 2**20), "node_setup_uid": (0, 999), "node_setup_rpc_uid": (0, 999)}
DEVICE_KEYS = {"name": str, "memory_mib": int, "bandwidth": float, "main": bool}
DEVICE_MOST = {"memory_mib": LARGEST, "bandwidth": 10**6}
# No card, and as main memory no node, has less: a number below it is one of GB.
LEAST_MIB = {False: 512, True: 2048}
ENVIRONMENTS = ("rpc_worker_environment", "head_server_environment")
VARIABLE = re.compile(r"^[A-Za-z_][A-Za-z0-9_]*\Z")
# Every user of a node can read its units.
SECRET = re.compile(r"(^|_)(API_?KEY|KEY|TOKEN|SECRET|PASS|PASSWD|PASSWORD|CREDENTIALS?)(_|\Z)", re.IGNORECASE)


def node_errors(nodes: Sequence[str], hostvars: HostVars) -> list[str]:
    where: dict[Mistake, list[str]] = {}
    for node in nodes:
        for mistake in _mistakes(hostvars[node]):
            where.setdefault(mistake, []).append(node)
        host = hostvars[node].get("llama_cpp_build_host")
        if host is not None and host not in nodes:
            step = near(host, nodes, "name one of llama_nodes").lstrip(", ")
            where.setdefault(("llama_cpp_build_host", shown(host), "a node that compiles is", step), []).append(node)
    addresses: dict[Any, list[str]] = {}
    for node in nodes:
        addresses.setdefault(hostvars[node].get("llama_fabric_address"), []).append(node)
    for address, found in addresses.items():
        if IPV4.match(str(address)) and len(found) > 1:
            where[("llama_fabric_address", shown(address), "an address of its own is", "correct it in hosts.yml")] = (
                found
            )
    return [
        f"{entry}: {seen} seen for {named(found, nodes)}, {needed} needed: {step}"
        for (entry, seen, needed, step), found in where.items()
    ]


def _mistakes(facts: Facts) -> list[Mistake]:
    found = []
    for name, (form, words, step) in FORMS.items():
        value = facts.get(name)
        if value not in (None, "") and not form.match(str(value)):
            found.append((name, shown(value), words + " is", step))
    fabric = str(facts.get("llama_fabric_address"))
    if IPV4.match(fabric) and not _of_interface(ipaddress.IPv4Address(fabric)):
        found.append(
            (
                "llama_fabric_address",
                shown(fabric),
                "an address that the other nodes reach is",
                "write that of its fabric interface, or leave it out if there is no other node",
            )
        )
    for name in PATHS:
        value = facts.get(name)
        if value is not None and not PATH.match(str(value)):
            found.append(
                (
                    name,
                    shown(value),
                    "an absolute path of letters, digits, dots and dashes is",
                    "choose one such as /srv/llama",
                )
            )
        elif value is not None and SYSTEM.match(str(value)):
            found.append(
                (
                    name,
                    f"{value}, which is the system's,",
                    "a directory of its own is",
                    "choose one such as /srv/llama",
                )
            )
        elif value is not None and hidden(value):
            found.append((name, value + ", which units cannot see,", VISIBLE, "choose one such as /srv/llama"))
    if facts.get("llama_clients") is not None:
        wrong = networks.mistake(facts["llama_clients"])
        found += [("llama_clients",) + wrong] if wrong else []
    found += _address(facts) + _numbers(facts) + _devices(facts.get("llama_devices")) + _environments(facts)
    accounts = facts.get("node_setup_user", "llama"), facts.get("node_setup_rpc_user", "llama-rpc")
    if accounts[0] == accounts[1]:
        found.append(
            (
                "node_setup_rpc_user",
                accounts[1],
                "another account than node_setup_user is",
                "rename it, a worker that is taken over would read what belongs to a head",
            )
        )
    return found


def _of_interface(address: ipaddress.IPv4Address) -> bool:
    """Whether an interface can have it that other machines reach."""
    return not (address.is_loopback or address.is_unspecified or address.is_multicast or int(address) == 2**32 - 1)


def _numbers(facts: Facts) -> list[Mistake]:
    found = []
    for name, (low, high) in NUMBERS.items():
        value = facts.get(name)
        digits = re.match(r"^[0-9]{1,20}\Z", str(value))
        if value is not None and not (digits and low <= int(digits.group()) <= high):
            found.append(
                (
                    name,
                    shown(value),
                    "%d to %d is" % (low, high),
                    "choose another number" if is_a(value, int) or digits else "write digits alone",
                )
            )
    return found


def _address(facts: Facts) -> list[Mistake]:
    """Clients come to llama_address, or to what stands in for it."""
    name, step = (
        ("llama_address", "correct it")
        if facts.get("llama_address")
        else ("ansible_host", "correct it, or give clients a llama_address")
    )
    value = facts.get(name)
    return (
        []
        if value in (None, "") or ADDRESS.match(str(value))
        else [(name, shown(value), "an IPv4 address or a host name is", step)]
    )


def _devices(given: Any) -> list[Mistake]:
    name, example = "llama_devices", "as in [{name: NVIDIA GeForce RTX 3090, memory_mib: 24124}]"
    if given is None:
        return []
    if not isinstance(given, list):
        return [(name, shown(given), "a list of maps is", "write one map for each card, " + example)]
    found = []
    for number, card in enumerate(given, 1):
        if not isinstance(card, dict):
            found.append((name, "%s as card %d" % (shown(card), number), "a map is", "write it " + example))
            continue
        for key, value in card.items():
            entry = "%s.%d.%s" % (name, number, plain(key))
            if key not in DEVICE_KEYS:
                found.append(
                    (
                        entry,
                        "an unknown key",
                        f"one of {', '.join(DEVICE_KEYS)} is",
                        near(key, DEVICE_KEYS, "correct it").lstrip(", "),
                    )
                )
            elif not is_a(value, DEVICE_KEYS[key]) or (key in DEVICE_MOST and not 0 < value <= DEVICE_MOST[key]):
                words = NAMES[DEVICE_KEYS[key]] + (
                    " above 0 and up to %d" % DEVICE_MOST[key] if key in DEVICE_MOST else ""
                )
                found.append((entry, shown(value), words + " is", "correct it"))
            elif key == "memory_mib" and value < LEAST_MIB[bool(card.get("main"))]:
                found.append(
                    (
                        entry,
                        "%d MiB" % value,
                        "its memory in MiB is",
                        "write %d if it has %d GB" % (value * 1024, value),
                    )
                )
            elif key == "name" and not value.isprintable():
                found.append((entry, shown(value), "a name without control characters is", "correct it"))
        if "memory_mib" not in card:
            found.append((name, "card %d without memory_mib" % number, "its memory in MiB is", "add it, " + example))
    return found


def _environments(facts: Facts) -> list[Mistake]:
    found = []
    for variable in ENVIRONMENTS:
        given = facts.get(variable) or {}
        if not isinstance(given, dict):
            found.append((variable, shown(given), "a map of NAME to value is", "write NAME: VALUE"))
            continue
        for name, value in given.items():
            entry = f"{variable}.{plain(name)}"
            if not VARIABLE.match(str(name)) or str(name).startswith("LLAMA_CLUSTER_"):
                found.append(
                    (entry, "the name of a variable", "letters, digits and _ are", "rename it, LLAMA_CLUSTER_ is ours")
                )
            elif SECRET.search(str(name)):
                found.append(
                    (
                        entry,
                        "a secret's name",
                        "none is",
                        "remove it, every user can read a unit and API keys go into llama_api_keys",
                    )
                )
            elif value is None or isinstance(value, (dict, list)) or re.search(r"[\x00-\x08\x0b-\x1f\x7f]", str(value)):
                found.append((entry, shown(value), "text without control characters is", "correct it"))
            elif hidden(value):
                step = "move what is there, or leave the variable out"
                found.append((entry, hidden(value) + ", which units cannot see,", VISIBLE, step))
        found += _order(variable, given, facts.get("llama_devices"))
    return found


def _order(variable: str, given: Facts, devices: Any) -> list[Mistake]:
    """The plan counts cards as nvidia-smi does: CUDA's own order may be another one where they are not alike."""
    order, visible = given.get("CUDA_DEVICE_ORDER", BY_SLOT), given.get("CUDA_VISIBLE_DEVICES")
    cards = [one for one in devices or [] if not one.get("main")] if not _devices(devices) else []
    if order == BY_SLOT or not by_number(visible) or len({(one.get("name"), one["memory_mib"]) for one in cards}) < 2:
        return []
    return [
        (
            f"{variable}.CUDA_DEVICE_ORDER",
            f"{shown(order)} beside unlike cards in llama_devices",
            BY_SLOT + " is",
            "remove it, or write UUIDs in CUDA_VISIBLE_DEVICES",
        )
    ]
