# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

import contextlib
import io
import json
import socket
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._exporter.exposition import parse
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._monitor import read, state, view
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._monitor.read import Follower, Reading, Source
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils.programs import monitor, service_status

HEAD = """llama_sampler_timestamp_seconds %s
llama_node_held 0
llama_endpoint_state{service="chat",state="%s"} 1
llama_unit_active{role="head",service="chat",unit="llama-head-chat.service"} 1
llama_unit_wanted{role="head",service="chat",unit="llama-head-chat.service"} 1
llama_unit_restarts_total{role="head",service="chat",unit="llama-head-chat.service"} 2
llama_slots{service="chat"} 2
llama_slots_busy{service="chat"} 1
llama_context_slot_tokens{service="chat"} 4096
llama_context_used_tokens{service="chat"} 2100
llama_generated_tokens_total{service="chat"} %d
llama_rpc_link_up{service="chat",worker="10.1.0.2:50052"} 1
llama_rpc_link_up{service="chat",worker="10.1.0.3:50052"} %d
llama_model_info{model="or1-behemoth",quant="Q8_0",service="chat",unit="llama-head-chat.service"} 1
llama_fabric_up{interface="ib0"} 1
llama_fabric_received_bytes_total{interface="ib0"} %d
llama_fabric_sent_bytes_total{interface="ib0"} 0
"""
WORKER = """llama_sampler_timestamp_seconds %s
llama_unit_active{role="worker",service="chat",unit="llama-rpc-chat.service"} 1
llama_unit_wanted{role="worker",service="chat",unit="llama-rpc-chat.service"} 1
llama_gpu_info{driver="535",gpu="0",name="Tesla V100S-PCIE-32GB",uuid="GPU-1"} 1
llama_gpu_utilization_ratio{gpu="0"} 0.37
llama_gpu_memory_used_bytes{gpu="0"} 28991029248
llama_gpu_memory_total_bytes{gpu="0"} 34359738368
llama_gpu_power_watts{gpu="0"} 128.4
llama_gpu_temperature_celsius{gpu="0"} 64
llama_gpu_throttled{gpu="0",reason="hw_thermal_slowdown"} 1
llama_gpu_foreign_processes{gpu="0"} 1
llama_watchdog_last_repair_seconds{reason="it hangs: no byte in 20 s",unit="llama-rpc-chat.service"} 1795547000
"""


def head(at=100.0, ready="ready", tokens=0, links=1, received=0):
    return HEAD % (at, ready, tokens, links, received)


def follower(name, *texts, error="", seconds=2.0, kind="node", place="http://x"):
    """One whose last readings are these texts."""
    found = Follower(Source(kind, name, place), 2.0)
    for number, text in enumerate(texts):
        found.before, found.last = found.last, Reading(1000.0 + seconds * number, list(parse(text)), [], "")
    found.now = Reading(1010.0, [], [], error) if error else found.last
    found.began = 990.0
    return found


def alerts(*told):
    found = Follower(Source("alerts", "alertmanager", "http://x"), 2.0)
    found.now = found.last = Reading(1000.0, [], list(told), "")
    return found


def cluster(**changed):
    first = changed.pop("first", head(tokens=100))
    second = changed.pop("second", head(102.0, tokens=126, received=24000000))
    told = {
        "labels": {"alertname": "LlamaUnitRepaired", "severity": "notice", "service": "chat", "node": "node2"},
        "annotations": {"summary": "llama-rpc-chat.service of node2 was repaired"},
    }
    return state.put_together(
        [
            follower("node1", first, second),
            follower("node2", WORKER % 100, WORKER % 102),
            follower("node3", WORKER % 100, error="Connection refused"),
            alerts(told),
        ],
        now=1012.0,
    )


def test_a_cluster_of_three_nodes_of_which_one_is_gone():
    found = cluster()
    (chat,) = found.endpoints
    assert (chat.service, chat.node, chat.state, chat.slots, chat.busy) == ("chat", "node1", "ready", 2, 1)
    assert (chat.used, chat.limit, chat.rate, chat.links_up, chat.links) == (2100, 4096, 13.0, 2, 2)
    assert [(node.name, node.error, node.since) for node in found.nodes] == [
        ("node1", "", 10.0),
        ("node2", "", 10.0),
        ("node3", "Connection refused", 12.0),
    ]
    assert found.nodes[0].received == 12e6
    assert found.cards[0].throttled == ("hw_thermal_slowdown",) and found.cards[0].foreign == 1
    assert found.repairs[0].reason == "it hangs: no byte in 20 s"
    assert found.alerts == [
        state.Alert("LlamaUnitRepaired", "notice", "chat node2", "llama-rpc-chat.service of node2 was repaired")
    ]


@pytest.mark.parametrize("width", [80, 160])
def test_the_view(width):
    shown = view.lines(cluster(), width, 1795547100.0)
    assert all(len(line.text) <= width for line in shown)
    text = view.painted(shown, colour=False)
    assert "3 nodes, 1 without an answer  1 alert" in text
    assert "gone for 12 s: Connection" in text and "13.0" in text and "2100/4096" in text
    assert "27.0/32.0 GiB" in text and "repaired" in text
    assert ("or1-behemoth" in text) == (width == 160)
    assert "\033[" not in text and "\033[31m" in view.painted(shown, colour=True)


@pytest.mark.parametrize("width", [20, 40, 79, 80, 119, 120, 300])
def test_no_line_is_wider_than_the_terminal(width):
    assert all(len(line.text) <= width for line in view.lines(cluster(), width, 0.0))


def test_what_others_wrote_is_text_alone():
    hostile = head().replace("or1-behemoth", "\033[2Jx\u202e").replace("ready", "\033]0;x\007")
    found = view.painted(view.lines(cluster(second=hostile), 160, 0.0), colour=False)
    assert "\033" not in found and "\007" not in found and "\u202e" not in found


