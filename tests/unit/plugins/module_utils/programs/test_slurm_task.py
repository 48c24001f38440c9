# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tasks as SLURM starts and signals them: real processes, with stand-ins for the servers and SLURM's commands."""

import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import types
from pathlib import Path

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._llama import handshake
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._slurm import head, job
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._text import Refusal
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils.programs import slurm_task
from ansible_collections.thefermisea.llama_cluster.tests.unit.slurm_tasks import (
    Cluster,
    answers,
    get,
    is_running,
    signal_all,
    tree,
    wait_for,
)

LOST = 75


@pytest.fixture(name="cluster")
def fixture_cluster(tmp_path):
    made = []

    def make(**options):
        made.append(Cluster(tmp_path, **options))
        return made[-1]

    yield make
    for one in made:
        one.close()


def server_of(task):
    """The pid of the task's server."""
    return wait_for(lambda: next((pid for pid in tree(task.pid) if "stand_in_" in command_of(pid)), None))


def command_of(pid):
    return Path(f"/proc/{pid}/cmdline").read_text()


def client(port):
    """A head that is connected to a worker."""
    wait_for(lambda: listens(port))
    return socket.create_connection(("127.0.0.1", port))


def listens(port):
    with socket.socket() as one:
        return not one.connect_ex(("127.0.0.1", port))


class Request(threading.Thread):
    """A request that runs for some seconds."""

    def __init__(self, port, seconds):
        super().__init__(daemon=True)
        self.port, self.seconds, self.ended = port, seconds, None
        self.start()
        wait_for(lambda: "requests_processing 1" in get(port, "/metrics"))

    def run(self):
        try:
            get(self.port, f"/work?{self.seconds}", 30)
            self.ended = time.monotonic()
        except OSError:
            self.ended = 0


# Its node


def parsed(names):
    task = {"address": "a", "port": 1, "files": {}, "cache": "", "endpoints": [], "build": "b1", "ubatch": 1}
    task.update(role="rpc", argv=["/x"], environment={}, node="", embeddings=False, reranking=False)
    tasks = {name: job.Task(**dict(task, node=name)) for name in names}
    return job.Job("chat", "0" * 16, "llama", 30, "/logs", "/state", None, tasks)


@pytest.mark.parametrize(("node", "found"), [("n1", "n1"), ("n2.example", "n2"), ("n3", "n3.example"), ("n1.a", "n1")])
def test_node_has_its_task(node, found):
    assert slurm_task.task_of(parsed(["n1", "n2", "n3.example"]), node).node == found


@pytest.mark.parametrize("node", ["", "n4", "n"])
def test_other_node_is_refused(node):
    with pytest.raises(Refusal, match="SLURMD_NODENAME: (nothing|n4|n) seen, one of n1, n2 is needed"):
        slurm_task.task_of(parsed(["n1", "n2"]), node)


# Workers


def test_worker_waits_for_its_port(cluster):
    one = cluster(workers=1)
    (port,) = one.worker_ports
    with socket.create_server(("127.0.0.1", port)):
        task = one.task("n2")
        words = wait_for(lambda: re.search("waits for port .*", one.output(task)))
        assert words.group() == f"waits for port {port}: {comm()}, process {os.getpid()}, of this user listens there"
        assert "starts" not in one.output(task)
    wait_for(lambda: listens(port))
    assert handshake.ask(f"127.0.0.1:{port}", 11434, print) == "7.0.0"
    task.send_signal(signal.SIGTERM)
    assert task.wait(5) == 0


def comm():
    return Path("/proc/self/comm").read_text().strip()


def test_worker_outlives_sigterm_while_head_is_connected(cluster):
    one = cluster(workers=1)
    task = one.task("n2")
    head = client(one.worker_ports[0])
    server = server_of(task)
    for _time in range(3):
        signal_all(task, signal.SIGTERM)
        time.sleep(0.3)
    assert task.poll() is None and is_running(server)
    gone = time.monotonic()
    head.close()
    assert task.wait(5) == 0 and time.monotonic() - gone < 3
    assert not is_running(server)
    assert "no head is connected: ends" in one.output(task)


def test_worker_ends_before_the_grace_time(cluster):
    one = cluster(workers=1, grace=5)
    task = one.task("n2")
    with client(one.worker_ports[0]):
        began = time.monotonic()
        signal_all(task, signal.SIGTERM)
        assert task.wait(10) == 0
        assert 1.5 < time.monotonic() - began < 4.5
    assert "its time is over: ends" in one.output(task)


