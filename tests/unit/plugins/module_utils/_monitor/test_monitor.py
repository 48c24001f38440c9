# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

import contextlib
import fcntl
import io
import json
import os
import pathlib
import pty
import re
import select
import signal
import socket
import ssl
import struct
import subprocess
import sys
import termios
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._exporter.exposition import parse
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._monitor import read, state, view
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._monitor.read import Follower, Reading, Source
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils.programs import monitor, service_status
from ansible_collections.thefermisea.llama_cluster.tests.unit import observed

HEAD = """llama_sampler_timestamp_seconds %s
llama_node_held 0
llama_endpoint_state{service="chat",state="%s"} 1
llama_unit_active{role="head",service="chat",unit="llama-head-chat.service"} 1
llama_unit_wanted{role="head",service="chat",unit="llama-head-chat.service"} 1
llama_endpoint_asked_seconds{service="chat"} 90
llama_unit_started_seconds{role="head",service="chat",unit="llama-head-chat.service"} 80
llama_unit_starting{role="head",service="chat",unit="llama-head-chat.service"} 0
llama_unit_restarts_total{role="head",service="chat",unit="llama-head-chat.service"} 2
llama_slots{service="chat"} 2
llama_slots_busy{service="chat"} 1
llama_context_slot_tokens{service="chat"} 4096
llama_context_used_tokens{service="chat"} 2100
llama_generation_tokens_per_second{service="chat"} 38.4
llama_rpc_link_up{service="chat",worker="10.1.0.2:50052"} 1
llama_rpc_link_up{service="chat",worker="10.1.0.3:50052"} %d
llama_model_info{model="or1-behemoth",quant="Q8_0",service="chat",unit="llama-head-chat.service"} 1
llama_fabric_up{interface="ib0"} 1
"""
GATEWAY = """llama_gateway_queued{service="chat"} 3
llama_gateway_in_flight{node="node1",service="chat"} 2
llama_gateway_endpoint_state{node="node1",service="chat",state="ready"} 1
llama_gateway_endpoint_state{node="node3",service="embed",state="down"} 1
"""
WORKER = """llama_sampler_timestamp_seconds %s
llama_unit_active{role="worker",service="chat",unit="llama-rpc-chat.service"} 1
llama_unit_wanted{role="worker",service="chat",unit="llama-rpc-chat.service"} 1
llama_gpu_info{driver="535",gpu="0",name="V100-32GB",uuid="GPU-1"} 1
llama_gpu_utilization_ratio{gpu="0"} 0.37
llama_gpu_memory_used_bytes{gpu="0"} 28991029248
llama_gpu_memory_total_bytes{gpu="0"} 34359738368
llama_gpu_power_watts{gpu="0"} 128.4
llama_gpu_temperature_celsius{gpu="0"} 64
llama_gpu_throttled{gpu="0",reason="hw_thermal_slowdown"} 1
llama_gpu_foreign_processes{gpu="0"} 1
llama_watchdog_last_repair_seconds{reason="it hangs: no byte in 20 s",unit="llama-rpc-chat.service"} 1795547000
"""


def head(at=100.0, ready="ready", links=1):
    return HEAD % (at, ready, links)


def follower(name, text="", error="", kind="node", place="http://x", clock=None, alerts=()):
    """A source that gave this text at 1010.0 or, with an error, at 1000.0."""
    found = Follower(Source(kind, name, place))
    found.began = 990.0
    if text or alerts or not error:
        found.take(Reading(1000.0 if error else 1010.0, clock, tuple(parse(text)), tuple(alerts)))
    found.error = error
    return found


def alerts(*firing, error=""):
    return follower("alertmanager", kind="alerts", alerts=firing, error=error)


REPAIRED = {
    "labels": {
        **{"alertname": "LlamaUnitRepaired", "severity": "notice", "role": "worker"},
        **{"service": "chat", "unit": "llama-rpc-chat.service", "node": "node2"},
    },
    "annotations": {"summary": "llama-rpc-chat.service on node2: repaired"},
}
PAGE = {"labels": {"alertname": "LlamaModelWithoutEndpoint", "severity": "page", "service": "embed"}}


