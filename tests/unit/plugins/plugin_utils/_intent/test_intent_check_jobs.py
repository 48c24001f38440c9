# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Mistakes of services that SLURM runs, and what the nodes of sound ones get."""

import copy

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._intent import check, services
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._intent import jobs as intent_jobs
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._intent import models as intent_models
from ansible_collections.thefermisea.llama_cluster.tests.unit.intents import GROUPS, HOSTVARS, MODELS, SERVICES, changed

HOSTS = dict(GROUPS, llama_slurm=["ctl"])
FACTS = {"slurm_user": "jobs", "ansible_host": "10.0.0.9"}
JOB = changed(launcher="slurm")
SMALL = {"model": "big", "quant": "Q8_0", "head": "node1", "port": 8010, "ctx_size": 512}


def mistakes(given=None, groups=None, api_keys=None, **facts):
    """facts: of the host that submits."""
    given, groups = JOB if given is None else given, HOSTS if groups is None else groups
    return check.intent_errors(given, MODELS, groups, dict(HOSTVARS, ctl=dict(FACTS, **facts)), {}, api_keys)


def job(**settings):
    return {"reasoning": dict(JOB["reasoning"], **settings)}


def with_other(other=None, **settings):
    return dict(job(**settings), small=dict(SMALL, **other or {}))


def test_sound_job_has_no_mistake():
    keys = {"partition": "gpu_ai", "qos": "low", "account": "lab", "mem": "200G", "cpus": 8, "time": "24:00:00"}
    assert mistakes(job(nodes=3, gres="gpu:v100s:1", job_name="llama-72b", grace=60, **keys)) == []
    assert mistakes(SERVICES, GROUPS) == []
    more = {
        "slurm_scripts": {"reasoning": "run-72b.slurm"},
        "slurm_qos": {"low": {"priority": 100, "grace_time": 30, "preempt_mode": "requeue", "preempt": []}},
        "slurm_associations": [{"user": "jobs", "account": "lab", "qos": ["low"]}],
        "slurm_yield_to": ["dev"],
        "slurm_log_dir": "/cluster/logs",
    }
    assert mistakes(job(qos="low"), **more) == []


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"nodes": 2}, "nodes: 2 seen, 3 is needed, head and workers: correct it or drop the key"),
        ({"mem": "200"}, "mem: '200' seen, a size such as 100G is needed"),
        (
            {"time": 86400},
            "time: 86400 seen, SLURM's form of a time, such as 24:00:00 or 7-00:00:00, is needed: write ",
        ),
        ({"time": "1 day"}, "time: '1 day' seen, SLURM's form"),
        ({"gres": "v100s"}, "gres: 'v100s' seen, NAME:COUNT or NAME:TYPE:COUNT such as gpu:v100s:1 is needed"),
        ({"grace": 5}, "grace: 5 seen, 10 to 3600 is needed"),
        ({"job_name": "a b"}, "job_name: 'a b' seen, a name of SLURM's is needed"),
        ({"memory_max": "9G"}, "memory_max: seen with launcher slurm, mem is needed for it"),
        ({"rpc_cache": "seeded"}, "rpc_cache: seeded seen with launcher slurm, true is needed"),
        ({"rpc_memory_max": "9G"}, "rpc_memory_max: seen with launcher slurm, mem is needed for it"),
        (
            {"gres": "gpu:2", "cards": [0, 1]},
            "cards: a list of 2 seen beside gres gpu:2, 2 is needed, since SLURM chooses",
        ),
        ({"gres": "gpu:2", "cards": 1}, "cards: 1 seen beside gres gpu:2, 2 is needed"),
    ],
)
def test_wrong_key_of_a_job_is_refused(settings, sentence):
    (found,) = mistakes(job(**settings))
    assert found.startswith(f"llama_services.reasoning.{sentence}")


def test_times_of_slurm_are_known():
    for time in ("90", "30:00", "24:00:00", "7-00", "7-00:00", "7-00:00:00"):
        assert mistakes(job(time=time)) == []


