# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

import errno
import json
import os
import socket
import stat
import sys
import time
import types

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._node import sock_diag
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._watchdog import (
    actions,
    firewall,
    rounds,
    samples,
)
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._watchdog import head as watchdog_head
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils.programs import watchdog
from ansible_collections.thefermisea.llama_cluster.tests.unit import fake_llama_server as fake

needs_sock_diag = pytest.mark.skipif(not hasattr(socket, "AF_NETLINK"), reason="no netlink here")
LITTLE = pytest.mark.skipif(sys.byteorder != "little", reason="the text is from a little-endian kernel")
WORKER = "10.214.80.13:50052"
TABLE = """\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   1: 0B50D60A:9784 0D50D60A:C384 06 00000000:00000000 03:00000D47 00000000     0        0 0 3 00000000f0ee64a2
   2: 0B50D60A:97C8 0D50D60A:C384 %s 00000000:00000000 00:00000000 00000000   999        0 %d 2 0000000021aeeb44 20 4 16 192 1624
   3: 0D50D60A:C384 00000000:0000 0A 00000000:%08X 00:00000000 00000000   999        0 77 1 000000005df053bb 100 0 0 10 0
   4: 0D50D60A:C384 0B50D60A:97C8 01 00000000:00000000 00:00000000 00000000   999        0 %d 1 000000005df053bb 100 0 0 10 0
   5: 0D50D60A:C384 0B50D60A:97CA 01 00000000:00000029 00:00000000 00000000     0        0 0 1 000000005df053bb 100 0 0 10 0
"""


# Looks at a head


@pytest.fixture(name="server")
def fixture_server():
    server = fake.FakeLlamaServer()
    server.responses["/metrics"] = (
        200,
        "llamacpp:prompt_tokens_total 30\nllamacpp:tokens_predicted_total 4\nllamacpp:requests_processing 0\n",
    )
    server.responses["/completion"] = (200, {"content": "x", "timings": {"prompt_n": 2, "predicted_n": 1}})
    yield server
    server.stop()


def head_api(server, said=None):
    return samples.HeadApi(server.url, None, (said if said is not None else []).append)


def test_an_idle_head_takes_one_request(server):
    look = head_api(server).look(5.0, may_sleep=False)
    assert (look["at"], look["health"], look["total"], look["requests"], look["silent"], look["sleeping"]) == (
        5.0,
        200,
        34,
        0,
        False,
        False,
    )
    assert [path for _method, path, _body in server.requests] == ["/metrics"]


def test_a_counter_that_a_build_lacks_counts_nothing(server):
    server.responses["/metrics"] = (200, "llamacpp:prompt_tokens_total 30\n")
    look = head_api(server).look(5.0, may_sleep=False)
    assert (look["total"], look["requests"]) == (30, 0)
    assert [path for _method, path, _body in server.requests] == ["/metrics"]


def test_a_busy_head_shows_its_slots(server):
    server.responses["/metrics"] = fake.metrics(processing=1)
    assert isinstance(head_api(server).look(5.0, may_sleep=False)["slots"], list)


def test_slots_at_work_and_requests_that_wait(server):
    server.responses["/metrics"] = (200, "llamacpp:requests_processing 1\nllamacpp:requests_deferred 2\n")
    working = dict(fake.WORKING, next_token={"n_decoded": 5}, n_prompt_tokens_processed=2100)
    server.responses["/slots"] = (200, [fake.IDLE, fake.WORKING, working])
    look = head_api(server).look(5.0, may_sleep=False)
    assert (look["requests"], look["total"]) == (3, None)
    assert look["slots"] == [
        {"task": 7, "seed": 4294967295, "prompt": 2072, "taken": 2048, "decoded": 0},
        {"task": 7, "seed": 4294967295, "prompt": 2100, "taken": 2100, "decoded": 5},
    ]
    server.responses["/slots"] = (503, [working])
    assert head_api(server).look(5.0, may_sleep=False)["slots"] is None


def test_a_head_that_may_sleep_is_asked(server):
    server.responses["/props"] = (200, {"is_sleeping": True})
    assert head_api(server).look(5.0, may_sleep=True)["sleeping"]
    server.responses["/props"] = (503, {"is_sleeping": True})
    assert not head_api(server).look(5.0, may_sleep=True)["sleeping"]


def test_a_head_without_metrics_and_one_that_loads(server):
    server.responses["/metrics"] = (501, {"error": {"message": "off"}})
    look = head_api(server).look(5.0, may_sleep=False)
    assert (look["health"], look["total"]) == (200, None) and isinstance(look["slots"], list)
    server.responses["/metrics"] = (503, {"error": {"message": "Loading model"}})
    assert head_api(server).look(5.0, may_sleep=False)["health"] == 503


def test_silent_head_and_refused_key(server, monkeypatch):
    monkeypatch.setattr(samples, "ANSWER", 0.1)
    server.responses["/metrics"] = server.silent
    assert head_api(server).look(5.0, may_sleep=False)["silent"]
    server.responses["/metrics"] = (401, {"error": {"message": "Invalid API Key"}})
    said = []
    api = head_api(server, said)
    assert [api.look(5.0, may_sleep=False)["silent"] for _time in range(3)] == [False] * 3
    assert len(said) == 1 and "refused the API key" in said[0]


