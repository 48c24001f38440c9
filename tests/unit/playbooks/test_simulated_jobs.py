# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Playbooks with a service by SLURM beside one of systemd, over simulated nodes (simulation.py)."""

import copy
import json

import pytest
from ansible_collections.thefermisea.llama_cluster.tests.unit.playbooks.simulation import (
    INVENTORY,
    ROOT,
    deployment,
    done,
    run_playbook,
)

WAITS = "job 4711 waits (Priority), expected 14:05"
PENDING = {
    "slurm": "ok",
    "keeper": "",
    "services": {"deep": {"state": "pending", "serves": False, "job_id": 4711, "held": None}},
    "sentences": {"deep": WAITS},
}
HELD = {**PENDING, "services": {"deep": {"state": "none", "held": {"by": "alice"}}}, "sentences": {"deep": "held"}}
RUNS = {
    **PENDING,
    "services": {"deep": {"state": "running", "serves": True, "job_id": 4711, "held": None}},
    "sentences": {"deep": "job 4711 runs on node1, node2, and serves"},
}


@pytest.fixture(scope="module")
def deployed(tmp_path_factory):
    return deployment(tmp_path_factory, "deployed")


@pytest.fixture
def cluster(deployed, tmp_path):
    """Deployed, with service deep beside it and a host of SLURM."""
    cluster = deployed.copy(tmp_path)
    cluster.inventory = copy.deepcopy(INVENTORY)
    nodes = cluster.inventory["llama_nodes"]["vars"]
    deep = {**nodes["llama_services"]["chat"], "launcher": "slurm", "port": 8001, "rpc_port": 50053}
    nodes["llama_services"]["deep"] = {name: one for name, one in deep.items() if name != "rpc_cache"}
    here = {"ansible_connection": "local", "ansible_become": False, "slurm_user": "ai", "slurm_log_dir": "/logs"}
    here.update((name, nodes[name]) for name in ("llama_services", "llama_models"))
    cluster.inventory["llama_slurm"] = {"hosts": {"ctl": here}}
    cluster.node("ctl").mkdir()
    answers(cluster, PENDING)
    return cluster


def answers(cluster, *seen):
    (cluster.node("ctl") / "jobs.json").write_text(json.dumps(seen))


def test_waiting_job_is_not_asked(cluster, tmp_path):
    folder = tmp_path / "tasks/fix/a"
    folder.mkdir(parents=True)
    (folder / "task.yml").write_text("summary: x\njudge: checklist\nchecklist: [{fact: x, any: [x]}]\n")
    (folder / "prompt.md").write_text("Fix it.")
    output = cluster.done("evaluate", "-e", "task_dir=%s" % (tmp_path / "tasks"))
    assert f"deep: not asked: {WAITS}" in output
    assert [event for event in cluster.events if " ask " in event] == ["node1 ask m of http://node1:8000 for 1"]
    # A job that serves is asked by the address of its head.
    answers(cluster, RUNS)
    cluster.done("evaluate", "-e", "task_dir=%s" % (tmp_path / "tasks"))
    asked = [event for event in cluster.events if " ask " in event]
    assert asked == [f"node1 ask m of http://node1:{port} for 1" for port in (8000, 8001)]


def test_waiting_job_is_not_measurable(cluster):
    output = cluster.done("verify")
    assert f"deep: not measurable: {WAITS}" in output
    assert "a job" not in " ".join(cluster.events)
    assert "workers and head supervised: 2 units, enabled and running, 1 job of SLURM with a keeper" in output


def test_running_job_is_verified_over_http(cluster):
    answers(cluster, RUNS)
    code, lines = cluster.run_lines("verify", "-e", "deep=true")
    assert code == 0 and not [line for line in lines if "not measurable: " in line], lines
    asked = [event for event in cluster.events if "a job" in event]
    assert asked[:3] == ["node1 ask a job", "node1 talk full with a job", "node1 fill a job"]
    # Without a split proof, which is about units.
    assert "wire of a job" not in " ".join(asked)
    row = next(line for line in lines if line.startswith("deep "))
    assert "node1, node2" in row and "http://node1:8001/v1" in row


def test_job_that_ends_meanwhile_is_not_measurable(cluster):
    answers(cluster, RUNS, PENDING)
    (cluster.node("node1") / "broken").touch()
    assert f"deep: not measurable: {WAITS}" in cluster.done("verify")


def test_job_that_does_not_answer_fails(cluster):
    answers(cluster, RUNS, RUNS)
    (cluster.node("node1") / "broken").touch()
    assert "llama_health: http://node1:8001 is down" in cluster.refused("verify")


