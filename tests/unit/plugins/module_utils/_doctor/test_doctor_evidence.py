# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The doctor's lines of the journal, its probes, and the timeline of a failure."""

import json
import re
import socket
import threading
import time
from pathlib import Path

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._doctor import (
    evidence,
    explain,
    journal,
    judge,
    system,
    units,
)
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._llama import server as llama_server
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._node import managed, paths
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._node.units import Unit
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._text import Refusal
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils.programs import doctor
from ansible_collections.thefermisea.llama_cluster.tests.unit import fake_llama_server as fake

HEAD, WORKER = "llama-head-chat.service", "llama-rpc-chat.service"
AT = 1795548339.5


def entry(text, after=0.0, **fields):
    return json.dumps(dict({"MESSAGE": text, "__REALTIME_TIMESTAMP": str(int((AT + after) * 1e6))}, **fields))


def of_systemd(text, unit, after=0.0):
    return entry(text, after, _PID="1", UNIT=unit)


def of_server(text, unit, after=0.0):
    return entry(text, after, _PID="818", _SYSTEMD_UNIT=unit, _COMM="llama-server")


def of_watchdog(text, after=0.0):
    return entry(text, after, _PID="247", _SYSTEMD_UNIT="llama-watchdog.service", _COMM="python3")


ENDED = "%s: Main process exited, code=killed, status=9/KILL"


def because(*entries):
    lines = journal.explained(list(journal.parse(entries, [HEAD, WORKER])))
    return [line["because"] for line in lines if "because" in line]


@pytest.mark.parametrize(
    "before, reason",
    [
        ([], "unknown"),
        ([of_watchdog("worker chat: its process has been stopped for 3 s: restarting it", -0.2)], "watchdog"),
        # A line of another unit.
        ([of_watchdog("head chat: lost its connection to RPC worker 10.1.0.2:50052: restarting it", -0.2)], "unknown"),
        ([of_systemd(WORKER + ": A process of this unit has been killed by the OOM killer.", WORKER, -0.1)], "memory"),
        ([of_systemd("Stopping llama-rpc-chat.service - llama.cpp RPC worker of chat...", WORKER, -1)], "stop"),
        # Long before.
        ([of_systemd("Stopping llama-rpc-chat.service - llama.cpp RPC worker of chat...", WORKER, -60)], "unknown"),
        ([of_server("Failed to create server socket", WORKER, -0.1)], "port"),
        # Lines of servers are no lines of systemd.
        ([of_server("Stopping llama-rpc-chat.service", WORKER, -0.1)], "unknown"),
    ],
)
def test_reason_of_end_is_line_before(before, reason):
    assert because(*before, of_systemd(ENDED % WORKER, WORKER)) == [reason]


def test_kernel_kill_is_reason_memory():
    def killed(name):
        return entry("Memory cgroup out of memory: Killed process 818 (%s) total-vm:1kB" % name, 1, _TRANSPORT="kernel")

    assert because(of_systemd(ENDED % WORKER, WORKER), killed("ggml-rpc-serve")) == ["memory"]
    assert because(of_systemd(ENDED % WORKER, WORKER), killed("python3")) == ["unknown"]


@pytest.mark.parametrize(
    "text, reason",
    [
        ("amdgpu 0000:03:00.0: amdgpu: ring comp_1.0.0 timeout, signaled seq=3, emitted seq=4", "card"),
        ("xe 0000:03:00.0: [drm] Tile0: GT0: Engine reset: engine_class=ccs, logical_mask: 0x1", "card"),
        ("i915 0000:03:00.0: [drm] GPU HANG: ecode 12:1:85dffffb, in ggml-rpc-server [1808332]", "card"),
        ("amdgpu 0000:03:00.0: amdgpu: PSP is resuming...", "unknown"),
    ],
)
def test_reset_of_a_card_is_a_reason(text, reason):
    reset = entry(text, -1, _TRANSPORT="kernel")
    assert because(reset, of_systemd(ENDED % WORKER, WORKER)) == [reason]


