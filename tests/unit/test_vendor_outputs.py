# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Outputs of public reports, from the vendor's tool to the plan: none ends in a traceback, or in a wrong plan without a
sentence."""

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._node import nvidia_smi
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._plan import devices
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._text import Refusal
from ansible_collections.thefermisea.llama_cluster.tests.unit.outputs_nvidia import NVIDIA
from ansible_collections.thefermisea.llama_cluster.tests.unit.three_nodes import plan

MARGIN = 300


def planned(gpus, output):
    """[(card, MiB, unified)] of the devices with which a service on the node is planned. Errors: Refusal."""
    found = devices.of_node("node1", gpus, output.main_mib, MARGIN, described=output.described)
    (main,) = devices.of_node("node1", [], output.main_mib, MARGIN)
    nodes = {"node1": {"devices": devices.as_dicts(found), "main": main.as_dict(), "cores": 8}}
    service = {"model": "small", "quant": "Q8_0", "head": "node1", "ctx_size": 4096, "parallel": 1}
    answer = plan({"chat": service}, nodes)
    (part,) = answer["services"]["chat"]
    # A model that does not fit is refused with a sentence.
    assert part["fits"] != any("chat" in sentence for sentence in answer["refused"]), answer["refused"]
    free = {device.device: device.free_mib() for device in found}
    for row in part["devices"]:
        if row["layers"]:
            assert row["free_mib"] == free[row["device"]] and (not part["fits"] or row["total_mib"] <= row["free_mib"])
    return [(device.name, device.total_mib, device.unified) for device in found if device.kind == "GPU"]


@pytest.mark.parametrize("output", NVIDIA, ids=lambda output: output.name)
def test_nvidia_smi(output, tmp_path):
    tool, printed = tmp_path / "nvidia-smi", tmp_path / "printed"
    printed.write_text(output.text)
    tool.write_text('#!/bin/sh\ncase "$2" in -x) cat %s; exit %d ;; esac\nexit 2\n' % (printed, output.status))
    tool.chmod(0o755)
    facts = nvidia_smi.collect(str(tool), pci_root=str(tmp_path), kernel_log=str(tmp_path / "kmsg"))
    # As role llama_cpp requires it before it follows nvidia-smi.
    if not facts["available"] and "no NVIDIA driver is installed" not in facts["reason"]:
        assert isinstance(output.outcome, str) and output.outcome in facts["reason"]
        return
    if isinstance(output.outcome, str):
        with pytest.raises(Refusal) as refused:
            planned(facts["gpus"], output)
        assert output.outcome in str(refused.value)
    else:
        assert planned(facts["gpus"], output) == output.outcome
