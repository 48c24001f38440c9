# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A FIFO without a writer blocks its reader, as a share without its server does."""

import errno
import os
import pathlib
import subprocess
import sys
import time

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._node import disposable
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._node.disposable import Disposable, Outcome


def read(path):
    with open(path) as stream:
        return stream.read()


@pytest.mark.parametrize(
    "work, outcome",
    [
        (lambda: "x" * (1 << 20), Outcome("x" * (1 << 20))),
        (lambda: read("/nowhere/at/all"), Outcome(error=os.strerror(errno.ENOENT))),
        (lambda: os._exit(3), Outcome(error="its process ended before it answered")),
    ],
)
def test_outcome_of_the_work(work, outcome):
    assert Disposable(60).run(work) == outcome


def test_data_without_an_end_is_late():
    class Endless(list):
        def __iter__(self):
            while True:
                yield "x" * 1000

    # The encoder writes a piece for each element.
    assert Disposable(0.5).run(lambda: Endless([1])) == Outcome(error="no answer for 0 s")


def test_hanging_children_are_left_behind(tmp_path, monkeypatch):
    killed = []
    # A child in an uninterruptible call outlives SIGKILL.
    monkeypatch.setattr(disposable.os, "kill", lambda pid, _signal: killed.append(pid))
    fifo, child, late = str(tmp_path / "fifo"), Disposable(0.2), Outcome(error="no answer for 0 s")
    os.mkfifo(fifo)
    began = time.monotonic()
    assert [child.run(lambda: read(fifo)) for _attempt in range(3)] == [late] * 3
    assert len(killed) == 2 and time.monotonic() - began < 20
    # The share is back: both children end, and the next one is started.
    with open(fifo, "wb") as stream:
        stream.write(b"back")
    until = time.monotonic() + 30
    while child.run(lambda: 1) == late:
        assert time.monotonic() < until
        time.sleep(0.02)
    child.deadline = 60
    assert child.run(lambda: 1) == Outcome(1)


def test_hanging_child_leaves_the_output(tmp_path):
    """Ansible waits for its end: a module that gives up must not hang with its child."""
    (tmp_path / "llama_cluster").symlink_to(pathlib.Path(disposable.__file__).parents[1])
    program = (
        "import time; from llama_cluster._node import disposable; disposable.os.kill = lambda *_given: None;"
        "print(disposable.Disposable(0.2).run(lambda: time.sleep(8)).error)"
    )
    began = time.monotonic()
    words = subprocess.check_output(
        [sys.executable, "-S", "-B", "-c", program],
        env={"PYTHONPATH": str(tmp_path)},
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert words == "no answer for 0 s\n" and time.monotonic() - began < 6


def test_child_inherits_no_descriptor():
    """A socket that listens would stay open in a child that hangs."""
    reading, writing = os.pipe()
    os.set_inheritable(writing, True)
    assert Disposable(60).run(lambda: os.write(writing, b"x")) == Outcome(error=os.strerror(errno.EBADF))
    os.close(writing)
    assert os.read(reading, 1) == b""
    os.close(reading)