def wait_for(condition):
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_token_is_asked_in_the_background(server):
    prober = samples.Prober(head_api(server))
    assert prober.of("one") is None
    for count in (1, 2):
        prober.ask()
        wait_for(lambda: prober.of("one")["ended"])
        assert (prober.last["silent"], prober.last["explained"]) == (False, 3 * count)
    first, second = server.asked("/completion")
    assert first["n_predict"] == 1
    assert first["seed"] != second["seed"] == prober.last["seed"], "it cannot be guessed"
    assert prober.of("another") is None


def test_missing_and_refused_tokens_differ(server, monkeypatch):
    monkeypatch.setattr(samples, "TOKEN", 0.1)
    for response, status in (
        (server.silent, None),
        ((503, {"error": {"message": "Loading"}}), 503),
        (fake.CUT, 0),
        ((200, ["odd"]), 200),
    ):
        server.responses["/completion"] = response if callable(response) else lambda response=response: response
        assert head_api(server).token(5) == (status, 0)


def test_errors_in_a_row_are_counted(server):
    prober = samples.Prober(head_api(server))
    prober.of("one")
    broken, fine = (500, {"error": {"code": 500, "message": "Compute error."}}), server.responses["/completion"]
    counted = []
    for response in (broken, broken, fine, broken, (400, {}), broken):
        server.responses["/completion"] = response
        prober.ask()
        wait_for(lambda: prober.last["ended"])
        counted.append((prober.last["status"], prober.last["errors"], prober.last["silent"]))
    assert counted == [
        (500, 1, False),
        (500, 2, False),
        (200, 0, False),
        (500, 1, False),
        (400, 0, False),
        (500, 1, False),
    ]


ODD = [
    None,
    True,
    -1,
    1e300,
    "x",
    [],
    {},
    [[]],
    {"next_token": "x"},
    {"is_processing": True, "next_token": [7], "params": [], "id_task": {}},
]


@pytest.mark.parametrize("odd", ODD, ids=str)
def test_malformed_answers_are_judged(server, odd):
    server.responses["/metrics"] = (
        200,
        "llamacpp:prompt_tokens_total 1e999\nllamacpp:requests_processing 1\nllamacpp:requests_deferred +-e\n",
    )
    said = []
    judge = watchdog_head.HeadJudge(512)
    for path in ("/slots", "/props", "/completion"):
        for body in (
            odd,
            [odd],
            [
                dict(
                    fake.WORKING,
                    next_token=odd,
                    params=odd,
                    id_task=odd,
                    n_prompt_tokens=odd,
                    n_prompt_tokens_processed=odd,
                )
            ],
        ):
            server.responses[path] = (200, json.dumps(body))
            looker = samples.Looker(head_api(server, said))
            sample = {"process": 1, "age": 1, "links": {}, "received": 1, "settled": False, "probe": None}
            sample["resets"] = frozenset()
            judge.decide(dict(sample, now=time.monotonic(), look=looker._look(True)))
            assert head_api(server, said).token(1)[0] == 200
    assert said == []


def test_failed_sample_is_logged_and_repeated(server):
    said = []
    api = head_api(server, said)
    looker = samples.Looker(api, interval=0.01)
    good, looks = api.look, []

    def look(at, may_sleep):
        looks.append(at)
        if len(looks) < 4:
            raise AttributeError("'list' object has no attribute 'get'")
        return good(at, may_sleep)

    api.look = look
    looker.start()
    for count in range(1, 5):
        looker.ask("one", False)
        wait_for(lambda count=count: len(looks) >= count)
    wait_for(lambda: (looker.of("one") or {}).get("health") == 200)
    looker.stop()
    assert said == [
        "cannot be asked how it is: its answer is not llama-server's (AttributeError: 'list' object has no "
        "attribute 'get')"
    ]


def test_looks_are_made_when_they_are_asked_for(server):
    looker = samples.Looker(head_api(server), interval=0.01)
    looker.start()
    assert looker.of("one") is None
    looker.ask("one", False)
    wait_for(lambda: looker.of("one"))
    assert looker.of("another") is None and looker.of(None) is None
    time.sleep(0.1)
    assert len(server.requests) == 1
    looker.stop()
    looker.join(5)
    assert not looker.is_alive()


def test_the_load_time_outlives_the_watchdog(tmp_path, monkeypatch):
    monkeypatch.setattr(watchdog.paths, "SERVED", str(tmp_path))
    config = {
        "unit": "llama-head-chat.service",
        "url": "http://127.0.0.1:9",
        "rpc_endpoints": [],
        "api_key_file": None,
        "ubatch": 512,
    }
    first, later = watchdog.HeadWatch("chat", config), watchdog.HeadWatch("chat", config)
    assert later._marked((7, 70)) is None
    first._mark(7, 612.34)
    assert later._marked((7, 70)) == 612.3
    assert later._marked((8, 80)) is None
    for watch in (first, later):
        watch.stop()


# How often


def test_three_repairs_in_ten_minutes_then_one():
    limit, done, now = actions.Limit(), [], 0.0
    while now < 4000:
        if limit.wait(now) == 0:
            limit.acted(now)
            done.append(now)
        now += 30
    assert done == [0, 30, 60, 660, 1260, 1860, 2460, 3060, 3660]
    assert limit.count(now) == 1 and limit.wait(now) > 0