def test_keeper_that_is_down_is_a_criterion(cluster):
    answers(cluster, {**RUNS, "keeper": "llama-slurm-keeper.service does not run"})
    output = cluster.refused("verify")
    assert "deep: not measurable: llama-slurm-keeper.service does not run" in output
    assert "workers and head supervised: keeper of the jobs: llama-slurm-keeper.service does not run" in output


def test_host_of_slurm_without_answer_is_named(cluster):
    (cluster.node("ctl") / "lost").touch()
    assert "deep: not measurable: ctl did not respond" in cluster.refused("verify")
    (row,) = [line for line in status(cluster) if line.startswith("deep ")]
    assert "no job" in row and "ctl did not respond" in row


def test_stopped_service_has_no_job(cluster):
    cluster.inventory["llama_nodes"]["vars"]["llama_services"]["deep"]["state"] = "stopped"
    assert "llama_services.deep.state: stopped seen, and job 4711 waits (Priority)" in cluster.refused("verify")
    answers(cluster, {**PENDING, "services": {}, "sentences": {}})
    assert "not measurable: " not in cluster.done("verify")


def status(cluster):
    code, lines = cluster.run_lines("status")
    assert code == 0, lines
    return lines


@pytest.mark.parametrize(
    "seen, state, words",
    [
        (PENDING, "waiting", WAITS),
        (RUNS, "ready", "job 4711 runs on node1, node2, and serves"),
        (HELD, "held", "held"),
    ],
)
def test_status_has_a_row_for_a_job(cluster, seen, state, words):
    answers(cluster, seen)
    (row,) = [line for line in status(cluster) if line.startswith("deep ")]
    assert row.split()[:4] == ["deep", "node1,", "node2", state] and row.endswith(words)


def test_maintenance_drains_the_node_in_slurm(cluster):
    output = cluster.done("maintenance", "-e", "node=node2")
    events = [event for event in cluster.events if "SLURM" in event or "held.json" in event]
    assert events[0].endswith("held.json") and events[1].endswith("node2 in SLURM: drained for deep")
    assert "maintenance: node2 is held, chat, deep cannot answer until it returns" in output
    (cluster.node("ctl") / "slurm_node.json").write_text(json.dumps({"changed": False, "reason": "card 1 is dead"}))
    output = cluster.done("maintenance", "-e", "node=node2", "-e", "state=return")
    assert any(event.endswith("node2 in SLURM: resumed") for event in cluster.events)
    assert "node2: still drained in SLURM (card 1 is dead), which maintenance.yml did not do: scontrol" in output


def test_maintenance_waits_for_the_end_of_a_job(cluster):
    left = {"left": ["job 4711 of ai has not ended in 300 s"], "others": ["job 7 of bob runs on node2"]}
    (cluster.node("ctl") / "slurm_node.json").write_text(json.dumps(left))
    output = cluster.refused("maintenance", "-e", "node=node2")
    assert "job 4711 of ai has not ended in 300 s, its end is needed: look at squeue" in output
    assert "job 7 of bob runs on node2, wait for its end" in output


def runs(number, started, **known):
    """A job that serves, as its keeper and SLURM report it."""
    service = {"state": "running", "serves": True, "job_id": number, "started": started, "held": None, **known}
    return {
        "slurm": "",
        "keeper": "",
        "services": {"deep": service},
        "sentences": {"deep": "job %d serves" % number},
        "jobs": [{"job_id": number, "service": "deep", "state": "RUNNING"}],
        "qos": {"low": {"preempt": []}, "high": {"preempt": ["low"]}},
        "config": {"PreemptType": "preempt/qos", "JobAcctGatherParams": "OverMemoryKill"},
    }


@pytest.fixture
def served(cluster):
    """Its job serves and may be preempted; requests fail between the third and the fifth."""
    answers(cluster, runs(4711, 900))
    cluster.inventory["llama_slurm"]["hosts"]["ctl"]["slurm_associations"] = [
        {"user": "ai", "account": "lab", "qos": ["low"]},
        {"user": "vasp", "account": "lab", "qos": ["normal", "high"]},
    ]
    (cluster.node("ctl") / "drill.json").write_text(json.dumps({"look": ["qos low", "slurmctld"]}))
    said = ["%d.0 %s" % (990 + 5 * at, "000 7" if at in (3, 4) else "200 0") for at in range(8)]
    (cluster.node("node1") / "answers.json").write_text(json.dumps(said))
    return cluster


def drill(cluster, *drills):
    return cluster.run_lines("drill", "-e", "service=deep", "-e", "drill_confirm=%s" % cluster.folder.name, *drills)


def test_job_that_waits_is_not_drilled(cluster):
    code, lines = drill(cluster)
    assert code == 0 and f"deep: not tried: {WAITS}" in lines
    assert not [event for event in cluster.events if "drill at" in event]