@pytest.mark.parametrize("used", [True, False])
def test_crashed_worker_is_lost_if_it_was_used(cluster, used):
    one = cluster(workers=1)
    task = one.task("n2")
    if used:
        head = client(one.worker_ports[0])
        time.sleep(1.2)
        head.close()
    os.kill(server_of(task), signal.SIGSEGV)
    assert task.wait(5) == (LOST if used else 128 + signal.SIGSEGV)
    assert "ended by itself: SIGSEGV; its last lines:" in one.output(task)


def test_stopped_worker_is_lost(cluster):
    one = cluster(workers=1)
    task = one.task("n2")
    os.kill(server_of(task), signal.SIGSTOP)
    assert task.wait(10) == LOST
    assert "its process has been stopped for 3 s: it is ended" in one.output(task)


@pytest.mark.parametrize(("node", "then"), [("n1", "waits for RPC worker"), ("n2", "starts")])
def test_task_waits_for_the_rules(cluster, node, then):
    one = cluster(workers=1)
    (one.slurm / "systemctl").write_text("#!/bin/sh\n[ -e %s/rules ]\n" % one.slurm)
    task = one.task(node)
    wait_for(lambda: "waits for llama-firewall.service" in one.output(task))
    assert then not in one.output(task)
    (one.slurm / "rules").touch()
    wait_for(lambda: then in one.output(task))


def test_tensors_cut_short_are_deleted(cluster, tmp_path):
    one = cluster(workers=1)
    cache = tmp_path / "state/rpc-chat"
    one.worker["cache"] = str(cache)
    (cache / "rpc").mkdir(parents=True)
    for name, age in (("old", 120), ("young", 10)):
        (cache / "rpc" / name).touch()
        os.utime(cache / "rpc" / name, (time.time() - age,) * 2)
    task = one.task("n2")
    wait_for(lambda: listens(one.worker_ports[0]))
    task.send_signal(signal.SIGUSR1)
    assert task.wait(5) == 0
    assert os.listdir(cache / "rpc") == ["old"]


def test_unused_tensors_are_deleted(cluster, tmp_path):
    one = cluster(workers=1)
    for name in ("rpc-chat/rpc", "rpc-other"):
        (tmp_path / "state" / name).mkdir(parents=True)
    one.task("n2")
    wait_for(lambda: listens(one.worker_ports[0]))
    assert not (tmp_path / "state/rpc-chat").exists() and (tmp_path / "state/rpc-other").exists()


# Heads


def test_head_drains_then_ends(cluster):
    """Also a second signal changes nothing, and the server itself gets each of SLURM's."""
    one = cluster(grace=12)
    task = one.task()
    one.serves()
    request = Request(one.port, 2.5)
    asked = time.monotonic()
    signal_all(task, signal.SIGTERM)
    # 0.1 s on a quiet machine.
    wait_for(lambda: one.state() == "draining", 1.5)
    for _time in range(3):
        time.sleep(0.3)
        signal_all(task, signal.SIGTERM)
        assert answers(one.port)
    assert task.wait(10) == 0
    ended = time.monotonic()
    assert request.ended and request.ended - asked > 1
    assert request.ended < ended < request.ended + 4
    assert one.state() is None
    assert one.output(task).count("drains, ends in 7 s at the latest") == 1
    assert "nothing runs any more: ends" in one.log("head-n1.log")
    assert one.calls("scancel") == []


def test_idle_head_ends_within_two_seconds(cluster):
    one = cluster(grace=30)
    task = one.task()
    one.serves()
    asked = time.monotonic()
    signal_all(task, signal.SIGTERM)
    assert task.wait(5) == 0
    assert time.monotonic() - asked < 4


def test_idle_head_ends_between_two_looks():
    """A request under way would keep its server from ending."""
    looks, asked = {}, []
    looker = types.SimpleNamespace(
        hurries=threading.Event(), of=looks.get, ask=lambda process, may_sleep: asked.append(process)
    )
    one = head.Head.__new__(head.Head)
    subject = types.SimpleNamespace(look=lambda _now: "server")
    one.asked, one._last_look, one._rounds = 10.0, None, types.SimpleNamespace(subject=subject, looker=looker)
    idle = {"slots": [], "requests": 0, "silent": False}
    looks["server"] = dict(idle, at=9.9)
    assert not one._is_idle(10.4) and not asked
    assert not any(one._is_idle(at) for at in (10.5, 10.6, 10.7)) and len(asked) == 1 and looker.hurries.is_set()
    looks["server"] = dict(idle, at=10.55, requests=1)
    assert not any(one._is_idle(at) for at in (10.8, 10.9)) and len(asked) == 2
    looks["server"] = dict(idle, at=12.5, requests=1)
    assert not one._is_idle(12.6) and len(asked) == 3 and not looker.hurries.is_set()
    looks["server"] = dict(idle, at=12.6)
    assert one._is_idle(12.7) and len(asked) == 3


