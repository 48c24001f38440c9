# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

import contextlib
import json
import os
import socket
import sys

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._node import journal
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._node.notify import notify, say
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._text import Refusal

HEAD, WORKER, GATEWAY = "llama-head-chat.service", "llama-rpc-chat.service", "llama-gateway.service"
UNITS = [GATEWAY, HEAD, WORKER]
REQUEST = {"service": "chat", "node": "node1", "model": "m", "key": "team", "key_seen": "known", "status": 200}
REQUEST.update({"ttfb": 0.1234, "seconds": 2.5, "path": "/v1/secret", "client": "10.9.9.9", "more": "prompt"})


def said(message, at=1, unit=HEAD, **fields):
    """An entry by a unit's process; by systemd, about the unit, where _PID is 1."""
    of = {"UNIT": unit, "_SYSTEMD_UNIT": "init.scope"} if fields.get("_PID") == "1" else {"_SYSTEMD_UNIT": unit}
    return dict({"MESSAGE": message, "__REALTIME_TIMESTAMP": str(at * 1000000)}, **of, **fields)


def server(message, at=1, unit=HEAD):
    return said(message, at, unit, _COMM="llama-server")


@pytest.fixture(name="recent")
def fixture_recent(monkeypatch):
    """recent(entries, as they came) -> ([(seconds, unit, text or number of lines)], whether there was more)"""

    def look(*entries, since=0, service=None, lines=100, everything=False, units=()):
        asked = []

        def ask(arguments):
            asked.extend(arguments)
            yield from (json.dumps(entry) for entry in reversed(entries))

        monkeypatch.setattr(journal, "ask", ask)
        result = journal.recent(since, service, lines, everything, units or UNITS)
        assert (
            "--since=@%d" % max(0, since) in asked
            and "--reverse" in asked
            and "_SYSTEMD_UNIT=" + journal.WATCHDOG in asked
        )
        return [(line["at"], line["unit"], line["folded"] or line["text"]) for line in result["lines"]], result["more"]

    return look


def test_who_speaks_is_what_journald_saw(recent):
    entries = (
        said("Started it.", _PID="1"),
        said("head chat: hangs: restarting it", unit=journal.WATCHDOG),
        said("waits", _COMM="python3"),
        said("unmanaged", unit="cron.service"),
        dict(said("what any user sends", unit="session-3.scope"), UNIT=HEAD),
    )
    assert recent(*entries)[0] == [
        (1.0, HEAD, "Started it."),
        (1.0, journal.WATCHDOG, "head chat: hangs: restarting it"),
        (1.0, HEAD, "waits"),
    ]


def test_the_order_is_that_of_the_senders_clock(recent):
    late = dict(said("first", 5), _SOURCE_REALTIME_TIMESTAMP="1000007")
    assert [line[2] for line in recent(said("second", 2), late, said("third", 3))[0]] == ["first", "second", "third"]
    assert recent(late)[0][0][0] == 1.000007
    assert recent(late, since=2) == ([], False)
    # More days than there were since 1970.
    assert recent(late, since=-1e9)[0] == [(1.000007, HEAD, "first")]


SERVER = [
    ("0.01.021.300 I slot print_timing: id 0 | error = 0", False),
    ("slot print_timing: id 0 | task 1 | prompt eval time = 240.97 ms", False),
    ("\ttop_k = 40", False),
    ("Accepted client connection", False),
    ("0.01.021.300 D srv  x: y", False),
    ("0.01.021.300 W srv  init: --cache-idle-slots requires --cache-ram, disabling", True),
    ("0.01.021.300 E srv  load_model: no such file", True),
    ("0.05.255.901 I srv  llama_server: model loaded", True),
    ("main: server is listening on http://127.0.0.1:8000", True),
    ("CUDA error: out of memory", True),
    ("GGML_ASSERT(x) failed", True),
]


@pytest.mark.parametrize("message, shown", SERVER)
def test_routine_lines_are_folded(recent, message, shown):
    assert recent(server(message))[0] == [(1.0, HEAD, message.replace("\t", "?") if shown else 1)]
    assert recent(server(message), everything=True)[0] == [(1.0, HEAD, message.replace("\t", "?"))]


