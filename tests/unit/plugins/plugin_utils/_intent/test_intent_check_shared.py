# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Mistakes of services together, and in routes and keys."""

from pathlib import Path

import pytest
import yaml
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._intent import check
from ansible_collections.thefermisea.llama_cluster.tests.unit.intents import (
    GROUPS,
    HOSTVARS,
    MODELS,
    SERVICES,
    changed,
    mistakes,
)

ROOT = Path(__file__).resolve().parents[5]


def test_two_services_cannot_share_a_port():
    services = dict(SERVICES, second=dict(SERVICES["reasoning"], primary=False, port=8001))
    assert mistakes(services) == [
        "llama_services.second.rpc_port: 50052 on node2 is taken by llama_services.reasoning.rpc_port, a port of its "
        "own is needed: choose another",
        "llama_services.second.rpc_port: 50052 on node3 is taken by llama_services.reasoning.rpc_port, a port of its "
        "own is needed: choose another",
    ]


def test_heads_and_workers_see_the_same_cards():
    second = {**{key: SERVICES["reasoning"][key] for key in ("model", "quant")}, "head": "node2"}
    variable = {"GGML_VK_VISIBLE_DEVICES": "0"}

    def found(services, **variables):
        return mistakes(services, hostvars={**HOSTVARS, "node2": {**HOSTVARS["node2"], **variables}})

    both = dict(SERVICES, second=second)
    assert found(both, rpc_worker_environment=variable) == [
        "rpc_worker_environment.GGML_VK_VISIBLE_DEVICES: '0' seen for node2, the same in head_server_environment is "
        "needed, since heads and workers run there: write it in both, or name the cards of each service"
    ]
    assert len(found(both, head_server_environment=variable)) == 1
    assert found(both, rpc_worker_environment=variable, head_server_environment=variable) == []
    assert found(SERVICES, rpc_worker_environment=variable) == []


@pytest.mark.parametrize(
    ("cards", "more", "variables", "sentence"),
    [
        ([0], {}, {}, None),
        (
            [],
            {"workers": None, "rpc_port": None, "tensor_split": None},
            {"llama_builds": {"default": {"accelerator": "cpu"}}},
            None,
        ),
        ([0, "1"], {}, {}, "[0, '1'] seen, indices that nvidia-smi prints are needed: write such as [0, 1]"),
        ([True], {}, {}, "[True] seen, indices that nvidia-smi prints are needed: write such as [0, 1]"),
        ([-1], {}, {}, "[-1] seen, indices that nvidia-smi prints are needed: write such as [0, 1]"),
        ([1, 1], {}, {}, "[1, 1] seen, each index once is needed: remove the others"),
        ([], {}, {}, "[] seen with workers, a card on each node is needed: drop workers, or name cards"),
        (
            *(1, {}, {"head_server_environment": {"CUDA_VISIBLE_DEVICES": "1"}}),
            "seen beside CUDA_VISIBLE_DEVICES in head_server_environment of node1, one of them is needed: drop the "
            "other",
        ),
        (
            *(1, {}, {"head_server_environment": {"GGML_VK_VISIBLE_DEVICES": "1"}}),
            "seen beside GGML_VK_VISIBLE_DEVICES in head_server_environment of node1, one of them is needed: drop the "
            "other",
        ),
        (
            *(1, {}, {"llama_builds": {"default": {"accelerator": "cpu"}}}),
            "1 seen with llama_builds.default.accelerator cpu, cuda, vulkan or auto is needed to use cards: change it, "
            "or drop the key",
        ),
    ],
)
def test_the_cards_of_a_service(cards, more, variables, sentence):
    builds = variables.pop("llama_builds", {"default": {"accelerator": "cuda"}}) if variables else {}
    hostvars = {name: dict(facts, llama_builds=builds) for name, facts in HOSTVARS.items()}
    hostvars["node1"].update(variables)
    found = mistakes(changed(cards=cards, **more), hostvars=hostvars)
    assert found == ([] if sentence is None else ["llama_services.reasoning.cards: " + sentence])


