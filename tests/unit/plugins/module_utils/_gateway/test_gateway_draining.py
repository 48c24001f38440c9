# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What drains at the gateway, and the wait for its engine."""

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
    told = [{"node": node, "state": state, "in_flight": count} for node, state, count in endpoints]
    return {"services": {"embed": {"endpoints": told}}}


def test_a_file_says_what_was_written():
    entries = [Entry("embed", "node1", 1.5, CHANGE), Entry("chat", "node2", 2.0, MAINTENANCE, "node3")]
    assert entries_of(text_of(entries)) == sorted(entries)
    assert json.loads(text_of(entries[:1])) == {
        "endpoints": [{"service": "embed", "node": "node1", "since": 1.5, "reason": "change"}]
    }


@pytest.mark.parametrize("text", [None, "", "{", "[]", '{"endpoints": [{"service": "embed"}]}', '{"endpoints": 4}'])
def test_a_file_that_says_nothing(text):
    assert entries_of(text) == []


def test_what_drains_already_keeps_its_moment():
    first = drained([], [ONE], CHANGE, "", 1.0)
    assert drained(first, [TWO, ONE], CHANGE, "", 2.0) == [
        Entry("embed", "node1", 1.0, CHANGE),
        Entry("embed", "node2", 2.0, CHANGE),
    ]


def test_maintenance_outlasts_a_change_and_not_the_other_way_round():
    held = drained([], [ONE], MAINTENANCE, "node1", 1.0)
    assert drained(held, [ONE], CHANGE, "", 2.0) == held
    assert drained(drained([], [ONE], CHANGE, "", 1.0), [ONE], MAINTENANCE, "node1", 2.0) == held


def test_named_ones_are_let_in_and_others_drain_on():
    both = drained([], [ONE, TWO], CHANGE, "", 1.0)
    assert [entry.endpoint for entry in readied(both, [ONE])] == [TWO]
    assert readied(both, None) == []


def test_what_waits_for_a_held_node_stays():
    held = drained(drained([], [TWO], CHANGE, "", 1.0), [ONE], MAINTENANCE, "node3", 1.0)
    assert [entry.endpoint for entry in readied(held, None, ["node3"])] == [ONE]
    assert [entry.endpoint for entry in readied(held, [ONE, TWO], ["node3"])] == [ONE]
    assert readied(held, None, ["node4"]) == []


def test_an_endpoint_drains_until_nothing_runs_there():
    assert unsettled(status(("node1", "draining", 2)), [ONE], True) == ["embed on node1 has 2 running"]
    assert unsettled(status(("node1", "ready", 0)), [ONE], True) == ["embed on node1 is still ready"]
    assert unsettled(status(("node1", "draining", 0)), [ONE], True) == []
    assert unsettled(status(("node1", "stopped", 1)), [ONE], True) == ["embed on node1 has 1 running"]


def test_an_endpoint_is_ready_when_its_engine_says_so():
    assert unsettled(status(("node1", "draining", 0)), [ONE], False) == ["embed on node1 is still draining"]
    assert unsettled(status(("node1", "loading", 0)), [ONE], False) == ["embed on node1 is still loading"]
    assert unsettled(status(("node1", "ready", 3)), [ONE], False) == []


def test_nothing_is_waited_for_at_what_gets_no_requests_anyway():
    for draining_ in (True, False):
        assert unsettled(status(("node1", "stopped", 0)), [ONE, TWO], draining_) == []


@pytest.fixture
def waited():
    """waited(answers, timeout) -> (the outcome, how often the engine was asked); time passes in sleep alone."""
    clock = [0.0]

    def run(answers, timeout=60.0):
        left, asked = list(answers), []

        def ask():
            asked.append(left.pop(0) if len(left) > 1 else left[0])
            if isinstance(asked[-1], Exception):
                raise asked[-1]
            return asked[-1]

        def sleep(seconds):
            clock[0] += seconds

        return wait([ONE], True, timeout, ask, lambda: clock[0], sleep), len(asked)

    return run


