# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The refusal of every playbook that gets no inventory, or one without nodes."""

import json
import re

import pytest
import yaml
from ansible_collections.thefermisea.llama_cluster.tests.unit.playbooks.simulation import (
    CALLBACKS,
    COLLECTIONS,
    ROOT,
    done,
    playbook_lines,
    refused,
    run_playbook,
)

GROUPS = ("llama_nodes", "llama_gateway", "llama_monitoring")
NONE = "inventory: none given, one with the group llama_nodes is needed: run with -i inventories/NAME"


@pytest.mark.parametrize(
    "groups,sentence",
    [
        (None, NONE),
        ({}, "group llama_nodes: no host in PATH, at least one is needed: add the nodes to it"),
        ({"llama_nodes": {}}, "group llama_nodes: no host in PATH, at least one is needed: add the nodes to it"),
        (
            {"llama_node": {"hosts": {"a": None}}, "gpu": {}},
            "group llama_nodes: no host in PATH, whose groups are gpu, llama_node, at least one is needed, did you "
            "mean llama_node?",
        ),
    ],
)
def test_an_inventory_with_nodes_is_needed(tmp_path, groups, sentence):
    arguments = []
    if groups is not None:
        (tmp_path / "hosts.json").write_text(json.dumps(groups))
        arguments = ["-i", str(tmp_path / "hosts.json")]
    assert sentence.replace("PATH", str(tmp_path / "hosts.json")) in refused(
        run_playbook(ROOT / "playbooks/_inventory.yml", *arguments, home=tmp_path, ANSIBLE_COLLECTIONS_PATH=COLLECTIONS)
    )


def tags_of(path):
    """-> (tags of all plays of a playbook and of those that it imports, the playbook_tags that it hands on)."""
    plays, reported = set(), []
    for play in yaml.safe_load(path.read_text()):
        plays.update(play.get("tags", []))
        reported += play.get("vars", {}).get("playbook_tags", [])
        for name in re.findall(r"_\w+\.yml", play.get("ansible.builtin.import_playbook", "")):
            plays |= tags_of(path.with_name(name))[0]
    return plays, reported


@pytest.mark.parametrize("path", sorted((ROOT / "playbooks").glob("[a-z]*.yml")), ids=lambda path: path.stem)
def test_a_playbook_knows_the_tags_of_its_plays(path):
    plays, reported = tags_of(path)
    # The other playbooks have no parts to select.
    assert reported == (sorted(plays - {"never"}) if path.stem in ("site", "verify", "benchmark") else [])


@pytest.mark.parametrize(
    "playbook, tags, sentence",
    [
        (
            "site",
            ["--tags", "rpc,verfiy", "--skip-tags", "notest"],
            "tags: verfiy seen, one of %s is needed, did you mean verify?",
        ),
        ("verify", ["--tags", "rpc"], "tags: rpc seen, one of %s is needed"),
        ("status", ["--tags", "verify"], "tags: verify seen, none is known to this playbook: run it without --tags"),
        ("plan", ["--tags", "rcp"], "tags: rcp seen, none is known to this playbook: run it without --tags"),
    ],
)
def test_a_tag_that_no_play_has_is_refused(tmp_path, playbook, tags, sentence):
    (tmp_path / "hosts.json").write_text(json.dumps({"llama_nodes": {"hosts": {"a": None}}}))
    path = ROOT / ("playbooks/%s.yml" % playbook)
    output = refused(
        run_playbook(
            path, "-i", str(tmp_path / "hosts.json"), *tags, home=tmp_path, ANSIBLE_COLLECTIONS_PATH=COLLECTIONS
        )
    )
    assert sentence.replace("%s", ", ".join(tags_of(path)[1])) in output
    assert "Require an inventory" not in output


@pytest.mark.parametrize(
    "playbook, tags, gateway, monitoring",
    [
        ("site", [], True, True),
        ("site", ["--tags", "head,monitoring"], True, True),
        ("site", ["--tags", "verify"], True, True),
        ("site", ["--tags", "preflight"], True, True),
        ("site", ["--tags", "head,gateway"], True, False),
        ("site", ["--tags", "rpc"], False, False),
        ("site", ["--tags", "rpc,head,model"], False, False),
        ("site", ["--skip-tags", "monitoring"], True, False),
        ("site", ["--skip-tags", "gateway"], False, True),
        ("verify", ["--tags", "gateway"], True, False),
        ("upgrade", [], False, False),
        ("switch_model", [], False, False),
        ("maintenance", [], False, False),
        ("rollback", [], False, False),
        ("benchmark", [], False, False),
    ],
)
def test_setup_and_verify_wait_for_hosts(tmp_path, playbook, tags, gateway, monitoring):
    (tmp_path / "hosts.json").write_text(json.dumps({name: {"hosts": {name[6:]: None}} for name in GROUPS}))
    path = ROOT / ("playbooks/%s.yml" % playbook)
    arguments = ("-i", str(tmp_path / "hosts.json"), "--list-hosts", *tags)
    output = done(run_playbook(path, *arguments, home=tmp_path, ANSIBLE_COLLECTIONS_PATH=COLLECTIONS))
    for name, asked in (("gateway", gateway), ("monitoring", monitoring)):
        found = re.search(r"Preflight of (?:the )?%s.*? hosts \(\d\): ?(.*?) ?(?:play #|\Z)" % name, output)
        assert (found.group(1) if found else "") == (name if asked else "")


@pytest.mark.parametrize("strategy", ["free", "host_pinned", "ansible.builtin.free"])
def test_strategy_without_waiting_is_refused(tmp_path, strategy):
    (tmp_path / "hosts.json").write_text(json.dumps({"llama_nodes": {"hosts": {"a": None}}}))
    arguments = ("-i", str(tmp_path / "hosts.json"))
    environment = {"ANSIBLE_COLLECTIONS_PATH": COLLECTIONS, "ANSIBLE_STRATEGY": strategy}
    # one_process needs the strategy linear.
    environment["ANSIBLE_CALLBACKS_ENABLED"] = CALLBACKS
    assert "strategy: %s seen in ansible.cfg or ANSIBLE_STRATEGY, linear is needed" % strategy in refused(
        run_playbook(ROOT / "playbooks/site.yml", *arguments, home=tmp_path, **environment)
    )


def test_forgotten_inventory_is_refused(tmp_path):
    environment = {
        "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
        "ANSIBLE_STDOUT_CALLBACK": "thefermisea.llama_cluster.brief",
        "ANSIBLE_COLLECTIONS_PATH": COLLECTIONS,
    }
    status, lines = playbook_lines(ROOT / "playbooks/status.yml", home=tmp_path, **environment)
    assert status != 0
    assert [line for line in lines if not line.endswith(": no change")] == [
        NONE,
        "stopped: 1 mistake, nothing was changed",
    ]
