# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What every playbook that needs an inventory says first, where it gets none, or one without nodes."""

import json

import pytest
from ansible_collections.thefermisea.llama_cluster.tests.unit.playbooks.simulation import COLLECTIONS, ROOT, playbook_lines, run_playbook

NONE = "inventory: none given, one with the group llama_nodes is needed: run with -i inventories/NAME"


@pytest.mark.parametrize(
    "groups,sentence",
    [
        (None, NONE),
        ({}, "group llama_nodes: no host in PATH, at least one is needed: add the nodes to it"),
        ({"llama_nodes": {}}, "group llama_nodes: no host in PATH, at least one is needed: add the nodes to it"),
        (
            {"llama_node": {"hosts": {"a": None}}, "gpu": {}},
            "group llama_nodes: no host in PATH, whose groups are gpu, llama_node, at least one is needed, did you mean llama_node?",
        ),
    ],
)
def test_an_inventory_with_nodes_is_needed(tmp_path, groups, sentence):
    arguments = []
    if groups is not None:
        (tmp_path / "hosts.json").write_text(json.dumps(groups))
        arguments = ["-i", str(tmp_path / "hosts.json")]
    status, output = run_playbook(ROOT / "playbooks/_inventory.yml", *arguments, home=tmp_path, ANSIBLE_COLLECTIONS_PATH=COLLECTIONS)
    assert status != 0
    assert sentence.replace("PATH", str(tmp_path / "hosts.json")) in output


def test_no_inventory_stands_in_for_one_that_was_forgotten(tmp_path):
    environment = {"ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "ANSIBLE_STDOUT_CALLBACK": "thefermisea.llama_cluster.brief"}
    status, lines = playbook_lines(ROOT / "playbooks/status.yml", home=tmp_path, **environment)
    assert status != 0
    assert [line for line in lines if not line.endswith(": no change")] == [NONE, "stopped: 1 mistake, nothing was changed"]
