# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

import json
from pathlib import Path

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._node import timeline
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._text import Refusal

# Captured in the lab: kill -9 of a worker that was generating, at BROKEN, as the journals of both nodes have it.
FIXTURES = Path(__file__).resolve().parents[3] / "fixtures"
BROKEN = 1795293413.786893
HEAD, WORKER = "llama-head-chat.service", "llama-rpc-chat.service"


def journal(name):
    return (FIXTURES / ("journal_%s.json" % name)).read_text()


def seen(name, unit):
    return [
        (event["kind"], round(event["at"] - BROKEN, 3))
        for event in timeline.parse_journal(journal(name), [unit], BROKEN)
        if event["kind"] != "says"
    ]


def entry(message, at=BROKEN + 1, **fields):
    return json.dumps(dict({"MESSAGE": message, "__REALTIME_TIMESTAMP": str(int(at * 1e6))}, **fields))


def watchdog(message):
    return timeline.parse_journal(entry(message, _SYSTEMD_UNIT="llama-watchdog.service"), [HEAD, WORKER], BROKEN)


def test_a_worker_that_was_killed():
    assert seen("worker", WORKER) == [
        ("exited", 0.062),
        ("failed", 0.062),
        ("scheduled", 1.099),
        ("stopped", 1.099),
        ("started", 1.146),
    ]


def test_its_head_aborts_and_waits():
    assert seen("head", HEAD) == [
        ("exited", 0.073),
        ("failed", 0.213),
        ("scheduled", 0.599),
        ("stopped", 0.599),
        ("started", 1.605),
    ]
    events = timeline.parse_journal(journal("head"), [HEAD], BROKEN)
    assert [event["text"] for event in events if event["kind"] == "exited"] == ["code=killed, status=6/ABRT"]
    waits = [event["text"] for event in events if event["kind"] == "says"]
    assert (
        waits[0].startswith("waits for RPC worker 10.214.180.12:50052")
        and waits[1] == "RPC worker 10.214.180.12:50052 answers"
    )


def test_only_what_was_asked_for():
    assert timeline.parse_journal(journal("worker"), [HEAD], BROKEN) == []
    assert [
        event["kind"]
        for event in timeline.parse_journal(journal("worker"), [WORKER], BROKEN + 1.12)
        if event["kind"] != "says"
    ] == ["started"]


def test_a_servers_own_lines_are_no_events():
    assert not [
        event
        for event in timeline.parse_journal(journal("head"), [HEAD], 0)
        if "srv " in event["text"] or "RPC server" in event["text"]
    ]


def test_the_senders_time_counts():
    line = entry(
        "x.service: Main process exited, code=exited, status=0/SUCCESS",
        _SOURCE_REALTIME_TIMESTAMP="1795293414000001",
        _PID="1",
        UNIT=WORKER,
    )
    assert timeline.parse_journal(line, [WORKER], BROKEN)[0]["at"] == 1795293414.000001


@pytest.mark.parametrize(
    ("message", "unit", "kind", "text"),
    [
        (
            "head chat: lost its connection to 10.0.0.2:50052: restarting it",
            HEAD,
            "repair",
            "lost its connection to 10.0.0.2:50052",
        ),
        ("head chat: serves (loaded in 3.2 s)", HEAD, "serves", "serves (loaded in 3.2 s)"),
        ("worker chat: its process is stopped: restarting it", WORKER, "repair", "its process is stopped"),
        ("firewall: rules were gone: loaded again", None, "firewall", "rules were gone: loaded again"),
        (
            "head chat: stalled: not repaired again before 21:04:00 (3 repairs in 10 min)",
            HEAD,
            "refused",
            "stalled: not repaired again before 21:04:00 (3 repairs in 10 min)",
        ),
    ],
)
def test_the_watchdog_speaks(message, unit, kind, text):
    assert [(event["unit"], event["kind"], event["text"]) for event in watchdog(message)] == [(unit, kind, text)]


def test_other_line_ends_in_a_message():
    said = "head chat: serves \u2028\x85(loaded in 3.2 s)"
    line = json.dumps(json.loads(entry(said, _SYSTEMD_UNIT="llama-watchdog.service")), ensure_ascii=False)
    assert [event["text"] for event in timeline.parse_journal(line + "\n", [HEAD], BROKEN)] == [said[11:]]


