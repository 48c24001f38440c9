# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The mistakes in variables of nodes, one sentence each whatever the number of nodes. Private to
the collection."""

import ipaddress
import re
from collections.abc import Mapping, Sequence
from typing import Any

from ...module_utils._key import Key
from ...module_utils._plan.devices import BY_SLOT
from .builds import ENVIRONMENTS
from .hosts import network_mistake, networks_of
from .records import HostVars
from .rules import Row, broken
from .values import IPV4, OCTET, did_you_mean, hidden, is_a, key_errors, named, plain, shown

Facts = Mapping[str, Any]
PATH = re.compile(r"^(/[A-Za-z0-9_+-][A-Za-z0-9._+-]*)+\Z")
# Files are made, and removed, as root: not in these and not below the first ones.
SYSTEM = re.compile(
    r"^/((bin|boot|dev|etc|lib|lib32|lib64|libx32|proc|run|sbin|sys|tmp|var/tmp|usr/(bin|lib|lib32|lib64|libexec|sbin))(/|\Z)"
    r"|(home|media|mnt|opt|root|srv|usr|usr/local|usr/share|usr/src|var|var/cache|var/lib|var/log|var/opt|var/spool)\Z)"
)
# A host name, or an address: one that is only digits and dots has to be whole.
ADDRESS = re.compile(r"^((?=.*[A-Za-z])[A-Za-z0-9][A-Za-z0-9._-]{0,252}|%s(\.%s){3})\Z" % (OCTET, OCTET))
ABSOLUTE = re.compile(r"^/[^\x00-\x1f\x7f]*\Z")
PRINTED = re.compile(r"^[^\x00-\x1f\x7f-\x9f]*\Z")
VISIBLE = "a path outside /home, /root and /tmp is"
PATHS = ("llama_models_dir",)
NUMA_NODE = (re.compile(r"^[0-9]*\Z"), "the number of a NUMA node", "correct it")
HOST = (ADDRESS, "an IPv4 address or a host name")
# Variables of nodes; an empty one is not given. -e gives numbers as text.
KEYS = (
    Key(
        "llama_fabric_address",
        str,
        "",
        form=(IPV4, "an IPv4 address", "write the address of its fabric interface in hosts.yml"),
    ),
    Key(
        "llama_fabric_interface",
        str,
        "",
        form=(re.compile(r"^[A-Za-z0-9][A-Za-z0-9._-]{0,14}\Z"), "the name of an interface such as ib0", "correct it"),
    ),
    Key("llama_bundle", str, "", form=(ABSOLUTE, "an absolute path on this machine", "write it from / on")),
    Key("model_hub", str, "", form=(re.compile(r"^https?://[^/\s]"), "an http or https URL", "correct it")),
    Key("rpc_worker_numa_node", str, "", form=NUMA_NODE),
    Key("head_server_numa_node", str, "", form=NUMA_NODE),
    Key("llama_address", str, "", form=(*HOST, "correct it")),
    Key("ansible_host", str, "", form=(*HOST, "correct it, or give clients a llama_address")),
    Key("preflight_margin_mib", int, "", bounds=(0, 2**20)),
    Key("node_setup_uid", int, "", bounds=(0, 999)),
    Key("node_setup_rpc_uid", int, "", bounds=(0, 999)),
)
# A card, and as main memory a node, has at least so many MiB: a number below it is one of GB.
LEAST_MIB = {False: 512, True: 2048}
CARD = "[{name: NVIDIA GeForce RTX 3090, memory_mib: 24124}]"
CARD_KEYS = {
    "name": Key("name", str, "", form=(PRINTED, "a name without control characters", "correct it")),
    "memory_mib": Key("memory_mib", int, ""),
    "bandwidth": Key("bandwidth", float, "", bounds=(0.001, 10**6)),
    "main": Key("main", bool, ""),
}
VARIABLE = re.compile(r"^(?!LLAMA_CLUSTER_)[A-Za-z_][A-Za-z0-9_]*\Z")
# GGML_VK_VISIBLE_DEVICES, and variables with which llama.cpp does not keep what a card holds on the card.
DEVICES = re.compile(r"^([0-9]{1,3}(, ?[0-9]{1,3}){0,31})?\Z")
MOVES = ("GGML_VK_ALLOW_SYSMEM_FALLBACK", "GGML_VK_PREFER_HOST_MEMORY")
# Every user of a node can read its units.
SECRET = re.compile(r"(^|_)(API_?KEY|KEY|TOKEN|SECRET|PASS|PASSWD|PASSWORD|CREDENTIALS?)(_|\Z)", re.IGNORECASE)
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")


def node_errors(nodes: Sequence[str], hostvars: HostVars) -> list[str]:
    where: dict[str, list[str]] = {}
    for node in nodes:
        for sentence in _errors(node, nodes, hostvars):
            where.setdefault(sentence, []).append(node)
    return [sentence.replace(" seen, ", f" seen for {named(found, nodes)}, ", 1) for sentence, found in where.items()]


def _errors(node: str, nodes: Sequence[str], hostvars: HostVars) -> list[str]:
    facts = hostvars[node]
    found: list[str] = []
    for key in KEYS:
        given = facts.get(key.name)
        # Clients come to llama_address, or to what stands in for it.
        if given in (None, "") or (key.name == "ansible_host" and facts.get("llama_address")):
            continue
        digits = key.type is int and not isinstance(given, bool) and re.match(r"^[0-9]{1,20}\Z", str(given))
        found += key_errors(key.name, int(given) if digits else given if key.type is int else str(given), key)
    return found + broken(str, [*_rules(node, nodes, hostvars), *_card_rules(facts), *_environment_rules(facts)])


def _rules(node: str, nodes: Sequence[str], hostvars: HostVars) -> list[Row]:
    facts = hostvars[node]
    host, fabric = facts.get("llama_cpp_build_host"), facts.get("llama_fabric_address")
    own, step = IPV4.match(str(fabric)), did_you_mean(host, nodes, "name one of llama_nodes").lstrip(", ")
    same = [other for other in nodes if own and hostvars[other].get("llama_fabric_address") == fabric]
    address = ipaddress.IPv4Address(str(fabric)) if own else None
    everywhere = address and (address.is_loopback or address.is_unspecified or address.is_multicast)
    wrong = network_mistake(facts["llama_clients"]) if facts.get("llama_clients") is not None else None
    accounts = facts.get("node_setup_user", "llama"), facts.get("node_setup_rpc_user", "llama-rpc")
    paths = [(name, str(facts[name])) for name in PATHS if facts.get(name) is not None]
    return [
        (
            "llama_cpp_build_host",
            host is not None and host not in nodes,
            f"{shown(host)} seen, a node that compiles is needed: {step}",
        ),
        (
            "llama_fabric_address",
            everywhere or str(fabric) == "255.255.255.255",
            f"{shown(fabric)} seen, an address that the other nodes reach is needed: write that of its fabric "
            "interface, or leave it out if there is no other node",
        ),
        (
            "llama_fabric_address",
            len(same) > 1,
            f"{shown(fabric)} seen, an address of its own is needed: correct it in hosts.yml",
        ),
        *(
            (
                name,
                not PATH.match(path),
                f"{shown(facts[name])} seen, an absolute path of letters, digits, dots and dashes is needed: choose "
                "one such as /srv/llama",
            )
            for name, path in paths
        ),
        *(
            (
                name,
                PATH.match(path) and SYSTEM.match(path),
                f"{path}, which is the system's, seen, a directory of its own is needed: choose one such as /srv/llama",
            )
            for name, path in paths
        ),
        *(
            (
                name,
                PATH.match(path) and not SYSTEM.match(path) and hidden(path),
                f"{path}, which units cannot see, seen, {VISIBLE} needed: choose one such as /srv/llama",
            )
            for name, path in paths
        ),
        ("llama_clients", wrong, "%s seen, %s needed: %s" % (wrong or ("", "", ""))),
        *(
            (
                "llama_clients",
                network.is_loopback,
                f"{network} seen, a network of your clients is needed: leave it out, a node reaches its own ports "
                "anyway",
            )
            for network in ([] if wrong else networks_of(facts.get("llama_clients") or []))
        ),
        (
            "node_setup_rpc_user",
            accounts[0] == accounts[1],
            f"{accounts[1]} seen, another account than node_setup_user is needed: rename it, a worker that is taken "
            "over would read what belongs to a head",
        ),
    ]


def _card_rules(facts: Facts) -> list[Row]:
    given, name = facts.get("llama_devices"), "llama_devices"
    if given is None:
        return []
    if not isinstance(given, list):
        return [
            (name, True, f"{shown(given)} seen, a list of maps is needed: write one map for each card, as in {CARD}")
        ]
    rows: list[Row] = []
    for number, card in enumerate(given, 1):
        if not isinstance(card, dict):
            rows.append((name, True, f"{shown(card)} as card {number} seen, a map is needed: write it as in {CARD}"))
            continue
        size: Any = card.get("memory_mib")
        wrong = [error for key, value in card.items() for error in _card_errors(f"{name}.{number}", key, value)]
        rows += [(error.partition(": ")[0], True, error.partition(": ")[2]) for error in wrong]
        few = is_a(size, int) and 0 < size < LEAST_MIB[bool(card.get("main"))]
        words = f"{size} MiB seen, its memory in MiB is needed: write {size * 1024 if few else 0} if it has {size} GB"
        rows.append((f"{name}.{number}.memory_mib", few, words))
        words = f"card {number} without memory_mib seen, its memory in MiB is needed: add it, as in {CARD}"
        rows.append((name, "memory_mib" not in card, words))
    return rows


def _card_errors(entry: str, key: Any, value: Any) -> list[str]:
    if key in CARD_KEYS:
        return key_errors(f"{entry}.{key}", value, CARD_KEYS[key])
    step = did_you_mean(key, CARD_KEYS, "correct it").lstrip(", ")
    return [f"{entry}.{plain(key)}: an unknown key seen, one of {', '.join(CARD_KEYS)} is needed: {step}"]


def _environment_rules(facts: Facts) -> list[Row]:
    rows: list[Row] = []
    for variable in ENVIRONMENTS:
        given = facts.get(variable) or {}
        if not isinstance(given, dict):
            rows.append((variable, True, f"{shown(given)} seen, a map of NAME to value is needed: write NAME: VALUE"))
            continue
        for name, value in given.items():
            text = _environment_error(str(name), value)
            rows += [(f"{variable}.{plain(name)}", True, text)] if text else []
    return rows


def _environment_error(name: str, value: Any) -> str:
    if not VARIABLE.match(name):
        return "the name of a variable seen, letters, digits and _ are needed: rename it, LLAMA_CLUSTER_ is reserved"
    if SECRET.search(name):
        return (
            "a secret's name seen, none is needed: remove it, every user can read a unit and API keys go into "
            "llama_api_keys"
        )
    if value is None or isinstance(value, (dict, list)) or CONTROL.search(str(value)):
        return f"{shown(value)} seen, text without control characters is needed: correct it"
    if name == "CUDA_DEVICE_ORDER" and value != BY_SLOT:
        # The plan counts cards as nvidia-smi does.
        return f"{shown(value)} seen, {BY_SLOT} is needed: remove it, or write UUIDs in CUDA_VISIBLE_DEVICES"
    if name == "GGML_VK_VISIBLE_DEVICES" and not DEVICES.match(str(value)):
        # llama.cpp stops reading at what is no number, and computes on the CPU.
        return f"{shown(value)} seen, numbers that vulkaninfo prints are needed: write such as 0,1"
    if name in MOVES:
        return "seen, none is needed, since weights would lie in main memory, where the plan has none: remove it"
    if hidden(value):
        step = "move what is there, or leave the variable out"
        return f"{hidden(value)}, which units cannot see, seen, {VISIBLE} needed: {step}"
    return ""