def test_a_quiet_time_gives_three_again():
    limit = actions.Limit()
    for moment in (0, 1, 2):
        limit.acted(moment)
    assert limit.wait(10) == 592
    assert [limit.wait(1300), limit.acted(1300), limit.wait(1301), limit.acted(1301), limit.wait(1302)] == [
        0,
        None,
        0,
        None,
        0,
    ]


@pytest.mark.parametrize(("again", "wait"), [(1201, 599), (1202, 0)])
def test_ten_quiet_minutes_reset_repairs(again, wait):
    limit = actions.Limit()
    for moment in (0, 1, 2):
        limit.acted(moment)
    assert limit.wait(3) == 599
    assert [limit.count(moment) for moment in (599, 600, 602)] == [3, 2, 0]
    assert limit.wait(again) == 0
    limit.acted(again)
    assert limit.wait(again + 1) == wait


# The socket table


@LITTLE
@pytest.mark.parametrize(
    ("state", "inode", "word"), [("01", 5, "up"), ("08", 5, "closed"), ("06", 0, "gone"), ("08", 0, "gone")]
)
def test_a_connection_in_the_kernels_table(state, inode, word):
    links = samples.Links([WORKER], query=lambda local, remote: None, table=lambda: TABLE % (state, inode, 0, 0))
    assert links.look() == ({WORKER: word}, None, None)


@LITTLE
def test_socket_table_is_read_once():
    reads = []

    def table():
        reads.append(1)
        return TABLE % ("01", 5, 0, 0)

    seen = [sock_diag.Socket(1, 0, 70, 3)]
    asked = []
    links = samples.Links([WORKER], query=lambda local, remote: asked.append((local, remote)) or seen[-1], table=table)
    assert links.look() == ({WORKER: "up"}, None, None)
    assert [links.look() for _time in range(3)] == [({WORKER: "up"}, 70, 3)] * 3
    assert len(reads) == 1
    assert set(asked) == {(("10.214.80.11", 38856), ("10.214.80.13", 50052))}
    seen.append(seen[0]._replace(state=8))
    links.look()
    assert len(reads) == 2


@LITTLE
def test_bytes_add_up_over_connections():
    first = TABLE % ("01", 5, 0, 0)
    table = first + first.splitlines(True)[2].replace(":97C8", ":97C9")
    seen = {38856: sock_diag.Socket(1, 0, 70, 3), 38857: sock_diag.Socket(1, 0, 50, 4)}

    def query(local, _remote):
        return seen[local[1]]

    links = samples.Links([WORKER], query=query, table=lambda: table)
    links.look()
    assert links.look() == ({WORKER: "up"}, 120, 7)
    seen[38857] = sock_diag.Socket(1, 0, None, 4)
    assert links.look() == ({WORKER: "up"}, None, 7)
    seen[38856] = sock_diag.Socket(1, 0, None, 3)
    assert links.look() == ({WORKER: "up"}, None, 7)
    seen[38856] = sock_diag.Socket(1, 0, 70, 3)
    seen[38857] = sock_diag.Socket(8, 0, 50, 4)
    assert links.look() == ({WORKER: "up"}, 70, 3)
    other = "10.214.80.14:50052"
    links = samples.Links([WORKER, other], query=query, table=lambda: table)
    links.look()
    assert links.look() == ({WORKER: "up", other: "gone"}, None, None)


@LITTLE
def test_waiting_and_served_clients_are_counted():
    def clients(waiting, inode, listener=None):
        return samples.clients(
            "10.214.80.13", 50052, query=lambda local: listener, table=lambda: TABLE % ("01", 5, waiting, inode)
        )

    assert clients(1, 9) == (1, 1)
    assert clients(1, 0) == (1, 0), "a connection without inode waits itself"
    assert clients(1, 9, sock_diag.Socket(10, 0)) == (0, 0)
    assert clients(1, 9, sock_diag.Socket(10, 1)) == (1, 1)


@needs_sock_diag
def test_sockets_by_their_ends():
    with socket.socket() as listener, socket.socket() as head:
        listener.bind(("127.0.0.1", 0))
        listener.listen(2)
        here = listener.getsockname()
        if sock_diag.query(here) is None:
            pytest.skip("no sock_diag here")
        assert sock_diag.query(here).waiting == 0
        head.connect(here)
        assert sock_diag.query(here)[:5] == (10, 1, 0, 0, 0)
        served, _peer = listener.accept()
        served.sendall(b"x" * 1000)
        assert head.recv(2000)
        found = sock_diag.query(head.getsockname(), here)
        assert (found.state, found.received, found.sent) == (1, 1000, 0)
        head.sendall(b"y")
        assert sock_diag.query(head.getsockname(), here).sent == 1
        served.recv(10)
        # The opening of a connection may count as a byte.
        wait_for(lambda: sock_diag.query(head.getsockname(), here).acked == found.acked + 1)
        served.close()
        assert sock_diag.query(head.getsockname(), here).state == 8
        ends = head.getsockname()
    assert sock_diag.query(ends, here) is None or sock_diag.query(ends, here).state != 1


@pytest.mark.parametrize(
    ("letter", "fields", "state"),
    [
        ("S", 20, ("S", 70)),
        ("T", 20, ("T", 70)),
        ("Z", 20, None),
        ("X", 20, None),
        *(("S", n, None) for n in (0, 1, 19)),
    ],
)
def test_the_state_of_a_process_in_its_line(monkeypatch, letter, fields, state):
    line = [letter, *["0"] * 18, "70"][:fields]
    monkeypatch.setattr(samples, "read", lambda path: "7 (a) b) " + " ".join(line))
    assert samples.process_state(7) == state


