# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

import json
import os

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._node import vulkan
from ansible_collections.thefermisea.llama_cluster.tests.unit.vulkan_devices import (
    GIB,
    SMALL_BAR,
    XTX,
    device,
    llvmpipe,
    nvidia,
    printed,
)

CARD = "AMD Radeon RX 7900 XTX (RADV NAVI31)"
UNKNOWN = ("vram_total_mib", "vram_used_mib", "gtt_total_mib", "gtt_used_mib")
HALO = "Radeon 8060S Graphics (RADV GFX1151)"
LOG = "ggml_vulkan: 0 = %s (radv) | uma: %d | fp16: 1 | bf16: 0 | warp size: 64 | shared memory: 65536\n"


def card(slot="0000:03:00.0", **more):
    """A card of sysfs."""
    known = {
        "slot": slot,
        "vendor": "amd",
        "driver": "amdgpu",
        "device_id": "0x744c",
        "name": None,
        "render": "/dev/dri/renderD128",
        "unified": False,
        "vram_total_mib": 24560.0,
        "vram_used_mib": 300.0,
        "gtt_total_mib": 32000.0,
        "gtt_used_mib": 20.0,
    }
    return {**known, **more}


class Node:
    """A node with programs that print this."""

    def __init__(self, path, monkeypatch):
        self.path, self.cards, self.held, self.environment, self.program = path, [], {}, {}, ""
        self.proc = path / "proc"
        self.proc.mkdir()
        self.memory(131072, 120000)
        monkeypatch.setattr(vulkan.drm, "collect", lambda *_roots, usage: self._drm(usage))
        monkeypatch.setattr(os, "geteuid", lambda: 1000)

    def _drm(self, usage):
        return {"cards": self.cards, "reason": None, "processes": self.held if usage else {}}

    def memory(self, total, available):
        (self.proc / "meminfo").write_text(f"MemTotal: {total * 1024} kB\nMemAvailable: {available * 1024} kB\n")

    def process(self, pid, name, resident):
        (self.proc / str(pid)).mkdir()
        (self.proc / str(pid) / "comm").write_text(name + "\n")
        (self.proc / str(pid) / "status").write_text(f"Name:\t{name}\nRssAnon:\t{resident * 1024} kB\n")

    def runs(self, name, script):
        path = self.path / name
        path.write_text("#!/bin/sh\n" + script)
        path.chmod(0o755)
        return str(path)

    def info(self, *devices):
        text = self.path / "printed"
        text.write_text(printed(*devices))
        self.runs("vulkaninfo", f"cat {text}\n")

    def lists(self, *lines, log="", ends=0):
        text = "".join(f"  Vulkan{number}: {line}\n" for number, line in enumerate(lines)) or "  (none)\n"
        (self.path / "listed").write_text("Available devices:\n" + text)
        (self.path / "log").write_text(log)
        script = f"cat {self.path}/log >&2; cat {self.path}/listed; exit {ends}\n"
        self.program = self.runs("llama-server", script)

    def look(self):
        tool = str(self.path / "vulkaninfo")
        found = vulkan.collect(self.environment, self.program, tool, proc=str(self.proc))
        json.dumps(found)
        return found


@pytest.fixture(name="node")
def fixture_node(tmp_path, monkeypatch):
    return Node(tmp_path, monkeypatch)


def test_card_with_a_built_program(node):
    node.info(device(0, CARD, XTX), llvmpipe(1))
    node.lists(f"{CARD} (24560 MiB, 24100 MiB free)")
    node.cards, node.held = [card()], {"0000:03:00.0": {77: 200.4}}
    node.process(77, "llama-server", 900)
    found = node.look()
    assert (found["available"], found["reason"], found["warning"]) == (True, None, None)
    assert found["gpus"] == [
        {
            "index": 0,
            "name": CARD,
            "slot": "0000:03:00.0",
            "driver": "radv",
            "source": "list-devices",
            "unified": False,
            "own_mib": 0,
            "largest_tensor": 4294967292,
            "memory_total_mib": 24560,
            "memory_used_mib": 300,
            "processes": [{"pid": 77, "type": None, "name": "llama-server", "memory_used_mib": 200}],
        }
    ]


def test_before_the_build_vulkaninfo_is_enough(node):
    node.info(device(0, CARD, SMALL_BAR))
    (one,) = node.look()["gpus"]
    assert (one["source"], one["memory_total_mib"], one["memory_used_mib"]) == ("vulkaninfo", 8192, 699)