def cluster():
    return state.put_together(
        [
            follower("node1", head()),
            follower("node2", WORKER % 102),
            follower("node3", WORKER % 100, error="Connection refused"),
            follower("node1", GATEWAY, kind="gateway"),
            alerts(REPAIRED),
        ],
        now=1012.0,
    )


def judged(*followed, now=1011.0):
    seen = state.put_together(followed, now=now)
    return state.verdicts(seen["endpoints"], seen["kept"])


def test_cluster_with_dead_node_is_summed_up():
    found = cluster()
    (chat,) = found["endpoints"]
    assert [chat[name] for name in ("service", "node", "state", "slots", "busy")] == ["chat", "node1", "ready", 2, 1]
    assert [chat[name] for name in ("used", "limit", "speed", "links_up", "links")] == [2100, 4096, 38.4, 2, 2]
    assert [(node["name"], node["error"], node["since"]) for node in found["nodes"]] == [
        ("node1", "", 2.0),
        ("node2", "", 2.0),
        ("node3", "Connection refused", 12.0),
    ]
    (card,) = found["cards"]
    assert (card["node"], card["throttled"], card["foreign"]) == ("node2", ["hw_thermal_slowdown"], 1)
    assert found["repairs"][0]["reason"] == "it hangs: no byte in 20 s"
    assert found["gateways"] == [
        {
            **{"host": "node1", "error": "", "since": 2.0, "waiting": 3, "at_work": 2},
            "not_ready": ["embed on node3: down"],
        }
    ]
    assert [(one["name"], one["severity"], one["where"]) for one in found["alerts"]] == [
        ("LlamaUnitRepaired", "notice", "chat llama-rpc-chat.service node2")
    ]


@pytest.mark.parametrize("width", [1, 40, 80, 119, 120, 300])
def test_view_is_that_of_page(width, monkeypatch):
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    shown = view.lines(cluster(), width, 1795547100.0)
    assert all(len(line.text) <= width for line in shown)
    text = view.painted(shown, colour=False)
    page = (pathlib.Path(__file__).parents[5] / "docs" / "operations.md").read_text()
    # The page has the wide view, which has every column.
    assert width < 120 or text in page, text
    assert "\033[" not in text and "\033[3" in view.painted(shown, colour=True)
    summary = observed.alerts()["LlamaUnitRepaired"]["annotations"]["summary"]
    filled = re.sub(r"{{ \$labels\.(\w+) }}", lambda found: REPAIRED["labels"][found.group(1)], summary)
    assert REPAIRED["annotations"]["summary"] == filled


def test_control_characters_of_samples_are_removed():
    hostile = (
        head().replace("or1-behemoth", "\033[2Jx\u202e").replace("ready", "\033]0;x\007").replace(" 2100", " 1e300")
    )
    hostile += 'llama_watchdog_last_repair_seconds{reason="\033[2J",unit="\u202e"} 1e300\n'
    hostile += 'llama_slots_busy{service="chat"} NaN\nllama_gpu_info{gpu="\033[0m",name="\u202e"} 1\n'
    hostile += (
        'llama_gpu_power_watts{gpu="\033[0m"} +Inf\nllama_unit_restarts_total{unit="llama-head-chat.service"} 1e308\n'
    )
    found = state.put_together([follower("node1", hostile), alerts({"labels": 1}, dict(PAGE, annotations=[]))])
    text = view.painted(view.lines(found, 160, 0.0), colour=False) + monitor.as_json(found)
    assert not {"\033", "\007", "\u202e"} & set(text) and "NaN" not in text and "Infinity" not in text


def test_pages_come_before_notices():
    firing = [dict(REPAIRED, labels=dict(REPAIRED["labels"], node="node%d" % number)) for number in range(9)]
    shown = view.lines(state.put_together([alerts(*firing, PAGE)], now=1011.0), 80, 0.0)
    assert shown[2] == view.Line("page   LlamaModelWithoutEndpoint:  (embed)", "bad")
    assert "and 5 more" in [line.text for line in shown]