def test_the_rules_that_a_worker_finds_are_counted(recent):
    assert recent(said("table inet llama_cluster {", _COMM="nft"), said("}", _COMM="nft"))[0] == [(1.0, HEAD, 2)]
    assert recent(said("Error: No such file or directory", _COMM="nft"))[0][0][2].startswith("Error: ")


def test_folding_ends_at_a_shown_line(recent):
    entries = [server("slot a", 1), server("slot b", 2), server("slot c", 2, WORKER), said("waits", 3), server("d", 4)]
    assert recent(*entries)[0] == [(2.0, HEAD, 2), (2.0, WORKER, 1), (3.0, HEAD, "waits"), (4.0, HEAD, 1)]


def test_request_line_has_only_its_fields(recent):
    line = recent(said(json.dumps(REQUEST), unit=GATEWAY))[0][0][2]
    assert line == "chat: 200, model m, key team, first byte 0.12 s, 2.50 s"
    slow = dict(REQUEST, queued=1.2, prompt_tokens=812, prompt_seconds=0.3, tokens=64, generation_seconds=None)
    line = recent(said(json.dumps(slow), unit=GATEWAY))[0][0][2]
    assert line.endswith("0.12 s, 2.50 s, queue 1.20 s, prompt of 812 tokens 0.30 s, answer of 64 tokens -")
    slow = dict(REQUEST, queued=0.001, prompt_tokens="1", tokens=True)
    assert recent(said(json.dumps(slow), unit=GATEWAY))[0][0][2].endswith("0.12 s, 2.50 s")
    bare = {"key_seen": "none", "service": "chat", "status": None, "ttfb": True, "seconds": [1]}
    line = recent(said(json.dumps(bare), unit=GATEWAY))[0][0][2]
    assert line == "chat: -, model -, key -, first byte -, -"
    assert recent(said(json.dumps(REQUEST)))[0][0][2] == json.dumps(REQUEST)  # of a head it is no request


@pytest.mark.parametrize("status, shown", [(200, False), (304, False), (404, True), (500, True), (None, True)])
def test_the_gateways_own_pages_are_counted(recent, status, shown):
    page = said(json.dumps(dict(REQUEST, service=None, status=status)), unit=GATEWAY)
    assert (recent(page)[0][0][2] != 1) == shown
    assert recent(page, everything=True)[0][0][2] != 1


@pytest.mark.parametrize("message", ["{", "{}", "[1]", "{" * 5000, '{"key_seen": '])
def test_what_looks_like_a_request_and_is_none(recent, message):
    assert recent(said(message, unit=GATEWAY))[0][0][2].startswith(message[:500])


def test_hostile_text_is_harmless(recent):
    hostile = "a\x1b[2Jb\u202ec\nd" + "x" * 9000
    (line,) = recent(said(hostile))[0]
    assert line[2].startswith("a?[2Jb?c?d") and len(line[2]) == journal.MOST_LETTERS + 3
    model = json.dumps(dict(REQUEST, model=hostile, key={"a": 1}, status="\x07"))
    line = recent(said(model, unit=GATEWAY))[0][0][2]
    assert line.isprintable() and len(line) < 300
    # journalctl prints binary and long messages so.
    assert recent(said([27, 255, 97]))[0][0][2] == "?\ufffda"
    assert recent(said(None))[0][0][2] == "(a message that is too long to be shown)"


@pytest.mark.parametrize(
    "entry, about",
    [
        (said("x"), True),
        (said("x", unit="llama-rpc-chat.service", _PID="1"), True),
        (said("x", unit="llama-head-chat2.service"), False),
        (said("x", unit="llama-sampler.service"), False),
        (said("worker chat: hangs: restarting it", unit=journal.WATCHDOG), True),
        (said("worker chat-2: hangs: restarting it", unit=journal.WATCHDOG), False),
        (said("chat on node1: down", unit=GATEWAY), True),
        (said("big-chat on node1: down", unit=GATEWAY), False),
        (said(json.dumps(REQUEST), unit=GATEWAY), True),
        (said(json.dumps(dict(REQUEST, service="other", model="chat")), unit=GATEWAY), False),
    ],
)
def test_of_one_service(recent, entry, about):
    units = [*UNITS, "llama-head-chat2.service", "llama-sampler.service"]
    assert (recent(entry, service="chat", units=units)[0] != []) == about


