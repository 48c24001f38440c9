# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

import os
from pathlib import Path

import yaml
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._node import nvidia_smi
from ansible_collections.thefermisea.llama_cluster.plugins.modules import nvidia_smi_facts

UNIT = Path(__file__).resolve().parents[2]


def test_facts_of_the_tool_on_the_path(run, monkeypatch, tmp_path):
    (tmp_path / "nvidia-smi").symlink_to(UNIT / "stub_nvidia_smi")
    monkeypatch.setenv("PATH", "%s:%s" % (tmp_path, os.environ["PATH"]))
    monkeypatch.setenv("STUB_NVIDIA_SMI", str(UNIT / "fixtures" / "nvidia_smi_535_v100s.xml"))
    code, result = run()
    facts = result["ansible_facts"]["nvidia_smi"]
    assert (code, result["changed"], facts["available"], facts["gpus"][0]["name"]) == (
        0,
        False,
        True,
        "Tesla V100S-PCIE-32GB",
    )


def test_a_node_without_gpu_is_no_error(run, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    code, result = run()
    facts = result["ansible_facts"]["nvidia_smi"]
    assert (code, facts["available"], facts["gpus"]) == (0, False, [])
    assert facts["reason"] == "nvidia-smi cannot be run (No such file or directory): no NVIDIA driver is installed"


def documented(contains):
    """{key: {key: ...}} as RETURN has it."""
    return {name: documented(entry.get("contains", {})) for name, entry in contains.items()}


def returned(facts):
    """The same as the module returns it; of a list, its first entry."""
    if isinstance(facts, list):
        facts = facts[0] if facts else {}
    return {name: returned(value) for name, value in facts.items()} if isinstance(facts, dict) else {}


def test_everything_returned_is_documented(monkeypatch, tmp_path):
    monkeypatch.setenv("STUB_NVIDIA_SMI", str(UNIT / "fixtures" / "nvidia_smi_550_a100_mig.xml"))
    (tmp_path / "kmsg").write_text("6,1,5000000,-;NVRM: Xid (PCI:0000:17:00): 79, GPU has fallen off the bus.\n")
    facts = nvidia_smi.collect(str(UNIT / "stub_nvidia_smi"), kernel_log=str(tmp_path / "kmsg"))
    contains = yaml.safe_load(nvidia_smi_facts.RETURN)["ansible_facts"]["contains"]["nvidia_smi"]["contains"]
    assert returned(facts) == documented(contains)
