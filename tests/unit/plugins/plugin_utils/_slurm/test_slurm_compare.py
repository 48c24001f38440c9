# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""SLURM's configuration beside the jobs of an inventory, and the files of the host that submits."""

import copy
import json

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._slurm import compare, files

SETTINGS = {
    "partition": "gpu_ai",
    "qos": "low",
    "account": "lab",
    "mem": "200G",
    "gres": "gpu:v100s:1",
    "time": "24:00:00",
}
JOB = {
    "service": "chat",
    "nodes": ["n1", "n2"],
    "grace": 30,
    "registry_dir": "/e",
    "settings": SETTINGS,
    "script": "/s/run-chat.slurm",
    "user": "jobs",
}
# As scontrol and sacctmgr of SLURM 22.05 have them.
NODE = {"Partitions": "gpu_ai,gpu_vasp", "Gres": "gpu:v100s:2(S:0-1)", "RealMemory": "256000"}
SEEN = {
    "slurm": "",
    "uid": 2000,
    "config": {"PreemptType": "preempt/qos", "PreemptMode": "REQUEUE"},
    "partitions": {"gpu_ai": {"MaxTime": "1-00:00:00"}},
    "nodes": {"n1": NODE, "n2": NODE},
    "qos": {"low": {"grace_time": 30}},
    "associations": [{"user": "jobs", "account": "lab", "qos": ["normal", "low"]}],
}
GIVEN = {"host": "ctl", "user": "jobs", "qos": {}, "associations": [], "registry_uids": [661, 2000]}


def found(seen=None, job=None, ids=None, **given):
    job = dict(JOB, settings=dict(SETTINGS, **job or {}))
    return compare.slurm_refusals(
        dict(copy.deepcopy(SEEN), **seen or {}), [job], ids or {"n1": "2000", "n2": "2000"}, dict(GIVEN, **given)
    )


def test_sound_slurm_is_accepted():
    assert found() == {"refused": [], "warnings": []}
    unlimited = {"partitions": {"gpu_ai": {"MaxTime": "UNLIMITED"}}}
    assert found(unlimited, {"time": "30-00:00:00"})["refused"] == []
    # Without accounting there are no associations.
    assert found({"qos": None, "associations": None}) == {"refused": [], "warnings": []}


@pytest.mark.parametrize(
    ("case", "sentence"),
    [
        ({"seen": {"config": None, "slurm": "no answer"}}, "ctl: no answer of SLURM seen (no answer), one of scontrol"),
        ({"seen": {"uid": None}}, "slurm_user: no account jobs seen on ctl"),
        ({"seen": {"uid": 0}, "ids": {"n1": "0", "n2": "0"}, "registry_uids": [0]}, "slurm_user: jobs seen, which is "),
        (
            {"ids": {"n1": "2000", "n2": "2001"}},
            "slurm_user: jobs has 2001 on n2 and 2000 on ctl, one number everywhere",
        ),
        ({"ids": {"n1": "2000", "n2": ""}}, "slurm_user: jobs has no account on n2 and 2000 on ctl"),
        ({"registry_uids": [661]}, "gateway_registry_uids: 2000 of jobs is not in it"),
        (
            {"job": {"partition": "ai"}},
            "llama_services.chat.partition: ai is not in SLURM: write PartitionName=ai Nodes=n1,",
        ),
        ({"seen": {"nodes": {"n1": NODE}}}, "llama_services.chat: n2 is no node of SLURM"),
        (
            {"seen": {"nodes": {"n1": NODE, "n2": dict(NODE, Partitions="gpu_vasp")}}},
            "llama_services.chat.partition: n2 is not in gpu_ai: write PartitionName=gpu_ai Nodes=n1,n2 into",
        ),
        (
            {"seen": {"nodes": {"n1": NODE, "n2": dict(NODE, Gres="(null)")}}},
            "llama_services.chat.gres: (null) seen on n2, gpu:v100s:1 is needed: write NodeName=n2 Gres=gpu:v100s:1",
        ),
        (
            {"job": {"mem": "300G"}},
            "llama_services.chat.mem: 300G seen, at most 256000M is allowed, the RealMemory of n1",
        ),
        ({"job": {"time": "1-00:00:01"}}, "llama_services.chat.time: 1-00:00:01 seen, at most 1-00:00:00 is allowed"),
        (
            {"seen": {"qos": {}}},
            "llama_services.chat.qos: low is not in SLURM: write it in slurm_qos, or run sacctmgr add",
        ),
        (
            {"seen": {"associations": []}},
            "slurm_user: jobs has no association for llama_services.chat with account lab with QoS low, one is needed: "
            "write it in slurm_associations, or run sacctmgr add user jobs account=lab qos+=low",
        ),
    ],
)
def test_slurm_without_a_part_is_refused(case, sentence):
    refused = found(**case)["refused"]
    assert refused and refused[0].startswith(sentence)


def test_inventory_writes_qos_and_association():
    written = {"qos": {"low": {}}, "associations": [{"user": "jobs", "account": "lab", "qos": ["low"]}]}
    assert found({"qos": {}, "associations": []}, **written)["refused"] == []


