# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Samples of jobs, from the file that the keeper leaves."""

import json
import time

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._exporter import exposition, jobs
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._slurm import state

SERVES = state.Known(wanted=True, job_id=4711, state=state.RUNNING, serves=True)
HELD = state.Known(wanted=True, held={"by": "alice", "at": 1.0}, failures=2)
SERVICE = {
    **{"wanted": True, "name": "llama-14b", "script": "/s/run.slurm", "digest": "0123456789abcdef", "grace": 30},
    **{"log_dir": "/l", "suffix": "14b", "record": {}, "nodes": ["vasp-02"]},
}


@pytest.fixture(name="sampled")
def fixture_sampled(tmp_path, monkeypatch):
    """The samples beside a keeper that has left this, some seconds ago."""
    monkeypatch.setattr(jobs.paths, "KEEPER_CONFIG", str(tmp_path / "jobs.json"))
    monkeypatch.setattr(jobs.paths, "KEEPER", str(tmp_path))

    def sampled(known, ago=0.0):
        configured = dict.fromkeys(("chat", "code", "stopped"), SERVICE)
        config = {"user": "ai", "directory": "/d", "partitions_yield": [], "registry_dir": "", "services": configured}
        (tmp_path / "jobs.json").write_text(json.dumps(config))
        state.write(str(tmp_path), state.public(known, time.time() - ago, None), False)
        page = exposition.render(jobs.look())
        return sorted(line for line in page.splitlines() if not line.startswith("#"))

    return sampled


def test_jobs_are_sampled(sampled):
    assert sampled({"chat": SERVES, "code": HELD, "stopped": state.Known()}) == [
        'llama_job_failures{service="chat"} 0',
        'llama_job_failures{service="code"} 2',
        'llama_job_serves{service="chat"} 1',
        'llama_job_serves{service="code"} 0',
        'llama_job_state{service="chat",state="running"} 1',
        'llama_job_state{service="code",state="held"} 1',
        "llama_keeper_alive 1",
    ]


def test_keeper_that_is_down_has_no_jobs(sampled):
    assert sampled({"chat": SERVES}, ago=2 * state.OLD) == ["llama_keeper_alive 0"]
    # A clock may have been set back.
    assert sampled({"chat": SERVES}, ago=-2 * state.OLD) == ["llama_keeper_alive 0"]


def test_forged_state_makes_no_series(sampled):
    """The user of the jobs may write it."""
    forged = SERVES._replace(state="another", failures=True)
    assert sampled({"chat": forged, **{"made-up-%d" % number: SERVES for number in range(100)}}) == [
        'llama_job_failures{service="chat"} 1',
        'llama_job_serves{service="chat"} 1',
        'llama_job_state{service="chat",state="none"} 1',
        "llama_keeper_alive 1",
    ]


@pytest.mark.usefixtures("sampled")
def test_host_without_jobs_has_no_samples():
    assert jobs.look() == []