def test_states_of_processes():
    assert samples.process_state(os.getpid())[0] in "RS"
    child = os.fork()
    if not child:
        os._exit(0)
    while samples.process_state(child):
        time.sleep(0.01)
    os.waitpid(child, 0)
    assert samples.process_state(child) is None


# Units


class Systemd:
    """The output of systemctl show."""

    def __init__(self, monkeypatch):
        self.state, self.pid, self.job, self.asked, self.killed = "active", os.getpid(), "", 0, []
        monkeypatch.setattr(samples, "systemctl_show", self._show)
        monkeypatch.setattr(samples.subprocess, "call", lambda command, **_options: self.killed.append(command) or 0)

    def _show(self, names, properties):
        self.asked += 1
        return "Id=%s\nActiveState=%s\nMainPID=%d\nJob=%s\n" % (names[0], self.state, self.pid, self.job)


@pytest.fixture(name="systemd")
def fixture_systemd(monkeypatch, tmp_path):
    # Not this machine's.
    monkeypatch.setattr(watchdog.note_repair, "__defaults__", (str(tmp_path / "repairs/*.json"),))
    return Systemd(monkeypatch)


def test_living_process_needs_no_systemctl(systemd):
    unit = samples.Unit("llama-head-chat.service")
    assert {unit.look(moment) for moment in range(100)} == {(os.getpid(), samples.process_state(os.getpid())[1])}
    assert systemd.asked == 1
    assert 0 <= unit.age() < 36000


@pytest.mark.parametrize(
    "change", [{"state": "deactivating"}, {"state": "activating", "pid": 0}, {"job": "71"}, {"pid": 1}]
)
def test_unit_with_job_is_skipped(systemd, change):
    unit = samples.Unit("llama-head-chat.service")
    unit.look(0)
    for name, value in change.items():
        setattr(systemd, name, value)
    assert not unit.end()
    assert systemd.killed == []


def test_stopped_unit_is_not_watched(systemd):
    systemd.state, systemd.pid = "inactive", 0
    unit = samples.Unit("llama-head-chat.service")
    assert [unit.look(moment / 2) for moment in range(20)] == [None] * 20
    assert systemd.asked == 10


def test_repair_is_logged_and_counted(systemd, capsys, tmp_path):
    watch = watchdog.WorkerWatch(
        "chat", {"unit": "llama-rpc-chat.service", "address": "127.0.0.1", "port": 1, "head_url": ""}
    )
    watch.unit.look(0)
    for fact in (False, False, True, False, False, False):
        watch.repair(watch._rounds.judge, actions.Repair("it hangs", fact), 100.0)
    lines = capsys.readouterr().out.splitlines()
    assert lines[:4] == ["worker chat: it hangs: restarting it"] * 4
    assert (
        len(lines) == 5
        and lines[4].startswith("worker chat: it hangs: not repaired again before ")
        and lines[4].endswith("(3 repairs in 10 min)")
    )
    assert systemd.killed == [["systemctl", "kill", "--signal=KILL", "--", "llama-rpc-chat.service"]] * 4
    noted = json.loads((tmp_path / "repairs/llama-rpc-chat.json").read_text())
    assert (noted["count"], noted["reason"]) == (4, "it hangs")


def test_unit_with_job_is_skipped_two_seconds(systemd):
    watch = watchdog.WorkerWatch(
        "chat", {"unit": "llama-rpc-chat.service", "address": "127.0.0.1", "port": 1, "head_url": ""}
    )
    watch.unit.look(0)
    systemd.job = "71"
    watch.repair(watch._rounds.judge, actions.Repair("it hangs", False), 100.0)
    systemd.job, asked = "", systemd.asked
    watch.repair(watch._rounds.judge, actions.Repair("it hangs", False), 101.9)
    assert (systemd.asked, systemd.killed) == (asked, [])
    watch.repair(watch._rounds.judge, actions.Repair("it hangs", False), 102.0)
    assert systemd.killed == [["systemctl", "kill", "--signal=KILL", "--", "llama-rpc-chat.service"]]


def test_failed_kill_is_retried_after_two_seconds(systemd, monkeypatch, capsys):
    watch = watchdog.WorkerWatch(
        "chat", {"unit": "llama-rpc-chat.service", "address": "127.0.0.1", "port": 1, "head_url": ""}
    )
    watch.unit.look(0)
    monkeypatch.setattr(samples.subprocess, "call", lambda command, **_options: systemd.killed.append(command) or 1)
    for now in (100.0, 101.9, 102.0):
        watch.repair(watch._rounds.judge, actions.Repair("it hangs", False), now)
    assert (len(systemd.killed), capsys.readouterr().out) == (2, "")


@pytest.mark.parametrize(
    ("url", "asked"),
    [
        ("http://10.0.0.1:8000", [("10.0.0.1", 8000)]),
        ("http://n1:8000", [("n1", 8000)]),
        ("http://10.0.0.1", []),
        ("http://127.0.0.1:8000", []),
        ("http://localhost:8000", []),
        ("", []),
        (None, []),
    ],
)
def test_head_of_worker_is_looked_up(systemd, monkeypatch, url, asked):
    config = {"unit": "llama-rpc-chat.service", "address": "127.0.0.1", "port": 1, "head_url": url}
    watch, probes, clients = watchdog.WorkerWatch("chat", config), [], []
    monkeypatch.setattr(rounds, "listens", probes.append)
    monkeypatch.setattr(samples, "clients", lambda address, port: clients[-1])
    for counted in ((0, 0), (0, 1), (1, 0)):
        clients.append(counted)
        watch.round(100.0)
    assert probes == []
    clients.append((1, 1))
    watch.round(100.0)
    assert probes == asked


