# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A log that may hang or be full, and the output of a server."""

import os
import re
import resource
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._slurm import process, pump
from ansible_collections.thefermisea.llama_cluster.tests.unit.slurm_tasks import is_running, wait_for


def texts(path):
    """The lines without their times."""
    lines = path.read_text().splitlines()
    assert all(re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z ", line) for line in lines)
    return [line[25:] for line in lines]


def said_to(path):
    """A function that writes what a child says into a file."""

    def say(text):
        with open(path, "a") as stream:
            stream.write(text + "\n")

    return say


@pytest.fixture(name="said")
def fixture_said(tmp_path):
    (tmp_path / "said").touch()
    return tmp_path / "said"


def test_lines_and_marks_are_written(tmp_path, said):
    log = pump.LogFile(str(tmp_path / "4711"), "head-n1.log", said_to(said))
    log.write("one")
    assert log.mark("served-0")
    log.write("two")
    log.close()
    assert texts(tmp_path / "4711/head-n1.log") == ["one", "two"]
    assert (tmp_path / "4711/served-0").read_bytes() == b""
    assert said.read_text() == "" and log.lost == 0


def test_restarted_job_continues_its_log(tmp_path, said):
    for word in ("one", "two"):
        log = pump.LogFile(str(tmp_path / "4711"), "head-n1.log", said_to(said))
        log.write(word)
        log.close()
    assert texts(tmp_path / "4711/head-n1.log") == ["one", "two"]


def test_full_disk_loses_lines(said):
    log = pump.LogFile("/dev", "full", said_to(said))
    for number in range(100):
        log.write("line %d" % number)
    began = time.monotonic()
    log.close()
    assert time.monotonic() - began < pump.END
    assert said.read_text().splitlines() == [
        "log /dev/full: No space left on device: lines are lost until it can be written",
        "log /dev/full: 100 lines are lost",
    ]


def test_log_has_an_end(tmp_path, said, monkeypatch):
    monkeypatch.setattr(pump, "MOST_LOG", 2000)
    path = tmp_path / "4711" / "head-n1.log"
    for _start in range(2):
        log = pump.LogFile(str(path.parent), path.name, said_to(said))
        for number in range(100):
            log.write("line %d" % number)
        assert log.mark("served-0")
        log.close()
    lines = texts(path)
    assert path.stat().st_size < 2200 and lines[-1] == "the log is full, lines are lost from here on"
    assert said.read_text() == f"log {path}: it is full (2.0 kB), lines are lost from here on\n" * 2
    assert (path.parent / "served-0").exists()


def test_logs_are_closed_to_others(tmp_path, said):
    log = pump.LogFile(str(tmp_path / "4711"), "head-n1.log", said_to(said))
    log.write("one")
    log.close()
    assert (tmp_path / "4711").stat().st_mode & 0o027 == (tmp_path / "4711/head-n1.log").stat().st_mode & 0o137 == 0


def test_hanging_share_loses_lines_and_comes_back(tmp_path, said):
    path = tmp_path / "4711/head-n1.log"
    path.parent.mkdir()
    os.mkfifo(path)
    log = pump.LogFile(str(path.parent), path.name, said_to(said))
    began = time.monotonic()
    for _number in range(500):
        log.write("x" * 2900)
    assert time.monotonic() - began < 5 and 100 < log.lost < 500
    read = []
    share = threading.Thread(target=lambda: read.append(path.read_text()))
    share.start()
    lost = -1
    while log.lost != lost:
        time.sleep(0.1)
        lost = log.lost
        log.write("last")
    log.close()
    share.join(10)
    assert sum(map(int, re.findall(r" (\d+) lines before this one are lost\n", read[0]))) == log.lost
    assert read[0].count("x\n") >= 500 - log.lost and read[0].endswith(" last\n")


def test_share_that_never_comes_back_is_left(tmp_path, said):
    os.mkfifo(tmp_path / "log")
    log = pump.LogFile(str(tmp_path), "log", said_to(said))
    log.write("one")
    began = time.monotonic()
    log.close()
    assert pump.END <= time.monotonic() - began < pump.END + 2


def test_link_is_no_log(tmp_path, said):
    (tmp_path / "4711").mkdir()
    (tmp_path / "4711/log").symlink_to(tmp_path / "elsewhere")
    log = pump.LogFile(str(tmp_path / "4711"), "log", said_to(said))
    log.write("one")
    log.close()
    assert not (tmp_path / "elsewhere").exists() and "lines are lost" in said.read_text()


def test_directory_of_another_user_is_left(tmp_path, said, monkeypatch):
    (tmp_path / "4711").mkdir()
    monkeypatch.setattr(pump, "owners", lambda: (12345,))
    log = pump.LogFile(str(tmp_path / "4711"), "log", said_to(said))
    log.write("one")
    log.close()
    assert os.listdir(tmp_path / "4711") == []
    assert "its directory belongs to another user: lines are lost" in said.read_text()


def pumped(tmp_path, data):
    log = pump.LogFile(str(tmp_path), "log", print)
    reading, writing = os.pipe()
    thread = pump.Pump(reading, log)
    thread.start()
    for piece in data:
        os.write(writing, piece)
    os.close(writing)
    thread.join(10)
    log.close()
    return thread


def test_output_becomes_lines(tmp_path):
    thread = pumped(tmp_path, [b"one\r\ntw", b"o\n\n\x1b[31mthree\tend\xff\n", b"rest"])
    assert texts(tmp_path / "log") == ["one", "two", "", "?[31mthree end\ufffd", "rest"]
    assert thread.last(3) == ["two", "?[31mthree end\ufffd", "rest"]


def test_output_without_line_ends_is_cut(tmp_path):
    thread = pumped(tmp_path, [b"y" * 40000])
    lines = texts(tmp_path / "log")
    assert len(lines) >= 1 and all(len(line) <= pump.WHOLE for line in lines)
    assert len(thread.last(1)[0]) == 203


def test_output_cannot_make_files(tmp_path):
    pumped(tmp_path, [pump.MARK + b"served-0\n" + pump.MARK + b"../x\n"])
    assert sorted(os.listdir(tmp_path)) == ["log"]


def test_child_ends_with_its_task(tmp_path):
    os.mkfifo(tmp_path / "log")
    reading, writing = os.pipe()
    task = os.fork()
    if not task:
        log = pump.LogFile(str(tmp_path), "log", print)
        os.write(writing, b"%d" % log._child)
        os._exit(0)
    os.waitpid(task, 0)
    child = int(os.read(reading, 20))
    wait_for(lambda: not is_running(child))


WORDS = ["/x/llama-server", "--load-mode", "mlock"]


def test_server_keeps_signals_pending():
    text = "print(flush=True); input()"
    one = process.start([sys.executable, "-S", "-c", text], {}, stdin=subprocess.PIPE, output=subprocess.PIPE)
    # Python that still starts may swallow a SIGINT.
    one.stdout.readline()
    for number in process.KEPT:
        one.send_signal(number)
    status = Path(f"/proc/{one.pid}/status").read_text()
    assert one.poll() is None
    one.send_signal(signal.SIGINT)
    assert one.wait(5) in (1, -signal.SIGINT)
    one.stdin.close()
    one.stdout.close()
    # SIGPIPE, number 13.
    assert int(status.partition("SigIgn:\t")[2].split()[0], 16) >> 12 & 1


def test_environment_of_a_server(monkeypatch):
    monkeypatch.setenv("SLURM_JWT", "secret")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    monkeypatch.setenv("GGML_VK_VISIBLE_DEVICES", "2")
    monkeypatch.delenv("ROCR_VISIBLE_DEVICES", raising=False)
    chosen = process.environment_of({"HOME": "/h"})
    cards = {"CUDA_VISIBLE_DEVICES": "1", "GGML_VK_VISIBLE_DEVICES": "2"}
    assert chosen == {"PATH": process.PATH, **cards, "HOME": "/h"}
    assert process.environment_of({"CUDA_VISIBLE_DEVICES": "GPU-7"})["CUDA_VISIBLE_DEVICES"] == "GPU-7"


@pytest.mark.parametrize(
    ("status", "code", "words"),
    [(0, 0, "exit code 0"), (3, 3, "exit code 3"), (-6, 134, "SIGABRT"), (-99, 227, "signal 99")],
)
def test_ends_of_processes(status, code, words):
    assert (process.exit_code(status), process.how_it_ended(status)) == (code, words)


@pytest.mark.parametrize(
    ("most", "words", "named"),
    [(8 << 20, WORDS, True), (8 << 20, WORDS[:1], False), (resource.RLIM_INFINITY, WORDS, False)],
)
def test_limit_of_locked_memory_is_named(monkeypatch, most, words, named):
    monkeypatch.setattr(process.resource, "getrlimit", lambda _kind: (most, most))
    assert ("8192 KiB allowed, no limit is needed" in process.too_little_locked(words)) is named


def test_limits_are_as_high_as_they_may_be():
    words = "from %s import set_limits; import resource; set_limits()" % process.__name__
    words += "; print([resource.getrlimit(kind) for kind in (resource.RLIMIT_NOFILE, resource.RLIMIT_CORE)])"
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    path = os.pathsep.join(sys.path)
    shown = subprocess.check_output([sys.executable, "-c", words], env={"PYTHONPATH": path}, text=True)
    assert shown == "[(%d, %d), (0, 0)]\n" % (min(limit, process.FILES), limit)