def test_unknown_alerts_are_reported():
    found = state.put_together([alerts(REPAIRED, error="Connection refused")], now=1012.0)
    assert (found["alerts"], found["alerts_error"]) == ([], "Connection refused")
    text = view.painted(view.lines(found, 80, 0.0), colour=False)
    assert "alerts are not known: Connection refused" in text and "no alert" not in text
    assert "no alert" in view.lines(state.put_together([alerts()], now=1011.0), 80, 0.0)[0].text
    assert "alert" not in view.lines(state.put_together([], now=1011.0), 80, 0.0)[0].text


def unit(text, name, value):
    """The samples of the head's unit, changed."""
    start = "llama_unit_%s{" % name
    lines = [line[:-1] + str(value) if line.startswith(start) else line for line in text.split("\n")]
    return "\n".join(lines)


OFF = unit(unit(head(ready="stopped"), "active", 0), "wanted", 0)


@pytest.mark.parametrize(
    ("text", "state_seen", "code", "words"),
    [
        (head(), "ready", 0, "ready on node1"),
        (head(ready="sleeping"), "sleeping", 0, "sleeping on node1"),
        (head(links=0), "ready", 1, "ready on node1, 1 of 2 workers connected on node1"),
        (head(ready="down"), "down", 1, "down on node1"),
        (head(ready="loading"), "loading", 2, "loading on node1"),
        (unit(head(), "active", 0), "down", 1, "down on node1"),
        (unit(unit(head(), "active", 0), "starting", 1), "starting", 2, "starting on node1"),
        (OFF, "stopped", 0, "stopped on node1, as it is to be"),
        (OFF.replace("held 0", "held 1"), "held", 0, "held on node1, as it is to be"),
        (unit(head(), "wanted", 0), "ready", 0, "ready on node1, where it is not to be"),
        # It has been restarted since the probe.
        (head().replace('service"} 80', 'service"} 95'), "loading", 2, "loading on node1"),
        (head(ready="down").replace('service"} 80', 'service"} 95'), "loading", 2, "loading on node1"),
        # The head's part of the sampler hangs.
        ("\n".join(one for one in head().split("\n") if "endpoint" not in one), "unknown", 3, "unknown on node1"),
    ],
)
def test_verdicts(text, state_seen, code, words):
    (verdict,) = judged(follower("node1", text))
    assert verdict == {"service": "chat", "state": state_seen, "code": code, "words": words}
    assert state.code_of([verdict], lost=False) == code


@pytest.mark.parametrize(
    ("job", "serves", "code", "words"),
    [
        ("running", 1, 0, "job of SLURM running, serves"),
        ("running", 0, 2, "job of SLURM running, see llama-jobs list on ctl"),
        ("pending", 0, 1, "job of SLURM pending, see llama-jobs list on ctl"),
        ("held", 0, 1, "job of SLURM held, see llama-jobs list on ctl"),
    ],
)
def test_verdicts_on_jobs(job, serves, code, words):
    samples = 'llama_sampler_timestamp_seconds 100\nllama_job_state{service="code",state="%s"} 1\n' % job
    samples += 'llama_job_serves{service="code"} %d\n' % serves
    chat, verdict = judged(follower("node1", head()), follower("ctl", samples))
    assert chat["service"] == "chat"
    assert verdict == {"service": "code", "state": job, "code": code, "words": words}


def test_one_ready_replica_is_enough():
    (verdict,) = judged(follower("node1", head(ready="down")), follower("node2", head()))
    assert (verdict["code"], verdict["words"]) == (0, "down on node1, ready on node2")
    assert judged(follower("node1", head(links=0)), follower("node2", head()))[0]["code"] == 0
    assert judged(follower("node1", head(ready="down")), follower("node2", head(), error="gone"))[0]["code"] == 3
    (verdict,) = judged(follower("node1", head(), error="timed out"))
    assert (verdict["state"], verdict["code"]) == ("unknown", 3)