def test_drills_of_a_job_are_chosen(served):
    output = served.done("drill", "-e", "service=deep", "--check")
    assert "drills of deep on %s: head node1, workers node2" % served.folder.name in output
    assert "job_preempt: a job of a QoS" in output and "head_kill: kill -9 of the head in the middle" not in output
    (served.node("ctl") / "drill.json").write_text(json.dumps({"look": ["qos normal", "other 7 of bob"]}))
    output = served.done("drill", "-e", "service=deep", "--check")
    assert (
        "job_preempt: not run, slurm_associations has no QoS that preempts normal, job 7 of bob on its nodes could be "
        "hit too" in output
    )
    assert "job_slurmctld_kill: not run, slurmctld.service does not run on ctl" in output
    assert "job_memory_kill: the service is held" in output
    assert "ReturnToService is 0, a node that was down would stay so, job 7 of bob on its nodes could" in output
    output = served.refused("drill", "-e", "service=deep", "-e", "drills=head_kil", "--check")
    assert "drills: head_kil seen, names among gateway_engine_kill, " in output and "needed for a job" in output


def test_cancelled_job_comes_back(served):
    last = {"job_id": 4711, "code": "cancelled", "words": "cancelled by root", "at": 1003}
    (served.node("ctl") / "jobs-undo-scancel.json").write_text(json.dumps(runs(4712, 1010, last=last)))
    code, lines = drill(served, "-e", "drills=job_scancel")
    assert code == 0, lines
    (row,) = [line for line in lines if line.startswith("job_scancel") and "recovered" in line]
    # From the break until the first answer.
    assert row.split()[1] == "15.00" and row.endswith("job 4711: cancelled by root; 2 of 8 requests failed")
    assert [event.partition(" drill at ")[2] for event in served.events if "drill at" in event] == [
        "node1: ask",
        "ctl: break scancel",
        "ctl: seen scancel",
        "ctl: undo scancel",
    ]


@pytest.mark.parametrize("code", ["out_of_memory", "crashed"])
def test_memory_kill_is_known_by_its_reason(served, code):
    last = {"job_id": 4712, "code": code, "words": "out of memory: 60M used", "at": 1003}
    (served.node("ctl") / "jobs-undo-memory_kill.json").write_text(json.dumps(runs(4713, 1010, last=last)))
    done, lines = drill(served, "-e", "drills=job_memory_kill")
    (row,) = [line for line in lines if line.startswith("job_memory_kill") and "; 2 of 8 requests failed" in line]
    assert "job 4712: out of memory: 60M used" in row
    assert (done == 0, " recovered: " in row) == (code == "out_of_memory",) * 2


def test_lost_requests_fail_a_drill_of_the_keeper(served):
    code, lines = drill(served, "-e", "drills=job_keeper_kill")
    assert code != 0
    assert "job_keeper_kill failed (2 of 8 requests failed), recovery within 1800 s is needed: see llama-jobs list" in (
        " ".join(lines)
    )


def test_gateway_is_drilled_twice_in_a_run(served):
    """Clients go on until it is repaired, however long the playbook takes."""
    served.inventory["llama_gateway"] = {"hosts": {"node2": {}}}
    (served.node("node2") / "answers.json").write_text(json.dumps(["1000.0 000 7"] * 3 + ["1004.0 200 0"] * 5))
    code, lines = drill(served, "-e", "drills=gateway_nginx_stop,gateway_nginx_stop")
    rows = [line for line in lines if line.startswith("gateway_nginx_stop") and "recovered: 3 of 8 requests" in line]
    assert code == 0 and len(rows) == 2, lines
    events = [event.partition("node2: ")[2] for event in served.events if "drill at node2" in event]
    assert events == ["ask", "break stop_nginx", "undo", "undo"] * 2
    assert "node1 remove /run/llama-drill-armed" in served.events


def test_fault_is_removed_after_a_failed_drill(served):
    served.fail("* drill at ctl: seen preempt")
    code, lines = drill(served, "-e", "drills=job_preempt")
    assert code != 0 and "Wait for the effect: no space left; job 4711 serves" in " ".join(lines)
    events = [event.partition(" drill at ")[2] for event in served.events]
    assert "ctl: undo preempt" in events and "node1 remove /run/llama-drill-armed" in served.events


def test_services_of_systemd_are_upgraded_beside_jobs(cluster):
    assert "chat" in cluster.done("upgrade", "-e", "service=chat")


def test_benchmark_measures_a_running_job(cluster):
    answers(cluster, RUNS)
    cluster.done("benchmark", "-e", "service=deep", "-e", "prompts=short")
    assert "node1 measure m of http://node1:8001" in cluster.events
    answers(cluster, PENDING)
    output = cluster.done("benchmark", "-e", "service=deep", "-e", "prompts=short")
    assert f"deep: not measurable: {WAITS}" in output and "measure" not in " ".join(cluster.events)