def test_the_newest_are_kept(recent, monkeypatch):
    entries = [said("line %d" % at, at) for at in range(1, 6)]
    assert recent(*entries, lines=2) == ([(4.0, HEAD, "line 4"), (5.0, HEAD, "line 5")], True)
    assert recent(*entries, lines=5)[1] is False
    # Folded lines do not count, and are read up to a limit.
    chatter = [server("slot x", at) for at in range(6, 30)]
    assert [line[2] for line in recent(*entries, *chatter, lines=1)[0]] == ["line 5", 24]
    monkeypatch.setattr(journal, "MOST_READ", 1000)
    shown, more = recent(*entries, *chatter)
    assert more and 0 < shown[0][2] < 24


def test_units_by_file_and_by_journal(tmp_path, monkeypatch):
    (tmp_path / "llama-head-new.service").touch()
    (tmp_path / "llama-firewall.timer").touch()
    seen = "llama-head-old.service\ncron.service\nllama-a b.service\nllama-x.service+UNIT=y\n"
    monkeypatch.setattr(journal, "ask", lambda arguments: iter(seen.splitlines(True)))
    assert journal.known_units(str(tmp_path)) == ["llama-head-new.service", "llama-head-old.service"]


def test_early_end_leaves_no_process(tmp_path, monkeypatch):
    (tmp_path / "journalctl").write_text("#!/bin/sh\necho $$\nexec sleep 600\n")
    (tmp_path / "journalctl").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    lines = journal.ask([])
    process = int(next(lines))
    lines.close()
    with pytest.raises(ProcessLookupError):
        journal.os.kill(process, 0)


def test_bytes_are_read_whatever_the_locale(tmp_path, monkeypatch):
    (tmp_path / "journalctl").write_bytes(b"#!/bin/sh\nprintf '\\303\\244\\r\\377\\n'\n")
    (tmp_path / "journalctl").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert list(journal.ask([])) == ["\u00e4\r\ufffd\n"]
    (tmp_path / "journalctl").write_text("#!/bin/sh\nexit 3\n")
    with pytest.raises(Refusal, match=r"journalctl answered 3: is systemd-journald running on this node\?"):
        list(journal.ask([]))


def test_limits_of_a_line_and_of_all(tmp_path, monkeypatch):
    """A compromised server writes lines without an end."""
    (tmp_path / "journalctl").write_text("#!/bin/sh\nhead -c 300000 /dev/zero | tr '\\0' x; echo; exec yes\n")
    (tmp_path / "journalctl").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setattr(journal, "MOST_READ", 400000)
    lines = list(journal.ask([], letters=500))
    assert lines[0] == "x" * 500 and set(lines[1:]) == {"y\n"}
    assert sum(map(len, lines)) < 400000 + journal.MOST_LINE
    with pytest.raises(Refusal, match="^journalctl gave no answer in 0.2 s: run it on the node$"):
        (tmp_path / "journalctl").write_text("#!/bin/sh\nexec sleep 60\n")
        list(journal.ask([], seconds=0.2))


def test_a_line_that_was_cut_is_no_entry():
    assert list(journal.entries(['{"MESSAGE": "cut o', "[]", '{"a": 1}'])) == [{"a": 1}]


@pytest.mark.parametrize("abstract", [False, True])
def test_systemd_is_notified(tmp_path, monkeypatch, abstract):
    name = "@llama-cluster-notify-%d" % os.getpid() if abstract else str(tmp_path / "notify")
    monkeypatch.setenv("NOTIFY_SOCKET", name)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind("\0" + name[1:] if abstract else name)
        systemd.settimeout(5)
        notify("STATUS=waits")
        assert systemd.recv(100) == b"STATUS=waits"
    notify("no listener")


def test_a_line_that_cannot_be_written_is_lost(monkeypatch):
    with open("/dev/full", "w") as full:
        monkeypatch.setattr(sys, "stdout", full)
        say("x")
        say("x" * 100000)
        monkeypatch.undo()
        with contextlib.suppress(OSError):
            full.close()


def test_without_systemd_nothing_is_sent(monkeypatch):
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    notify("READY=1")
