# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Trials of another quant, on a node that is a directory, with a systemctl that records its calls."""

import json
import os
import re
import shutil
import subprocess

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._node import (
    managed,
    snapshot,
    trials,
    units,
)
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._removal.removal import Removal
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._text import Refusal

HEAD = "etc/systemd/system/llama-head-chat.service"
PLAN = "etc/llama-cluster/plan-chat.json"
TEMPLATE = "etc/llama-cluster/template-chat.jinja"
WATCHED = "etc/llama-cluster/watchdog/head-chat.json"
OTHER = "etc/systemd/system/llama-head-other.service"
RECORD = "var/lib/llama-cluster/trial-chat.json"
SERVICE = "etc/systemd/system/llama-trial-chat.service"
TIMER = "etc/systemd/system/llama-trial-chat.timer"
OLD, NEW = "opt/models/m.Q4_K_M.gguf", "opt/models/m.Q8_0.gguf"
# 2026-11-23 20:00:00 UTC.
NOW = 1795464000
ARGUMENTS = {"service": "chat", "quant": "Q8_0", "was": "Q4_K_M", "model": "/" + OLD, "seconds": 43200}


class Node:
    """A node with a switch of chat whose snapshot is open."""

    def __init__(self, root):
        self.root = root
        self.calls = []
        self.now = NOW
        self.state, self.stale = "active", True
        self.write(
            {HEAD: "old\n", PLAN: "[]\n", WATCHED: "{}\n", OTHER: "theirs\n", OLD: "GGUF", NEW: "GGUF"},
        )
        (root / "var/lib/llama-cluster").mkdir(parents=True)
        (root / "var/lib/systemd/timers").mkdir(parents=True)
        self.snapshots = snapshot.Snapshots(str(root / "var/lib/llama-cluster/rollback"), root=str(root))
        self.snapshots.open("2026-11-23T20:00:00Z")
        self.before = self.content()
        self.write({HEAD: "new\n", PLAN: "[1]\n", TEMPLATE: "{{ messages }}\n"})
        self.trials = trials.Trials(str(root), self.run, self.look, lambda: self.now)

    def write(self, texts):
        for name, text in texts.items():
            (self.root / name).parent.mkdir(parents=True, exist_ok=True)
            (self.root / name).write_text(text)

    def run(self, *words):
        self.calls.append(" ".join(words))
        if words[0] == "enable":
            (self.root / "var/lib/systemd/timers/stamp-llama-trial-chat.timer").touch()

    def look(self, names):
        return [units.Unit(name=name, active_state=self.state, stale=self.stale) for name in names]

    def content(self):
        """{path: text} of what is configured."""
        return {
            str(path.relative_to(self.root)): path.read_text()
            for path in sorted((self.root / "etc").rglob("*"))
            if path.is_file()
        }

    def begin(self, **more):
        return self.trials.start(**dict(ARGUMENTS, **more))

    def revert(self):
        """The end of the trial, after the switch."""
        self.now = NOW + 43200
        self.snapshots.drop()
        return self.trials.revert("chat")

    def left(self):
        return sorted(str(path.relative_to(self.root)) for path in self.root.rglob("*trial*"))


@pytest.fixture(name="node")
def fixture_node(tmp_path):
    return Node(tmp_path)


def test_trial_has_managed_units_and_a_record(node):
    began, record = node.begin()
    assert began and record["until"] == "2026-11-24T08:00:00Z"
    assert node.calls == ["daemon-reload", "enable --now llama-trial-chat.timer"]
    timer, unit = (node.root / TIMER).read_text(), (node.root / SERVICE).read_text()
    assert "OnCalendar=2026-11-24 08:00:00 UTC\nPersistent=true\n" in timer
    assert managed.is_managed_unit(str(node.root / TIMER)) and managed.is_managed_unit(str(node.root / SERVICE))
    assert not re.search("[{}]", timer + unit)
    assert node.trials.report() == [{key: record[key] for key in trials.REPORTED}]
    assert (node.root / RECORD).stat().st_mode & 0o777 == 0o600
    assert sorted(record["files"]) == [PLAN, TEMPLATE, HEAD]
    removal = Removal(root=str(node.root))
    removal.marked("node_files")
    assert str(node.root / RECORD) in removal.removed


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="no systemd-analyze on this machine")
def test_systemd_accepts_the_units(node):
    node.begin()
    unit = node.root / SERVICE
    unit.write_text(unit.read_text().replace("/opt/llama-cluster/bin/llama-program", "/bin/true"))
    command = ["systemd-analyze", "verify", "--man=no", str(node.root / TIMER), str(unit)]
    seen = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (seen.returncode, seen.stdout + seen.stderr) == (0, "")


def test_second_run_keeps_the_end(node):
    node.begin()
    before, node.now = (node.root / RECORD).read_text(), NOW + 3600
    assert node.begin() == (False, json.loads(before))
    assert (node.root / RECORD).read_text() == before
    # An operator may have stopped the timer, or the first run died before it started it.
    assert node.calls[2:] == ["enable --now llama-trial-chat.timer"]


def test_second_run_keeps_the_earlier_configuration(node):
    node.begin()
    node.snapshots.drop()
    node.snapshots.open("2026-11-23T21:00:00Z")
    node.write({HEAD: "new, with more context\n"})
    began, record = node.begin()
    assert began and record["until"] == "2026-11-24T08:00:00Z"
    node.revert()
    assert node.content() == node.before