def test_only_its_unit_is_the_watchdog():
    said = "head chat: lost its connection to 10.0.0.2:50052: restarting it"
    # A line of `logger -t llama-watchdog` by any user.
    pretended = entry(
        said, SYSLOG_IDENTIFIER="llama-watchdog", _UID="1000", _SYSTEMD_UNIT="session-3.scope", _COMM="logger"
    )
    assert timeline.parse_journal(pretended, [HEAD, WORKER], BROKEN) == []


def test_journal_is_matched_by_fields_of_journald(tmp_path, monkeypatch):
    (tmp_path / "journalctl").write_text("#!/bin/sh\nprintf '%s\\n' \"$@\"\n")
    (tmp_path / "journalctl").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    # The newest first.
    asked = timeline.read_journal(timeline.matches([HEAD]), 0).split()[::-1]
    assert [match for match in asked if "=" in match and not match.startswith("--")] == [
        "_PID=1",
        "UNIT=" + HEAD,
        "_SYSTEMD_UNIT=llama-watchdog.service",
        "_SYSTEMD_UNIT=" + HEAD,
    ]


def test_other_lines_of_the_watchdog_are_skipped():
    assert watchdog("head other: lost its connection to 10.0.0.2:50052: restarting it") == []
    assert watchdog("reads its configuration again") == []


def test_a_message_that_is_no_text():
    assert timeline.parse_journal(entry([255, 10], UNIT=WORKER, _PID="1"), [WORKER], BROKEN) == []


def test_a_process_started_to_the_microsecond():
    shown = (
        "Id=%s\nActiveState=active\nSubState=running\nResult=success\nMainPID=818\nNRestarts=1\nExecMainStartTimestampMonotonic=36694548246\n"
        % WORKER
    )
    units = timeline.parse_units(shown, now=1795293500.5, monotonic=36700.0)
    assert units == {
        WORKER: {
            "active_state": "active",
            "sub_state": "running",
            "result": "success",
            "main_pid": 818,
            "restarts": 1,
            "started_at": 1795293495.048246,
        }
    }
    assert timeline.parse_units("Id=x\nExecMainStartTimestampMonotonic=0\n", 1, 1)["x"]["started_at"] is None


def test_no_journal_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Refusal, match=r"journalctl cannot be run \(No such file or directory\)"):
        timeline.timeline([WORKER], 0)
    (tmp_path / "journalctl").write_text("#!/bin/sh\necho 'No journal files were found.' >&2\nexit 1\n")
    (tmp_path / "journalctl").chmod(0o755)
    with pytest.raises(Refusal, match="No journal files were found"):
        timeline.timeline([WORKER], 0)


HAPPENED = [
    {"at": at, "kind": kind, "text": text}
    for at, kind, text in (
        *((1.0, "started", "Started"), (2.0, "says", "waits for RPC worker n2:50052"), (3.0, "exited", "code=killed")),
        *((4.0, "started", "Started"), (4.0, "scheduled", "Scheduled"), (5.0, "repair", "it hangs")),
        (6.0, "firewall", "rules were gone"),
    )
]


@pytest.mark.parametrize(
    ("fault", "after", "at"),
    [
        ({"kind": "restart"}, 0, 3.0),
        ({"kind": "restart"}, 3.0, 4.0),
        ({"kind": "away"}, 4.0, 5.0),
        ({"kind": "away"}, 5.0, None),
        ({"kind": "start"}, 0, 3.0),
        ({"kind": "start"}, 2.5, 5.0),
        ({"kind": "start"}, 4.0, None),
        ({"kind": "start", "says": "waits for"}, 0, 2.0),
        ({"kind": "start", "says": "waits for"}, 2.0, None),
        ({"kind": "start", "says": "code"}, 0, None),
        ({"kind": "firewall"}, 0, 6.0),
        ({"kind": "firewall"}, 6.0, None),
    ],
)
def test_how_a_fault_shows(fault, after, at):
    assert timeline.noticed(HAPPENED, fault, after) == at