def test_lost_device_is_reason_card():
    lost = of_server("what():  vk::Queue::submit: ErrorDeviceLost", WORKER, -0.2)
    assert because(lost, of_systemd(ENDED % WORKER, WORKER)) == ["card"]


def test_lines_during_stop_are_marked():
    lost = "Remote RPC server crashed or returned malformed response"
    stop = of_systemd("Stopping llama-head-chat.service - llama.cpp head of chat...", HEAD, -1)
    entries = [of_server(lost, HEAD, -100), stop, of_server(lost, HEAD), of_server(lost, WORKER)]
    lines = journal.explained(list(journal.parse(entries, [HEAD, WORKER])))
    assert [line["stopping"] for line in lines if line["by"] == "server"] == [False, True, False]


def test_other_and_invalid_lines_are_skipped():
    text = iter(
        [
            "cut off{",
            "[]",
            entry(["not", "text"], _SYSTEMD_UNIT=HEAD),
            entry("no time", __REALTIME_TIMESTAMP="x", _SYSTEMD_UNIT=HEAD),
            entry("of a job", _SYSTEMD_UNIT="job.service"),
            # A forged sender.
            entry(
                ENDED % HEAD, UNIT=HEAD, _PID="4711", _SYSTEMD_UNIT="job.service", SYSLOG_IDENTIFIER="llama-watchdog"
            ),
        ]
    )
    assert list(journal.parse(text, [HEAD])) == []


def test_matching_lines_are_kept(monkeypatch):
    said = {
        "events": [
            of_systemd("Started it", HEAD),
            entry("usb 1-1: new device", _TRANSPORT="kernel"),
            entry("Memory cgroup out of memory: Killed process 8 (llama-server)", _TRANSPORT="kernel"),
        ],
        "servers": [of_server("all slots are idle", HEAD), of_server("something of a rule", HEAD)],
    }
    asked = []

    def ask(command, seconds):
        asked.append(command)
        return said["servers" if "--lines=%d" % journal.SERVERS_MOST in command else "events"]

    monkeypatch.setattr(journal, "ask", ask)
    lines = journal.read([HEAD], AT - 60, 5, ["of a r.le"])
    assert sorted(line["text"] for line in lines) == [
        "Memory cgroup out of memory: Killed process 8 (llama-server)",
        "Started it",
        "something of a rule",
    ]
    assert all("--since=@%d" % (AT - 60) in command for command in asked)


def test_watchdog_line_belongs_to_named_unit():
    (line,) = journal.parse([of_watchdog("router fast: it says that it is well, but: restarting it")], [HEAD])
    assert (line["unit"], line["by"], line["text"]) == (
        "llama-router-fast.service",
        "watchdog",
        "it says that it is well, but: restarting it",
    )


def test_line_is_over_for_healthy_unit():
    known = [
        {
            "name": HEAD,
            "service": "chat",
            "kind": "head",
            "active_state": "active",
            "state": "ready",
            "started_at": AT + 1,
        },
        {"name": WORKER, "service": "chat", "kind": "rpc", "active_state": "activating", "started_at": None},
    ]
    lines = [{"at": AT, "unit": unit, "by": "server", "text": ""} for unit in (HEAD, WORKER, None)]
    lines.append({"at": AT, "unit": None, "by": "watchdog", "text": "firewall: rules were gone: loaded again"})
    seen = evidence.annotated(lines, {"units": known, "firewall": {"fences": [{"fenced": True}]}})
    assert [line["over"] for line in seen] == [True, False, None, True]
    assert [line.get("service") for line in seen] == ["chat", "chat", None, None]
    known[0]["state"] = "loading"
    assert evidence.annotated(lines, {"units": known, "firewall": {"fences": [{"fenced": False}]}})[0]["over"] is False
    assert lines[3]["over"] is False
    # It has served since.
    lines.append({"at": AT + 9, "unit": HEAD, "by": "watchdog", "text": "serves (loaded in 0.8 s)"})
    assert evidence.annotated(lines, {"units": known})[0]["over"] is True