def test_end_restores_and_restarts_only_the_head(node):
    node.begin()
    record = node.revert()
    assert (record["state"], record["at"], record["reason"]) == ("reverted", "2026-11-24T08:00:00Z", "")
    assert node.content() == node.before
    assert node.calls[2:] == [
        "daemon-reload",
        "restart --no-block llama-head-chat.service",
        "disable --now llama-trial-chat.timer",
        "daemon-reload",
    ]
    assert node.left() == [RECORD]
    assert node.revert() is None and node.calls[6:] == []
    assert node.trials.report()[0]["state"] == "reverted"


def test_trial_ends_after_its_time_and_the_switch(node):
    node.begin()
    node.now = NOW + 43199
    assert node.trials.revert("chat") is None
    opened = node.root / "var/lib/llama-cluster/rollback/open.json"
    node.now = NOW + 43200
    os.utime(str(opened), (node.now, node.now))
    with pytest.raises(Refusal, match="a switch is under way"):
        node.trials.revert("chat")
    assert len(node.left()) == 4
    # The run has died.
    node.now += trials.SWITCH_TAKES
    assert node.trials.revert("chat")["state"] == "reverted"


def test_interrupted_end_is_finished(node):
    node.begin()
    node.write({HEAD: "old\n"})
    (node.root / TEMPLATE).unlink()
    assert node.revert()["state"] == "reverted" and node.content() == node.before


@pytest.mark.parametrize(
    ("state", "stale", "restarts"),
    [("active", True, 1), ("active", False, 0), ("failed", False, 1), ("inactive", True, 0), (None, True, 0)],
)
def test_head_restarts_unless_it_is_stopped(node, state, stale, restarts):
    node.begin()
    node.state, node.stale = state, stale
    record = node.revert()
    assert record["reason"] == ("" if state in ("active", "failed") else "llama-head-chat.service did not run then")
    assert record["state"] == "reverted" and node.content() == node.before
    assert node.calls.count("restart --no-block llama-head-chat.service") == restarts


@pytest.mark.parametrize("odd", [HEAD, OLD])
def test_changed_file_or_missing_model_keeps_configuration(node, odd):
    node.begin()
    (node.root / OLD).unlink()
    if odd == HEAD:
        node.write({HEAD: "edited\n", OLD: "GGUF"})
    before = node.content()
    record = node.revert()
    assert (record["state"], record["reason"]) == (
        "failed",
        f"/{odd} {'was changed since' if odd == HEAD else 'is gone'}",
    )
    del before[SERVICE], before[TIMER]
    assert node.content() == before and not any("restart" in call for call in node.calls)
    assert node.left() == [RECORD]


def test_kept_trial_leaves_only_what_serves(node):
    node.begin()
    after = {path: text for path, text in node.content().items() if path not in (SERVICE, TIMER)}
    assert node.trials.end("chat", check=True)["state"] == "running" and len(node.left()) == 4
    assert node.trials.end("chat")["state"] == "running"
    assert node.calls[2:] == [
        "stop llama-trial-chat.service llama-trial-chat.timer",
        "disable --now llama-trial-chat.timer",
        "daemon-reload",
    ]
    assert node.content() == after and node.left() == [] and node.trials.report() == []
    assert node.trials.end("chat") is None and node.revert() is None


def test_rollback_ends_the_trial_it_restores(node):
    node.begin()
    assert node.trials.settle() == []
    node.snapshots.restore("2026-11-23T20:00:00Z")
    assert node.trials.settle(check=True) == ["chat"] and len(node.left()) == 4
    assert node.trials.settle() == ["chat"] and node.left() == []


def test_check_mode_changes_nothing(node):
    node.snapshots.drop()
    assert node.begin(check=True)[0] and node.left() == [] and node.calls == []


def test_start_needs_a_snapshot_and_a_change(node):
    node.write({HEAD: "old\n", PLAN: "[]\n"})
    (node.root / TEMPLATE).unlink()
    with pytest.raises(Refusal, match="the configuration of before seen"):
        node.begin()
    node.snapshots.drop()
    with pytest.raises(Refusal, match="no open snapshot seen"):
        node.begin()
    assert node.left() == []


def test_unmanaged_unit_is_kept(node):
    node.write({TIMER: "[Timer]\nOnCalendar=daily\n"})
    with pytest.raises(Refusal, match="llama-trial-chat.timer: an unmanaged unit seen"):
        node.begin()
    assert (node.root / TIMER).read_text() == "[Timer]\nOnCalendar=daily\n" and not (node.root / RECORD).exists()


@pytest.mark.parametrize(
    "record", ["[]", "{}", "[" * 100000, {"until": "tomorrow"}, {"service": "other"}, {"files": []}]
)
def test_damaged_record_is_refused(node, record):
    if isinstance(record, dict):
        sound = dict(dict.fromkeys((*trials.REPORTED, "model"), ""), service="chat", until="2026-11-24T08:00:00Z")
        record = json.dumps({**sound, "files": {}, **record})
    node.write({RECORD: record})
    with pytest.raises(Refusal, match="trial-chat.json is no record of a trial .*: remove it"):
        node.trials.report()
