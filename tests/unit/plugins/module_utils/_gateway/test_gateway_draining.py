# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Draining endpoints, and the wait for the engine."""

import json
import socketserver
import threading

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._gateway import draining
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._gateway.draining import (
    CHANGE,
    MAINTENANCE,
    Entry,
    drained,
    entries_of,
    readied,
    text_of,
    unsettled,
    wait,
)

ONE, TWO = ("embed", "node1"), ("embed", "node2")


def status(*endpoints):
    found = [{"node": node, "state": state, "in_flight": count} for node, state, count in endpoints]
    return {"services": {"embed": {"endpoints": found}}}


def test_file_has_what_was_written():
    entries = [Entry("embed", "node1", 1.5, CHANGE), Entry("chat", "node2", 2.0, MAINTENANCE, "node3")]
    assert entries_of(text_of(entries)) == sorted(entries)
    assert json.loads(text_of(entries[:1])) == {
        "endpoints": [{"service": "embed", "node": "node1", "since": 1.5, "reason": "change"}]
    }


@pytest.mark.parametrize("text", [None, "", "{", "[]", '{"endpoints": [{"service": "embed"}]}', '{"endpoints": 4}'])
def test_malformed_file_has_no_entries(text):
    assert entries_of(text) == []


def test_maintenance_outlasts_change_and_keeps_the_moment():
    change = drained([], [ONE], CHANGE, "", 1.0)
    held = drained([], [ONE], MAINTENANCE, "node1", 1.0)
    assert drained(change, [TWO, ONE], CHANGE, "", 2.0) == [
        Entry("embed", "node1", 1.0, CHANGE),
        Entry("embed", "node2", 2.0, CHANGE),
    ]
    assert drained(held, [ONE], CHANGE, "", 2.0) == held
    assert drained(change, [ONE], MAINTENANCE, "node1", 2.0) == held


@pytest.mark.parametrize(
    ("endpoints", "held", "left"),
    [([ONE], [], [TWO]), (None, [], []), (None, ["node3"], [ONE]), ([ONE, TWO], ["node3"], [ONE]), (None, ["x"], [])],
)
def test_endpoints_that_drain_on(endpoints, held, left):
    both = drained(drained([], [TWO], CHANGE, "", 1.0), [ONE], MAINTENANCE, "node3", 1.0)
    assert [entry.endpoint for entry in readied(both, endpoints, held)] == left


@pytest.mark.parametrize(
    ("state", "running", "draining_", "reasons"),
    [
        ("draining", 2, True, ["embed on node1 has 2 running"]),
        ("ready", 0, True, ["embed on node1 is still ready"]),
        ("draining", 0, True, []),
        ("stopped", 1, True, ["embed on node1 has 1 running"]),
        ("stopped", 0, True, []),
        ("stopped", 0, False, []),
        ("draining", 0, False, ["embed on node1 is still draining"]),
        ("loading", 0, False, ["embed on node1 is still loading"]),
        ("ready", 3, False, []),
    ],
)
def test_reasons_to_wait(state, running, draining_, reasons):
    # TWO is unknown to the engine.
    assert unsettled(status(("node1", state, running)), [ONE, TWO], draining_) == reasons


@pytest.fixture
def waited():
    """waited(answers, timeout) -> result of wait(); time passes only in sleep."""

    def run(answers, timeout):
        clock, left = [0.0], list(answers)

        def ask():
            answer = left.pop(0) if len(left) > 1 else left[0]
            if isinstance(answer, Exception):
                raise answer
            return answer

        return wait([ONE], True, timeout, ask, lambda: sum(clock), clock.append)

    return run


BUSY, IDLE = status(("node1", "draining", 1)), status(("node1", "draining", 0))