def test_repeated_line_is_one_finding():
    rule = {
        "name": "r",
        "each": "lines",
        "severity": "problem",
        "sentence": "{unit} {words}",
        "cause": "c",
        "fix": "f",
        "command": "run {words}",
        "when": [{"path": "text", "matches": "^(?P<words>.*)!"}],
    }
    lines = [
        {"at": at, "unit": unit, "text": "a b; rm -rf /!", "over": over}
        for at, unit, over in ((1, HEAD, True), (2, HEAD, True), (3, WORKER, False))
    ]
    found = judge.judge([rule], {"node": "node1", "lines": lines})
    assert [(one["unit"], one["severity"], one["count"], one["at"]) for one in found] == [
        (WORKER, "problem", 1, 3),
        (HEAD, "notice", 2, 2),
    ]
    # Fields are quoted for the shell.
    assert found[0]["command"] == "run 'a b; rm -rf /'"
    assert [one["severity"] for one in judge.judge([dict(rule, stays=True)], {"node": "node1", "lines": lines})] == [
        "problem",
        "problem",
    ]


def test_unknown_value_is_no_fault():
    for operator in judge.OPERATORS:
        rule = {
            "name": "r",
            "each": "units",
            "severity": "problem",
            "sentence": "s",
            "cause": "c",
            "fix": "f",
            "command": "x",
            "when": [{"path": "slots", operator: "x"}],
        }
        assert judge.judge([rule], {"units": [{}, {"slots": None}]}) == []


def test_report_lists_findings_then_failures():
    assert judge.lines_of([], {"cards": "no answer in 15 s"}) == ["not looked at: cards: no answer in 15 s"]
    finding = {
        "severity": "problem",
        "over": False,
        "node": "node1",
        "service": "chat",
        "sentence": "it is down",
        "at": AT,
        "count": 2,
        "cause": "c",
        "fix": "f",
        "command": "x",
    }
    assert judge.lines_of([finding], {}) == [
        "problem: node1 chat: it is down (2026-11-24 19:25:39 UTC, 2 times)",
        "  cause: c",
        "  fix:   f",
        "  run:   x",
    ]
    assert judge.lines_of([dict(finding, severity="notice", over=True)], {}) == [
        "notice: node1 chat: it is down (2026-11-24 19:25:39 UTC, 2 times)"
    ]


@pytest.mark.parametrize(
    "severities, seconds, end",
    [
        ([], 21600, "healthy"),
        (["over", "over"], 21600.4, "healthy; repaired in the last 6 h: 2"),
        (["over"], 600, "healthy; repaired in the last 10 min 00 s: 1"),
        (["notice"], 21600, "healthy"),
        (["over", "problem"], 21600, "1 finding"),
        (["problem", "warning", "notice"], 21600, "2 findings"),
    ],
)
def test_end_of_report(severities, seconds, end):
    findings = [{"severity": "notice" if one == "over" else one, "over": one == "over"} for one in severities]
    assert judge.end_of(findings, seconds) == end


def test_hanging_probe_delays_nothing():
    began = time.monotonic()

    def breaks():
        raise ValueError("broken")

    seen, failed = evidence.gather(
        {"hangs": (0.2, lambda: time.sleep(30)), "breaks": (5, breaks), "sees": (5, lambda: 1)}
    )
    assert time.monotonic() - began < 5
    assert seen == {"sees": 1}
    assert failed == {"hangs": "no answer in 0.2 s", "breaks": "broken"}


@pytest.mark.parametrize("text, seconds", [("90s", 90), ("10m", 600), ("6h", 21600), ("2d", 172800)])
def test_since_accepts_units(text, seconds):
    assert explain.since_of(text, AT) == AT - seconds


