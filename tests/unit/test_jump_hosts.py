# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The reference inventories whose nodes lie behind jump hosts: the options of ssh, as Ansible renders them. Their use:
scenario jump."""

import re

import pytest
from ansible_collections.thefermisea.llama_cluster.tests.unit import inventory_runs

JUMPS = {
    "beefcake2": {
        "vllm-node1": "root@100.127.208.104",
        "vllm-node2": "root@100.127.30.114",
        "vllm-node3": "root@100.68.22.98",
    },
    "beefcake2-hybrid": {
        "vllm-node1": "root@100.127.208.104",
        "vllm-node2": "root@100.127.30.114",
        "vllm-node3": "root@100.68.22.98",
    },
    "beefcake2-slurm": {"vasp-01": "root@slurm-ctl", "vasp-02": "root@slurm-ctl", "vasp-03": "root@slurm-ctl"},
}


@pytest.mark.parametrize("inventory", JUMPS)
def test_each_node_has_its_own_jump_host(tmp_path, inventory):
    shown = inventory_runs.shown(tmp_path, inventory, "all", var="ansible_ssh_common_args")
    assert set(shown) == {*JUMPS[inventory], "slurm-ctl"}
    options = {host: one["ansible_ssh_common_args"] for host, one in shown.items()}
    # ssh reaches the controller of the site by its name.
    assert "ProxyJump" not in options.pop("slurm-ctl")
    found = {host: re.match(r"-o ProxyJump=(\S+)", one) for host, one in options.items()}
    assert {host: one and one.group(1) for host, one in found.items()} == JUMPS[inventory]
