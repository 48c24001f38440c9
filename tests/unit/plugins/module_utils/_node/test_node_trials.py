# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A trial of another quant, on a node that is a directory, with a systemctl that only notes what it is told."""

import json
import re
import shutil
import subprocess

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._node import (
    managed,
    paths,
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
    """A switch of chat has been made on it, and its snapshot is open."""

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
        self.uptime = 7200
        self.trials = trials.Trials(str(root), self.run, self.look, lambda: self.now, lambda: self.uptime)

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

    def left(self):
        return sorted(str(path.relative_to(self.root)) for path in self.root.rglob("*trial*"))


@pytest.fixture(name="node")
def fixture_node(tmp_path):
    return Node(tmp_path)


def test_it_begins_with_a_timer_of_wall_clock_time(node):
    began, record = node.begin()
    assert began and record["until"] == "2026-11-24T08:00:00Z"
    assert node.calls == ["daemon-reload", "enable --now llama-trial-chat.timer"]
    timer = (node.root / TIMER).read_text()
    assert "OnCalendar=2026-11-24 08:00:00 UTC\nPersistent=true\n" in timer and "WantedBy=timers.target" in timer
    unit = (node.root / SERVICE).read_text()
    assert "ExecStart=/opt/llama-cluster/bin/llama-program trial chat\n" in unit
    # What is ours says so, and nothing of it is left to be filled in.
    assert managed.is_managed_unit(str(node.root / TIMER)) and managed.is_managed_unit(str(node.root / SERVICE))
    assert not re.search("[{}]", timer + unit)
    assert node.trials.told() == [dict(dict.fromkeys(trials.TOLD, ""), **{k: record[k] for k in trials.TOLD})]
    assert (node.root / RECORD).stat().st_mode & 0o777 == 0o600
    assert sorted(record["files"]) == [PLAN, TEMPLATE, HEAD]


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="no systemd-analyze on this machine")
def test_systemd_reads_what_is_written(node):
    node.begin()
    unit = node.root / SERVICE
    unit.write_text(unit.read_text().replace("/opt/llama-cluster/bin/llama-program", "/bin/true"))
    seen = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(node.root / TIMER), str(unit)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (seen.returncode, seen.stdout + seen.stderr) == (0, "")


def test_a_second_run_leaves_its_end_alone(node):
    node.begin()
    before, node.now = (node.root / RECORD).read_text(), NOW + 3600
    assert node.begin() == (False, json.loads(before))
    assert (node.root / RECORD).read_text() == before
    # The timer may have been stopped by hand, or the first run have died before it started it.
    assert node.calls[2:] == ["enable --now llama-trial-chat.timer"]


def test_a_second_run_with_another_configuration_goes_back_to_what_was_before_the_first(node):
    node.begin()
    node.snapshots.drop()
    node.snapshots.open("2026-11-23T21:00:00Z")
    node.write({HEAD: "new, with more context\n"})
    began, record = node.begin()
    assert began and record["until"] == "2026-11-24T08:00:00Z"
    node.trials.revert("chat")
    assert node.content() == node.before


def test_its_end_puts_back_what_was_before_and_restarts_the_head_alone(node):
    node.begin()
    node.now = NOW + 43201
    record = node.trials.revert("chat")
    assert (record["state"], record["at"], record["reason"]) == ("reverted", "2026-11-24T08:00:01Z", "")
    assert node.content() == node.before
    assert node.calls[2:] == [
        "daemon-reload",
        "restart --no-block llama-head-chat.service",
        "disable --now llama-trial-chat.timer",
        "daemon-reload",
    ]
    assert node.left() == [RECORD]
    # Once more, as after a crash of what runs it: nothing.
    assert node.trials.revert("chat") is None and node.calls[6:] == []
    assert node.trials.told()[0]["state"] == "reverted"


def test_one_that_died_in_the_middle_is_finished(node):
    node.begin()
    node.write({HEAD: "old\n"})
    (node.root / TEMPLATE).unlink()
    assert node.trials.revert("chat")["state"] == "reverted"
    assert node.content() == node.before


@pytest.mark.parametrize(
    ("state", "stale", "restarts"),
    [
        ("active", True, 1),
        ("active", False, 0),
        ("activating", False, 1),
        ("failed", False, 1),
        ("inactive", True, 0),
        ("deactivating", True, 0),
        (None, True, 0),
    ],
)
def test_head_restarts_unless_it_is_stopped(node, state, stale, restarts):
    node.begin()
    node.state, node.stale = state, stale
    record = node.trials.revert("chat")
    stopped = state in ("inactive", "deactivating", None)
    assert record["reason"] == ("llama-head-chat.service did not run then" if stopped else "")
    assert record["state"] == "reverted" and node.content() == node.before
    assert node.calls.count("restart --no-block llama-head-chat.service") == restarts


def test_what_somebody_has_configured_since_stays(node):
    node.begin()
    node.write({HEAD: "edited by hand\n"})
    before = node.content()
    record = node.trials.revert("chat")
    assert (record["state"], record["reason"]) == (
        "failed",
        "/etc/systemd/system/llama-head-chat.service was changed since",
    )
    del before[SERVICE], before[TIMER]
    assert node.content() == before and not any("restart" in call for call in node.calls)


