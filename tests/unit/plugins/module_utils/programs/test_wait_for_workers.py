# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

import os
import pwd
import socket
import struct
import threading
import time

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils.programs import wait_for_workers


class Worker:
    """A port that answers the handshake as a build does. sizes: (question it wants, answer it gives); None lets it
    wait."""

    def __init__(self, sizes, version=(7, 0, 0)):
        self.listener = socket.socket()
        self.listener.bind(("127.0.0.1", 0))
        self.listener.listen(1)
        self.endpoint = "127.0.0.1:%d" % self.listener.getsockname()[1]
        self.sizes, self.version = sizes, version
        self.asked = 0
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self):
        while True:
            try:
                stream, _peer = self.listener.accept()
            except OSError:
                return
            with stream:
                command, size = struct.unpack("<BQ", stream.recv(9))
                self.asked += 1
                assert command == 14
                if self.sizes is None:
                    stream.recv(1000)
                    time.sleep(1)
                elif size == self.sizes[0]:
                    if size:
                        stream.recv(size)
                    stream.sendall(struct.pack("<Q", self.sizes[1]) + bytes(self.version) + b"\0" * (self.sizes[1] - 3))

    def close(self):
        self.listener.close()


@pytest.fixture(name="worker")
def fixture_worker():
    workers = []

    def make(*arguments):
        workers.append(Worker(*arguments))
        return workers[-1]

    yield make
    for one in workers:
        one.close()


def never(reason):
    raise AssertionError(reason)


def reason(endpoint, build, **options):
    with pytest.raises(wait_for_workers.Refusal) as caught:
        if options:
            wait_for_workers.handshake(endpoint, wait_for_workers.dialects(build)[0], lambda text: None, **options)
        else:
            wait_for_workers.ask(endpoint, build, lambda text: None)
    return str(caught.value)


def test_builds_whose_dialect_is_known():
    old, new = [wait_for_workers.OLD], [wait_for_workers.NEW]
    last, first = wait_for_workers.LAST_OLD, wait_for_workers.FIRST_NEW
    found = [wait_for_workers.dialects(build) for build in (last, last + 1, first - 1, first)]
    assert found == [old, new + old, new + old, new]


def test_both_dialects(worker):
    assert wait_for_workers.ask(worker(wait_for_workers.NEW).endpoint, 11434, never) == "7.0.0"
    assert wait_for_workers.ask(worker(wait_for_workers.OLD, (3, 6, 0)).endpoint, 7772, never) == "3.6.0"
    for build in (None, 8800):
        assert wait_for_workers.ask(worker(wait_for_workers.OLD, (3, 6, 0)).endpoint, build, never) == "3.6.0"
        assert wait_for_workers.ask(worker(wait_for_workers.NEW).endpoint, build, never) == "7.0.0"


def test_another_build_is_named(worker):
    assert reason(worker(wait_for_workers.OLD).endpoint, 11434).startswith("it is another llama.cpp build")
    assert reason(worker(wait_for_workers.NEW).endpoint, 7772).startswith("it is another llama.cpp build")
    assert (
        reason(worker((24, 40)).endpoint, 11434)
        == "it is another llama.cpp build: its handshake has 40 bytes, 28 are needed"
    )


def test_closed_port_is_refused(worker):
    gone = worker(wait_for_workers.NEW)
    gone.listener.shutdown(socket.SHUT_RDWR)
    gone.close()
    assert reason(gone.endpoint, 11434) == "the port is closed, see systemctl status 'llama-rpc*' on its node"


def test_waiting_handshake_is_logged_once(worker):
    busy, said = worker(None), []
    with pytest.raises(wait_for_workers.Refusal):
        wait_for_workers.handshake(busy.endpoint, wait_for_workers.NEW, said.append, quiet=0.1, patience=0.3)
    assert said == ["it lets the handshake wait: it serves another head or a dead connection, or it hangs"]
    assert busy.asked == 1


