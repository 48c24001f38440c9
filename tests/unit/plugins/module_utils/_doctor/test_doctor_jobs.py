# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The keeper's own state, and the rules that are about it."""

import json
import time
from pathlib import Path

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._doctor import judge, system
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._slurm import state
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._doctor import cluster

NAMES = ("keeper_down", "job_died_early", "job_waits", "job_out_of_memory", "qos_differs", "gres_wrong")
RULES = [rule for rule in cluster.load() if rule["name"] in NAMES]
DIED = {"job_id": 4710, "code": "crashed", "words": "crashed (exit code 1)", "at": 1.0}
FULL = {"code": "out_of_memory", "words": "out of memory: 4.2G used by a task, 4G requested"}
RECORDED = Path(__file__).resolve().parents[3] / "fixtures/slurm"
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
    seen = {"node": "ctl", "at": time.time(), "since": time.time() - 600, "is_held": False, **evidence}
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
    assert found(evidence) == [("job_died_early", "reasoning: 3 jobs in a row did not serve a minute")]


def test_reason_that_does_not_end_is_named(host):
    stuck = KNOWN._replace(state=state.PENDING, serves=False, reason="AssocGrpGRES")
    assert found(host(stuck)) == [
        ("job_waits", "reasoning: its job waits (AssocGrpGRES), which does not end by itself")
    ]


def test_memory_limit_is_named_within_the_window(host):
    for served in (KNOWN, BROKEN):
        evidence = host(served._replace(last=dict(DIED, **FULL, at=time.time() - 60)))
        assert found(evidence) == [("job_out_of_memory", "reasoning: its last job was killed at its memory limit")]
    assert found(host(KNOWN._replace(last=dict(DIED, **FULL)))) == []


@pytest.fixture(name="recorded")
def fixture_recorded(tmp_path, monkeypatch):
    """Commands that print what SLURM 22.05 printed; sacctmgr prints the columns that are asked for."""
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    (tmp_path / "bin").mkdir()

    def command(name, *outputs):
        script = "".join(f"case \"$*\" in *{words}*) echo '{text}';; esac\n" for words, text in outputs)
        (tmp_path / "bin" / name).write_text("#!/bin/sh\n" + script)
        (tmp_path / "bin" / name).chmod(0o755)

    def columns(name, wanted):
        head, *rows = [line.split("|") for line in (RECORDED / name).read_text().splitlines()]
        return "\n".join("|".join(row[head.index(one)] for one in wanted) for row in rows)

    qos = columns("sacctmgr-qos.txt", ("Name", "Priority", "GraceTime", "Preempt", "PreemptMode"))
    users = columns("sacctmgr-assoc.txt", ("Cluster", "Account", "User", "Partition", "QOS"))
    command("sacctmgr", ("qos", qos), ("account", "root\nlab"), ("assoc", users))
    shown = [(RECORDED / name).read_text() for name in ("show-config.txt", "show-node.txt")]
    command("scontrol", ("config", shown[0]), ("node", shown[1]))

    def compared(qos=None, associations=(), gres=()):
        given = {"qos": qos or {}, "associations": list(associations), "gres": list(gres)}
        (tmp_path / "jobs.json").write_text(json.dumps({"compared": given}))
        return system.differences(str(tmp_path / "jobs.json"))

    return compared


def test_slurm_as_the_inventory_says(recorded, tmp_path):
    qos = {"ai_opportunistic": {"priority": 100, "grace_time": 30, "preempt_mode": "requeue"}}
    own = [{"user": "ai", "account": "lab", "qos": ["ai_opportunistic"]}]
    cards = [{"service": "reasoning", "nodes": ["c1", "c2"], "gres": "gpu:v100s:1"}]
    assert found(recorded(qos, own, cards)) == []
    assert system.differences(str(tmp_path / "none")) == {"accounting": [], "gres": []}


def test_qos_and_association_that_differ(recorded):
    changed = {"ai_opportunistic": {"grace_time": 60}, "vasp_priority": {"preempt": []}}
    evidence = recorded(changed, [{"user": "ai", "account": "other", "qos": []}])
    assert found(evidence) == [
        (
            "qos_differs",
            "SLURM's accounting has qos ai_opportunistic: GraceTime=30; qos vasp_priority: Preempt=ai_opportunistic; "
            "user ai of account other: absent",
        )
    ]
    assert evidence["accounting"][0]["wanted"].startswith("qos ai_opportunistic: GraceTime=60; ")


def test_node_without_the_cards(recorded):
    wanted = [{"service": "reasoning", "nodes": ["c1", "elsewhere"], "gres": "gpu:v100s:2"}]
    assert found(recorded(gres=wanted)) == [
        ("gres_wrong", "reasoning: SLURM has gpu:v100s:1 as Gres of c1, its job requests gpu:v100s:2")
    ]