def test_example_key_is_planned_but_not_deployed():
    keys = yaml.safe_load((ROOT / "inventories/example/group_vars/all/vault.yml").read_text())["vault_llama_api_keys"]
    needed = (
        "put-a-key-of-your-own-here seen, a key of your own is needed: print one with `openssl rand -hex 32` and "
        "write it in group_vars/all/vault.yml"
    )
    assert check.example_keys(keys) == ["llama_api_keys.%s: %s" % (name, needed) for name in ("chat", "quick")]
    assert check.example_keys({"chat": ["k3y"]}) == []
    services = {"chat": SERVICES["reasoning"]}
    own = {"chat": keys["chat"]}
    assert check.intent_errors(services, MODELS, GROUPS, HOSTVARS, {}, own) == []
    assert check.intent_errors(services, MODELS, GROUPS, HOSTVARS, {}, own, deployable=True) == check.example_keys(own)
    # Mistakes are reported first.
    (sentence,) = check.intent_errors(services, MODELS, GROUPS, HOSTVARS, {"default": "x"}, own, deployable=True)
    assert sentence.startswith("llama_routes.default")


def test_routes_lead_to_what_is_served():
    def found(routes):
        return check.intent_errors(SERVICES, MODELS, GROUPS, HOSTVARS, routes)

    assert found({"default": "Big", "tasks": {"fix": "Big", "complete": "big"}}) == []
    assert found({"default": "reasoning", "tasks": {"a/b": "big"}}) == [
        "llama_routes.tasks.a/b: the name stands in paths, letters, digits, dots and dashes are needed: rename it",
        "llama_routes.default: reasoning is a service, a name of what it serves is needed: write big",
    ]
    assert found({"default": "bigg", "taks": {}}) == [
        "llama_routes.taks: unknown key; known keys: default, tasks",
        "llama_routes.default: bigg is served by no service, one of Big, big is needed, did you mean big?",
    ]
    assert found({"default": None, "tasks": {"fix": ["big"]}}) == [
        "llama_routes.default: nothing seen, a string is needed: give one or remove the key",
        "llama_routes.tasks.fix: a list of 1 seen, a string is needed: correct it",
    ]
    assert found(None) == found({"tasks": None}) == []
    (routes,), (tasks,) = found([]), found({"tasks": []})
    assert routes.startswith("llama_routes: [] seen, a map is needed")
    assert tasks.startswith("llama_routes.tasks: [] seen, a map is needed")


@pytest.mark.parametrize("key", ["s3cret key", "s3cret\n", "#s3cret", "", 7, None, ["s3cret"]])
def test_unusable_key_is_refused_and_hidden(key):
    (sentence,) = check.intent_errors(SERVICES, MODELS, GROUPS, HOSTVARS, None, {"reasoning": ["fine", key]})
    assert sentence.startswith("llama_api_keys.reasoning: key 2 is no plain text") and "s3cret" not in sentence
    assert check.intent_errors(SERVICES, MODELS, GROUPS, HOSTVARS, None, {"reasoning": ["fine", "sk-+/=_.~!"]}) == []


@pytest.mark.parametrize(
    "model, spec, size",
    [
        ({}, {"size": 7}, 7),
        ({"parameters": 8e9}, {"bits_per_weight": 4.5}, 4500000000),
        ({"parameters": 8e9}, {"bits_per_weight": 4.5, "size": 7}, 7),
        ({"parameters": 8e9}, {}, None),
        ({}, {"bits_per_weight": 4.5}, None),
        ({}, {}, None),
    ],
)
def test_the_size_of_weights_that_the_inventory_tells(model, spec, size):
    assert check.weights(dict(model, quants={"Q4_K_M": spec}), "Q4_K_M")[0] == size


def test_one_primary_at_most():
    services = dict(SERVICES, second=dict(SERVICES["reasoning"], port=8001, rpc_port=50053))
    assert mistakes(services) == [
        "llama_services.second.primary: true seen for reasoning too, only one service may have the units llama-rpc and "
        "llama-head, false is needed: remove the key"
    ]


def test_the_same_port_on_another_node_is_free():
    one = {key: SERVICES["reasoning"][key] for key in ("model", "quant", "ctx_size", "parallel")}
    services = {name: dict(one, head=node, port=8000) for name, node in (("a", "node1"), ("b", "node2"))}
    assert mistakes(services) == []
    services["b"]["head"] = "node1"
    assert mistakes(services) == [
        "llama_services.b.port: 8000 on node1 is taken by llama_services.a.port, a port of its own is needed: choose "
        "another"
    ]