@pytest.mark.parametrize(
    ("line", "warning"),
    [
        (f"{CARD} (24550 MiB, 24100 MiB free)", None),
        (f"{CARD} (16368 MiB, 16000 MiB free)", "lists another size than vulkaninfo"),
        ("AMD Radeon RX 6600 (RADV NAVI23) (8176 MiB, 8000 MiB free)", "lists other devices than vulkaninfo"),
    ],
)
def test_program_counts_and_its_difference_is_reported(node, line, warning):
    node.info(device(0, CARD, XTX))
    node.lists(line)
    found = node.look()
    assert (warning is None) == (found["warning"] is None) and (warning or "") in (found["warning"] or "")
    assert f"({found['gpus'][0]['memory_total_mib']} MiB," in line and found["gpus"][0]["name"] in line


def test_program_without_vulkaninfo(node):
    node.lists(f"{HALO} (98816 MiB, 97000 MiB free)", log=LOG % (HALO, 1))
    node.cards = [card("0000:c3:00.0", unified=True, vram_total_mib=512.0, gtt_total_mib=98304.0)]
    (one,) = node.look()["gpus"]
    assert (one["unified"], one["slot"], one["own_mib"], one["driver"]) == (True, "0000:c3:00.0", 512, "radv")
    assert (one["memory_total_mib"], one["largest_tensor"]) == (98816, None)


def test_program_that_skips_devices_needs_vulkaninfo(node):
    node.lists(f"{CARD} (24560 MiB, 24100 MiB free)")
    node.runs("llama-server", f'[ -n "$GGML_VK_VISIBLE_DEVICES" ] || cat {node.path}/listed\n')
    found = node.look()
    assert not found["available"] and "install the package that has it, such as vulkan-tools" in found["reason"]


def test_variable_reaches_the_programs(node):
    node.info(device(0, CARD, XTX), llvmpipe(1))
    node.environment = {"GGML_VK_VISIBLE_DEVICES": "1"}
    node.lists("llvmpipe (LLVM 19.1.7, 256 bits) (31471 MiB, 30000 MiB free)")
    node.runs("llama-server", f'[ "$GGML_VK_VISIBLE_DEVICES" = 1 ] && cat {node.path}/listed\n')
    (one,) = node.look()["gpus"]
    # A device of the CPU works in main memory.
    assert (one["index"], one["unified"], one["memory_total_mib"], one["slot"]) == (1, True, 31471, None)
    node.environment = {"GGML_VK_VISIBLE_DEVICES": "llvmpipe"}
    assert node.look()["reason"].startswith("GGML_VK_VISIBLE_DEVICES: llvmpipe seen, numbers")


