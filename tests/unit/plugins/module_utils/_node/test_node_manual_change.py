# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The last manual change: what counts as one."""

import json
import os
from pathlib import Path

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._node import manual_change
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._node.timeline import parse_journal

FIXTURES = Path(__file__).resolve().parents[3] / "fixtures"
HEAD, WORKER = "llama-head-chat.service", "llama-rpc-chat.service"
# The moment at which the worker of the fixture was killed.
BROKEN = 1795293413.786893


def events(*kinds, unit=HEAD):
    return [{"at": float(number), "unit": unit, "kind": kind, "text": ""} for number, kind in enumerate(kinds)]


def test_restart_of_systemd_is_no_manual_change():
    seen = parse_journal((FIXTURES / "journal_worker.json").read_text(), [WORKER], BROKEN)
    assert manual_change.started(seen, False) == []
    own = manual_change.started(seen, True)
    assert [(one["unit"], round(one["at"] - BROKEN, 3)) for one in own] == [(WORKER, 1.146)]


@pytest.mark.parametrize(
    ("kinds", "manual", "by_itself"),
    [
        (["started"], [0.0], []),
        (["stopped", "started"], [1.0], []),
        (["exited", "failed", "scheduled", "stopped", "started"], [], [4.0]),
        # Nothing announced the second one.
        (["scheduled", "started", "stopped", "started"], [3.0], [1.0]),
        (["exited", "scheduled"], [], []),
    ],
)
def test_scheduled_start_is_no_manual_change(kinds, manual, by_itself):
    assert [one["at"] for one in manual_change.started(events(*kinds), False)] == manual
    assert [one["at"] for one in manual_change.started(events(*kinds), True)] == by_itself


def test_schedule_counts_for_its_own_unit():
    seen = events("scheduled") + [{"at": 1.0, "unit": WORKER, "kind": "started", "text": ""}]
    assert [one["unit"] for one in manual_change.started(seen, False)] == [WORKER]


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
    """The last change after this file was written last."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(manual_change, "changed_at", lambda path: 2.0 if path == str(node / name) else 1.0)
        found = manual_change.files_changed(str(node))
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
def test_managed_file_is_a_manual_change(node, name):
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
def test_other_files_do_not_count(node, name):
    (node / name).parent.mkdir(exist_ok=True)
    (node / name).write_text("")
    assert changed(node, name) is None


def test_modification_time_hides_nothing(node):
    """An editor or cp may set when a file was modified, but not when it changed."""
    path = node / "etc/llama-cluster/watchdog/head-chat.json"
    before = manual_change.files_changed(str(node))[0].at
    os.utime(path, (0, 0))
    assert manual_change.files_changed(str(node))[0].at >= before


def test_empty_node_has_no_change(tmp_path):
    assert manual_change.files_changed(str(tmp_path)) == []


@pytest.fixture
def journal(tmp_path, monkeypatch):
    """Stub output of journalctl and systemctl; journal(begins, *lines) in seconds before now."""
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
    monkeypatch.setattr(manual_change.time, "time", lambda: now)
    monkeypatch.setattr(
        manual_change, "files_changed", lambda: [manual_change.Change(now - 40 * 3600, "/etc/llama-cluster changed")]
    )
    return say


def ago(found):
    return round((found["now"] - found["at"]) / 3600, 2), found["what"]


def test_last_change_counts(journal):
    journal(90 * 3600, (7200, "Started llama.cpp head of chat."))
    found = manual_change.last_manual_change([HEAD])
    assert ago(found) == (2.0, HEAD + " was started")
    assert found["recovered"] is None and found["restart"] == {HEAD: "always"}


def test_recovery_is_no_manual_change(journal):
    journal(
        90 * 3600,
        (7201, HEAD + ": Scheduled restart job, restart counter is at 1."),
        (7200, "Started llama.cpp head of chat."),
    )
    found = manual_change.last_manual_change([HEAD])
    assert ago(found) == (40.0, "/etc/llama-cluster changed")
    assert found["recovered"] == {"at": found["now"] - 7200, "unit": HEAD}


def test_begin_of_the_journal_counts_as_change(journal):
    journal(3600)
    assert ago(manual_change.last_manual_change([HEAD])) == (1.0, "the journal begins")


def test_node_without_units_reads_no_journal(journal, monkeypatch):
    monkeypatch.setattr(manual_change, "read_journal", None)
    assert ago(manual_change.last_manual_change([])) == (40.0, "/etc/llama-cluster changed")
