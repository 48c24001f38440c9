# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

import socket
import struct

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._llama import handshake
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._text import Refusal
from ansible_collections.thefermisea.llama_cluster.tests.unit.rpc_workers import Worker


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
    with pytest.raises(Refusal) as caught:
        if options:
            handshake.handshake(endpoint, handshake.dialects(build)[0], lambda text: None, **options)
        else:
            handshake.ask(endpoint, build, lambda text: None)
    return str(caught.value)


def test_builds_whose_dialect_is_known():
    old, new = [handshake.OLD], [handshake.NEW]
    last, first = handshake.LAST_OLD, handshake.FIRST_NEW
    found = [handshake.dialects(build) for build in (last, last + 1, first - 1, first)]
    assert found == [old, new + old, new + old, new]


def test_both_dialects(worker):
    assert handshake.ask(worker(handshake.NEW).endpoint, 11434, never) == "7.0.0"
    assert handshake.ask(worker(handshake.OLD, (3, 6, 0)).endpoint, 7772, never) == "3.6.0"
    for build in (None, 8800):
        assert handshake.ask(worker(handshake.OLD, (3, 6, 0)).endpoint, build, never) == "3.6.0"
        assert handshake.ask(worker(handshake.NEW).endpoint, build, never) == "7.0.0"


def test_another_build_is_named(worker):
    assert reason(worker(handshake.OLD).endpoint, 11434).startswith("it is another llama.cpp build")
    assert reason(worker(handshake.NEW).endpoint, 7772).startswith("it is another llama.cpp build")
    assert (
        reason(worker((24, 40)).endpoint, 11434)
        == "it is another llama.cpp build: its handshake has 40 bytes, 28 are needed"
    )


def test_closed_port_is_refused(worker):
    gone = worker(handshake.NEW)
    gone.listener.shutdown(socket.SHUT_RDWR)
    gone.close()
    assert reason(gone.endpoint, 11434) == "the port is closed, see systemctl status 'llama-rpc*' on its node"


def test_waiting_handshake_is_logged_once(worker):
    busy, said = worker(None), []
    with pytest.raises(Refusal):
        handshake.handshake(busy.endpoint, handshake.NEW, said.append, quiet=0.1, patience=0.3)
    assert said == ["it lets the handshake wait: it serves another head or a dead connection, or it hangs"]
    assert busy.asked == 1


def test_the_wait_names_each_reason_once_and_ends(capsys):
    answers = {"a:1": iter(["closed", "closed", "hangs", None]), "b:2": iter([None])}

    def asking(endpoint, build, say):
        text = next(answers[endpoint])
        assert build == 11434
        if text:
            raise Refusal(text)
        return "7.0.0"

    lines, slept = [], []
    assert handshake.wait(["a:1", "b:2"], 11434, lines.append, slept.append, asking) == {
        "a:1": "7.0.0",
        "b:2": "7.0.0",
    }
    assert lines == ["waits for RPC worker a:1: closed", "waits for RPC worker a:1: hangs", "RPC worker a:1 answers"]
    assert slept == [handshake.PAUSE] * 3


class Stream:
    """A worker that answers a handshake of this build with version 4.5.6 after so many seconds, a byte at a time."""

    def __init__(self, monkeypatch, answers_after):
        self.limits, self.sent = [], b""
        self.data = struct.pack("<Q", 28) + bytes([4, 5, 6]) + bytes(25)
        monkeypatch.setattr(handshake.socket, "create_connection", self.connect)
        monkeypatch.setattr(
            handshake.select,
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
    assert handshake.ask("10.0.0.2:50052", 11434, said.append) == "4.5.6"
    assert stream.limits == [("10.0.0.2", 50052), 5, 60]
    assert stream.sent == bytes([14]) + struct.pack("<Q", 24) + bytes(24)
    assert bool(said) is logged


def test_silent_worker_is_retried_soon():
    answers, pauses = [Refusal("no"), Refusal("no"), "4.0.0"], []

    def asking(_endpoint, _build, _say):
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    assert handshake.wait(["a:1"], None, lambda _text: None, pauses.append, asking) == {"a:1": "4.0.0"}
    assert pauses == [0.2, 0.2]
