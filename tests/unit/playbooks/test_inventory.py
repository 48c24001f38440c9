# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What every playbook that needs an inventory says first, where it gets none, or one without nodes."""

import json

import pytest
import yaml
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


def tags_of(path):
    plays = [play for play in yaml.safe_load(path.read_text()) if isinstance(play, dict)]
    return {tag for play in plays for tag in play.get("tags", [])}


def test_a_tag_that_no_play_has_is_refused(tmp_path):
    known = sorted(set().union(*map(tags_of, (ROOT / "playbooks").glob("*.yml"))))
    (tmp_path / "hosts.json").write_text(json.dumps({"llama_nodes": {"hosts": {"a": None}}}))
    arguments = ("-i", str(tmp_path / "hosts.json"), "--tags", "rpc,verfiy", "--skip-tags", "worker")
    status, output = run_playbook(ROOT / "playbooks/site.yml", *arguments, home=tmp_path, ANSIBLE_COLLECTIONS_PATH=COLLECTIONS)
    assert status != 0
    assert "tags: verfiy, worker seen, one of %s is needed, did you mean verify?" % ", ".join(known) in output
    assert "Require an inventory" not in output


def test_no_inventory_stands_in_for_one_that_was_forgotten(tmp_path):
    environment = {
        "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
        "ANSIBLE_STDOUT_CALLBACK": "thefermisea.llama_cluster.brief",
        "ANSIBLE_COLLECTIONS_PATH": COLLECTIONS,
    }
    status, lines = playbook_lines(ROOT / "playbooks/status.yml", home=tmp_path, **environment)
    assert status != 0
    assert [line for line in lines if not line.endswith(": no change")] == [NONE, "stopped: 1 mistake, nothing was changed"]
