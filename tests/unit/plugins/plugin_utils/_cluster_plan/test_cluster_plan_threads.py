# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The cores of a node, shared out among services that compute in its main memory."""

import json

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._cluster_plan.plan import memory_plan
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._intent import services as intent_services
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._intent.check import intent_errors
from ansible_collections.thefermisea.llama_cluster.tests.unit.mixture import GROUPS, HEADERS, MODELS, SERVICE, node

HOSTVARS = {"node1": {"ansible_host": "10.0.0.1"}}
MAIN = dict(SERVICE, model="big", cards=[])
CARD = dict(SERVICE, model="big")
EXPERTS = dict(SERVICE, cpu_moe="auto")


def plan(cores=36, cards=(32510,), **services):
    of = dict(node(cards=cards), physical_cores=cores)
    ported = {name: dict(one, port=8000 + number) for number, (name, one) in enumerate(services.items())}
    return memory_plan(ported, MODELS, GROUPS, {"node1": of}, HEADERS)


def shares(*arguments, **services):
    return {name: found["node1"] for name, found in plan(*arguments, **services)["threads"].items()}


def test_single_service_keeps_default_threads():
    assert shares(one=MAIN) == shares(one=EXPERTS) == shares(one=MAIN, card=CARD) == {}


def test_threads_are_shared_equally_beside_given_ones():
    assert shares(one=MAIN, two=MAIN) == {"one": 18, "two": 18}
    assert shares(one=MAIN, experts=EXPERTS, card=CARD) == {"one": 18, "experts": 18}
    assert shares(one=MAIN, two=MAIN, three=dict(MAIN, threads=16)) == {"one": 10, "two": 10}
    assert shares(one=MAIN, two=dict(MAIN, threads=16)) == {"one": 20}
    assert shares(one=MAIN, two=dict(MAIN, threads=36)) == {"one": 1}
    assert shares(3, one=MAIN, two=MAIN) == {"one": 1, "two": 1}
    assert shares("36", one=MAIN, two=MAIN) == {"one": 18, "two": 18}, "as older cores of ansible hand them on"
    assert shares(None, one=MAIN, two=MAIN) == {}


@pytest.mark.parametrize(
    "other",
    [CARD, dict(MAIN, state="stopped"), dict(EXPERTS, model="moe", state="stopped"), dict(MAIN, head="node2")],
)
def test_what_does_not_compute_there_takes_nothing(other):
    groups = {"all": ["node1", "node2"], "llama_nodes": ["node1", "node2"]}
    services = {"one": dict(MAIN), "two": dict(MAIN, port=8001), "other": dict(other, port=8002)}
    of = {name: dict(node(), physical_cores=36) for name in groups["all"]}
    assert memory_plan(services, MODELS, groups, of, HEADERS)["threads"] == {
        "one": {"node1": 18},
        "two": {"node1": 18},
    }


def test_experts_that_all_fit_the_card_compute_there():
    assert shares(36, (200000,), one=MAIN, experts=EXPERTS) == {}
    assert shares(one=MAIN, layers=dict(CARD, n_gpu_layers=20)) == {"one": 18, "layers": 18}


def test_without_a_card_all_of_them_do():
    assert shares(36, (), one=CARD, two=dict(CARD)) == {"one": 18, "two": 18}


def test_they_reach_the_command_line_and_the_operator():
    services = {"one": dict(MAIN, port=8000), "two": dict(MAIN, port=8001)}
    found = plan(one=MAIN, two=MAIN)
    given = json.loads(json.dumps(found))
    heads = intent_services.head_instances(services, MODELS, "node1", GROUPS, HOSTVARS, "/opt/models", given)
    assert [head.args[head.args.index("--threads") + 1] for head in heads] == ["18", "18"]
    assert found["lines"][-1] == "threads of services in main memory: one 18, two 18 of the 36 cores of node1"
    single = intent_services.head_instances(services, MODELS, "node1", GROUPS, HOSTVARS, "/opt/models", None)
    assert not [head for head in single if "--threads" in head.args]


def test_five_keys_are_a_service():
    keys = {"model": "moe", "quant": "Q4_K_M", "head": "node1", "slot_ctx_size": 16384, "cpu_moe": "auto"}
    assert intent_errors({"thinker": keys}, MODELS, GROUPS, HOSTVARS) == []
    services = {"thinker": keys, "small": {**keys, "model": "big", "cards": []}}
    del services["small"]["cpu_moe"]
    found = memory_plan(services, MODELS, GROUPS, {"node1": dict(node(), physical_cores=36)}, HEADERS, complete=True)
    assert found["refused"] == [] and found["ports"].keys() == services.keys()
    for head in intent_services.head_instances(
        services, MODELS, "node1", GROUPS, HOSTVARS, "/opt/models", json.loads(json.dumps(found))
    ):
        words = dict(zip(head.args, head.args[1:], strict=False))
        assert words["--ctx-size"] == "16384" and words["--threads"] == "18" and words["--port"] == str(head.port)