@pytest.mark.parametrize(
    ("vram", "gtt", "main", "total"),
    [
        # A laptop of 128 GiB with 512 MiB for graphics, and ttm.pages_limit raised.
        (512, 108000, 128000, 108512),
        # 96 GiB reserved by firmware, and a limit beyond the rest: more is reported than there is.
        (98304, 107520, 31800, 130104),
        (4096, 63968, 124000, 68064),
    ],
)
def test_memory_of_a_processor_with_graphics(node, vram, gtt, main, total):
    whole = (vram + gtt) << 20
    sizes = ((whole * 2 // 3, whole * 2 // 3, 0, True), (whole - whole * 2 // 3, whole // 3, 0, False))
    node.info(device(0, HALO, sizes, "INTEGRATED_GPU", slot=(0, 0xC3, 0, 0)))
    node.cards = [
        card("0000:c3:00.0", unified=True, vram_total_mib=vram, vram_used_mib=200.0, gtt_total_mib=float(gtt))
    ]
    node.memory(main, main - 6000)
    (one,) = node.look()["gpus"]
    assert (one["memory_total_mib"], one["own_mib"], one["unified"]) == (total, vram, True)
    assert one["memory_used_mib"] == 6200


def test_processes_in_main_memory_use_the_card(node):
    node.info(device(0, HALO, ((96 * GIB, 96 * GIB, 0, True),), "INTEGRATED_GPU", slot=(0, 0xC3, 0, 0)))
    node.cards = [card("0000:c3:00.0", unified=True, vram_total_mib=512.0)]
    node.held = {"0000:c3:00.0": {7: 4000.0}}
    for pid, name, resident in ((7, "llama-server", 1000), (8, "postgres", 3000), (9, "sshd", 8)):
        node.process(pid, name, resident)
    seen = [(one["pid"], one["name"], one["memory_used_mib"]) for one in node.look()["gpus"][0]["processes"]]
    assert seen == [(7, "llama-server", 5000), (8, "postgres", 3000)]


def test_before_any_program_sysfs_is_enough(node):
    node.cards = [
        card("0000:03:00.0", unified=True, vram_total_mib=512.0, gtt_total_mib=15000.0, name="Radeon 780M"),
        card("0000:04:00.0"),
        card("0000:05:00.0", vendor="0x1a03", driver="ast", render=None),
        card("0000:06:00.0", vendor="intel", driver="xe", unified=True, vram_total_mib=None, gtt_total_mib=None),
    ]
    gpus = node.look()["gpus"]
    # Cards with memory of their own come first, as Vulkan's loader sorts them.
    assert [(one["slot"], one["memory_total_mib"], one["unified"]) for one in gpus] == [
        ("0000:04:00.0", 24560, False),
        ("0000:03:00.0", 15512, True),
        ("0000:06:00.0", None, True),
    ]
    assert [one["source"] for one in gpus] == ["sysfs"] * 3
    node.environment = {"GGML_VK_VISIBLE_DEVICES": "1"}
    assert [one["index"] for one in node.look()["gpus"]] == [1]
    for visible in ("7", "0,0", "x"):
        node.environment = {"GGML_VK_VISIBLE_DEVICES": visible}
        assert "vulkaninfo is needed" in node.look()["reason"]


def test_card_without_its_vulkan_driver(node):
    node.info(llvmpipe(0))
    node.cards = [card(name="AMD Radeon RX 6600")]
    found = node.look()
    assert not found["available"] and found["gpus"] == []
    assert "the kernel has AMD Radeon RX 6600: install the Vulkan driver" in found["reason"]


def test_cards_of_two_vendors(node, monkeypatch):
    """Processes on NVIDIA's are known only to nvidia-smi."""
    nvidia_card = card("0000:01:00.0", vendor="nvidia", driver="nvidia", unified=None, **dict.fromkeys(UNKNOWN))
    node.cards, node.held = [nvidia_card, card()], {"0000:03:00.0": {77: 200.4}}
    (node.proc / "78").mkdir()
    held = [{"pid": 78, "name": "llama-server", "memory_used_mib": 9000}]
    gpus = [{"pci_bus_id": "00000000:01:00.0", "processes": held}]
    monkeypatch.setattr(vulkan.nvidia_smi, "collect", lambda: {"gpus": gpus})
    node.info(nvidia(0), device(1, CARD, XTX))
    found = node.look()
    assert found["warning"] is None
    assert [(one["name"], [each["pid"] for each in one["processes"]]) for one in found["gpus"]] == [
        ("NVIDIA GeForce RTX 3090", [78]),
        (CARD, [77]),
    ]


def test_card_that_vulkan_does_not_show(node):
    """NVIDIA's Vulkan driver is a package of its own."""
    inner = card("0000:c5:00.0", unified=True)
    node.cards = [card("0000:01:00.0", vendor="nvidia", driver="nvidia", unified=None, device_id="0x2204"), inner]
    node.cards.append(card())
    node.info(device(0, CARD, XTX))
    found = node.look()
    assert len(found["gpus"]) == 1
    assert found["warning"].startswith("nvidia 0x2204 (0000:01:00.0): the kernel has it, llama.cpp does not use it ")
    node.environment = {"GGML_VK_VISIBLE_DEVICES": "0"}
    assert node.look()["warning"] is None


def test_node_without_a_card(node):
    assert node.look()["reason"].startswith("the kernel has no card with a driver for Vulkan")
    node.lists(ends=1)
    assert node.look()["available"] is False


def test_program_that_hangs_or_floods_is_stopped(node, monkeypatch):
    monkeypatch.setattr(vulkan, "DEADLINE", 0.3)
    node.cards = [card()]
    node.runs("vulkaninfo", "sleep 60 & sleep 60\n")
    assert node.look()["gpus"][0]["source"] == "sysfs"
    monkeypatch.setattr(vulkan, "DEADLINE", 60)
    monkeypatch.setattr(vulkan, "MOST", 1 << 16)
    node.runs("vulkaninfo", "exec yes\n")
    assert node.look()["gpus"][0]["source"] == "sysfs"