def test_without_the_old_model_the_new_one_stays(node):
    node.begin()
    (node.root / OLD).unlink()
    # Its disk may still be mounted: the program is asked again for an hour, and for one after each boot.
    for now, uptime in ((NOW + 43200 + 3599, 7200), (NOW + 90000, 3599)):
        node.now, node.uptime = now, uptime
        with pytest.raises(Refusal, match="/opt/models/m.Q4_K_M.gguf is not there, it is needed to go back: mount its"):
            node.trials.revert("chat")
    assert len(node.left()) == 4 and node.trials.told()[0]["state"] == "running"
    node.now, node.uptime = NOW + 43200 + 3600, 3600
    record = node.trials.revert("chat")
    assert (record["state"], record["reason"]) == ("failed", "/opt/models/m.Q4_K_M.gguf is gone")
    assert (node.root / HEAD).read_text() == "new\n" and node.left() == [RECORD]


def test_kept_it_leaves_nothing_but_what_serves(node):
    node.begin()
    after = {path: text for path, text in node.content().items() if path not in (SERVICE, TIMER)}
    assert node.trials.end("chat", check=True)["state"] == "running" and len(node.left()) == 4
    # A revert that is under way is waited for.
    assert node.trials.end("chat")["state"] == "running"
    assert node.calls[2:] == [
        "stop llama-trial-chat.service llama-trial-chat.timer",
        "disable --now llama-trial-chat.timer",
        "daemon-reload",
    ]
    assert node.content() == after and node.left() == [] and node.trials.told() == []
    assert node.trials.end("chat") is None and node.trials.revert("chat") is None


def test_a_rollback_ends_the_trial_of_what_it_has_put_back(node):
    node.begin()
    assert node.trials.settle() == []
    node.snapshots.restore("2026-11-23T20:00:00Z")
    assert node.trials.settle(check=True) == ["chat"] and len(node.left()) == 4
    assert node.trials.settle() == ["chat"] and node.left() == []


def test_a_rollback_within_a_trial_goes_on_with_it(node):
    """A second run with other settings has a snapshot of the first one."""
    node.begin()
    first = node.content()
    node.write({HEAD: "newer\n"})
    node.begin()
    node.write({HEAD: "new\n"})
    assert node.trials.settle(check=True) == node.trials.settle() == [] and node.content() == first
    node.now = NOW + 43200
    assert node.trials.revert("chat")["state"] == "reverted" and (node.root / HEAD).read_text() == "old\n"


def test_check_mode_foretells_it(node):
    node.snapshots.drop()
    assert node.begin(check=True)[0] and node.left() == [] and node.calls == []


def test_without_a_snapshot_or_a_change_there_is_no_trial(node):
    node.write({HEAD: "old\n", PLAN: "[]\n"})
    (node.root / TEMPLATE).unlink()
    with pytest.raises(Refusal, match="llama_services.chat: the configuration of before seen, another one is needed"):
        node.begin()
    node.snapshots.drop()
    with pytest.raises(Refusal, match="llama_services.chat: no open snapshot seen, the one of the switch is needed"):
        node.begin()
    assert node.left() == []


def test_a_trial_that_cannot_begin_is_none(node):
    def broken(*words):
        node.run(*words)
        if words[0] == "enable":
            raise Refusal("systemctl enable: failed (no space left): see journalctl")

    node.trials.run = broken
    with pytest.raises(Refusal, match="no space left"):
        node.begin()
    assert node.left() == []


def test_a_unit_of_somebody_else_is_left_alone(node):
    node.write({TIMER: "[Timer]\nOnCalendar=daily\n"})
    with pytest.raises(Refusal, match="llama-trial-chat.timer: a unit of somebody else seen, a free name is needed"):
        node.begin()
    assert (node.root / TIMER).read_text() == "[Timer]\nOnCalendar=daily\n" and not (node.root / RECORD).exists()


@pytest.mark.parametrize(
    "record",
    [
        "[]",
        "{}",
        '{"service": "chat"}',
        "[" * 100000,
        {"until": "tomorrow"},
        {"until": 7},
        {"service": "other"},
        {"files": {"etc/passwd": {"before": None, "after": None}}},
        {"files": {"etc/llama-cluster/../passwd": {"before": None, "after": None}}},
        {"files": {HEAD: {"before": {"content": "?"}, "after": None}}},
        {"files": {HEAD: {"before": None}}},
        {"files": [HEAD]},
    ],
)
def test_a_damaged_record_is_named(node, record):
    if isinstance(record, dict):
        whole = dict(dict.fromkeys((*trials.TOLD, "model"), ""), service="chat", until="2026-11-24T08:00:00Z", files={})
        record = json.dumps(dict(whole, **record))
    node.write({RECORD: record})
    with pytest.raises(Refusal, match="trial-chat.json is no record of a trial .*: remove it"):
        node.trials.told()


def test_a_record_goes_with_the_rest_of_ours(node):
    node.begin()
    removal = Removal(root=str(node.root))
    removal.node_files()
    assert str(node.root / RECORD) in removal.removed
    assert paths.TRIALS.endswith("trial-*.json")
