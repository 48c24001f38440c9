# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The builds of a node, and the names of their releases."""

from pathlib import Path

import pytest
import yaml
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._llama.args import PIN
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._intent import builds

ROOT = Path(__file__).resolve().parents[5]
GROUPS = {"all": ["a", "b", "c"], "llama_nodes": ["a", "b", "c"], "rpc": ["b", "c"]}
FORK = {"repository": "https://x/y", "commit": "0123456789" * 4}


def cards(*capabilities):
    return {"ansible_facts": {"nvidia_smi": {"gpus": [{"compute_cap": one} for one in capabilities]}}}


NODES = {"a": cards("8.6"), "b": cards("9.0", "8.6"), "c": cards()}


def on(host="c", entry=None, hostvars=None, **more):
    return builds.build_on("x", host, {"x": entry or {}}, hostvars or NODES, GROUPS, **more)


def test_name_of_release_says_what_goes_into_it():
    """The first is in the caches of controllers: another name for the same would have it compiled again."""
    assert on().release == "b11434-cpu-97356f97"
    assert on(targets=["ggml-rpc-server"]).release == "b11434-cpu-0c6c4b0d"
    others = [
        {"version": "b11435"},
        {"accelerator": "cuda"},
        {"accelerator": "vulkan"},
        {"source_sha256": "a" * 64},
        {"rdma": True},
        {"cmake_options": {"GGML_NATIVE": True}},
        {"accelerator": "cuda", "cuda_architectures": ["70"]},
        FORK,
    ]
    assert len({on().release, *(on(entry=one).release for one in others)}) == 1 + len(others)
    # Neither its source nor the values of a plan are part of it.
    for same in (
        {"version": "b11434", "source": "/srv/x.tar.gz"},
        {"cuda_home": "/opt/cuda"},
        {"cache_types": {"t": 4}},
    ):
        assert on(entry=same).release == on().release


def test_programs_are_those_that_role_llama_cpp_compiles():
    assert (
        list(builds.TARGETS)
        == yaml.safe_load((ROOT / "roles/llama_cpp/defaults/main.yml").read_text())["llama_cpp_targets"]
    )
    assert on(hostvars=dict(NODES, c=dict(NODES["c"], llama_cpp_targets=["ggml-rpc-server"]))).release == (
        on(targets=["ggml-rpc-server"]).release
    )


def test_auto_is_what_each_node_has():
    assert [on(host).accelerator for host in "abc"] == ["cuda", "cuda", "cpu"]
    assert [on(host, {"accelerator": "cpu"}).accelerator for host in "abc"] == ["cpu"] * 3
    written = {"c": {"llama_devices": [{"memory_mib": 1}]}, "a": {"llama_devices": [{"main": True, "memory_mib": 1}]}}
    assert [on(host, None, dict(written, b={})).accelerator for host in "abc"] == ["cpu", "cpu", "cuda"]


def card(vendor, driver, vram=None, gtt=None):
    return {"vendor": vendor, "driver": driver, "vram_total_mib": vram, "gtt_total_mib": gtt}


def auto(nvidia=(), drm=(), **variables):
    """The accelerator of auto on a node with these cards."""
    facts = {**cards(*nvidia)["ansible_facts"], "llama_drm": {"cards": list(drm), "reason": None}}
    return on("c", None, dict(NODES, c={"ansible_facts": facts, **variables})).accelerator


@pytest.mark.parametrize(
    ("one", "accelerator"),
    [
        (card("amd", "amdgpu", 24560, 15872), "vulkan"),
        (card("amd", "amdgpu", None, 63488), "vulkan"),
        (card("amd", "radeon"), "cpu"),
        (card("intel", "xe"), "vulkan"),
        (card("intel", "i915"), "cpu"),
        ({**card("intel", "i915"), "unified": True}, "cpu"),
        ({**card("intel", "i915"), "unified": False}, "vulkan"),
        (card("0x1a03", "ast"), "cpu"),
        (card("amd", None), "cpu"),
    ],
)
def test_auto_follows_cards_of_the_kernel(one, accelerator):
    assert auto(drm=[one]) == accelerator
    assert auto(drm=[one], nvidia=["8.6"]) == "cuda"