@pytest.mark.parametrize(
    ("keys", "start"),
    [
        (
            [],
            "llama_api_keys.reasoning: an empty list seen, a list of at least one key is needed: add a key or remove ",
        ),
        ("k3y", "llama_api_keys.reasoning: no list seen, a list of at least one key is needed: write [KEY]"),
        (None, "llama_api_keys.reasoning: no list seen, "),
        (["#k3y"], "llama_api_keys.reasoning: key 1 is no plain text, "),
    ],
)
def test_what_is_no_list_of_keys(keys, start):
    (sentence,) = check.intent_errors(SERVICES, MODELS, GROUPS, HOSTVARS, None, {"reasoning": keys})
    assert sentence.startswith(start) and "k3y" not in sentence


def test_a_key_of_no_service():
    (sentence,) = check.intent_errors(SERVICES, MODELS, GROUPS, HOSTVARS, None, {"reasonin": ["k3y"]})
    assert sentence == (
        "llama_api_keys.reasonin: no service of that name, one of reasoning is needed, did you mean reasoning?"
    )
    (sentence,) = check.intent_errors(SERVICES, MODELS, GROUPS, HOSTVARS, None, ["k3y"])
    assert sentence.startswith("llama_api_keys: no map seen, ")


def judged(size, mib=(100, 200), quants=None, **service):
    """hopeless() of a model of so many bytes on nodes with so many MiB."""
    nodes = {"node%d" % number: {"devices": [{"total_mib": one, "kind": "GPU"}]} for number, one in enumerate(mib, 1)}
    models = {"big": {"quants": dict({"Q8_0": {"size": size}}, **quants or {})}}
    services = {"chat": dict({"model": "big", "quant": "Q8_0", "head": "node1", "workers": "node2"}, **service)}
    return check.hopeless(services, models, dict(GROUPS), nodes)


def test_weights_beyond_all_memory_are_hopeless():
    assert judged(300 << 20) == []
    assert judged((300 << 20) + 1) == [
        "llama_services.chat.quant: big Q8_0 has 314.6 MB, more than the 314.6 MB of GPU memory of node1, node2: "
        "choose another model, or add nodes"
    ]
    quants = {"Q6_K": {"size": (300 << 20) + 1}, "Q4_0": {"size": 300 << 20}, "Q2_K": {"size": 5}, "mine": {}}
    assert judged(400 << 20, quants=quants)[0].endswith(": choose Q4_0 (314.6 MB), Q2_K (5 bytes)")


def test_what_is_not_known_is_not_judged():
    assert judged(1 << 60, mib=(100,)) == [], "of a node nothing is known"
    assert judged(None) == []
    assert judged(1 << 60, kind="router", models={"big": "Q8_0"}, workers="")[0].startswith(
        "llama_services.chat.models.big.quant: big Q8_0 has "
    )
    assert "of GPU memory of node1:" in judged(1 << 60, workers="")[0]


@pytest.mark.parametrize(
    ("services", "models", "begin"),
    [
        ([], {"m": {}}, "llama_services: [] seen, a map of name to service is needed"),
        (
            {},
            {"m": {}},
            "llama_services: nothing seen, at least one service is needed: write it in /inv/group_vars/all/",
        ),
        ({"s": {}}, None, "llama_models: nothing seen, a map of name to model is needed"),
        ({"s": {}}, {}, "llama_models: nothing seen, at least one model is needed: write it in /inv/group_vars/all/"),
    ],
)
def test_an_inventory_without_services_or_models(services, models, begin):
    hostvars = dict(HOSTVARS, node1=dict(HOSTVARS["node1"], inventory_dir="/inv"))
    (sentence,) = check.intent_errors(services, models, GROUPS, hostvars)
    assert sentence.startswith(begin)


def test_the_default_is_for_chats():
    """A site of only embeddings has no model for chats."""
    texts = dict(SERVICES["reasoning"], model="texts", primary=False, port=8001, rpc_port=50053, embeddings=True)
    models = dict(MODELS, texts=dict(MODELS["big"], aliases=["Texts"]))
    for services, default, wrong in (
        ({**SERVICES, "texts": texts}, "texts", True),
        ({**SERVICES, "texts": texts}, "Texts", True),
        ({**SERVICES, "texts": texts}, "big", False),
        ({"texts": texts}, "texts", False),
    ):
        found = check.intent_errors(services, models, GROUPS, HOSTVARS, {"default": default})
        assert bool(found) == wrong and all("a model for chat is needed" in one for one in found), found