def test_since_is_time_or_refused():
    assert explain.since_of("1795548339", AT) == 1795548339
    with pytest.raises(Refusal, match="^since: yesterday seen, a time such as 10m, 6h or 2d is needed: correct it$"):
        explain.since_of("yesterday", AT)


def event(kind, after, unit=HEAD, node="node1", text=""):
    return {"at": AT + after, "node": node, "unit": unit, "kind": kind, "text": text}


def test_timeline_is_of_last_failure():
    events = [
        event("exited", -900, text="code=killed, status=9/KILL"),
        event("repair", 0.5, text="lost its connection to RPC worker 10.1.0.2:50052"),
        event("exited", 0, WORKER, "node2", "code=killed, status=9/KILL"),
        event("serves", 1.4, text="serves (loaded in 0.8 s)"),
        # A manual start later is no failure.
        event("started", 900),
    ]
    assert explain.timeline_of("chat", events, AT - 3600) == [
        "chat: what happened from 2026-11-24 19:25:39 UTC on, 1.4 s:",
        "  19:25:39 +  0.000 s  node2 llama-rpc-chat.service: its process ended: code=killed, status=9/KILL",
        "  19:25:40 +  0.500 s  node1 llama-head-chat.service: the watchdog restarts it: lost its connection to RPC "
        "worker 10.1.0.2:50052",
        "  19:25:40 +  1.400 s  node1 llama-head-chat.service: it serves (loaded in 0.8 s)",
    ]
    assert explain.timeline_of("chat", [event("started", 0)], AT - 60) == [
        "chat: no failure since 2026-11-24 19:24:39 UTC"
    ]


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ("chat", ["llama-head.service", "llama-rpc.service"]),
        ("llama-head", ["llama-head.service", "llama-rpc.service"]),
        ("llama-rpc.service", ["llama-head.service", "llama-rpc.service"]),
        ("llama-head-quick", ["llama-head-quick.service"]),
        ("quick", ["llama-head-quick.service"]),
    ],
)
def test_unit_names_select_their_service(asked, found, monkeypatch):
    there = [
        Unit("llama-head.service", "head", "chat"),
        Unit("llama-rpc.service", "rpc", "chat"),
        Unit("llama-head-quick.service", "head", "quick"),
    ]
    monkeypatch.setattr(explain, "unit_info", lambda patterns: there)
    monkeypatch.setattr(explain.timeline, "timeline", lambda units, since: {"events": [{"kind": "x", "units": units}]})
    assert explain.events_of(asked, 0, "node1") == [{"kind": "x", "units": found, "node": "node1"}]