def test_stopped_worker_has_no_clients(systemd, monkeypatch):
    systemd.state, systemd.pid = "inactive", 0
    config = {"unit": "llama-rpc-chat.service", "address": "127.0.0.1", "port": 1, "head_url": ""}
    counted = []
    monkeypatch.setattr(samples, "clients", lambda address, port: counted.append(port) or (1, 0))
    watchdog.WorkerWatch("chat", config).round(100.0)
    assert counted == []


def test_whether_something_listens(monkeypatch):
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(1)
        address = listener.getsockname()
        assert rounds.listens(address) is True
    assert rounds.listens(address) is False

    waits = []

    def late(_address, timeout):
        waits.append(timeout)
        raise socket.timeout

    monkeypatch.setattr(rounds.socket, "create_connection", late)
    assert rounds.listens(address) is None
    assert waits == [1], "a watch has no time for more"


class Asked:
    """A looker that notes what it is asked, and has the look of the moment."""

    def __init__(self, look):
        self.look, self.asked = look, []

    def of(self, process):
        return self.look

    def ask(self, process, may_sleep):
        self.asked.append(may_sleep)

    def stop(self):
        pass


def head_watch():
    config = {
        "unit": "llama-head-chat.service",
        "url": "http://127.0.0.1:9",
        "rpc_endpoints": [WORKER],
        "api_key_file": None,
        "ubatch": 512,
    }
    watch = watchdog.HeadWatch("chat", config)
    watch.stop()
    return watch


@pytest.mark.parametrize(
    ("text", "load"), [("7 612.3\n", 612.3), ("7\n", None), ("7 612.3 9\n", None), ("8 612.3\n", None), ("", None)]
)
def test_mark_belongs_to_one_process(tmp_path, monkeypatch, text, load):
    monkeypatch.setattr(watchdog.paths, "SERVED", str(tmp_path))
    (tmp_path / "llama-head-chat.service").write_text(text)
    assert head_watch()._marked((7, 70)) == load


@pytest.mark.parametrize(("now", "words"), [(107.5, " (loaded in 7.0 s)"), (107.0, "")])
def test_load_time_is_logged(tmp_path, monkeypatch, capsys, now, words):
    monkeypatch.setattr(watchdog.paths, "SERVED", str(tmp_path / "served"))
    watch = head_watch()
    watch._began, watch._rounds.looker = 100.0, Asked(None)
    monkeypatch.setattr(watch._rounds.links, "look", lambda: ({}, None, None))
    monkeypatch.setattr(watch.unit, "look", lambda now: (42, 70))
    watch.unit.process = (42, 70)
    monkeypatch.setattr(watch.unit, "age", lambda: 7.0)
    judge = types.SimpleNamespace(working=False, decide=lambda sample: [actions.Serves(7.0)])
    monkeypatch.setattr(watch._rounds, "judge", judge)
    watch.round(now)
    assert watch._rounds.api.pid == 42
    assert capsys.readouterr().out == "head chat: serves%s\n" % words
    assert (tmp_path / "served/llama-head-chat.service").read_text() == "42 7.0\n"
    assert stat.S_IMODE((tmp_path / "served").stat().st_mode) == 0o755


@pytest.mark.parametrize(
    ("now", "change", "asked"),
    [
        (30.0, {}, []),
        (39.9, {}, []),
        (40.0, {}, [False]),
        (30.0, {"received": 8}, [False]),
        (30.0, {"sent": 9}, [False]),
        (30.0, {"state": "closed"}, [True]),
        (30.0, {"look": None}, [False]),
        (30.0, {"working": True}, [False]),
        (30.0, {"process": (8, 80)}, [False]),
    ],
)
def test_idle_head_is_probed_every_thirty_seconds(systemd, monkeypatch, now, change, asked):
    watch = head_watch()
    seen = dict({"state": "up", "received": 7, "sent": 3, "process": (7, 70), "working": False}, **change)
    monkeypatch.setattr(watch._rounds.links, "look", lambda: ({WORKER: seen["state"]}, seen["received"], seen["sent"]))
    monkeypatch.setattr(watch.unit, "look", lambda now: seen["process"])
    monkeypatch.setattr(watch.unit, "age", lambda: 100.0)
    monkeypatch.setattr(
        watch._rounds, "judge", type("Judge", (), {"working": seen["working"], "decide": lambda self, sample: []})()
    )
    watch._rounds.looker = Asked(change.get("look", {"at": 10.0}))
    watch._rounds.known, watch._rounds.looked = seen["process"], ((7, 70), 7, 3)
    watch.round(now)
    assert watch._rounds.looker.asked == asked


# The rules