@pytest.fixture
def manual(cluster):
    """A daemon of the operators, and a job that it has submitted."""
    for name in ("daemon", "old-job"):
        (cluster.node("ctl") / name).write_text("daemon")
    return cluster


def steps(cluster):
    return [event for event in cluster.events if "daemon" in event or "accounting" in event or "in SLURM" in event]


BEFORE = ["ctl daemon save", "ctl daemon stop", "ctl daemon put_aside"]
PREPARED = ["node1 node1 in SLURM: prepared", "node2 node2 in SLURM: prepared"]
BACK = ["ctl daemon put_back", "ctl daemon start", "ctl daemon forget"]


def test_manual_jobs_are_adopted_and_come_back(manual):
    output = manual.done("adopt", "--check")
    assert "ctl: a daemon submits jobs" in output and manual.events == []
    output = manual.done("adopt")
    assert "adopt: the jobs are submitted, see llama-jobs list" in output
    done = steps(manual)
    assert done[:3] == BEFORE and sorted(done[3:5]) == PREPARED
    assert done[5:] == ["ctl accounting submitted", "ctl daemon finish"]
    assert "/var/lib/llama-cluster/adopted-jobs: the deployment of before" in manual.refused("teardown")
    assert "nothing is to be done" in manual.done("adopt") and not (manual.node("ctl") / "daemon").exists()
    manual.done("adopt", "-e", "undo=true")
    assert steps(manual) == BACK and (manual.node("ctl") / "daemon").exists()
    assert "nothing is to be undone" in manual.done("adopt", "-e", "undo=true")


@pytest.mark.parametrize("where", ["ctl daemon stop", "node2 node2 in SLURM*", "ctl accounting submitted"])
def test_failed_adoption_restores_the_manual_jobs(manual, where):
    manual.fail(where)
    output = manual.refused("adopt")
    assert "adopt: the jobs of the inventory were not submitted (no space left), what submitted the old ones" in output
    assert steps(manual)[-3:] == BACK and (manual.node("ctl") / "daemon").exists()


def keeps(cluster, *services):
    """The keeper's configuration and the record of a run before."""
    config = {"user": "ai", "services": {name: {"grace": 30, "script": "/jobs/" + name} for name in services}}
    record = {"user": "ai", "registry_dir": "", "scripts": ["/jobs/%s" % name for name in services]}
    record.update(qos=["low"], associations=[])
    texts = {"etc/llama-cluster/jobs.json": config, "var/lib/llama-cluster/slurm-made.json": record}
    for path, content in texts.items():
        (cluster.node("ctl") / path).parent.mkdir(parents=True)
        (cluster.node("ctl") / path).write_text(json.dumps(content))


def configured(cluster):
    return json.loads((cluster.node("ctl") / "etc/llama-cluster/jobs.json").read_text())["services"]


def test_jobs_end_only_after_they_are_saved(manual):
    manual.fail("ctl daemon save")
    manual.refused("adopt")
    assert steps(manual) == BEFORE[:1] and (manual.node("ctl") / "old-job").exists()


def test_record_stays_unless_everything_is_restored(manual):
    manual.done("adopt")
    for failed, sent in zip(BACK, (BACK[:1], BACK[:2], BACK), strict=True):
        manual.fail(failed)
        manual.refused("adopt", "-e", "undo=true")
        assert steps(manual) == sent
        assert (manual.node("ctl") / "var/lib/llama-cluster/adopted-jobs/record.json").exists()


@pytest.mark.parametrize("where", ["ctl daemon save", "ctl accounting submitted"])
def test_failed_adoption_leaves_jobs_of_before(manual, where):
    keeps(manual, "deep")
    answers(manual, {"slurm": "", "jobs": []})
    before = configured(manual)
    manual.fail(where)
    assert "runs again beside the jobs of llama-jobs list: correct that" in manual.refused("adopt")
    assert configured(manual) == before and not [event for event in manual.events if "remove" in event]
    assert (manual.node("ctl") / "daemon").exists()


def test_failed_adoption_guards_ports_of_units(manual):
    host = {"ansible_connection": "local", "ansible_become": False, "llama_address": "10.0.0.9"}
    manual.inventory["llama_gateway"] = {"hosts": {"gateway1": {**host, "gateway_auth": "log_only"}}}
    manual.node("gateway1").mkdir()
    manual.fail("ctl accounting submitted")
    manual.refused("adopt")
    access = [json.loads((manual.node(name) / "access.json").read_text()) for name in ("node1", "node2")]
    assert access == [
        {"incoming": [], "outgoing": ["10.0.0.2:50052"], "clients": ["10.0.0.9/32:8000", "10.0.0.2/32:8000"]},
        {"incoming": ["10.0.0.1:50052"], "outgoing": [], "clients": []},
    ]