@pytest.mark.parametrize(
    ("answers", "timeout", "waiting", "reason", "seconds"),
    [
        ([BUSY] * 5 + [IDLE], 60, [], "", (0.4, 0.6)),
        ([BUSY], 2, ["embed on node1 has 1 running"], "", (2, 2.2)),
        ([BUSY], 0, ["embed on node1 has 1 running"], "", (0, 0)),
        ([FileNotFoundError(2, "No such file")], 60, [], "[Errno 2] No such file", (3, 3.2)),
        # It restarts.
        ([ConnectionRefusedError(111, "refused")] * 10 + [IDLE], 60, [], "", (0.9, 1.1)),
        ([{"services": {"embed": {"endpoints": [{}]}}}], 60, [], "'node'", (3, 3.2)),
        ([{"services": 4}], 60, [], "'int' object has no attribute 'items'", (3, 3.2)),
    ],
)
def test_wait_for_the_engine(waited, answers, timeout, waiting, reason, seconds):
    outcome = waited(answers, timeout)
    assert (outcome["waiting"], outcome["reason"]) == (waiting, reason)
    assert seconds[0] <= outcome["seconds"] <= seconds[1]


@pytest.fixture
def engine(tmp_path):
    """engine(status, text) -> the path of a socket at which this is answered."""
    servers = []

    def start(code, text):
        class Handler(socketserver.StreamRequestHandler):
            def handle(self):
                assert self.rfile.readline() == b"GET /status.json HTTP/1.1\r\n"
                self.wfile.write(b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n%s" % (code, len(text), text))

        path = str(tmp_path / "gateway.sock")
        server = socketserver.ThreadingUnixStreamServer(path, Handler)
        servers.append(server)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return path

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def test_engine_is_asked_at_its_socket(engine):
    content = status(("node1", "ready", 0))
    assert json.loads(draining.ask("/status.json", engine(200, json.dumps(content).encode()))) == content


def test_engine_answers_other_status(engine):
    with pytest.raises(ValueError, match="it answers 503"):
        draining.ask("/status.json", engine(503, b"{}"))


@pytest.fixture
def host(tmp_path):
    """A gateway's host; host(state, ...) -> the result of the module."""
    (tmp_path / "gateway.json").write_text("{}")
    files = str(tmp_path / "draining.json"), str(tmp_path / "gateway.json")

    def run(state, endpoints=None, held=(), reason=CHANGE, check=False, seen=None, timeout=0):
        named = endpoints and [{"service": service, "node": node} for service, node in endpoints]
        parameters = {"state": state, "endpoints": named, "reason": reason, "held": list(held), "timeout": timeout}
        return draining.apply(parameters, 5.0, check, *files, lambda: seen or {"services": {}})

    run.path = tmp_path / "draining.json"
    run.configuration = tmp_path / "gateway.json"
    return run


def test_module_writes_once(host):
    first = host("draining", [ONE])
    assert first["changed"] and first["diff"]["after"] == host.path.read_text()
    assert host.path.stat().st_mode & 0o777 == 0o644
    second = host("draining", [ONE])
    assert not second["changed"] and "diff" not in second
    assert [one["node"] for one in second["endpoints"]] == ["node1"]
    assert host("ready")["changed"] and not host("ready")["changed"]


def test_check_mode_asks_no_engine(host):
    busy = status(("node1", "ready", 1))
    expected = host("draining", [ONE], check=True, seen=busy)
    assert expected["changed"] and expected["waiting"] == [] and not host.path.exists()
    assert host("draining", [ONE], seen=busy)["waiting"] == ["embed on node1 is still ready"]


def test_nothing_is_written_without_gateway(host):
    host.configuration.unlink()
    assert not host("draining", [ONE], seen=status(("node1", "ready", 1)))["changed"] and not host.path.exists()


def test_held_endpoint_is_not_waited_for(host):
    host("draining", [ONE], ["node1"], MAINTENANCE)
    seen = status(("node1", "draining", 0))
    result = host("ready", [ONE], ["node1"], seen=seen)
    assert not result["changed"] and result["waiting"] == []
    assert host("ready", [ONE], seen=seen)["waiting"] == ["embed on node1 is still draining"]