@pytest.mark.parametrize(
    ("facts", "sentence"),
    [
        ({"slurm_user": ""}, "slurm_user: nothing seen, the user whose jobs they are is needed"),
        ({"slurm_user": "root"}, "slurm_user: root seen, an account of its own is needed"),
        ({"slurm_user": "llama"}, "slurm_user: llama seen, an account of its own is needed"),
        ({"slurm_user": "a b"}, "slurm_user: 'a b' seen, the name of an account is needed"),
        ({"slurm_log_dir": "logs"}, "slurm_log_dir: 'logs' seen, an absolute path"),
        ({"slurm_script_dir": "/a/../b"}, "slurm_script_dir: '/a/../b' seen, an absolute path"),
        ({"slurm_local_log_dir": 7}, "slurm_local_log_dir: 7 seen, an absolute path"),
        ({"slurm_scripts": []}, "slurm_scripts: [] seen, a map is needed"),
        ({"slurm_scripts": {"reasonin": "x"}}, "slurm_scripts.reasonin: no service of that name, one of reasoning is "),
        ({"slurm_scripts": {"reasoning": "../x"}}, "slurm_scripts.reasoning: '../x' seen, the name of a file"),
        ({"slurm_qos": {"low": {"grace": 30}}}, "slurm_qos.low.grace: unknown key, did you mean grace_time?"),
        ({"slurm_qos": {"low": 30}}, "slurm_qos.low: 30 seen, a map is needed"),
        ({"slurm_qos": {"a b": {}}}, "slurm_qos.a b: a name of letters"),
        ({"slurm_qos": {"low": {"preempt_mode": "no"}}}, "slurm_qos.low.preempt_mode: 'no' seen, one of requeue"),
        ({"slurm_qos": {"low": {"preempt": ["x;y"]}}}, "slurm_qos.low.preempt: a list of 1 seen, letters"),
        ({"slurm_associations": {}}, "slurm_associations: {} seen, a list is needed"),
        ({"slurm_associations": [{"user": "jobs"}]}, "slurm_associations[0].account: missing"),
        ({"slurm_reserve": "yes"}, "slurm_reserve: 'yes' seen, true or false is needed"),
        ({"slurm_yield_to": ["a b"]}, "slurm_yield_to: 'a b' seen, names of partitions are needed"),
    ],
)
def test_wrong_variable_of_jobs_is_refused(facts, sentence):
    (found,) = mistakes(**facts)
    assert found.startswith(sentence)


def test_jobs_need_one_host_of_their_group():
    assert mistakes(groups=GROUPS) == [
        "llama_services.reasoning.launcher: slurm seen without a host in group llama_slurm, the one where sbatch runs "
        "is needed: add it in hosts.yml"
    ]
    (found,) = mistakes(groups=dict(HOSTS, llama_slurm=["ctl", "node1"]))
    assert found.startswith("group llama_slurm: ctl, node1 seen, one host is needed")


def test_gateway_of_jobs_needs_a_registry():
    groups = dict(HOSTS, llama_gateway=["ctl"])
    (found,) = mistakes(groups=groups)
    assert found.startswith("gateway_registry_dir: nothing seen for ctl, a directory that nodes and gateway share is ")
    assert mistakes(groups=groups, gateway_registry_dir="/cluster/endpoints") == []


def test_replicas_are_no_jobs():
    one = {"small": dict(SMALL, head="llama_rpc", launcher="slurm")}
    (found,) = mistakes(one)
    assert found.startswith("llama_services.small.head: node2, node3 seen, one host is needed with launcher slurm")


def test_script_holds_no_key():
    (found,) = mistakes(api_keys={"reasoning": ["s3cret"]})
    assert found.startswith("llama_api_keys.reasoning: seen with launcher slurm, keys of the gateway are needed")


@pytest.mark.parametrize(
    ("other", "settings", "facts", "shared"),
    [
        ({}, {}, {}, True),
        ({"cards": []}, {}, {}, False),
        ({"launcher": "slurm"}, {}, {}, False),
        ({"head": "ctl2"}, {}, {}, False),
        ({"state": "stopped"}, {}, {}, False),
        ({"cards": [0]}, {"cards": [1]}, {}, False),
        ({"cards": [0]}, {"cards": [0]}, {}, True),
        ({}, {}, {"llama_devices": [{"main": True, "memory_mib": 64000}]}, False),
        ({}, {}, {"llama_devices": [{"name": "V100S", "memory_mib": 32510}]}, True),
        ({}, {}, {"llama_builds": {"default": {"accelerator": "cpu"}}}, False),
    ],
)
def test_job_and_unit_share_no_card(other, settings, facts, shared):
    groups = dict(HOSTS, all=[*GROUPS["all"], "ctl2"], llama_nodes=[*GROUPS["llama_nodes"], "ctl2"])
    hostvars = {host: dict(own, **facts) for host, own in HOSTVARS.items()}
    hostvars.update(ctl=FACTS, ctl2=dict(facts, ansible_host="10.0.0.8"))
    found = check.intent_errors(with_other(other, **settings), MODELS, groups, hostvars)
    found = [sentence for sentence in found if ".launcher: slurm seen on node1 beside small, which systemd" in sentence]
    assert bool(found) is shared