LEFT = {"slurm": "", "jobs": [{"job_id": 4711, "service": "deep", "state": "RUNNING"}]}
AWAY = {"slurm": "squeue: no answer in time", "jobs": []}


@pytest.mark.parametrize(
    "seen, sentence",
    [
        (
            LEFT,
            "deep: jobs 4711 seen after 150 s on ctl, none is needed before units start or the keeper goes: look at "
            "llama-jobs list, end them with scancel and run again",
        ),
        (
            AWAY,
            "ctl: no answer of SLURM seen (squeue: no answer in time), one is needed, since jobs may run: "
            "start slurmctld, and munge on this host, and run again",
        ),
    ],
)
def test_units_start_after_the_last_job(cluster, seen, sentence):
    keeps(cluster, "deep")
    del cluster.inventory["llama_nodes"]["vars"]["llama_services"]["deep"]["launcher"]
    answers(cluster, seen)
    assert sentence in cluster.refused("site")
    assert configured(cluster) == {} and not [event for event in cluster.events if "started" in event]
    # The configuration is written by now, and the job is still there.
    assert sentence.replace("150", "120") in cluster.refused("site")
    assert not [event for event in cluster.events if "started" in event]
    answers(cluster, seen, {"slurm": "", "jobs": []})
    cluster.done("site")
    assert "node1 started llama-head-deep.service" in cluster.events


def test_job_of_a_service_that_stays_is_left(cluster):
    keeps(cluster, "deep", "gone")
    answers(cluster, LEFT)
    cluster.done("site")
    assert list(configured(cluster)) == ["deep"]


@pytest.mark.parametrize("seen", [LEFT, AWAY])
def test_nothing_is_removed_beside_jobs(cluster, seen):
    keeps(cluster, "deep")
    answers(cluster, seen)
    assert "run again" in cluster.refused("teardown")
    assert not [event for event in cluster.events if "accounting" in event or "remove" in event]
    answers(cluster, {"slurm": "", "jobs": []})
    cluster.done("teardown")
    events = [event for event in cluster.events if event.startswith("ctl")]
    assert events.index("ctl accounting absent") > events.index("ctl jobs of ctl")
    assert not (cluster.node("ctl") / "etc/llama-cluster/jobs.json").exists()


def test_rollback_starts_no_unit_beside_its_job(cluster):
    cluster.done("upgrade", "-e", "service=chat", "-e", "tag=b2")
    cluster.inventory["llama_nodes"]["vars"]["llama_services"]["chat"]["launcher"] = "slurm"
    output = cluster.refused("rollback")
    assert "rollback: llama-head-chat.service seen in snapshot " in output and "and run site.yml" in output
    assert not [event for event in cluster.events if "restored" in event]
    del cluster.inventory["llama_nodes"]["vars"]["llama_services"]["chat"]["launcher"]
    cluster.done("rollback")


@pytest.mark.parametrize("hosts, user", [({"ctl": {"slurm_user": "ai"}}, "ai"), ({}, ""), (None, "")])
def test_jobs_end_only_with_their_group(tmp_path, hosts, user):
    """Without it no play waits for them, so that their processes take ports and memory in preflight."""
    groups = {"llama_nodes": {"hosts": {"node1": {"slurm_user": "ai"}}}}
    groups.update({"llama_slurm": {"hosts": hosts}} if hosts is not None else {})
    (tmp_path / "hosts.json").write_text(json.dumps(groups))
    show = {"ansible.builtin.debug": {"msg": "user '{{ __preflight_jobs_user }}'"}}
    play = {"hosts": "node1", "gather_facts": False, "tasks": [show]}
    play["vars_files"] = [str(ROOT / "roles/preflight/vars/main.yml")]
    (tmp_path / "play.yml").write_text(json.dumps([play]))
    arguments = (tmp_path / "play.yml", "-i", str(tmp_path / "hosts.json"))
    assert "user '%s'" % user in done(run_playbook(*arguments, home=tmp_path))


@pytest.fixture(name="carded")
def fixture_carded(cluster):
    """Service chat may use the cards of both nodes, and no service is a job."""
    nodes = cluster.inventory["llama_nodes"]["vars"]
    del nodes["llama_services"]["deep"]
    nodes["llama_builds"] = {"default": {"version": "b1"}}
    answers(cluster, {**RUNS, "services": {}, "sentences": {}, "jobs": []})
    return cluster


def test_cards_of_units_are_warned_of_or_reserved(carded):
    output = carded.done("site", "--tags", "slurm")
    assert "node1, node2: SLURM gives cards to jobs beside chat, which systemd starts there: write launcher" in output
    assert "ctl reserved in SLURM: nothing" in carded.events
    carded.inventory["llama_slurm"]["hosts"]["ctl"]["slurm_reserve"] = True
    output = carded.done("site", "--tags", "slurm")
    assert "SLURM gives cards" not in output and "ctl reserved in SLURM: node1, node2" in carded.events
    carded.done("teardown")
    assert carded.events[-1] == "ctl reserved in SLURM: nothing", "after the units"