@pytest.mark.parametrize(
    ("text", "state_seen", "code"),
    [
        (head(), "ready", 0),
        (head(ready="sleeping"), "sleeping", 0),
        (head(links=0), "ready", 1),
        (head(ready="down"), "down", 1),
        (head(ready="loading"), "loading", 2),
        (head(ready="stopped"), "stopped", 0),
        (
            head(ready="down").replace(
                'role="head",service="chat",unit="llama-head-chat.service"} 1\nllama_unit_restarts',
                'role="head",service="chat",unit="llama-head-chat.service"} 0\nllama_unit_restarts',
            ),
            "stopped",
            0,
        ),
    ],
)
def test_verdicts(text, state_seen, code):
    found = state.put_together([follower("node1", text)], now=1001.0)
    (verdict,) = state.verdicts(found)
    assert (verdict.state, verdict.code) == (state_seen, code)
    assert state.code_of([verdict], found) == code


def test_a_replica_that_answers_is_enough():
    found = state.put_together(
        [follower("node1", head(ready="down")), follower("node2", head())],
        now=1001.0,
    )
    (verdict,) = state.verdicts(found)
    assert (verdict.code, verdict.words) == (0, "down on node1, ready on node2")


def test_samples_of_a_node_that_is_gone_are_no_answer():
    found = state.put_together([follower("node1", head(), error="timed out")], now=1030.0)
    (verdict,) = state.verdicts(found)
    assert (verdict.state, verdict.code) == ("unknown", 3)


def test_a_sampler_that_stands_still_is_seen_by_its_own_stamps():
    found = state.put_together([follower("node1", head(5), head(5), seconds=20.0)], now=1021.0)
    assert found.nodes[0].error == "the sampler does not write" and found.endpoints[0].state == "unknown"
    found = state.put_together([follower("node1", head(5), head(6), seconds=20.0)], now=1021.0)
    assert found.nodes[0].error == ""
    found = state.put_together([follower("this node", head(time.time() - 60), place="/run/x")], now=1001.0)
    assert found.nodes[0].error == "the sampler does not write"


def test_a_page_of_another_program_is_no_page_of_samples():
    found = state.put_together([follower("node1", "node_load1 3\n")], now=1001.0)
    assert found.nodes[0].error == "no samples of a sampler"


class Page:
    def __init__(self, text):
        page = self
        self.text = text

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                content = page.text.encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_arguments):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = "http://127.0.0.1:%d/metrics" % self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def stop(self):
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture(name="hosts")
def fixture_hosts(tmp_path, monkeypatch):
    """Two nodes that answer, one that accepts and says nothing, one that is gone -> the two pages."""
    pages = [Page(head(time.time())), Page(WORKER % time.time())]
    hung = socket.create_server(("127.0.0.1", 0))
    gone = socket.create_server(("127.0.0.1", 0))
    port = gone.getsockname()[1]
    gone.close()
    told = {
        "nodes": {
            "node1": pages[0].url,
            "node2": pages[1].url,
            "node3": "http://127.0.0.1:%d/metrics" % hung.getsockname()[1],
            "node4": "http://127.0.0.1:%d/metrics" % port,
        },
        "gateway": {},
        "alertmanager": None,
    }
    (tmp_path / "monitor.json").write_text(json.dumps(told))
    found = read.sources(str(tmp_path / "monitor.json"))
    monkeypatch.setattr(monitor, "sources", lambda: found)
    monkeypatch.setattr(service_status, "sources", lambda: found)
    yield pages
    for page in pages:
        page.stop()
    hung.close()


def run(program, *arguments):
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        code = program.main(list(arguments))
    return code, out.getvalue()


def test_hosts_that_hang_or_are_gone_keep_nobody_waiting(hosts):
    began = time.monotonic()
    code, text = run(monitor, "--once", "--width", "100")
    assert code == 0 and time.monotonic() - began < 10
    assert "4 nodes, 2 without an answer" in text and "Connection refused" in text
    told = json.loads(run(monitor, "--json")[1])
    assert told["services"][0]["service"] == "chat" and told["nodes"][2]["error"]


def test_service_status_says_what_it_cannot_know(hosts):
    code, text = run(service_status)
    assert code == 3 and text.startswith("chat: ready on node1\n") and "node4: no samples (Connection refused)" in text
    assert run(service_status, "chat")[0] == 0
    code, text = run(service_status, "chta")
    assert code == 3
    assert json.loads(run(service_status, "chat", "--json")[1])["code"] == 0
    with pytest.raises(SystemExit) as ended:
        run(service_status, "--wrong")
    assert ended.value.code == service_status.WRONG_USE


def test_a_worker_that_dies_shows_within_five_seconds(hosts):
    followed = [Follower(source, 2.0) for source in monitor.sources()[:2]]
    for one in followed:
        one.start()
    deadline = time.monotonic() + 10
    while not state.put_together(followed).endpoints:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    hosts[0].text = head(time.time() + 3, links=0)
    died = time.monotonic()
    while state.verdicts(state.put_together(followed))[0].code == 0:
        assert time.monotonic() - died < 5
        time.sleep(0.1)


def test_on_a_node_its_own_samples(tmp_path, monkeypatch):
    own = tmp_path / "samples.prom"
    own.write_text(head(time.time()))
    found = read.sources(str(tmp_path / "none.json"), str(own))
    assert [tuple(one) for one in found] == [("node", "this node", str(own))]
    monkeypatch.setattr(service_status, "sources", lambda: found)
    assert run(service_status) == (0, "chat: ready on this node\n")
    own.unlink()
    code, text = run(service_status)
    assert code == 3 and text.startswith("this node: no samples (No such file or directory)")
