# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Services with a draft model: what a node holds, what is planned, what runs."""

import json

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._cluster_plan.plan import memory_plan
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._intent import services as intent_services
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._units.files import unit_files
from ansible_collections.thefermisea.llama_cluster.tests.unit import mixture, model_files
from ansible_collections.thefermisea.llama_cluster.tests.unit.mixture import GROUPS, MODELS, SERVICE, node
from ansible_collections.thefermisea.llama_cluster.tests.unit.three_nodes import kept

HOSTVARS = {"node1": {"ansible_host": "10.0.0.1"}}
DRAFT = {"model": "small", "quant": "Q8_0", "max": 8}
KNOWN = dict(MODELS, small={"repo": "some/small", "quants": {"Q8_0": {"files": ["s"], "size": 10**9}}})
SMALL = mixture.shape_of(model_files.qwen3_30b)
HEADERS = [
    *mixture.HEADERS,
    {"item": {"model": "small", "quant": "Q8_0"}, "shape": json.loads(json.dumps(SMALL.as_dict()))},
]


def chat(**keys):
    return {"chat": dict(SERVICE, model="big", **keys)}


def planned(services, models=None, headers=HEADERS, cards=(80000,), **more):
    return memory_plan(services, models or KNOWN, GROUPS, {"node1": node(cards=cards)}, headers, **more)


def serving(services, models=None, plan=None):
    return intent_services.node_serving(services, models or KNOWN, "node1", GROUPS, HOSTVARS, "/opt/models", plan)


def card(plan):
    return plan["services"]["chat"][0]["devices"][0]


@pytest.mark.parametrize("of_model", [False, True])
def test_node_holds_it_and_head_runs_with_it(of_model):
    services = chat() if of_model else chat(draft=DRAFT)
    models = dict(KNOWN, big=dict(KNOWN["big"], draft=DRAFT)) if of_model else KNOWN
    found = serving(services, models)
    assert [item["model"] for item in found["models"]] == ["big", "small"]
    (head,) = found["heads"]
    assert head["draft_path"] == "/opt/models/s" and "--model-draft /opt/models/s" in " ".join(head["args"])
    assert card(planned(services, models))["weights_mib"] > card(planned(chat()))["weights_mib"] + 10000


def test_service_may_do_without_one_of_its_model():
    models = dict(KNOWN, big=dict(KNOWN["big"], draft=DRAFT))
    found = serving(chat(draft=False), models)
    assert [item["model"] for item in found["models"]] == ["big"] and found["heads"][0]["draft_path"] == ""
    assert card(planned(chat(draft=False), models)) == card(planned(chat()))


def test_table_names_draft_and_change_replans():
    first = planned(chat(draft=DRAFT))
    assert "  with its draft model small Q8_0, f16 KV cache" in first["lines"]
    assert planned(chat(draft=DRAFT), previous=kept(first))["unchanged"] == ["chat"]
    assert planned(chat(), previous=kept(first))["unchanged"] == []


def test_shared_cache_gives_each_slot_all_of_it():
    one, shared = (
        planned(chat(slot_ctx_size=8192, parallel=slots, kv_unified=True))["services"]["chat"][0] for slots in (1, 4)
    )
    assert (shared["ctx_size"], shared["slot_ctx_size"]) == (8192, 8192)
    assert shared["devices"][0]["kv_mib"] == one["devices"][0]["kv_mib"]
    (head,) = serving(chat(slot_ctx_size=8192, parallel=4, kv_unified=True))["heads"]
    assert head["registry"]["slot_ctx_size"] == 8192 and {"--ctx-size 8192", "--kv-unified"} <= {
        *head["args"],
        " ".join(head["args"][head["args"].index("--ctx-size") :][:2]),
    }


def test_ngrams_need_no_weights():
    plain, mod = planned(chat(parallel=8)), planned(chat(parallel=8, draft={"type": "ngram-mod"}))
    assert "  drafts by ngram-mod: no weights, the logits of what is checked at once are in compute" in mod["lines"]
    assert (
        card(mod)["weights_mib"] == card(plain)["weights_mib"] and card(mod)["compute_mib"] > card(plain)["compute_mib"]
    )
    (head,) = serving(chat(draft={"type": "ngram-mod"}))["heads"]
    assert head["draft_path"] == "" and "--spec-type ngram-mod" in " ".join(head["args"])
    assert planned(chat(), previous=kept(mod))["unchanged"] == []


def test_without_its_header_nothing_is_planned():
    (sentence,) = planned(chat(draft=DRAFT), headers=mixture.HEADERS, complete=True)["refused"]
    assert sentence.startswith("llama_services.chat: not planned, its draft model small Q8_0: its header was not read")


def test_draft_by_file_url_is_not_planned():
    on_disk = dict(KNOWN, small={"quants": {"Q8_0": {"urls": ["file:///srv/s.gguf"]}}})
    found = planned(chat(draft=DRAFT), on_disk, mixture.HEADERS, complete=True)
    assert found["refused"] == []
    assert found["lines"][0].startswith(
        "chat: not planned, its draft model small Q8_0: its file is on the disk of its node, "
    )


def test_another_file_of_it_restarts_the_head():
    (head,) = serving(chat(draft=DRAFT))["heads"]
    process = dict.fromkeys(("build", "template", "user", "numa_node"), "")
    process["environment"] = {}

    def digest(item, size):
        files = {"/opt/models/b": [1, 1.5], "/opt/models/s": [size, 1.5]}
        built = {"of": {item["build"]: {"current_build": item["build"], "build_sha256": "1" * 64}}}
        there = {"units": [], "aliases": [], "templates": [], "watched": [], "files": files, "build": built}
        return unit_files([item], "head", there, process, False)[0]["vars"]["digest"]

    assert digest(head, 1) != digest(head, 2)
    (plain,) = serving(chat())["heads"]
    assert digest(plain, 1) == digest({key: value for key, value in plain.items() if key != "draft_path"}, 2)