def test_other_grace_and_preemption_are_warnings():
    assert found({"qos": {"low": {"grace_time": 0}}})["warnings"] == [
        "llama_services.chat.grace: 30 seen, the GraceTime of QoS low is 0: run sacctmgr modify qos low set "
        "GraceTime=30, or change the key"
    ]
    config = {"PreemptType": "preempt/none", "PreemptMode": "OFF"}
    warnings = found({"config": config}, qos={"vasp": {"preempt": ["low"]}, "low": {}})["warnings"]
    assert [warning.partition(":")[2][:14] for warning in warnings] == [" PreemptType=p", " PreemptMode=O"]


def test_qos_that_the_inventory_does_not_write():
    low = {"grace_time": 30, "priority": 100, "preempt_mode": "cancel"}
    vasp = {"priority": 10, "preempt": ["low"], "preempt_mode": "cluster"}
    assert found({"qos": {"low": low, "vasp": vasp}})["warnings"] == [
        "llama_services.chat.qos: PreemptMode cancel of low seen, requeue is needed, so that its preempted jobs keep "
        "their place: run sacctmgr modify qos low set PreemptMode=requeue",
        "llama_services.chat.qos: priority 100 of low seen, 10 of vasp, which preempts it, so a preempted job starts "
        "first: run sacctmgr modify qos vasp set Priority=101, or write both in slurm_qos",
    ]
    own = {"low": {"preempt_mode": "requeue"}, "vasp": {"priority": 1000, "preempt": ["low"]}}
    assert found({"qos": {"low": low, "vasp": vasp}}, qos=own)["warnings"] == []


def test_partitions_that_preempt_are_compared():
    ai = {"GraceTime": "0", "PreemptMode": "OFF", "PriorityTier": "2"}
    seen = {"partitions": {"gpu_ai": ai, "gpu_vasp": {"PriorityTier": "2"}}}
    # With preempt/qos nothing of it counts.
    assert found(seen)["warnings"] == []
    seen["config"] = {"PreemptType": "preempt/partition_prio", "PreemptMode": "REQUEUE"}
    lines = [warning.rpartition(": ")[2] for warning in found(seen)["warnings"]]
    assert lines == [
        "write PartitionName=gpu_ai GraceTime=30 into slurm.conf",
        "write PartitionName=gpu_ai PreemptMode=REQUEUE into slurm.conf",
        "write a higher PriorityTier for these into slurm.conf",
    ]
    ai.update(GraceTime="30", PreemptMode="REQUEUE", PriorityTier="1")
    assert found(seen)["warnings"] == []


def test_only_errors_that_stay_refuse_a_script():
    item = {"service": "chat", "path": "/s/run.slurm"}
    busy = "allocation failure: Requested partition configuration not available now"
    wrong = "allocation failure: Invalid qos\nspecification"
    tests = [{"item": item, "rc": rc, "stderr": text} for rc, text in ((0, "Job 1 to start"), (1, busy), (1, wrong))]
    assert compare.slurm_script_refusals([*tests, {"item": item, "skipped": True}]) == [
        "llama_services.chat: sbatch --test-only says allocation failure: Invalid qos specification, a job that SLURM "
        "takes is needed: correct its keys"
    ]


def test_scripts_of_former_jobs_are_removed():
    made = {"scripts": ["/s/run-chat.slurm", "/s/run-old.slurm"], "registry_dir": "/e", "user": "jobs"}
    settings = {"user": "jobs", "yield_to": ["dev"], "made": made}
    entries = files.slurm_files([], {}, {}, settings)["files"]
    assert [entry["path"] for entry in entries if entry.get("state") == "absent"] == made["scripts"]
    config = json.loads(next(entry["content"] for entry in entries if "content" in entry))
    assert config["services"] == {} and config["registry_dir"] == "/e" and config["partitions_yield"] == ["dev"]


def test_scripts_of_other_services_stay():
    made = {"scripts": ["/s/run-chat.slurm", "/s/run-other.slurm"], "registry_dir": "/e", "user": "jobs"}
    settings = {"user": "jobs", "yield_to": [], "made": made, "services": ["other"]}
    entries = files.slurm_files([JOB], {}, {}, {**settings, "config": {"services": {"chat": {"digest": "old"}}}})
    assert entries["scripts"] == [] and len(entries["files"]) == 1
    assert json.loads(entries["files"][0]["content"])["services"] == {"chat": {"digest": "old"}}


def test_record_keeps_what_earlier_runs_made():
    created = {"qos": ["low"], "associations": [{"user": "jobs", "account": "lab"}]}
    first = json.loads(files.slurm_made([JOB], created, {}))
    assert first == dict(created, scripts=["/s/run-chat.slurm"], user="jobs", registry_dir="/e")
    assert json.loads(files.slurm_made([JOB], {"qos": [], "associations": []}, first)) == first
    assert json.loads(files.slurm_made([JOB], {}, first)) == first