def test_the_wait_names_each_reason_once_and_ends(capsys):
    answers = {"a:1": iter(["closed", "closed", "hangs", None]), "b:2": iter([None])}

    def asking(endpoint, build, say):
        text = next(answers[endpoint])
        assert build == 11434
        if text:
            raise wait_for_workers.Refusal(text)
        return "7.0.0"

    lines, slept = [], []
    assert wait_for_workers.wait(["a:1", "b:2"], 11434, lines.append, slept.append, asking) == {
        "a:1": "7.0.0",
        "b:2": "7.0.0",
    }
    assert lines == ["waits for RPC worker a:1: closed", "waits for RPC worker a:1: hangs", "RPC worker a:1 answers"]
    assert slept == [wait_for_workers.PAUSE] * 3


def test_the_release_names_the_build(worker, capsys):
    assert wait_for_workers.main(["--build", "b11434-cpu-5f27b0c4", worker(wait_for_workers.NEW).endpoint]) == 0
    assert capsys.readouterr().out == ""
    assert (
        wait_for_workers.main(
            [
                "--build",
                "b11434",
                worker(wait_for_workers.NEW).endpoint,
                worker(wait_for_workers.NEW, (5, 1, 0)).endpoint,
            ]
        )
        == 0
    )
    assert "different llama.cpp builds: 127.0.0.1" in capsys.readouterr().out


def test_it_gives_up_what_it_does_not_need(worker, monkeypatch):
    entry, done = pwd.getpwuid(os.getuid()), []
    for name in ("setgroups", "setgid", "setuid"):
        monkeypatch.setattr(wait_for_workers.os, name, lambda value, name=name: done.append((name, value)))
    monkeypatch.setattr(wait_for_workers, "wait_for_rules", lambda announce: done.append("rules"))
    assert (
        wait_for_workers.main(["--user", entry.pw_name, "--build", "b11434", worker(wait_for_workers.NEW).endpoint])
        == 0
    )
    assert done == ["rules", ("setgroups", []), ("setgid", entry.pw_gid), ("setuid", entry.pw_uid)], (
        "the user last: then nothing else may be changed"
    )


def test_head_waits_for_firewall_rules(tmp_path):
    loaded, said = tmp_path / "loaded", []
    wait_for_workers.wait_for_rules(
        said.append, lambda _seconds: loaded.touch() if said else None, ["test", "-e", str(loaded)]
    )
    assert len(said) == 1 and "llama-firewall" in said[0]
    wait_for_workers.wait_for_rules(said.append, None, ["true"])
    assert len(said) == 1, "nothing is said where they are there"


class Stream:
    """A worker that answers a handshake of this build with version 4.5.6 after so many seconds, a byte at a time."""

    def __init__(self, monkeypatch, answers_after):
        self.limits, self.sent = [], b""
        self.data = struct.pack("<Q", 28) + bytes([4, 5, 6]) + bytes(25)
        monkeypatch.setattr(wait_for_workers.socket, "create_connection", self.connect)
        monkeypatch.setattr(
            wait_for_workers.select,
            "select",
            lambda reading, writing, odd, quiet: (reading if answers_after <= quiet else [], [], []),
        )

    def connect(self, address, timeout):
        self.limits += [address, timeout]
        return self

    def __enter__(self):
        return self

    def __exit__(self, *_problem):
        pass

    def sendall(self, data):
        self.sent += data

    def settimeout(self, seconds):
        self.limits.append(seconds)

    def recv(self, _most):
        one, self.data = self.data[:1], self.data[1:]
        return one


@pytest.mark.parametrize(("seconds", "logged"), [(0, False), (2, False), (2.1, True), (50, True)])
def test_busy_worker_is_logged_after_two_seconds(monkeypatch, seconds, logged):
    said, stream = [], Stream(monkeypatch, seconds)
    assert wait_for_workers.ask("10.0.0.2:50052", 11434, said.append) == "4.5.6"
    assert stream.limits == [("10.0.0.2", 50052), 5, 60]
    assert stream.sent == bytes([14]) + struct.pack("<Q", 24) + bytes(24)
    assert bool(said) is logged


def test_silent_worker_is_retried_soon():
    answers, pauses = [wait_for_workers.Refusal("no"), wait_for_workers.Refusal("no"), "4.0.0"], []

    def asking(_endpoint, _build, _say):
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    assert wait_for_workers.wait(["a:1"], None, lambda _text: None, pauses.append, asking) == {"a:1": "4.0.0"}
    assert pauses == [0.2, 0.2]