def test_zero_filled_model_is_detected(tmp_path):
    whole, zeros, none = (str(tmp_path / name) for name in ("whole.gguf", "zeros.gguf", "none.gguf"))
    body = bytes(range(1, 256)) * 4000
    (tmp_path / "whole.gguf").write_bytes(b"GGUF" + body)
    (tmp_path / "zeros.gguf").write_bytes(b"GGUF" + body[: len(body) // 2] + bytes(len(body) // 2))
    found = {one["path"]: one for one in system.models({whole: "a", zeros: "b", none: "c"})}
    assert found[whole]["zero_blocks"] == 0 and found[whole]["magic"]
    assert found[zeros]["zero_blocks"] > 2
    assert found[none] == {"path": none, "service": "c", "exists": False}


def test_server_is_probed_with_its_key(monkeypatch):
    props = {"chat_template": "{% if enable_thinking %}"}
    seen = llama_server.Sample("ready", slots=2, busy=1, context=4096, requests=1.0, deferred=3.0, props=props)
    monkeypatch.setattr(units, "probe", lambda _api, router: llama_server.Sample("ready") if router else seen)
    record = {"kind": "head", "url": "http://127.0.0.1:8000", "main_pid": 77}
    found = units.ask(record, {})
    assert found == {
        **{"state": "ready", "slots": 2, "slot_context": 4096, "slots_busy": 1, "build_info": None, "thinks": True},
        **{"requests_processing": 1.0, "requests_deferred": 3.0},
    }
    assert units.ask(dict(record, kind="router"), {}) == {"state": "ready"}


@pytest.mark.parametrize("pid", [1 << 30, None])
def test_other_process_gets_no_key(tmp_path, pid):
    (tmp_path / "key").write_text("k3y\n")
    server = fake.FakeLlamaServer()
    record = {"kind": "head", "url": server.url, "main_pid": pid}
    found = units.ask(record, {"api_key_file": str(tmp_path / "key")})
    assert found["state"] == "down" and "it gets no key" in found["state_reason"]
    assert server.headers == []
    server.stop()


ANSWER = b"""HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n\r\n%s"""
METRICS = b"""# TYPE llama_gateway_names_unknown_total counter
llama_gateway_names_unknown_total{name="gpt-4"} 12
llama_gateway_names_unknown_total{name="other"} 0
llama_gateway_requests_total{service="chat",code="200"} 7
"""


def test_unknown_names_come_from_engine(tmp_path, monkeypatch):
    at = str(tmp_path / "gateway.sock")
    (tmp_path / "gateway.json").write_text('{"services": {}}')
    monkeypatch.setattr(paths, "GATEWAY_CONFIG", str(tmp_path / "gateway.json"))
    monkeypatch.setattr(system.engine_says, "__defaults__", (at,))
    assert system.gateway() == {"there": True, "asked": []}
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(at)
    listener.listen(1)

    def answer():
        stream = listener.accept()[0]
        assert stream.recv(4096).startswith(b"GET /metrics ")
        stream.sendall(ANSWER % (len(METRICS), METRICS))
        stream.close()

    thread = threading.Thread(target=answer)
    thread.start()
    assert system.gateway() == {"there": True, "asked": [{"model": "gpt-4", "count": 12}]}
    thread.join()
    listener.close()


WRONG, OVER = {"severity": "problem", "over": False}, {"severity": "notice", "over": True}


@pytest.mark.parametrize(
    "findings, failed, code",
    [
        ([], {}, 0),
        ([OVER], {}, 0),
        ([WRONG], {}, 1),
        ([OVER, WRONG], {"cards": "hung"}, 1),
        ([OVER], {"cards": "hung"}, 2),
    ],
)
def test_exit_status_of_program(monkeypatch, capsys, findings, failed, code):
    monkeypatch.setattr(doctor.os, "geteuid", lambda: 0)
    monkeypatch.setattr(doctor, "rules_of", list)
    monkeypatch.setattr(doctor.evidence, "collect", lambda *_asked: {"failed": failed})
    monkeypatch.setattr(doctor, "judge", lambda *_asked: findings)
    assert doctor.main(["--json"]) == code
    assert json.loads(capsys.readouterr().out) == {"evidence": {"failed": failed}, "findings": findings}


def test_program_needs_root_and_rules(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(doctor.os, "geteuid", lambda: 1000)
    assert doctor.main([]) == 2
    assert capsys.readouterr().err == "llama-doctor: user 1000 seen, root is needed: run sudo llama-doctor\n"
    missing = str(tmp_path / "doctor.json")
    with pytest.raises(Refusal, match="doctor.json: cannot be used .*, rules are needed: run site.yml$"):
        doctor.rules_of(missing)


def test_files_of_llama_doctor_are_managed():
    marks = dict(managed.NODE_FILES)
    assert re.search(marks[paths.DOCTOR], json.dumps({"rules": []}) + "\n", re.MULTILINE)
    template = Path(__file__).resolve().parents[5] / "roles/monitoring/templates/llama-doctor.j2"
    assert re.search(marks[paths.DOCTOR_PROGRAM], template.read_text(), re.MULTILINE)
    assert not re.search(marks[paths.DOCTOR_PROGRAM], "#!/bin/sh\nexec my-own-doctor\n", re.MULTILINE)