def test_nodes_are_released_after_their_units(carded):
    carded.inventory["llama_nodes"]["vars"]["llama_services"]["chat"]["state"] = "stopped"
    carded.inventory["llama_slurm"]["hosts"]["ctl"]["slurm_reserve"] = True
    carded.done("site")
    reserved = [index for index, event in enumerate(carded.events) if event.startswith("ctl reserved in SLURM: ")]
    stopped = [index for index, event in enumerate(carded.events) if " stopped llama-" in event]
    assert [carded.events[index].partition(": ")[2] for index in reserved] == ["nothing and what was", "nothing"]
    assert stopped and reserved[0] < min(stopped) and max(stopped) < reserved[1]


def test_slurm_that_is_away_may_reserve(carded):
    (carded.node("ctl") / "slurm-away").write_text("scontrol: it cannot be run")
    output = carded.done("site", "--tags", "slurm")
    assert output.count("no answer of SLURM seen (scontrol: it cannot be run), so nodes may still be reserved") == 1


OLD_SCRIPT = (
    "#!/bin/bash\n# written by the collection from the inventory\n/opt/llama.cpp/releases/b0/bin/llama-server\n"
    '    "--model",\n    "/opt/models/old.gguf",\n'
)
NEW = {
    "slurm": "",
    "keeper": "",
    "services": {"deep": {"state": "running", "serves": True, "job_id": 4712, "held": None}},
    "sentences": {"deep": "job 4712 runs on node1, node2, and serves"},
    "jobs": [],
}
OLD = {
    **NEW,
    "services": {"deep": {"state": "running", "serves": True, "job_id": 4710, "held": None}},
    "sentences": {"deep": "job 4710 runs on node1, node2, and serves"},
}
CRASHED = {**NEW, "services": {"deep": {"state": "none", "serves": False}}, "ended": {"deep": "exit code 1"}}
CRASHED["sentences"] = {"deep": "no job, the next one is about to be submitted"}


@pytest.fixture(name="jobs")
def fixture_jobs(cluster):
    """With a job of deep as an earlier run has configured it."""
    keeps(cluster, "deep")
    there = cluster.node("ctl") / "cluster/shared/scripts/llama-cpp"
    there.mkdir(parents=True)
    (there / "run-deep.slurm").write_text(OLD_SCRIPT)
    path = cluster.node("ctl") / "etc/llama-cluster/jobs.json"
    config = json.loads(path.read_text())
    config["services"]["deep"].update(
        digest="old", wanted=True, script="/cluster/shared/scripts/llama-cpp/run-deep.slurm"
    )
    path.write_text(json.dumps(config))
    answers(cluster, NEW)
    return cluster


def script(cluster):
    return (cluster.node("ctl") / "cluster/shared/scripts/llama-cpp/run-deep.slurm").read_text()


def changes(cluster):
    """Events that change units and scripts."""
    kinds = ("configure", "started", "stopped", "restarted", "write", "activate")
    return [event for event in cluster.events if event.split()[1] in kinds and "baseline" not in event]


def test_job_is_upgraded_and_rolled_back(jobs):
    output = jobs.done("upgrade", "-e", "service=deep")
    assert "deep: job 4712 runs on node1, node2, and serves" in output and "rollback.yml puts the job of 20" in output
    assert script(jobs) != OLD_SCRIPT and configured(jobs)["deep"]["digest"] != "old"
    assert [event.split()[0] for event in changes(jobs)] == ["ctl", "ctl"]
    assert "node1 talk full with a job" in jobs.events
    # The nodes keep the builds of the former script.
    last = json.loads((jobs.node("node1") / "var/lib/llama-cluster/rollback/last.json").read_text())
    assert last["kept"] == ["b0"]
    assert "deep: job 4712 runs" in jobs.done("upgrade", "-e", "service=deep") and changes(jobs) == []
    jobs.done("rollback", "--check")
    assert script(jobs) != OLD_SCRIPT
    output = jobs.done("rollback")
    assert script(jobs) == OLD_SCRIPT and configured(jobs)["deep"]["digest"] == "old"
    assert "deep: job 4712 runs on node1, node2, and serves" in output


@pytest.mark.parametrize("how, seen", [("lost", "no answer"), ("rootless", "Missing sudo password")])
def test_units_are_rolled_back_without_slurm(jobs, how, seen):
    jobs.done("upgrade", "-e", "tag=b2")
    upgraded = script(jobs)
    (jobs.node("ctl") / how).touch()
    output = jobs.done("rollback")
    assert f"ctl: {seen} seen, so the jobs and their scripts stay as they are" in output
    assert script(jobs) == upgraded != OLD_SCRIPT and jobs.builds() == {"head-chat": "b1", "rpc-chat": "b1"}


