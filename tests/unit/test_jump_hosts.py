# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The reference inventories whose nodes lie behind jump hosts: the options of ssh, as Ansible renders them. Their use:
scenario jump."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
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


def ansible(program, inventory, *arguments):
    environment = dict(
        os.environ, ANSIBLE_CONFIG=str(ROOT / "ansible.cfg"), ANSIBLE_NOCOLOR="1", ANSIBLE_LOCALHOST_WARNING="0"
    )
    command = [os.path.join(os.path.dirname(sys.executable), program), "-i", "inventories/" + inventory, *arguments]
    return subprocess.run(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, check=True).stdout


@pytest.mark.parametrize("inventory", JUMPS)
def test_each_node_has_its_own_jump_host(inventory):
    listed = json.loads(ansible("ansible-inventory", inventory, "--list"))
    assert set(listed["_meta"]["hostvars"]) == {*JUMPS[inventory], "slurm-ctl"}
    shown = ansible("ansible", inventory, "all", "-m", "ansible.builtin.debug", "-a", "var=ansible_ssh_common_args")
    assert (
        dict(
            re.findall(r"([\w-]+) \| SUCCESS => \{?\s+\"?ansible_ssh_common_args\"?: \"?-o ProxyJump=([^\s\"]+)", shown)
        )
        == JUMPS[inventory]
    )
    # ssh reaches the controller of the site by its name.
    assert "ProxyJump" not in shown.partition("slurm-ctl |")[2].partition(" | ")[0]