class Kernel:
    """nft and systemctl."""

    def __init__(self, folder):
        self.file = folder / "firewall.nft"
        self.file.write_text("one")
        self.active, self.table, self.loads, self.said, self.noted = True, "one", 0, [], []
        self.rules = firewall.Rules(self.said.append, lambda *words: self.noted.append(words), self.run, str(self.file))

    def run(self, command):
        if command[:2] == ["systemctl", "is-active"]:
            return (0 if self.active else 3), ""
        if command[:2] == ["systemctl", "reload"]:
            self.loads += 1
            self.table = self.file.read_text()
            return 0, ""
        return (1, "") if self.table is None else (0, self.table)


@pytest.fixture(name="kernel")
def fixture_kernel(tmp_path):
    kernel = Kernel(tmp_path)
    assert kernel.rules.check()
    assert (kernel.loads, kernel.said) == (1, [])
    return kernel


@pytest.mark.parametrize(("table", "word"), [(None, "gone"), ("on", "changed")])
def test_rules_that_something_took_are_loaded_again(kernel, table, word):
    kernel.table = table
    assert kernel.rules.check() and kernel.table == "one"
    assert kernel.said == ["firewall: rules were %s: loaded again" % word]
    assert kernel.noted == [("llama-firewall.service", "rules were %s" % word)]
    assert kernel.rules.check() and kernel.loads == 2


def test_new_rules_of_a_role_are_no_damage(kernel):
    kernel.file.write_text("one and two")
    kernel.table = "one and two"
    assert kernel.rules.check() and (kernel.said, kernel.noted) == ([], [])


def test_rules_of_stopped_unit_are_skipped(kernel):
    kernel.active, kernel.table = False, None
    assert kernel.rules.check() and kernel.loads == 1
    kernel.file.unlink()
    assert kernel.rules.check() and kernel.loads == 1


def test_failing_rules_are_given_up(kernel):
    kernel.table = None
    kernel.rules._run = lambda command: (0, "") if command[:2] == ["systemctl", "reload"] else kernel.run(command)
    assert not kernel.rules.check()


class Netlink:
    """The kernel's news of rules at moments of a clock that waiting moves, and who looks at the rules."""

    def __init__(self, monkeypatch, changes, well):
        self.now, self.changes, self.well = 0.0, list(changes), well
        self.opened, self.bound, self.news, self.checks = [], [], [], []
        names = {name: getattr(socket, name) for name in ("AF_NETLINK", "SOCK_RAW")}
        monkeypatch.setattr(firewall, "socket", types.SimpleNamespace(socket=self._open, **names))
        monkeypatch.setattr(firewall, "select", types.SimpleNamespace(select=self._select))
        monkeypatch.setattr(firewall, "time", types.SimpleNamespace(sleep=self._wait))
        monkeypatch.setattr(firewall, "Rules", lambda say, note: self)

    def _open(self, *words):
        self.opened.append(words)
        if self.changes is None:
            raise OSError(errno.EPROTONOSUPPORT, "not here")
        return self

    def bind(self, address):
        self.bound.append(address)

    def setblocking(self, blocking):
        assert not blocking

    def _wait(self, seconds):
        self.now += seconds

    def _select(self, reading, _writing, _failing, seconds):
        if not self.changes or self.changes[0] > self.now + seconds:
            self._wait(seconds)
            return [], [], []
        self.now = self.changes.pop(0)
        self.news = [b"rules", OSError(errno.ENOBUFS, "too many"), b"rules", OSError(errno.EAGAIN, "no more")]
        return reading, [], []

    def recv(self, _size):
        news = self.news.pop(0)
        if isinstance(news, OSError):
            raise news
        return news

    def check(self):
        self.checks.append(self.now)
        return self.well


@needs_sock_diag
@pytest.mark.parametrize(
    ("well", "changes", "checks"),
    [
        (True, [], [0, 60, 120]),
        (True, [5, 5.25, 30], [0, 5.5, 30.5, 90.5]),
        (False, [], list(range(0, 121, 10))),
        (False, [5], list(range(0, 121, 10))),
    ],
)
def test_rules_are_checked_after_changes(monkeypatch, well, changes, checks):
    netlink = Netlink(monkeypatch, changes, well)
    firewall.Firewall(None, None, lambda: netlink.now).round(121)
    assert (netlink.checks, netlink.now, netlink.news) == (checks, 121, [])
    # NETLINK_NETFILTER and the bit of NFNLGRP_NFTABLES, of the kernel's headers.
    assert (netlink.opened, netlink.bound) == ([(socket.AF_NETLINK, socket.SOCK_RAW, 12)], [(0, 0x40)])


@needs_sock_diag
def test_rules_are_checked_every_minute(monkeypatch):
    netlink = Netlink(monkeypatch, [], True)
    netlink.changes = None
    firewall.Firewall(None, None, lambda: netlink.now).round(121)
    assert (netlink.checks, netlink.now) == ([0, 60, 120], 121)


# The configuration