def test_job_that_waits_is_not_proved(jobs):
    answers(jobs, PENDING)
    assert f"deep: not proved: {WAITS}" in jobs.done("upgrade", "-e", "service=deep")
    assert script(jobs) != OLD_SCRIPT and "a job" not in " ".join(jobs.events)


def test_upgrade_of_a_job_is_foretold(jobs):
    output = jobs.done("upgrade", "--check")
    assert "deep: check mode, its job goes on" in output and "chat: check mode, b1 serves on" in output
    assert script(jobs) == OLD_SCRIPT and not jobs.events


def test_units_and_jobs_are_upgraded_together(jobs):
    output = jobs.done("upgrade", "-e", "tag=b2")
    assert "chat: b2 serves" in output and "deep: job 4712 runs" in output
    assert configured(jobs)["deep"]["digest"] != "old" and jobs.builds() == {"head-chat": "b2", "rpc-chat": "b2"}
    jobs.done("rollback")
    assert script(jobs) == OLD_SCRIPT and jobs.builds() == {"head-chat": "b1", "rpc-chat": "b1"}


def test_job_that_ends_is_undone_with_the_units(jobs):
    answers(jobs, OLD, CRASHED, CRASHED, NEW)
    output = jobs.refused("upgrade", "-e", "tag=b2")
    assert "deep: a job that ended seen (exit code 1), one that serves or is pending is needed" in output
    assert "rolled back, b1 serves again" in output
    assert "; deep: job 4712 runs on node1, node2, and serves" in output
    assert script(jobs) == OLD_SCRIPT and jobs.builds() == {"head-chat": "b1", "rpc-chat": "b1"}


def test_job_stays_when_units_fail(jobs):
    output = jobs.refused("upgrade", "-e", "tag=b2-mute")
    assert "rolled back, b1 serves again" in output
    assert script(jobs) == OLD_SCRIPT and jobs.builds() == {"head-chat": "b1", "rpc-chat": "b1"}
    assert not [event for event in jobs.events if "write /cluster" in event]


def test_upgrade_makes_no_job_of_a_unit(jobs):
    jobs.inventory["llama_nodes"]["vars"]["llama_services"]["chat"]["launcher"] = "slurm"
    output = jobs.refused("upgrade")
    assert "upgrade: chat seen with another launcher or script" in output and not changes(jobs)


SWITCH = ("-e", "service=deep quant=Q8_0")


def model_of(cluster):
    """The model of the job's script."""
    return script(cluster).partition('"--model",')[2].split('"')[1]


def test_job_gets_another_quant(jobs):
    answers(jobs, OLD, NEW)
    output = jobs.done("switch_model", *SWITCH)
    assert "deep: m8.gguf: job 4712 runs on node1, node2, and serves, /opt/models/old.gguf stays on node1" in output
    assert "deep: 10.0 tokens/s, prompts 50.0 tokens/s (median of 3); before: 10.0 and 50.0 with job 4710" in output
    assert "the inventory says F16: set the quant of llama_services.deep to Q8_0 there" in output
    assert model_of(jobs) == "/opt/models/m8.gguf" and configured(jobs)["deep"]["digest"] != "old"
    assert "node1 model fetch" in jobs.events and "node2 model fetch" not in jobs.events
    events = [event for event in jobs.events if event.split()[1] in ("snapshot", "model", "write")]
    assert events.index("ctl snapshot opened of jobs") < events.index("ctl write /etc/llama-cluster/jobs.json")
    assert "node1 talk full with a job" in jobs.events
    assert not [event for event in changes(jobs) if "llama-" in event.partition("/")[0]]
    # Nothing is left to do, and to measure.
    output = jobs.done("switch_model", *SWITCH)
    assert "deep: m8.gguf: job 4712 runs" in output and "median of" not in output and changes(jobs) == []
    jobs.done("rollback")
    assert script(jobs) == OLD_SCRIPT and configured(jobs)["deep"]["digest"] == "old"


def test_job_that_waits_with_another_quant(jobs):
    answers(jobs, OLD, PENDING)
    output = jobs.done("switch_model", *SWITCH, "-e", "retire=after")
    assert f"deep: m8.gguf: not proved: {WAITS}, /opt/models/old.gguf stays on node1" in output
    # It has no speed yet.
    assert "tokens/s" not in output and "node1 model retire" not in jobs.events
    assert "deep: job" in " ".join(answered(jobs, NEW).done("rollback").split()) and script(jobs) == OLD_SCRIPT


def answered(cluster, *seen):
    answers(cluster, *seen)
    return cluster