def test_head_that_loads_ends_at_once(cluster):
    one = cluster(grace=30)
    one.head["argv"] += ["--load", "60"]
    task = one.task()
    wait_for(lambda: one.state() == "loading" and listens(one.port))
    asked = time.monotonic()
    signal_all(task, signal.SIGTERM)
    assert task.wait(5) == 0
    assert time.monotonic() - asked < 4
    assert not one.log("served-0") and not (one.folder / "logs/4711/served-0").exists()


def test_long_request_ends_with_the_grace_time(cluster):
    one = cluster(grace=7)
    task = one.task()
    one.serves()
    request = Request(one.port, 60)
    asked = time.monotonic()
    signal_all(task, signal.SIGUSR1)
    assert task.wait(10) == 0
    assert 1.5 < time.monotonic() - asked < 5
    assert request.ended == 0 and "requests still run, its time is over" in one.output(task)


def test_server_that_hangs_is_killed(cluster):
    one = cluster(grace=7)
    task = one.task()
    one.serves()
    get(one.port, "/hang")
    server = server_of(task)
    os.kill(server, signal.SIGSTOP)
    asked = time.monotonic()
    signal_all(task, signal.SIGTERM)
    assert task.wait(10) == 0
    assert time.monotonic() - asked < 7 and not is_running(server)


