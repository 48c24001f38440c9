# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

import json
import os

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils import _job
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._job import Job, claim, is_live, lease_path


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "async" / "job.json")


@pytest.fixture
def clock(monkeypatch):
    now = [1000.0]
    monkeypatch.setattr(_job.time, "monotonic", lambda: now[0])
    return now


def read(path):
    with open(path) as stream:
        return json.load(stream)


def test_running_transfer_is_reported(tmp_path):
    state = {"phase": "fetch", "name": "m.gguf", "done": 340, "total": 1000, "rate": 100.0}
    path = str(tmp_path / "gguf_fetch-0.json")
    job = Job(path)
    assert _job.running("gguf_fetch", str(tmp_path)) == []  # no size yet
    job.write(state)
    seen = [{"name": "m.gguf", "line": "34 % (340 bytes of 1.0 kB), 100 bytes/s, 7 s left"}]
    assert _job.running("gguf_fetch", str(tmp_path)) == seen
    for text in ("nonsense", "[]", '{"pid": "x"}', "{}"):
        (tmp_path / "gguf_fetch-1.json").write_text(text)
        assert _job.running("gguf_fetch", str(tmp_path)) == seen
    os.utime(lease_path(path), (1, 1))
    assert _job.running("gguf_fetch", str(tmp_path)) == []
    assert _job.running("gguf_fetch", str(tmp_path / "none")) == []


def test_there_is_one_job_per_state_file(path):
    assert is_live(path) is False
    job = Job(path)
    assert is_live(path) is True
    with pytest.raises(BlockingIOError):
        Job(path)
    assert read(path) == {"phase": "start", "pid": os.getpid()}
    os.close(job._held)
    assert is_live(path) is False


def test_job_is_abandoned_minute_after_its_last_follower(path, clock):
    is_live(path)
    job = Job(path)
    for passed, renew, abandoned in (
        (0, False, False),
        (59, False, False),
        (1, True, False),
        (60, False, False),
        (1, False, True),
    ):
        clock[0] += passed
        if renew:
            os.utime(lease_path(path), ns=(0, int(clock[0])))
        assert bool(job.abandoned()) is abandoned
    assert job.abandoned() == "its controller is gone for 60 seconds: run again, it continues"


def test_lease_that_was_removed_counts_as_not_renewed(path, clock):
    is_live(path)
    job = Job(path)
    os.unlink(lease_path(path))
    assert job.abandoned() is None
    clock[0] += 61
    assert job.abandoned()


def test_unfollowed_result_is_claimed_once(path, tmp_path):
    is_live(path)
    job = Job(path)
    job.finish({"changed": True})
    os.close(job._held)
    (tmp_path / "async" / "job.json.jid").write_text("j123.4\n")
    (tmp_path / "async" / "j123.4").write_text("{}")
    (tmp_path / "async" / "other").write_text("")
    assert claim(path) == {"changed": True}
    assert os.listdir(str(tmp_path / "async")) == ["other"]
    assert claim(path) is None


def test_job_that_was_killed_leaves_no_result(path):
    is_live(path)
    Job(path).write({"phase": "fetch", "done": 1})
    assert claim(path) is None
