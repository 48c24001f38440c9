# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Outputs of public reports, from the vendor's tool to the plan: none ends in a traceback, or in a wrong plan without a
sentence."""

import os

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._exporter import exposition
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._exporter.cards import Cards
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._node import drm, nvidia_smi, vulkan
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._plan import devices
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._plan.vulkan import of_vulkan
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._text import Refusal
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._intent.builds import accelerator_of
from ansible_collections.thefermisea.llama_cluster.tests.unit.drm_cards import add_card
from ansible_collections.thefermisea.llama_cluster.tests.unit.outputs_nvidia import NVIDIA
from ansible_collections.thefermisea.llama_cluster.tests.unit.outputs_vulkan import NODES
from ansible_collections.thefermisea.llama_cluster.tests.unit.three_nodes import plan

MARGIN = 300


def planned(found, main_mib):
    """[(device, its MiB, whether it works in main memory)] with which a service on the node is planned. Errors:
    Refusal."""
    (main,) = devices.of_node("node1", [], main_mib, MARGIN)
    nodes = {"node1": {"devices": devices.as_dicts(found), "main": main.as_dict(), "cores": 8}}
    service = {"model": "small", "quant": "Q8_0", "head": "node1", "ctx_size": 4096, "parallel": 1}
    answer = plan({"chat": service}, nodes)
    (part,) = answer["services"]["chat"]
    assert part["fits"] or any("chat" in sentence for sentence in answer["refused"])
    free = {device.device: device.free_mib() for device in found}
    for row in part["devices"]:
        if row["layers"]:
            assert row["free_mib"] == free[row["device"]] and (not part["fits"] or row["total_mib"] <= row["free_mib"])
    return [(device.name, device.total_mib, device.unified) for device in found if device.kind == "GPU"]


def check(output, of, facts, **more):
    """of: makes devices of the facts."""
    if isinstance(output.outcome, str):
        with pytest.raises(Refusal) as refused:
            planned(of("node1", facts, output.main_mib, MARGIN, **more), output.main_mib)
        assert output.outcome in str(refused.value)
    else:
        assert planned(of("node1", facts, output.main_mib, MARGIN, **more), output.main_mib) == output.outcome


def sampled(facts, cards=()):
    """The page of the sampler. facts: of nvidia-smi; cards: of sysfs."""
    seen = {"cards": list(cards), "reason": None, "processes": {}}
    return exposition.render(Cards(lambda: facts, others=lambda usage: seen, resets=lambda _cards: ([], None)).look())


def program(path, output, argument=""):
    """A program that prints an output, to this argument if one is given."""
    text, status = output
    path.with_suffix(".txt").write_text(text)
    path.write_text('#!/bin/sh\ncase "$*" in *%s*) cat %s.txt; exit %d ;; esac\nexit 2\n' % (argument, path, status))
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize("output", NVIDIA, ids=lambda output: output.name)
def test_nvidia_smi(output, tmp_path):
    tool = program(tmp_path / "nvidia-smi", (output.text, output.status), "-x")
    facts = nvidia_smi.collect(tool, pci_root=str(tmp_path), kernel_log=str(tmp_path / "kmsg"))
    # As role llama_cpp requires it before it follows nvidia-smi.
    if not facts["available"] and "no NVIDIA driver is installed" not in facts["reason"]:
        assert isinstance(output.outcome, str) and output.outcome in facts["reason"]
        return
    check(output, devices.of_node, facts["gpus"], described=output.described)
    assert sampled(facts).count("llama_gpu_info{") == len(facts["gpus"])


@pytest.fixture(name="plain")
def fixture_plain(monkeypatch):
    """Programs run under this account, and no list of PCI devices names a card."""
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(drm, "pci_name", lambda *_ids: None)


@pytest.mark.parametrize("node", NODES, ids=lambda node: node.name)
@pytest.mark.usefixtures("plain")
def test_vulkan(node, tmp_path):
    for slot, texts in node.cards.items():
        add_card(tmp_path / "sys", slot, texts)
    (tmp_path / "proc").mkdir()
    kib = node.main_mib * 1024
    (tmp_path / "proc" / "meminfo").write_text(f"MemTotal: {kib} kB\nMemAvailable: {kib} kB\n")
    cards = drm.collect(str(tmp_path / "sys"))["cards"]
    seen = {"nvidia_smi": {"gpus": []}, "llama_drm": {"cards": cards}}
    assert accelerator_of({}, {"ansible_facts": seen}) == node.accelerator
    tool, server = (
        program(tmp_path / name, output) if output[1] != 127 else ""
        for name, output in (("vulkaninfo", node.info), ("llama-server", node.listed))
    )
    chosen = {} if node.visible is None else {vulkan.VISIBLE: node.visible}
    roots = (str(tmp_path / "sys"), str(tmp_path / "proc"))
    facts = vulkan.collect(chosen, server, tool or str(tmp_path / "none"), *roots)
    assert node.warning in (facts["warning"] or "") and bool(node.warning) == bool(facts["warning"])
    check(node, of_vulkan, facts, visible=node.visible)
    page = sampled({"gpus": [], "reason": None, "driver": None}, cards)
    assert page.count("llama_gpu_info{") == sum(drm.computes(card) for card in cards)