def test_auto_follows_the_variable_of_vulkan_devices():
    chosen = {"GGML_VK_VISIBLE_DEVICES": "0"}
    assert auto(rpc_worker_environment=chosen) == auto(head_server_environment=chosen) == "vulkan"
    assert auto(nvidia=["8.6"], rpc_worker_environment=chosen) == "cuda"
    assert auto(rpc_worker_environment={"GGML_VK_VISIBLE_DEVICES": 0}) == "vulkan"
    assert auto(rpc_worker_environment={"GGML_VK_VISIBLE_DEVICES": ""}) == "cpu"
    assert auto(rpc_worker_environment={"CUDA_VISIBLE_DEVICES": "0"}) == "cpu"


@pytest.mark.parametrize(
    ("names", "accelerator"),
    [
        (["AMD Radeon RX 7900 XTX"], "vulkan"),
        (["Radeon 8060S Graphics"], "vulkan"),
        (["Intel(R) Arc(tm) A770 Graphics"], "vulkan"),
        (["AMD BC-250"], "vulkan"),
        *(([name], "vulkan") for name in ("7900 XTX", "8060S", "A380", "A770", "B580", "Pro B60")),
        *(([name], "cuda") for name in ("3090", "A2", "A30", "A800", "RTX A400", "B200")),
        (["NVIDIA GB10"], "cuda"),
        (["RTX 3060", "Radeon RX 6600"], "cuda"),
        (["Tesla V100-PCIE-32GB"], "cuda"),
    ],
)
def test_auto_by_names_of_described_cards(names, accelerator):
    described = [{"name": name, "memory_mib": 16384} for name in names]
    assert on("a", None, dict(NODES, a={"llama_devices": described})).accelerator == accelerator


def test_cuda_build_covers_cards_of_all_nodes():
    found = on("a")
    assert (found.architectures, found.by_cards) == (["86", "90"], True)
    assert found.cmake_options["CMAKE_CUDA_ARCHITECTURES"] == "86;90"
    assert found.cmake_options["GGML_CUDA"] == "ON" and found.release == on("b").release
    listed = on("a", {"cuda_architectures": [70]})
    assert (listed.architectures, listed.by_cards) == (["70"], False)
    assert on("c").architectures == [] and "CMAKE_CUDA_ARCHITECTURES" not in on("c").cmake_options


def test_options_of_an_entry_come_last():
    options = on(entry={"cmake_options": {"GGML_NATIVE": True, "GGML_LTO": "ON", "X": 3}, "rdma": True}).cmake_options
    assert [options[name] for name in ("GGML_NATIVE", "GGML_LTO", "X", "GGML_RPC_RDMA")] == ["ON", "ON", "3", "ON"]
    assert (options["LLAMA_BUILD_NUMBER"], options["LLAMA_BUILD_COMMIT"]) == ("11434", "unknown")


@pytest.mark.parametrize(
    ("entry", "version", "dialect", "number"),
    [
        ({}, PIN, PIN, 11434),
        ({"version": "b7772"}, "b7772", "b7772", 7772),
        ({"version": "b7772-mine", "source": "/x"}, "b7772-mine", "b7772-mine", 7772),
        (FORK, "g0123456789", "g0123456789", None),
        ({**FORK, "number": 9000}, "b9000-g0123456789", "b9000", 9000),
        ({"source": "/x", "source_sha256": "f" * 64}, "sffffffffff", "sffffffffff", None),
    ],
)
def test_version_and_dialect_of_build(entry, version, dialect, number):
    assert (builds.version_of(entry), builds.dialect_of(entry)) == (version, dialect)
    assert on(entry=entry).number == number


def test_where_a_source_comes_from():
    assert on().source == "https://github.com/ggml-org/llama.cpp/archive/refs/tags/b11434.tar.gz"
    assert on(entry={"version": "b11434", "source": "/x"}).source == "/x"
    fork = on(entry=FORK)
    assert (fork.source, fork.repository, fork.commit) == ("", FORK["repository"], FORK["commit"])
    assert fork.cmake_options["LLAMA_BUILD_COMMIT"] == FORK["commit"]


SERVICES = {
    "chat": {"primary": True, "head": "a", "workers": "rpc", "build": "turbo"},
    "embed": {"head": "a,b"},
    "later": {"head": "b", "build": "next", "launcher": "slurm"},
    "fast": {"kind": "router", "host": "a", "build": "next"},
}


def test_node_has_builds_of_its_services():
    assert builds.names_on("a", SERVICES, GROUPS) == ["turbo", "default", "next"]
    assert builds.names_on("b", SERVICES, GROUPS) == ["turbo", "default", "next"]
    assert builds.names_on("c", SERVICES, GROUPS) == ["turbo"]
    # One without a service is ready for one.
    assert builds.names_on("c", {"embed": {"head": "a"}}, GROUPS) == ["default"]
    assert builds.names_on("a", {"one": {"head": "a", "build": "z"}, "two": {"head": "a"}}, GROUPS) == ["default", "z"]