def test_cards_beside_a_unit_need_no_gres():
    cards = {"cards": [1], "gres": "gpu:1"}
    assert "beside gres gpu:1, 1 is needed" in mistakes(with_other({"cards": [0]}, **cards))[0]
    (found,) = mistakes(with_other({"cards": [0]}, gres="gpu:1"))
    assert found.endswith(
        "drop gres and write cards for both, name another node for one, or write launcher: slurm for small"
    )
    # Each step of the sentence.
    assert mistakes(with_other({"cards": [0]}, cards=[1])) == []
    assert mistakes(with_other({"launcher": "slurm"}, gres="gpu:1")) == []


def test_two_jobs_have_two_names():
    both = with_other({"launcher": "slurm", "job_name": "x"}, job_name="x")
    (found,) = mistakes(both)
    assert found.startswith("llama_services.small.job_name: x seen for reasoning too")
    both = with_other({"launcher": "slurm"})
    (found,) = mistakes(both, slurm_scripts={"reasoning": "a", "small": "a"})
    assert found.startswith("slurm_scripts.small: /cluster/shared/scripts/llama-cpp/a seen for reasoning too")


def test_grace_is_that_of_a_written_qos():
    (found,) = mistakes(job(qos="low"), slurm_qos={"low": {"grace_time": 60}})
    assert found.startswith(
        "llama_services.reasoning.grace: 30 seen, the grace_time of slurm_qos.low is 60, one number"
    )
    assert mistakes(job(qos="low", grace=60), slurm_qos={"low": {"grace_time": 60}}) == []


def test_nodes_of_a_job_get_models_and_rules():
    hostvars = dict(HOSTVARS, ctl=FACTS)
    rpc = services.node_rpc(JOB, "node2", HOSTS, hostvars)
    assert (rpc["workers"], [one["service"] for one in rpc["jobs"]]) == ([], ["reasoning"])
    assert rpc["access"] == {
        "incoming": [],
        "outgoing": [],
        "jobs_incoming": ["10.100.0.31:50052"],
    }
    head = services.node_rpc(JOB, "node1", HOSTS, hostvars)["access"]
    assert head["jobs_outgoing"] == ["10.100.0.32:50052", "10.100.0.33:50052"] and "jobs_incoming" not in head
    assert len(intent_models.model_items(JOB, MODELS, "node1", HOSTS, "/m")) == 1
    serving = services.node_serving(JOB, MODELS, "node1", HOSTS, hostvars, "/m")
    assert serving["heads"] == [] and [one["service"] for one in serving["jobs"]] == ["reasoning"]
    assert serving["units"] == {}
    assert serving["job_units"] == ["llama-head.service", "llama-rpc.service"]


def test_clients_reach_the_head_of_a_job():
    hostvars = dict(HOSTVARS, ctl=dict(FACTS, gateway_registry_dir="/e"))
    groups = dict(HOSTS, llama_gateway=["ctl"])
    access = services.node_rpc(JOB, "node1", groups, hostvars)["access"]
    assert "10.0.0.9/32:8000" in access["clients"]
    assert access == services.node_rpc(JOB, "node1", groups, hostvars)["access"]
    systemd = services.node_rpc(SERVICES, "node1", groups, hostvars)["access"]
    assert systemd["clients"] == access["clients"]


def test_job_has_what_its_unit_would_have():
    hostvars = dict(HOSTVARS, ctl=dict(FACTS, gateway_registry_suffix={"reasoning": "72b"}))
    given = copy.deepcopy(JOB)
    del given["reasoning"]["port"]
    (one,) = intent_jobs.jobs(given, MODELS, HOSTS, hostvars, "/m")
    (head,) = services.head_instances(
        dict(given, reasoning=dict(given["reasoning"], launcher="systemd")), MODELS, "node1", HOSTS, hostvars, "/m"
    )
    assert one.head == head and one.nodes == ["node1", "node2", "node3"]
    assert (one.name, one.user, one.grace, one.suffix, one.registry_dir) == ("llama-reasoning", "jobs", 30, "72b", "")
    assert one.script == "/cluster/shared/scripts/llama-cpp/run-reasoning.slurm"
    assert intent_jobs.jobs(SERVICES, MODELS, GROUPS, HOSTVARS, "/m") == []


def test_nodes_of_units_with_cards_are_shared():
    given = with_other({"head": "node3"})
    shared = intent_jobs.slurm_shared(given, GROUPS, HOSTVARS, True)
    nodes = {*services.managed(given, GROUPS, "slurm")[0].heads, *services.managed(given, GROUPS, "slurm")[0].workers}
    assert shared["units"] and set(shared["reserved"]) == set(shared["units"]) - nodes
    assert intent_jobs.slurm_shared(given, GROUPS, HOSTVARS, False) == dict(shared, reserved=[])
