# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The last hand: what counts as one, and what does not."""

import json
import os
from pathlib import Path

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._node import hand
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._node.timeline import parse_journal

FIXTURES = Path(__file__).resolve().parents[3] / "fixtures"
HEAD, WORKER = "llama-head-chat.service", "llama-rpc-chat.service"
# The moment at which the worker of the fixture was killed.
BROKEN = 1795293413.786893


def events(*kinds, unit=HEAD):
    return [{"at": float(number), "unit": unit, "kind": kind, "text": ""} for number, kind in enumerate(kinds)]


def test_a_restart_of_systemd_is_no_hand():
    seen = parse_journal((FIXTURES / "journal_worker.json").read_text(), [WORKER], BROKEN)
    assert hand.started(seen, False) == []
    own = hand.started(seen, True)
    assert [(one["unit"], round(one["at"] - BROKEN, 3)) for one in own] == [(WORKER, 1.146)]


@pytest.mark.parametrize(
    ("kinds", "by_hand", "by_itself"),
    [
        (["started"], [0.0], []),
        (["stopped", "started"], [1.0], []),
        (["exited", "failed", "scheduled", "stopped", "started"], [], [4.0]),
        # The second one was announced by nobody.
        (["scheduled", "started", "stopped", "started"], [3.0], [1.0]),
        (["exited", "scheduled"], [], []),
    ],
)
def test_what_announced_a_start_decides(kinds, by_hand, by_itself):
    assert [one["at"] for one in hand.started(events(*kinds), False)] == by_hand
    assert [one["at"] for one in hand.started(events(*kinds), True)] == by_itself


def test_what_is_scheduled_for_one_unit_starts_no_other():
    seen = events("scheduled") + [{"at": 1.0, "unit": WORKER, "kind": "started", "text": ""}]
    assert [one["unit"] for one in hand.started(seen, False)] == [WORKER]


@pytest.fixture
def node(tmp_path):
    for name in (
        "etc/systemd/system/llama-head-chat.service",
        "etc/systemd/system/sshd.service",
        "etc/llama-cluster/watchdog/head-chat.json",
        "opt/llama-cluster/lib/llama_cluster/_text.py",
        "var/lib/llama-cluster/prompt-chat.json",
    ):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
    (tmp_path / "opt/llama.cpp").mkdir()
    (tmp_path / "opt/llama.cpp/current").symlink_to("releases/b1")
    return tmp_path


def changed(node, name):
    """What is seen as the last change once this file has been written later than all others."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hand, "changed_at", lambda path: 2.0 if path == str(node / name) else 1.0)
        found = hand.files_changed(str(node))
    return found[0].what if found and found[0].at == 2.0 else None


@pytest.mark.parametrize(
    "name",
    [
        "etc/systemd/system/llama-head-chat.service",
        "etc/llama-cluster/watchdog/head-chat.json",
        "etc/llama-cluster/watchdog",
        "opt/llama-cluster/lib/llama_cluster/_text.py",
        "opt/llama.cpp/current",
    ],
)
def test_a_file_of_ours_that_changed_is_a_hand(node, name):
    assert changed(node, name) == "/%s changed" % name


@pytest.mark.parametrize(
    "name",
    [
        "etc/systemd/system/sshd.service",
        # A measurement.
        "var/lib/llama-cluster/prompt-chat.json",
        "opt/llama-cluster/lib/llama_cluster/__pycache__/_text.pyc",
    ],
)
def test_others_are_none(node, name):
    (node / name).parent.mkdir(exist_ok=True)
    (node / name).write_text("")
    assert changed(node, name) is None


def test_a_copied_time_hides_nothing(node):
    """An editor or cp may set when a file was modified, but not when it changed."""
    path = node / "etc/llama-cluster/watchdog/head-chat.json"
    before = hand.files_changed(str(node))[0].at
    os.utime(path, (0, 0))
    assert hand.files_changed(str(node))[0].at >= before


def test_a_node_without_anything_has_no_hand(tmp_path):
    assert hand.files_changed(str(tmp_path)) == []


@pytest.fixture
def journal(tmp_path, monkeypatch):
    """What journalctl and systemctl say; journal(begins, *lines) in seconds before now."""
    now = 1795300000.0

    def line(ago, message):
        fields = {"MESSAGE": message, "_PID": "1", "UNIT": HEAD, "__REALTIME_TIMESTAMP": str(int((now - ago) * 1e6))}
        return json.dumps(fields)

    def say(begins, *lines):
        (tmp_path / "all").write_text(line(begins, "x") + "\n")
        (tmp_path / "units").write_text("".join(line(*one) + "\n" for one in lines))

    (tmp_path / "journalctl").write_text(
        '#!/bin/sh\ncase "$*" in *UNIT=*) cat %s/units ;; *) cat %s/all ;; esac\n' % (tmp_path, tmp_path)
    )
    (tmp_path / "systemctl").write_text("#!/bin/sh\nprintf 'Id=%s\\nRestart=always\\n'\n" % HEAD)
    for name in ("journalctl", "systemctl"):
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setattr(hand.time, "time", lambda: now)
    monkeypatch.setattr(hand, "files_changed", lambda: [hand.Hand(now - 40 * 3600, "/etc/llama-cluster changed")])
    return say


def ago(found):
    return round((found["now"] - found["at"]) / 3600, 2), found["what"]


def test_the_last_of_all_counts(journal):
    journal(90 * 3600, (7200, "Started llama.cpp head of chat."))
    found = hand.last_hand([HEAD])
    assert ago(found) == (2.0, HEAD + " was started")
    assert found["recovered"] is None and found["restart"] == {HEAD: "always"}


def test_a_recovery_leaves_the_hours_alone(journal):
    journal(
        90 * 3600,
        (7201, HEAD + ": Scheduled restart job, restart counter is at 1."),
        (7200, "Started llama.cpp head of chat."),
    )
    found = hand.last_hand([HEAD])
    assert ago(found) == (40.0, "/etc/llama-cluster changed")
    assert found["recovered"] == {"at": found["now"] - 7200, "unit": HEAD}


def test_a_short_journal_says_nothing_of_what_was_before(journal):
    journal(3600)
    assert ago(hand.last_hand([HEAD])) == (1.0, "the journal begins")


def test_a_node_without_units_asks_no_journal(journal, monkeypatch):
    monkeypatch.setattr(hand, "ask", None)
    assert ago(hand.last_hand([])) == (40.0, "/etc/llama-cluster changed")
