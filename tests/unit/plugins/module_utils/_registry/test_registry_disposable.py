# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A FIFO that nobody writes blocks whoever opens it, as a share does whose server is gone."""

import contextlib
import errno
import os
import time

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._registry.disposable import Disposable


@pytest.fixture(name="fifo")
def fixture_fifo(tmp_path):
    os.mkfifo(str(tmp_path / "fifo"))
    return str(tmp_path / "fifo")


@pytest.fixture(name="child")
def fixture_child():
    child = Disposable(60)
    yield child
    child.end()


def read(path):
    with open(path) as stream:
        return stream.read()


def result(child, within=30.0):
    until = time.monotonic() + within
    while time.monotonic() < until:
        outcome = child.poll(time.monotonic())
        if outcome:
            return outcome
        child.wait(0.02)
    raise AssertionError("nothing for %s s" % within)


def test_what_is_done_comes_back_whole(child):
    child.start(lambda: "x" * (1 << 20), time.monotonic())
    assert result(child).value == "x" * (1 << 20)
    assert not child.busy


def test_what_went_wrong_comes_back_as_words(child):
    child.start(lambda: read("/nowhere/at/all"), time.monotonic())
    assert result(child).error == os.strerror(errno.ENOENT)


def test_a_child_that_dies_has_not_answered(child):
    child.start(lambda: os._exit(3), time.monotonic())
    outcome = result(child)
    assert (outcome.value, outcome.late) == (None, False)
    assert outcome.error == "its process ended before it answered"


def test_whoever_hangs_holds_up_nobody(child, fifo, monkeypatch):
    monkeypatch.setattr(child, "_deadline", 0.3)
    began = time.monotonic()
    child.start(lambda: read(fifo), began)
    assert time.monotonic() - began < 5
    assert result(child).late
    assert 0.25 < time.monotonic() - began < 20
    assert not child.busy, "another one may start"


class Stuck(Disposable):
    """Its children outlive SIGKILL, as those in an uninterruptible call do."""

    @staticmethod
    def _kill(pid):
        pass


def test_one_child_at_most_takes_the_place_of_one_that_hangs(fifo):
    child = Stuck(0.2)
    pids = []
    try:
        for _attempt in range(2):
            child.start(lambda: read(fifo), time.monotonic())
            pids.append(child._pid)
            assert result(child).late
        assert child.busy, "the second one is still awaited"
        assert child.left == 1
        time.sleep(0.3)
        assert child.poll(time.monotonic()) is None, "and told of once"
        # The share is back: both go on.
        with open(fifo, "wb") as stream:
            stream.write(b"back")
        result(child)
        assert not child.busy
        until = time.monotonic() + 30
        while child.left and time.monotonic() < until:
            time.sleep(0.02)
        assert child.left == 0
    finally:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, 9)