@pytest.mark.parametrize(
    ("codes", "lost", "worst"),
    [((0, 1, 2, 3), False, 1), ((0, 2), False, 2), ((0, 2), True, 3), ((1,), True, 1), ((), False, 3)],
)
def test_worst_code_counts(codes, lost, worst):
    assert state.code_of([{"code": code} for code in codes], lost=lost) == worst


def test_failed_read_is_repeated(monkeypatch):
    answers = iter([Reading(1.0, error="no answer"), Reading(2.0, None, tuple(parse(head())))])
    monkeypatch.setattr(read, "read", lambda source: next(answers))
    one = follower("node1", error="no answer yet")
    read.once([one])
    assert one.last.at == 2.0


@pytest.mark.parametrize(
    ("written", "error"), [(995, ""), (985, "the sampler does not write"), (1015, "the sampler does not write")]
)
def test_stopped_sampler_is_seen(written, error):
    found = state.put_together([follower("node1", head(written), clock=1000.0)], now=1011.0)
    assert found["nodes"][0]["error"] == error
    assert found["endpoints"][0]["state"] == ("unknown" if error else "ready")


def test_page_without_samples_is_named():
    other = [follower("node1", "llama_x 3\n"), follower("gw", "llama_x 3\n", kind="gateway")]
    found = state.put_together(other, 1011.0)
    assert found["nodes"][0]["error"] == "no samples of a sampler"
    assert found["gateways"][0]["error"] == "no samples of a gateway"


class Page:
    def __init__(self, text):
        page = self
        self.text, self.asked = text, []

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                content = page.text.encode()
                page.asked.append(self.path)
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
    """Two nodes that respond, one that accepts and is silent, one that is gone -> the two pages."""
    pages = [Page(head(time.time())), Page(WORKER % time.time())]
    hung = socket.create_server(("127.0.0.1", 0))
    gone = socket.create_server(("127.0.0.1", 0))
    port = gone.getsockname()[1]
    gone.close()
    config = {
        "nodes": {
            "node1": pages[0].url,
            "node2": pages[1].url,
            "node3": "http://127.0.0.1:%d/metrics" % hung.getsockname()[1],
            "node4": "http://127.0.0.1:%d/metrics" % port,
        },
        "gateway": {},
        "alerts": None,
    }
    (tmp_path / "monitor.json").write_text(json.dumps(config))
    found = read.sources(str(tmp_path / "monitor.json"))
    monkeypatch.setattr(read, "PATIENCE", 0.5)
    monkeypatch.setattr(monitor, "sources", lambda: found)
    monkeypatch.setattr(service_status, "sources", lambda: found)
    yield pages
    for page in pages:
        with contextlib.suppress(OSError):
            page.stop()
    hung.close()


def run(program, *arguments):
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        code = program.main(list(arguments))
    return code, out.getvalue()


def test_dead_hosts_delay_nothing(hosts):
    began = time.monotonic()
    code, text = run(monitor, "--once", "--width", "100")
    assert code == 0 and time.monotonic() - began < 4
    assert "4 nodes, 2 without an answer" in text and "Connection refused" in text
    printed = json.loads(run(monitor, "--json")[1])
    assert printed["services"][0]["service"] == "chat" and printed["nodes"][2]["error"]


def test_service_status_reports_unknown(hosts):
    code, text = run(service_status)
    assert code == 3 and text.startswith("chat: ready on node1\n") and "node4: no samples (Connection refused)" in text
    assert run(service_status, "chat")[0] == 0
    code, text = run(service_status, "chta")
    assert code == 3
    assert json.loads(run(service_status, "chat", "--json")[1])["code"] == 0
    with pytest.raises(SystemExit) as ended:
        run(service_status, "--wrong")
    assert ended.value.code == service_status.WRONG_USE


