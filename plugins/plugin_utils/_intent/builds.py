# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The entries of llama_builds: which of them a node runs, what each is there, and how the release that it becomes is
called. Private to the collection."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ...module_utils._llama.args import PIN, build_number
from ...module_utils._settings import kind_of, value
from .hosts import expand
from .records import Build, Groups, HostVars, Services, Settings

DEFAULT = "default"
# The variable that chooses among the cards of a process: by UUID, and by number.
VISIBLE = {"cuda": "CUDA_VISIBLE_DEVICES", "vulkan": "GGML_VK_VISIBLE_DEVICES"}
# The programs that are compiled by default, as in defaults of role llama_cpp.
TARGETS = (
    *("llama-server", "ggml-rpc-server", "llama-cli", "llama-bench", "llama-fit-params", "llama-gguf-split"),
    "llama-quantize",
)
ARCHIVE = "https://github.com/ggml-org/llama.cpp/archive/refs/tags/%s.tar.gz"
# Self-contained programs for any processor of the architecture; no web UI (its build would download it), no tests.
OPTIONS = {
    "CMAKE_BUILD_TYPE": "Release",
    "GGML_RPC": "ON",
    "GGML_NATIVE": "OFF",
    "BUILD_SHARED_LIBS": "OFF",
    "LLAMA_BUILD_TESTS": "OFF",
    "LLAMA_BUILD_EXAMPLES": "OFF",
    "LLAMA_BUILD_UI": "OFF",
    "LLAMA_USE_PREBUILT_UI": "OFF",
}
# Options of an accelerator. NCCL and OpenSSL CMake finds where they happen to be installed, and they are missing on the
# other nodes then; no service needs them.
BY_ACCELERATOR: dict[str, dict[str, str]] = {
    "cpu": {},
    "cuda": {"GGML_CUDA": "ON", "GGML_CUDA_NCCL": "OFF", "LLAMA_OPENSSL": "OFF"},
    "vulkan": {"GGML_VULKAN": "ON", "LLAMA_OPENSSL": "OFF"},
}
# Cards of AMD and Intel by the names of llama_devices, which may be short.
BY_VULKAN = re.compile(
    r"\b(AMD|Radeon|RX|XTX?|80[456]0S|Instinct|MI\d+\w*|Ryzen|Strix|BC-?250"
    r"|Intel|Arc|A310|A[35]80|A7[57]0|B5[78]0|B[567]0)\b",
    re.I,
)
# Environments of a node's units.
ENVIRONMENTS = ("rpc_worker_environment", "head_server_environment")


def builds_of(facts: Mapping[str, Any]) -> Mapping[str, Any]:
    """llama_builds of a host, with the entry that is there without one."""
    given = facts.get("llama_builds")
    return {DEFAULT: {}, **(given if isinstance(given, Mapping) else {})}


def entry_of(service: Settings, builds: Mapping[str, Any]) -> Mapping[str, Any]:
    """The entry of llama_builds that a service names."""
    found = builds.get(value(service, "build"))
    return found if isinstance(found, Mapping) else {}


def version_of(entry: Mapping[str, Any]) -> str:
    """The name of a build: its tag, or the beginning of its commit or digest."""
    number = "b%d-" % entry["number"] if entry.get("number") else ""
    if entry.get("repository"):
        return f"{number}g{str(entry.get('commit'))[:10]}"
    if entry.get("source") and not entry.get("version"):
        return f"{number}s{str(entry.get('source_sha256'))[:10]}"
    return str(entry.get("version") or PIN)


def dialect_of(entry: Mapping[str, Any]) -> str:
    """The release whose command line and memory a build has; what is no tag stands for the newest."""
    return "b%d" % entry["number"] if entry.get("number") else version_of(entry)


def asks_build(entry: Mapping[str, Any]) -> bool:
    """Whether no table knows the flags of a build: a fork, a commit, an archive of your own."""
    return bool(entry.get("number")) or build_number(version_of(entry)) is None


def extra_types(service: Settings, builds: Mapping[str, Any]) -> dict[str, float]:
    """{KV cache type that the build of a service has beside llama.cpp's types: its bits per element}"""
    return {str(name): float(bits) for name, bits in (entry_of(service, builds).get("cache_types") or {}).items()}