def test_watches_follow_their_files(tmp_path, systemd, capsys):
    systemd.state, systemd.pid = "inactive", 0
    dog = watchdog.Watchdog()

    def words():
        dog.apply(watchdog.read_configuration(str(tmp_path)))
        return [watch.words for _text, watch in dog.watches.values() if watch]

    assert words() == []
    rpc = {
        "kind": "rpc",
        "unit": "llama-rpc-chat.service",
        "address": "127.0.0.1",
        "port": 50052,
        "head_url": "http://10.0.0.1:8000",
    }
    head = {
        "kind": "head",
        "unit": "llama-head-a-b.service",
        "url": "http://127.0.0.1:9",
        "rpc_endpoints": [],
        "api_key_file": None,
        "ubatch": 512,
    }
    (tmp_path / "rpc-chat.json").write_text(json.dumps(rpc))
    (tmp_path / "head-a-b.json").write_text(json.dumps(head))
    assert words() == ["head a-b", "worker chat"]
    first = dog.watches[str(tmp_path / "rpc-chat.json")][1]
    assert words() and dog.watches[str(tmp_path / "rpc-chat.json")][1] is first
    (tmp_path / "rpc-chat.json").write_text(json.dumps(dict(rpc, port=50053)))
    assert words() and dog.watches[str(tmp_path / "rpc-chat.json")][1] is not first
    first.join(5)
    assert not first.is_alive()
    (tmp_path / "rpc-chat.json").write_text("{")
    (tmp_path / "head-a-b.json").unlink()
    assert words() == []
    assert "rpc-chat.json: cannot be used" in capsys.readouterr().out


def test_a_watch_that_makes_no_rounds_is_stuck(tmp_path, systemd):
    dog = watchdog.Watchdog()
    dog.apply(
        {
            "/rpc-chat.json": json.dumps(
                {"kind": "rpc", "unit": "x.service", "address": "127.0.0.1", "port": 1, "head_url": ""}
            )
        }
    )
    assert dog.stuck(time.monotonic()) == []
    assert dog.stuck(time.monotonic() + watchdog.STUCK + 5) == ["worker chat"]
    dog.apply({})


def test_watch_without_rounds_is_stuck():
    dog = watchdog.Watchdog()
    dog.watches = {"a": ("", types.SimpleNamespace(words="worker chat", beat=100.0)), "b": ("", None)}
    assert [dog.stuck(now) for now in (130.0, 130.1)] == [[], ["worker chat"]]


class Answers:
    """An API that says how long it was asked for."""

    def __init__(self, metrics="llamacpp:requests_processing 1\n", status=200):
        self.metrics, self.status, self.asked = metrics, status, []

    def get(self, path, timeout):
        self.asked.append((path, timeout))
        return self.status if path in ("/metrics", "/health") else 200, self.metrics if path == "/metrics" else []

    def token(self, seed, timeout):
        self.asked.append((seed, timeout))
        return 200, {"timings": {"prompt_n": 3, "predicted_n": 1}}


def test_key_is_for_process(server, tmp_path):
    (tmp_path / "key").write_text("k3y\n")
    api = samples.HeadApi(server.url, str(tmp_path / "key"), pytest.fail)
    assert api.look(1.0, False)["silent"] and api.token(7) == (0, 0) and server.headers == []
    api.pid = os.getpid()
    assert not api.look(1.0, False)["silent"] and api.token(7)[0] == 200
    assert {headers["Authorization"] for headers in server.headers} == {"Bearer k3y"}


def test_a_head_of_embeddings_is_asked_for_one(server):
    server.responses["/v1/embeddings"] = (200, {"data": [{"embedding": [0.5]}], "usage": {"prompt_tokens": 3}})
    head = samples.HeadApi(server.url, None, pytest.fail, embeddings=True)
    prober = samples.Prober(head)
    prober.ask()
    wait_for(lambda: prober.last["ended"])
    assert (prober.last["status"], prober.last["explained"], prober.last["seed"]) == (200, 3, None)
    assert server.asked("/v1/embeddings") == [{"input": "Hello"}] and server.asked("/completion") == []
    server.responses["/v1/embeddings"] = (500, {"error": {"message": "compute error"}})
    assert head.token(None) == (500, 0)


def test_router_is_watched_by_loaded_models(server):
    server.responses.update(fake.router(coder="loaded", chat="unloaded"))
    server.responses.update({"/metrics": fake.metrics(96, 1), "/slots": (200, [fake.WORKING])})
    look = samples.RouterApi(server.url, None, print).look(7.0, may_sleep=True)
    assert (look["health"], look["requests"], look["silent"], look["total"]) == (200, 1, False, None)
    assert ("coder", 96) in look["counters"] and look["slots"][0]["task"] == ("coder", 7)
    assert [path for _method, path, _body in server.requests] == [
        "/models",
        "/metrics?model=coder&autoload=false",
        "/slots?model=coder&autoload=false",
    ]
    server.responses["/metrics"] = (400, {"error": {"message": "model is not loaded", "code": 400}})
    assert samples.RouterApi(server.url, None, print).look(7.0, True)["requests"] == 0


def test_a_head_that_reranks_is_asked_for_scores(server):
    server.responses["/v1/rerank"] = (200, {"results": [], "usage": {"prompt_tokens": 16}})
    head = samples.HeadApi(server.url, None, pytest.fail, embeddings=True, reranking=True)
    assert head.token(None) == (200, 16)
    assert [asked["query"] for asked in server.asked("/v1/rerank")] == ["Hello"]
    assert server.asked("/v1/embeddings") == []


def test_embeddings_are_configured(monkeypatch):
    given = []
    monkeypatch.setattr(samples, "HeadApi", lambda *arguments: given.append(arguments[3:]))
    monkeypatch.setattr(samples, "Looker", lambda api: types.SimpleNamespace(start=lambda: None))
    config = {"unit": "u", "url": "http://h:1", "rpc_endpoints": [], "api_key_file": None, "ubatch": 512}
    for more in ({}, {"embeddings": True}, {"embeddings": True, "reranking": True}):
        watchdog.HeadWatch("chat", dict(config, **more))
    assert given == [(False, False), (True, False), (True, True)]