HOSTILE = {
    "endless": b"HTTP/1.0 200 OK\r\n\r\n" + b"llama_x 1\n" * 600000,
    "elsewhere": b"HTTP/1.0 302 Found\r\nLocation: http://127.0.0.1:1/\r\n\r\n",
    "no HTTP": b"\x00\xff\r\n\r\n",
    "cut off": b"HTTP/1.0 200 OK\r\nContent-Length: 100\r\n\r\nllama_sampler_timestamp_seconds 12",
    "too much": b"HTTP/1.0 200 OK\r\n\r\n" + b"llama_x 1\n" * 20001,
    "date": b"HTTP/1.0 200 OK\r\nDate: 99999999999999999999\r\n\r\nllama_sampler_timestamp_seconds 12\n",
}


@pytest.mark.parametrize(
    ("what", "error"),
    [
        ("endless", "more than 4 MiB"),
        ("elsewhere", "status 302"),
        ("no HTTP", "no answer of HTTP"),
        ("cut off", "an answer that was cut off"),
        ("too much", "more than 20000 samples"),
        ("date", ""),
    ],
)
def test_malformed_answer_is_named(what, error):
    server = socket.create_server(("127.0.0.1", 0))

    def answer():
        with contextlib.suppress(OSError), server.accept()[0] as stream:
            stream.recv(1000)
            stream.sendall(HOSTILE[what] or b"")
            stream.shutdown(socket.SHUT_WR)
            stream.recv(1)

    threading.Thread(target=answer, daemon=True).start()
    began = time.monotonic()
    found = read.read(Source("node", "x", "http://127.0.0.1:%d/metrics" % server.getsockname()[1]))
    assert found.error == error and time.monotonic() - began < 3
    server.close()


def test_firing_alerts_come_from_prometheus(tmp_path):
    alerts = [dict(REPAIRED, state="firing"), dict(REPAIRED, state="pending")]
    page = Page(json.dumps({"status": "success", "data": {"alerts": alerts}}))
    (tmp_path / "monitor.json").write_text(json.dumps({"nodes": {}, "alerts": page.url[: -len("/metrics")]}))
    (source,) = read.sources(str(tmp_path / "monitor.json"))
    found = Follower(source)
    read.look([found])
    assert [one["name"] for one in state.put_together([found])["alerts"]] == ["LlamaUnitRepaired"]
    assert page.asked == ["/api/v1/alerts"]
    page.text = "[" * 100000
    read.look([found])
    assert found.error
    page.stop()


def test_gateway_certificate_name_is_not_checked(tmp_path):
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=models.example"]
        + ["-keyout", str(tmp_path / "key.pem"), "-out", str(tmp_path / "cert.pem")],
        check=True,
        capture_output=True,
    )
    page = Page(GATEWAY)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(str(tmp_path / "cert.pem"), str(tmp_path / "key.pem"))
    page.server.socket = context.wrap_socket(page.server.socket, server_side=True)
    gateway = Follower(Source("gateway", "gw", page.url.replace("http:", "https:")))
    read.look([gateway])
    (found,) = state.put_together([gateway])["gateways"]
    assert (found["error"], found["waiting"], found["at_work"]) == ("", 3, 2)
    page.stop()


def test_gateway_says_why_a_job_waits(tmp_path):
    why = "job 4711 waits (Priority), expected 14:05"
    services = {"big": {"why": why}, "small": {"why": None}, "old": {}, "odd": {"why": ["x\n"]}, "broken": 7}
    page = Page(json.dumps({"services": services}))
    (tmp_path / "monitor.json").write_text(json.dumps({"gateway": {"gw": page.url}}))
    found = [Follower(one) for one in read.sources(str(tmp_path / "monitor.json")) if one.kind == "status"]
    read.look(found)
    assert page.asked == ["/status.json"]
    seen = state.put_together(found)
    assert seen["jobs"] == {"big": why, "odd": "['x\\n']"}
    assert f"big: {why}" in [line.text for line in view.lines(seen, 80, 0)]
    page.text = "[]"
    read.look(found)
    assert state.put_together(found)["jobs"] == {}
    page.stop()