def test_old_model_of_a_job_is_retired(jobs):
    output = jobs.done("switch_model", *SWITCH, "-e", "retire=after")
    assert "deep: m8.gguf: job 4712 runs on node1, node2, and serves" in output and "stays on" not in output
    assert "node1 model retire" in jobs.events and "snapshot dropped of jobs" in " ".join(jobs.events)


def test_job_with_a_quant_that_ends_goes_back(jobs):
    answers(jobs, OLD, CRASHED, CRASHED, NEW)
    output = jobs.refused("switch_model", *SWITCH)
    assert (
        "llama_services.deep: the new model does not serve (slurm_jobs" in output or "a job that ended seen" in output
    )
    assert "(exit code 1), one that serves or is pending is needed" in output
    assert "rolled back; job 4712 runs on node1, node2, and serves: see llama-jobs list on ctl" in output
    assert script(jobs) == OLD_SCRIPT and configured(jobs)["deep"]["digest"] == "old"


def test_switch_of_a_job_is_foretold(jobs):
    output = jobs.done("switch_model", *SWITCH, "--check")
    assert "deep: check mode, its job goes on" in output and script(jobs) == OLD_SCRIPT and not jobs.events


@pytest.mark.parametrize(
    "given, seen",
    [("retire=first", "retire first"), ("trial=12h", "trial"), ("park=node2", "park"), ("keep=true quant=", "keep")],
)
def test_job_keeps_its_old_model(jobs, given, seen):
    output = jobs.refused("switch_model", "-e", "service=deep quant=Q8_0 " + given)
    assert f"switch_model: {seen} seen" in output and not changes(jobs)


def test_unit_is_switched_without_slurm(jobs):
    (jobs.node("ctl") / "lost").touch()
    assert "chat: m8.gguf serves" in jobs.done("switch_model", "-e", "service=chat quant=Q8_0")
    assert script(jobs) == OLD_SCRIPT


def test_slower_job_is_undone(jobs):
    jobs.inventory["llama_nodes"]["vars"]["upgrade_min_ratio"] = 1.1
    output = jobs.refused("upgrade", "-e", "service=deep")
    assert "llama_services.deep generates 10.0 tokens/s, 11.0 are needed (1.1 of the 10.0 before)" in output
    assert script(jobs) == OLD_SCRIPT
    # A switch is never refused for it.
    assert "before: 10.0" in jobs.done("switch_model", *SWITCH)


def test_speeds_of_units_and_jobs_are_kept(jobs):
    answers(jobs, OLD, NEW)
    output = jobs.done("upgrade", "-e", "tag=b2")
    assert "chat: 10.0 tokens/s, prompts 50.0 tokens/s (median of 1); before: 10.0 and 50.0 with b1" in output
    assert "deep: 10.0 tokens/s, prompts 50.0 tokens/s (median of 1); before: 10.0 and 50.0 with job 4710" in output
    found = jobs.node("node1") / "var/lib/llama-cluster"
    kept = {name: json.loads((found / f"baseline-{name}.json").read_text()) for name in ("chat", "deep")}
    assert kept["deep"]["build"] == "job 4712" and kept["chat"]["build"].startswith("b2")


def test_limit_leaves_jobs_as_they_are(jobs):
    services = jobs.inventory["llama_nodes"]["vars"]["llama_services"]
    for name, head in (("chat", "node1"), ("deep", "node2")):
        services[name] = {"model": "m", "quant": "F16", "head": head, "port": services[name]["port"]}
    services["deep"]["launcher"] = "slurm"
    output = jobs.refused("upgrade", "--limit", "node2", "-e", "tag=b2")
    assert "upgrade: ctl left out by --limit, all nodes of deep and the host that submits are needed" in output
    assert changes(jobs) == []
    assert "chat: b2 serves" in jobs.done("upgrade", "--limit", "node1", "-e", "tag=b2")
    assert script(jobs) == OLD_SCRIPT and not [event for event in jobs.events if event.startswith("ctl write")]
    jobs.done("upgrade", "--limit", "node2,ctl", "-e", "tag=b2")
    assert script(jobs) != OLD_SCRIPT


@pytest.mark.parametrize(
    ("arguments", "done"),
    [
        (["--check"], []),
        ([], ["node1 node1 in SLURM: prepared", "node2 node2 in SLURM: prepared", "ctl accounting submitted"]),
        (["--limit", "ctl"], ["ctl accounting submitted"]),
        (["--limit", "node1"], ["node1 node1 in SLURM: prepared"]),
    ],
)
def test_tag_and_limit_choose_parts_of_jobs(cluster, arguments, done):
    cluster.done("site", "--tags", "slurm", *arguments)
    # No unit of the service beside it is touched.
    assert [event for event in cluster.events if " reserved in SLURM: nothing" not in event] == done