def accelerator_of(entry: Mapping[str, Any], facts: Mapping[str, Any]) -> str:
    """The accelerator of a build on a host: auto follows nvidia-smi, then the variable of Vulkan's devices and the
    kernel's cards, or llama_devices if the host was not contacted."""
    given = entry.get("accelerator", "auto")
    if given != "auto":
        return str(given)
    devices = [str((facts.get(name) or {}).get(VISIBLE["vulkan"], "")) for name in ENVIRONMENTS]
    seen = facts.get("ansible_facts", {})
    if "nvidia_smi" in seen:
        by_nvidia = bool(seen["nvidia_smi"]["gpus"])
        by_vulkan = any(serves_vulkan(card) for card in seen.get("llama_drm", {}).get("cards", []))
    else:
        names = _card_names(facts)
        by_nvidia = any(not BY_VULKAN.search(name) for name in names)
        by_vulkan = bool(names)
    return "cuda" if by_nvidia else "vulkan" if any(devices) or by_vulkan else "cpu"


def serves_vulkan(card: Mapping[str, Any]) -> bool:
    """Whether a card, as _node/drm returns it, is worth a build for Vulkan: one of AMD with memory, or one of Intel
    with the driver xe, or with i915 and memory of its own, as an Arc of kernel 6.12. Older graphics of Intel's
    processors and the displays of BMCs are slower than the CPU."""
    if card["vendor"] == "amd":
        return card["driver"] == "amdgpu" and bool(card["vram_total_mib"] or card["gtt_total_mib"])
    own_memory = card["driver"] == "i915" and card.get("unified") is False
    return bool(card["vendor"] == "intel" and (card["driver"] == "xe" or own_memory))


def build_on(
    name: str,
    host: str,
    builds: Mapping[str, Any],
    hostvars: HostVars,
    groups: Groups,
    targets: Sequence[str] | None = None,
) -> Build:
    """An entry of llama_builds as a host runs it. targets: of CMake; None: what the host's variables need."""
    entry, facts = builds.get(name) or {}, hostvars[host]
    accelerator = accelerator_of(entry, facts)
    by_cards = accelerator == "cuda" and str(entry.get("cuda_architectures", "auto")) == "auto"
    architectures = _of_cards(groups, hostvars) if by_cards else entry.get("cuda_architectures", [])
    version, commit = version_of(entry), str(entry.get("commit") or "unknown")
    options = {
        **OPTIONS,
        "GGML_RPC_RDMA": "ON" if entry.get("rdma") else "OFF",
        "LLAMA_BUILD_NUMBER": str(entry.get("number") or build_number(version.partition("-")[0]) or 0),
        "LLAMA_BUILD_COMMIT": commit,
        **BY_ACCELERATOR[accelerator],
    }
    if accelerator == "cuda":
        options["CMAKE_CUDA_ARCHITECTURES"] = ";".join(map(str, architectures))
    options.update({str(key): _word(given) for key, given in (entry.get("cmake_options") or {}).items()})
    wanted = list(targets or facts.get("llama_cpp_targets") or TARGETS)
    # The extra name keeps the releases that controllers have in their caches.
    made_of = [options, sorted([*wanted, "fnv1a64"]), str(entry.get("source_sha256") or "")]
    digest = hashlib.sha256(json.dumps(made_of, sort_keys=True).encode()).hexdigest()
    return Build(
        name=name,
        release=f"{version}-{accelerator}-{digest[:8]}",
        version=version,
        number=entry.get("number") or build_number(version.partition("-")[0]),
        accelerator=accelerator,
        architectures=[str(one) for one in architectures],
        by_cards=by_cards,
        asks_cards=by_cards or entry.get("accelerator", "auto") == "auto",
        repository=str(entry.get("repository") or ""),
        commit=commit,
        source="" if entry.get("repository") else str(entry.get("source") or ARCHIVE % version),
        source_sha256=str(entry.get("source_sha256") or ""),
        cuda_home=str(entry.get("cuda_home") or "/usr/local/cuda"),
        rdma=bool(entry.get("rdma")),
        cmake_options=options,
    )


def _word(given: Any) -> str:
    return ("ON" if given else "OFF") if isinstance(given, bool) else str(given)


def _of_cards(groups: Groups, hostvars: HostVars) -> list[str]:
    """The compute capabilities of the cards of all nodes, as CMake writes them."""
    found: set[str] = set()
    for host in groups.get("llama_nodes", []):
        cards = hostvars[host].get("ansible_facts", {}).get("nvidia_smi", {}).get("gpus", [])
        found.update(re.sub(r"\D", "", card["compute_cap"]) for card in cards if card.get("compute_cap"))
    return sorted(found, key=int)