class Terminal:
    """The program as a user has it, in a window."""

    def __init__(self, config, columns=100, rows=40, **environ):
        code = (
            "import sys"
            "; from ansible_collections.thefermisea.llama_cluster.plugins.module_utils.programs import monitor"
            "; from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._monitor import read"
            "; monitor.sources = lambda: read.sources(%r); sys.exit(monitor.main([]))" % str(config)
        )
        self._window, other = pty.openpty()
        self.resize(columns, rows)
        path = os.pathsep.join([entry for entry in sys.path if entry] + [str(pathlib.Path(__file__).parents[5])])
        environment = {"PYTHONPATH": path, "PATH": os.environ["PATH"], "LANG": "C.UTF-8", **environ}
        self.process = subprocess.Popen(
            [sys.executable, "-c", code], stdin=other, stdout=other, stderr=other, env=environment, close_fds=True
        )
        os.close(other)
        self.text = ""

    def resize(self, columns, rows):
        fcntl.ioctl(self._window, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def until(self, fits, seconds):
        """How long it took until a picture fits."""
        began = time.monotonic()
        while time.monotonic() - began < seconds:
            if select.select([self._window], [], [], 0.05)[0]:
                try:
                    self.text += os.read(self._window, 65536).decode("utf-8", "replace")
                except OSError:
                    break
            pictures = self.text.split("\033[H")
            if len(pictures) > 2 and fits(pictures[-2]):
                self.text = "\033[H".join(pictures[-2:])
                return time.monotonic() - began
        raise AssertionError(self.text[-3000:])

    def end(self, number):
        self.process.send_signal(number)
        code = None
        while code is None:
            if select.select([self._window], [], [], 0.05)[0]:
                with contextlib.suppress(OSError):
                    self.text += os.read(self._window, 65536).decode("utf-8", "replace")
            code = self.process.poll()
        os.close(self._window)
        return code


def test_live_view_shows_deaths_in_five_seconds(hosts, tmp_path):
    """The sampler may be two seconds behind: the monitor has three."""
    window = Terminal(tmp_path / "monitor.json")
    window.until(lambda seen: " 2/2" in seen and "node2  answers" in seen and "\033[32m" in seen, 20)
    hosts[0].text = head(time.time(), links=0)
    assert window.until(lambda seen: " 1/2" in seen, 10) < 3
    hosts[1].stop()
    assert window.until(lambda seen: "node2  gone for" in seen, 10) < 5
    assert "\033[?1049h" not in window.text, "the other screen is entered once"
    window.resize(60, 40)
    window.process.send_signal(signal.SIGWINCH)
    plain = re.compile("\033\\[[0-9;?]*[a-zA-Z]")
    window.until(lambda seen: max(map(len, plain.sub("", seen).splitlines())) <= 60, 5)
    assert window.end(signal.SIGINT) == 0 and window.text.endswith("\033[?25h\033[?1049l")


def test_terminal_is_restored_and_no_color_obeyed(hosts, tmp_path):
    window = Terminal(tmp_path / "monitor.json", NO_COLOR="1", PYTHONIOENCODING="ascii")
    hosts[0].text = head(time.time()).replace("or1-behemoth", "caf\u00e9")
    window.resize(160, 40)
    window.until(lambda seen: "caf?" in seen and "\033[3" not in seen, 20)
    assert window.end(signal.SIGHUP) == 0 and window.text.endswith("\033[?25h\033[?1049l")


def test_node_reads_its_own_samples(tmp_path, monkeypatch):
    own = tmp_path / "samples.prom"
    own.write_text(head(time.time()))
    found = read.sources(str(tmp_path / "none.json"), str(own))
    assert [tuple(one) for one in found] == [("node", "this node", str(own))]
    monkeypatch.setattr(service_status, "sources", lambda: found)
    assert run(service_status) == (0, "chat: ready on this node\n")
    own.unlink()
    code, text = run(service_status)
    assert code == 3 and text.startswith("this node: no samples (No such file or directory)")