@pytest.mark.parametrize(("text", "how", "code"), [("3", "exit code 3", 3), ("", "SIGABRT", 134), ("75", "exit", 1)])
def test_crash_has_its_code_and_last_lines(cluster, text, how, code):
    one = cluster()
    task = one.task()
    one.serves()
    with pytest.raises(OSError):
        get(one.port, f"/crash?{text}")
    assert task.wait(10) == code
    shown = one.output(task).partition(f"ended by itself: {how}")[2]
    assert re.findall(r"  (line \d)", shown) == [f"line {number}" for number in range(1, 6)]
    assert one.state() is None
    log = one.log("head-n1.log").splitlines()
    assert all(re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z ", line) for line in log)
    assert [line[25:] for line in log if " line " in line] == [f"line {number}" for number in range(6)]


def test_unusable_program_is_named(cluster):
    one = cluster()
    one.head["argv"] = ["/nowhere/llama-server"]
    task = one.task()
    assert task.wait(5) == 1
    assert "/nowhere/llama-server: it cannot be run (No such file or directory)" in one.output(task)


def test_head_waits_for_workers_and_loses_one(cluster):
    one = cluster(workers=2)
    head = one.task()
    wait_for(lambda: "waits for RPC worker 127.0.0.1:%d: the port is closed" % one.worker_ports[0] in one.output(head))
    workers = [one.task("n2"), one.task("n3")]
    one.serves()
    time.sleep(1)
    os.kill(server_of(workers[1]), signal.SIGKILL)
    assert head.wait(10) == LOST
    assert re.search("lost (an|its connection to) RPC worker", one.output(head))
    assert [worker.wait(10) for worker in workers] == [0, LOST]
    assert one.calls("scancel") == ["--signal=USR1 4711.0"], "SLURM has asked no task to end"


def test_only_the_own_server_is_registered(cluster):
    """While the head waits for its worker, another program takes its port and says that it is well."""
    one = cluster(workers=1)
    task = one.task()
    wait_for(lambda: "waits for RPC worker" in one.output(task))
    (one.registry / "health").write_text('{"status": "ok"}')
    health = ["-m", "http.server", "--bind", "127.0.0.1", "--directory", one.registry, str(one.port)]
    with subprocess.Popen([sys.executable, *health], stderr=subprocess.DEVNULL) as other:
        wait_for(lambda: listens(one.port))
        one.task("n2")
        states = set()
        wait_for(lambda: states.add(one.state()) or task.poll() is not None)
        other.kill()
    assert states == {None}
    assert "ended by itself: exit code 1" in one.output(task)


def test_loading_server_is_registered_soon(cluster):
    one = cluster(workers=1)
    one.head["argv"] += ["--load", "60"]
    head = one.task()
    wait_for(lambda: "waits for RPC worker" in one.output(head))
    time.sleep(1)
    assert one.state() is None
    one.task("n2")
    wait_for(lambda: listens(one.port))
    # 0.8 s on a quiet machine.
    wait_for(lambda: one.state() == "loading", 4)


def test_request_to_end_is_heard_while_waiting(cluster):
    one = cluster(workers=1)
    task = one.task()
    wait_for(lambda: "waits for RPC worker" in one.output(task))
    task.send_signal(signal.SIGTERM)
    assert task.wait(5) == 0


def test_head_drains_before_the_time_is_over(cluster):
    one = cluster()
    ends = int(time.time()) + 124
    one.shows(ends=ends)
    task = one.task(LLAMA_JOB_ENDS=str(ends))
    one.serves()
    request = Request(one.port, 5.5)
    assert task.wait(20) == 0
    assert request.ended and time.time() < ends - 100
    assert re.search("the time of the job ends soon: drains, ends in 11[0-9] s at the latest", one.output(task))


def test_extended_time_is_used(cluster):
    one = cluster()
    ends = int(time.time()) + 121
    one.shows(ends=ends + 600)
    task = one.task(LLAMA_JOB_ENDS=str(ends))
    one.serves()
    wait_for(lambda: one.calls("scontrol"))
    time.sleep(1)
    assert one.calls("scontrol") == ["-o show job 4711"]
    assert task.poll() is None and one.state() == "ready"


def test_server_has_only_its_environment(cluster):
    one = cluster()
    task = one.task(SLURM_JWT="secret")
    one.serves()
    environment = Path(f"/proc/{server_of(task)}/environ").read_text().split("\0")
    assert {one.partition("=")[0] for one in environment if one} == {
        "PATH",
        "HOME",
        "GGML_NO_BACKTRACE",
        "CUDA_VISIBLE_DEVICES",
    }
    assert os.readlink(f"/proc/{server_of(task)}/cwd") == "/"


def test_files_of_a_server_are_placed(cluster, tmp_path):
    one = cluster()
    one.head["files"] = {"/etc/preset-chat.ini": "[m]\nmodel = /etc/t.jinja\n", "/etc/t.jinja": "x", "/none": None}
    one.head["argv"] += ["--models-preset", "/etc/preset-chat.ini", "--models-dir", "/none"]
    one.task()
    one.serves()
    folder = tmp_path / "state/task-chat-n1"
    assert (folder / "preset-chat.ini").read_text() == f"[m]\nmodel = {folder}/t.jinja\n"
    assert os.listdir(folder / "none") == []


def test_killed_task_leaves_no_process(cluster):
    one = cluster()
    task = one.task()
    one.serves()
    children = tree(task.pid)[1:]
    assert len(children) >= 3
    task.kill()
    wait_for(lambda: not any(is_running(pid) for pid in children), 6)
    assert one.state() is None, "its writer removes the file"


def test_killed_writer_is_started_again(cluster, monkeypatch):
    one = cluster()
    task = one.task()
    one.serves()
    (writer,) = [pid for pid in tree(task.pid) if "registry_writer" in command_of(pid)]
    os.kill(writer, signal.SIGKILL)
    (one.registry / "4711-chat.json").unlink()
    wait_for(lambda: one.state() == "ready", 20)


def test_hanging_share_holds_no_server(cluster):
    """A FIFO without a reader stands for it."""
    one = cluster()
    (one.folder / "logs/4711").mkdir()
    os.mkfifo(one.folder / "logs/4711/head-n1.log")
    task = one.task()
    wait_for(lambda: one.state() == "ready")
    began = time.monotonic()
    get(one.port, "/print?20000")
    assert answers(one.port) and time.monotonic() - began < 5
    wait_for(lambda: "its log is not written: the share hangs or is full, lines are lost" in one.output(task))
    signal_all(task, signal.SIGTERM)
    assert task.wait(10) == 0
    lost = int(re.search(r"(\d+) lines of its log are lost", one.output(task)).group(1))
    assert 10000 < lost < 20000


def test_missing_registry_holds_no_server(cluster):
    one = cluster()
    one.registry.rmdir()
    task = one.task()
    wait_for(lambda: "serves" in one.output(task))
    signal_all(task, signal.SIGTERM)
    assert task.wait(10) == 0