def names_on(host: str, services: Services, groups: Groups) -> list[str]:
    """The entries of llama_builds that a host needs, first the one that is current there: that of the primary service,
    else the default one."""
    named: dict[str, bool] = {}
    for _name, service in sorted(services.items(), key=lambda one: not one[1].get("primary")):
        patterns = [service.get("head"), service.get("workers")] if kind_of(service) == "server" else []
        patterns = patterns or [service.get("head", service.get("host"))]
        if any(host in expand(pattern, groups) for pattern in patterns if pattern):
            build = value(service, "build")
            named[build] = named.get(build, False) or bool(service.get("primary"))
    return sorted(named, key=lambda name: (not named[name], name != DEFAULT, name)) or [DEFAULT]


def node_builds(
    builds: Mapping[str, Any],
    services: Services,
    host: str,
    groups: Groups,
    hostvars: HostVars,
    targets: Sequence[str] | None = None,
    hosts: Iterable[str] = (),
) -> dict[str, Any]:
    """The builds that a host installs and compiles.

    targets: the programs; hosts: those that it compiles for, whose builds are known from node_facts.
    -> {builds: [Build as a dict], the current one first, orders: [builds that one of `hosts` lacks], refused: [why its
    cards cannot compute with its builds], left_out: [cards that they do not use, a line for each build]}
    """
    builds = builds_of({"llama_builds": builds})
    own = [build_on(name, host, builds, hostvars, groups, targets) for name in names_on(host, services, groups)]
    orders: dict[str, Build] = {}
    for other in hosts:
        seen = hostvars[other].get("ansible_facts", {}).get("llama_node", {}).get("build", {}).get("of", {})
        for name in names_on(other, services, groups):
            build = build_on(name, other, builds, hostvars, groups, targets)
            if seen.get(build.release, {}).get("build_sha256") is None:
                orders[build.release] = build
    return {
        "builds": [one.as_dict() for one in own],
        "orders": [one.as_dict() for one in orders.values()],
        "refused": _refused(host, own, hostvars[host]),
        "left_out": _left_out(host, builds, own, hostvars[host]),
    }


def _refused(host: str, own: Sequence[Build], facts: Mapping[str, Any]) -> list[str]:
    """Why the cards of a host cannot compute with its builds."""
    kinds = list(dict.fromkeys(one.accelerator for one in own if one.accelerator != "cpu"))
    if len(kinds) > 1:
        return [
            f"{host}: builds for {' and '.join(kinds)} seen, one kind is needed, since a card is planned for one of "
            "them: write accelerator: vulkan in llama_builds, which uses the cards of all vendors, or exclude the node "
            "from a service"
        ]
    names = _card_names(facts)
    others = [name for name in names if BY_VULKAN.search(name)]
    if kinds != ["cuda"] or not others:
        return []
    if len(others) < len(names):
        return [
            f"llama_devices of {host}: {', '.join(others)} seen beside cards of NVIDIA, one kind of cards is needed "
            "for a build with cuda, which uses only NVIDIA's: remove the others, or write accelerator: vulkan in "
            "llama_builds, which uses all of them"
        ]
    return [
        f"llama_builds.{one.name}.accelerator: cuda seen for cards of AMD or Intel on {host}, vulkan or auto is "
        "needed: correct it, or llama_devices of the node"
        for one in own
        if one.accelerator == "cuda"
    ]


def _left_out(host: str, builds: Mapping[str, Any], own: Sequence[Build], facts: Mapping[str, Any]) -> list[str]:
    """The cards of AMD or Intel beside NVIDIA's, where accelerator auto is cuda, in lines for the operator."""
    seen = facts.get("ansible_facts", {}).get("llama_drm", {}).get("cards", [])
    cards = [card["name"] or card["slot"] for card in seen if serves_vulkan(card) and card["unified"] is False]
    auto = [one.name for one in own if (builds.get(one.name) or {}).get("accelerator", "auto") == "auto"]
    if not cards or not auto or any(one.accelerator == "vulkan" for one in own):
        return []
    return [
        f"warning: llama_builds.{name}: accelerator auto is cuda on {host} and leaves out {', '.join(cards)}: "
        "accelerator: vulkan uses the cards of all vendors, cuda says that NVIDIA's are enough"
        for name in auto
    ]


def _card_names(facts: Mapping[str, Any]) -> list[str]:
    """The names of llama_devices of a host, "" for a card without one."""
    return [str(card.get("name", "")) for card in facts.get("llama_devices") or [] if not card.get("main")]


def named(units: Iterable[Mapping[str, Any]], prefix: str) -> set[str]:
    """The paths of the releases that units name, anywhere in their command lines: a worker's program follows stdbuf,
    numactl or the guard of its cache."""
    pattern = re.compile(f"{re.escape(prefix)}/releases/[^/]+")
    found = (pattern.match(word) for unit in units for word in unit["arguments"])
    return {match.group() for match in found if match}