def test_node_compiles_missing_builds_of_others():
    given = {"turbo": {"version": "b11435"}, "next": {"version": "b11436"}}
    first = builds.node_builds(given, SERVICES, "c", GROUPS, NODES)
    assert [one["name"] for one in first["builds"]] == ["turbo"] and first["orders"] == []
    release = first["builds"][0]["release"]
    orders = builds.node_builds(given, SERVICES, "c", GROUPS, NODES, hosts=["b", "c"])["orders"]
    assert [(one["name"], one["accelerator"]) for one in orders] == [
        *[("turbo", "cuda"), ("default", "cuda"), ("next", "cuda")],
        ("turbo", "cpu"),
    ]
    there = {"llama_node": {"build": {"of": {release: {"build_sha256": "1"}}}}}
    known = dict(NODES, c={"ansible_facts": {**NODES["c"]["ansible_facts"], **there}})
    assert builds.node_builds(given, SERVICES, "c", GROUPS, known, hosts=["c"])["orders"] == []


def refused(names, **accelerators):
    given = {name: {"accelerator": accelerator} for name, accelerator in accelerators.items()}
    services = {name: {"head": "a", "build": name} for name in accelerators}
    described = [{"name": name, "memory_mib": 16384} for name in names]
    nodes = dict(NODES, a={"llama_devices": [*described, {"main": True, "memory_mib": 64000}]})
    return builds.node_builds(given, services, "a", GROUPS, nodes)["refused"]


def test_builds_of_node_are_of_one_kind():
    (sentence,) = refused([], one="cuda", two="vulkan")
    assert sentence.startswith("a: builds for cuda and vulkan seen, one kind is needed, since ")
    assert "write accelerator: vulkan in llama_builds, which uses the cards of all vendors" in sentence
    assert refused([], one="cuda", two="cpu") == refused([], one="vulkan", two="vulkan") == []


def test_cuda_for_cards_of_amd_is_refused():
    (sentence,) = refused(["AMD Radeon RX 7900 XTX", "Intel Arc A770"], one="cuda", two="cpu")
    assert sentence == (
        "llama_builds.one.accelerator: cuda seen for cards of AMD or Intel on a, vulkan or auto is needed: correct it, "
        "or llama_devices of the node"
    )
    for names in ([], [""], ["RTX 3060", ""]):
        assert refused(names, one="cuda") == []
    assert refused(["AMD Radeon RX 7900 XTX"], one="vulkan", two="auto") == []


def test_cuda_plans_no_card_of_amd():
    """Beside one of NVIDIA, also where accelerator auto is cuda."""
    names = ["RTX 3060", "Radeon RX 6600"]
    for accelerator in ("cuda", "auto"):
        (sentence,) = refused(names, one=accelerator)
        assert sentence.startswith("llama_devices of a: Radeon RX 6600 seen beside cards of NVIDIA, one kind of cards ")
        assert sentence.endswith("or write accelerator: vulkan in llama_builds, which uses all of them")
    assert refused(names, one="vulkan") == []


def left_out(drm, **entry):
    facts = {**cards("8.6")["ansible_facts"], "llama_drm": {"cards": drm, "reason": None}}
    nodes = dict(NODES, a={"ansible_facts": facts})
    return builds.node_builds({"default": entry}, {"chat": {"head": "a"}}, "a", GROUPS, nodes)["left_out"]


def test_auto_names_cards_that_it_leaves_out():
    xtx = {**card("amd", "amdgpu", 24560, 15872), "name": "Radeon RX 7900 XTX", "slot": "0000:03:00.0"}
    inner = {**card("amd", "amdgpu", 512, 15872), "name": None, "slot": "0000:c5:00.0", "unified": True}
    assert left_out([{**xtx, "unified": False}, inner]) == [
        "warning: llama_builds.default: accelerator auto is cuda on a and leaves out Radeon RX 7900 XTX: "
        "accelerator: vulkan uses the cards of all vendors, cuda says that NVIDIA's are enough"
    ]
    assert left_out([inner]) == left_out([]) == []
    for accelerator in ("cuda", "vulkan", "cpu"):
        assert left_out([{**xtx, "unified": False}], accelerator=accelerator) == []