def test_it_waits_for_the_last_request(waited):
    busy = status(("node1", "draining", 1))
    outcome, asked = waited([busy] * 5 + [status(("node1", "draining", 0))])
    assert (outcome.waiting, outcome.reason, asked) == ([], "", 6)


def test_when_the_time_is_over_it_says_what_runs(waited):
    outcome, _asked = waited([status(("node1", "draining", 1))], timeout=2)
    assert outcome.waiting == ["embed on node1 has 1 running"] and 2 <= outcome.seconds < 2.2
    assert waited([status(("node1", "draining", 1))], timeout=0)[1] == 1


def test_an_engine_that_does_not_run_is_not_waited_for(waited):
    outcome, _asked = waited([FileNotFoundError(2, "No such file or directory")])
    assert outcome.reason == "[Errno 2] No such file or directory" and outcome.seconds < 3.2


def test_an_engine_that_restarts_is_waited_for(waited):
    outcome, _asked = waited([ConnectionRefusedError(111, "refused")] * 10 + [status(("node1", "draining", 0))])
    assert (outcome.reason, outcome.waiting) == ("", [])


@pytest.mark.parametrize("answer", [{"services": {"embed": {"endpoints": [{}]}}}, {"services": 4}])
def test_an_answer_that_says_something_else_blocks_nothing(waited, answer):
    assert waited([answer])[0].reason


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


def test_the_engine_is_asked_at_its_socket(engine):
    told = status(("node1", "ready", 0))
    assert json.loads(draining.ask("/status.json", engine(200, json.dumps(told).encode()))) == told


def test_engine_answers_other_status(engine):
    with pytest.raises(ValueError, match="it answers 503"):
        draining.ask("/status.json", engine(503, b"{}"))


@pytest.fixture
def host(tmp_path):
    """A gateway's host; host(state, ...) -> what the module tells."""
    (tmp_path / "gateway.json").write_text("{}")
    here = draining.Draining(str(tmp_path / "draining.json"), str(tmp_path / "gateway.json"))

    def run(state, endpoints=None, held=(), reason=CHANGE, check=False, told=None, timeout=0):
        named = endpoints and [{"service": service, "node": node} for service, node in endpoints]
        parameters = {"state": state, "endpoints": named, "reason": reason, "held": list(held), "timeout": timeout}
        return draining.apply(parameters, 5.0, check, here, lambda: told or {"services": {}})

    run.path = tmp_path / "draining.json"
    run.configuration = tmp_path / "gateway.json"
    return run


def test_the_module_writes_once(host):
    first = host("draining", [ONE])
    assert first["changed"] and first["diff"]["after"] == host.path.read_text()
    assert host.path.stat().st_mode & 0o777 == 0o644
    second = host("draining", [ONE])
    assert not second["changed"] and "diff" not in second
    assert [one["node"] for one in second["endpoints"]] == ["node1"]
    assert host("ready")["changed"] and not host("ready")["changed"]


def test_check_mode_tells_what_would_be_and_asks_nobody(host):
    busy = status(("node1", "ready", 1))
    foretold = host("draining", [ONE], check=True, told=busy)
    assert foretold["changed"] and foretold["waiting"] == [] and not host.path.exists()
    assert host("draining", [ONE], told=busy)["waiting"] == ["embed on node1 is still ready"]


def test_nothing_is_written_where_there_is_no_gateway(host):
    host.configuration.unlink()
    assert not host("draining", [ONE], told=status(("node1", "ready", 1)))["changed"] and not host.path.exists()


def test_what_stays_is_not_waited_for(host):
    host("draining", [ONE], ["node1"], MAINTENANCE)
    told = status(("node1", "draining", 0))
    result = host("ready", [ONE], ["node1"], told=told)
    assert not result["changed"] and result["waiting"] == []
    assert host("ready", [ONE], told=told)["waiting"] == ["embed on node1 is still draining"]
