# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The keeper's own state, and the rules that are about it."""

import time

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._doctor import judge, system
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._slurm import state
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._doctor import rules

RULES = [rule for rule in rules.load() if rule["name"] in ("keeper_down", "job_died_early", "job_waits")]
DIED = {"job_id": 4710, "code": "out_of_memory", "words": "out of memory: 4.2G of 4G requested", "at": 1.0}
KNOWN = state.Known(wanted=True, job_id=4711, state=state.RUNNING, serves=True)
BROKEN = KNOWN._replace(state=state.NONE, serves=False, failures=3, last=DIED)


@pytest.fixture(name="host")
def fixture_host(tmp_path):
    """The evidence of a host whose keeper has left this, some seconds ago."""
    (tmp_path / "jobs.json").write_text("{}")

    def host(known=None, ago=0.0):
        if known is not None:
            state.write(str(tmp_path), state.public({"reasoning": known}, time.time() - ago, None), False)
        return system.jobs(str(tmp_path / "jobs.json"), str(tmp_path))

    return host


def found(evidence):
    seen = {"node": "ctl", "at": time.time(), "is_held": False, **evidence}
    return [(one["rule"], one["sentence"]) for one in judge.judge(RULES, seen)]


def test_host_without_jobs_has_no_evidence(tmp_path):
    assert system.jobs(str(tmp_path / "none"), str(tmp_path)) == {"keepers": [], "jobs": []}


@pytest.mark.parametrize("reason", ["Priority", "Resources", "BeginTime", "None", ""])
def test_jobs_that_are_well_are_no_fault(host, reason):
    assert found(host(KNOWN)) == []
    assert found(host(KNOWN._replace(state=state.PENDING, serves=False, reason=reason))) == []


def test_keeper_that_does_not_run_is_named(host):
    for evidence in (host(), host(BROKEN, ago=2 * state.OLD)):
        assert found(evidence) == [
            ("keeper_down", "llama-slurm-keeper.service does not run: a job that ends does not come back")
        ]


def test_jobs_that_die_early_are_named(host):
    evidence = host(BROKEN)
    assert evidence["jobs"][0]["last"] == DIED["words"]
    assert found(evidence) == [("job_died_early", "reasoning: 3 jobs in a row ended before they served")]


def test_reason_that_does_not_end_is_named(host):
    stuck = KNOWN._replace(state=state.PENDING, serves=False, reason="AssocGrpGRES")
    assert found(host(stuck)) == [
        ("job_waits", "reasoning: its job waits (AssocGrpGRES), which does not end by itself")
    ]