def test_head_has_five_seconds(monkeypatch):
    answers, head = Answers(), samples.HeadApi("http://h:1", None, pytest.fail)
    monkeypatch.setattr(head, "_api", lambda: answers)
    assert head.look(1.0, True)["requests"] == 1
    assert answers.asked == [("/metrics", 5), ("/slots", 5), ("/props", 5)]
    assert head.token(7) == (200, 4) and answers.asked[3:] == [(7, 5)]
    answers = Answers("", 404)
    monkeypatch.setattr(head, "_api", lambda: answers)
    assert head.look(1.0, False) == dict(samples.nothing(1.0), health=404)
    assert answers.asked == [("/metrics", 5), ("/health", 5)]


@pytest.mark.parametrize(
    ("metrics", "requests", "total"),
    [
        ("llamacpp:requests_processing 1\nllamacpp:requests_deferred 2\n", 3, None),
        ("llamacpp:prompt_tokens_total 30\n", 0, 30),
        ("llamacpp:prompt_tokens_total 30\nllamacpp:tokens_predicted_total 4\n", 0, 34),
        ("llamacpp:tokens_predicted_total 4\n", 0, None),
    ],
)
def test_what_metrics_say_of_a_head(monkeypatch, metrics, requests, total):
    head = samples.HeadApi("http://h:1", None, pytest.fail)
    monkeypatch.setattr(head, "_api", lambda: Answers(metrics))
    look = head.look(1.0, False)
    assert (look["requests"], look["total"], look["sleeping"], look["silent"]) == (requests, total, False, False)
    assert (look["slots"] is None) is not bool(requests), "slots are asked for while somebody is at work"


@pytest.mark.parametrize(
    ("shown", "slot"),
    [
        ({}, (None, None, 0, 0, 0)),
        (
            {
                "id_task": 7,
                "params": {"seed": 3},
                "n_prompt_tokens": 90,
                "n_prompt_tokens_processed": 40,
                "next_token": [{"n_decoded": 5}, {"n_decoded": 9}],
            },
            (7, 3, 90, 40, 5),
        ),
        (
            {"n_prompt_tokens": 40, "n_prompt_tokens_processed": 90, "next_token": {"n_decoded": 6}},
            (None, None, 90, 90, 6),
        ),
        ({"id_task": "7", "next_token": []}, (None, None, 0, 0, 0)),
    ],
)
def test_a_slot_as_builds_show_it(shown, slot):
    found = samples._slot(shown)
    assert tuple(found[key] for key in ("task", "seed", "prompt", "taken", "decoded")) == slot


@pytest.mark.parametrize(
    ("before", "counts", "found"),
    [(0, [1, 2], 3), (5, [1], 6), (None, [1], None), (0, [None, 1], None), (0, [], None), (0, [0], 0)],
)
def test_a_sum_of_what_is_known_of_all(before, counts, found):
    assert samples._sum(before, counts) == found


def test_stopped_unit_is_shown_once_a_second(monkeypatch):
    asked, unit = [], samples.Unit("u")
    monkeypatch.setattr(unit, "_pid", lambda: asked.append(1) or 0)
    for now, times in ((10.0, 1), (10.5, 1), (10.9, 1), (11.0, 2), (11.5, 2), (12.5, 3)):
        assert unit.look(now) is None
        assert len(asked) == times, now


def test_a_process_of_another_start_is_another_process(monkeypatch):
    states, unit = {71: ("S", 5)}, samples.Unit("u")
    monkeypatch.setattr(unit, "_pid", lambda: 71)
    monkeypatch.setattr(samples, "process_state", states.get)
    assert (unit.look(1.0), unit.state) == ((71, 5), "S")
    states[71] = ("D", 5)
    assert (unit.look(1.1), unit.state) == ((71, 5), "D")
    states[71] = ("R", 6)
    assert (unit.look(1.2), unit.state) == ((71, 6), "R"), "systemd is asked at once"
    states.clear()
    assert unit.look(1.3) is None and unit.age() is None


def test_head_is_sampled_once_a_second(monkeypatch):
    pauses, looks = [], []
    looker = samples.Looker(types.SimpleNamespace(look=lambda at, may_sleep: looks.append(may_sleep) or {"at": at}))

    def pause(seconds):
        pauses.append(seconds)
        if len(pauses) == 2:
            looker.stop()
        else:
            looker.ask((71, 5), False)

    monkeypatch.setattr(looker.hurries, "wait", pause)
    looker.ask((71, 5), True)
    looker.run()
    assert (pauses, looks) == ([1.0, 1.0], [True, False])
    assert looker.of((71, 5)) and looker.of((71, 6)) is None and looker.of(None) is None


def test_head_that_ends_is_sampled_at_once():
    looks = []
    looker = samples.Looker(types.SimpleNamespace(look=lambda at, may_sleep: looks.append(at) or {"at": at}))
    looker.hurries.set()
    looker.start()
    began = time.monotonic()
    for number in range(5):
        looker.ask((71, 5), False)
        wait_for(lambda number=number: len(looks) > number)
    assert time.monotonic() - began < 3, "five seconds otherwise"
    looker.hurries.clear()
    looker.stop()
