# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""All services of an inventory together."""

import base64
import json

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._plan.full_prompt import NOT_KNOWN, record
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._plan.stored import stored
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._plan.table import lines
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._cluster_plan import estimate
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._cluster_plan.plan import memory_plan
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._intent import services as intent_services
from ansible_collections.thefermisea.llama_cluster.tests.unit.mixture import SERVICE, planned
from ansible_collections.thefermisea.llama_cluster.tests.unit.three_nodes import (
    CHAT,
    FACTS,
    FAST,
    GROUPS,
    MODELS,
    cards,
    chat,
    kept,
    main_memory,
    nodes,
    plan,
)


def test_automatic_split_is_planned_with_source():
    planned = plan(chat())
    assert planned["refused"] == []
    (one,) = planned["services"]["chat"]
    assert (one["fits"], one["topology"], one["source"]) == (True, "split", "catalog")
    assert one["layers"] == {"node2": 27, "node3": 27, "node1": 26}
    assert any("ESTIMATED from llama_models" in line for line in lines(planned))


def test_a_header_is_better_than_the_catalog():
    shape = estimate.estimate(FACTS, 40 * 10**9)
    header = {"item": {"model": "big", "quant": "Q4_K_M"}, "shape": json.loads(json.dumps(shape.as_dict()))}
    planned = plan(chat(), headers=[header])
    (one,) = planned["services"]["chat"]
    assert one["source"] == "header"
    assert sum(device["weights_mib"] for device in one["devices"]) < 40 * 10**9 / (1 << 20)
    assert not any("ESTIMATED" in line for line in lines(planned))


def test_model_settings_apply_to_service():
    """A window of 512 tokens in every second layer of eighty."""
    header = dict(FACTS, architecture="gemma2")
    whole = {"big": dict(MODELS["big"], header=header, swa_full=True)}
    window = {"big": dict(MODELS["big"], header=header)}
    caches = [
        sum(
            device["kv_mib"]
            for device in memory_plan(services, models, GROUPS, nodes())["services"]["chat"][0]["devices"]
        )
        for services, models in (
            (chat(), window),
            (chat(swa_full=True), window),
            (chat(), whole),
            (chat(swa_full=False), whole),
        )
    ]
    assert caches[1] == caches[2] > caches[0] == caches[3]


def test_uncounted_words_are_shown():
    words = ["--mmproj", "/opt/models/p.gguf"]
    planned = plan(chat(extra_args=words))
    assert planned["services"]["chat"][0]["unplanned"] == words
    assert lines(planned)[-1] == "  not planned: --mmproj /opt/models/p.gguf"
    assert not any("not planned" in line for line in lines(plan(chat())))


def test_explicit_layers_are_rendered_in_llama_cpps_order():
    planned = plan(chat(tensor_split={"node1": 20, "node2": 35, "node3": 25}))
    assert planned["refused"] == []
    assert planned["services"]["chat"][0]["tensor_split"] == [35, 25, 21]


def test_nodes_without_cards_use_their_main_memory():
    lab = {name: main_memory(name, 64000) for name in GROUPS["all"]}
    planned = plan(chat(force_split=True), lab)
    assert planned["refused"] == []
    assert sorted(planned["services"]["chat"][0]["layers"]) == ["node2", "node3"]
    single = plan(chat(workers=None, rpc_port=None), {"node1": main_memory("node1", 64000)})
    assert single["services"]["chat"][0]["layers"] == {"node1": 80}
    assert single["services"]["chat"][0]["tensor_split"] == []


def test_why_it_is_an_estimate_is_said():
    failed = {"item": {"model": "big", "quant": "Q4_K_M"}, "msg": "https://hub: cannot be reached", "failed": True}
    assert "  https://hub: cannot be reached" in lines(plan(chat(), headers=[failed]))


def test_layers_per_node_need_no_header_for_severalcards():
    """The command line is the same with and without the header."""
    two = {"devices": cards("node2", 24000, 24000), "cores": 40}
    split = {"node1": 20, "node2": 35, "node3": 25}
    unknown = json.loads(json.dumps(plan(chat(model="unknown", quant="Q8_0", tensor_split=split), nodes(node2=two))))
    assert unknown["services"] == {} and unknown["refused"] == []
    known = plan(chat(tensor_split=split), nodes(node2=two))["services"]["chat"][0]
    assert unknown["rendered"] == {"chat": {"layers": known["layers"], "tensor_split": known["tensor_split"]}}
    hostvars = {name: {"ansible_host": name, "llama_fabric_address": "10.1.0." + name[-1]} for name in GROUPS["all"]}
    services = chat(model="unknown", quant="Q8_0", tensor_split=split)
    (head,) = intent_services.head_instances(services, MODELS, "node1", GROUPS, hostvars, "/opt/models", unknown)
    assert head.args[head.args.index("--tensor-split") + 1] == "18,17,25,21"
    assert head.layers == split


def test_title_of_a_job_names_its_partition():
    for given, words in (({}, ", as a job"), ({"partition": "gpu_ai"}, ", as a job of partition gpu_ai")):
        service = plan(chat(launcher="slurm", **given))
        assert service["lines"][0] == plan(chat())["lines"][0] + words


def test_services_that_share_a_card_are_added_up():
    single = plan(chat(), nodes(28000))["services"]["chat"][0]
    planned = plan(dict(chat(), fast=FAST), nodes(28000))
    fast = planned["services"]["fast"][0]
    beside = planned["services"]["chat"][0]
    assert planned["refused"] == []
    shared = {device["node"]: device for device in beside["devices"]}["node3"]
    assert shared["free_mib"] == 28000 - fast["devices"][0]["total_mib"]
    assert shared["total_mib"] <= shared["free_mib"]
    assert beside["layers"]["node3"] < single["layers"]["node3"]
    assert planned["sharing"] == ["chat shares cards with fast, all of them fit"]


def test_stopped_service_takes_nothing_and_reports_fit():
    # It is planned last, whatever it is called.
    code = dict(CHAT, model="small", quant="Q8_0", head="node3", state="stopped")
    code = {key: value for key, value in code.items() if key not in ("workers", "rpc_port")}
    for memory, says in ((40000, "fits"), (20000, "does not fit")):
        single, planned = plan(chat(), nodes(memory)), plan(dict(chat(), aaa=code), nodes(memory))
        assert planned["refused"] == [] and planned["services"]["chat"] == single["services"]["chat"]
        (line,) = planned["sharing"]
        assert line.startswith("aaa: stopped, not counted; it %s beside what runs" % says) and line in planned["lines"]
    assert " MiB are needed on GPU0 of node3 and " in line and line.count(" MiB are there beside chat (") == 1
    # Started, both are added up.
    started = plan(dict(chat(), code=dict(code, state="started")), nodes(40000))
    assert started["sharing"] == ["code shares cards with chat, all of them fit"]


def test_stopped_service_has_split_of_its_own():
    one, two = chat()["chat"], dict(CHAT, port=8001, rpc_port=50053, state="stopped")
    planned = plan({"chat": one, "other": two}, nodes(28000))
    assert planned["refused"] == []
    assert planned["services"]["other"][0]["tensor_split"] == planned["services"]["chat"][0]["tensor_split"]
    # Two that are stopped do not count for each other.
    both = plan({"chat": dict(one, state="stopped"), "other": two}, nodes(28000))
    assert [line.partition(";")[2] for line in both["sharing"]] == [" it fits beside what runs"] * 2


def test_stopped_service_that_fits_nowhere_is_refused_once():
    (sentence,) = plan(dict(chat(), other=dict(CHAT, quant="Q8_0", state="stopped")), nodes(22000))["refused"]
    assert sentence.startswith("llama_services.other.quant: big Q8_0 with ")


def test_stopped_service_is_refused_once():
    """It is planned a second time where it does not fit beside the others."""
    one, two = chat()["chat"], dict(CHAT, port=8001, rpc_port=50053, state="stopped", threads=41)
    planned = plan({"chat": one, "other": two}, nodes(28000))
    assert " it does not fit beside what runs" in planned["sharing"][-1]
    assert len(planned["refused"]) == 3
    assert {sentence.partition(":")[0] for sentence in planned["refused"]} == {"llama_services.other.threads"}


def test_stopped_service_with_missing_nodes_is_uncounted():
    part = {name: facts for name, facts in nodes().items() if name != "node3"}
    stopped = chat(state="stopped")
    assert plan(stopped, part)["uncounted"] == ["chat"] and plan(stopped, part)["sharing"] == []


def test_router_claims_largest_models():
    models = dict(MODELS, medium=dict(MODELS["small"], quants={"Q8_0": {"files": ["m8"], "size": 9 * 10**9}}))
    router = dict(FAST, models={"small": "Q8_0", "medium": "Q8_0"})
    free = []
    for most in (1, 2):
        planned = memory_plan(dict(chat(), fast=dict(router, models_max=most)), models, GROUPS, nodes(40000))
        free.append(
            {device["node"]: device["free_mib"] for device in planned["services"]["chat"][0]["devices"]}["node3"]
        )
    assert free[0] > free[1] > 0


def test_router_loads_as_many_models_as_fit_together():
    models = dict(MODELS, medium=dict(MODELS["small"], quants={"Q8_0": {"files": ["m8"], "size": 9 * 10**9}}))
    router = {name: FAST[name] for name in FAST if name != "models_max"}
    router["models"] = {"small": "Q8_0", "medium": "Q8_0"}

    def counted(mib, build="b11434", previous=(), **changes):
        found = memory_plan(
            {"fast": dict(router, **changes)}, models, GROUPS, nodes(mib), (), {"default": {"version": build}}, previous
        )
        return found, {one["models_max"] for one in found["services"]["fast"]}

    assert counted(40000)[1] == {2} and counted(20000)[1] == {1}
    one = counted(20000)[0]
    assert one["sharing"] == ["fast loads 1 of its 2 models at a time on node3"] and one["refused"] == []
    # A fitting split is kept: with more room nothing restarts.
    assert counted(20000, previous=kept(one, "fast"))[1] == {1}
    (sentence,) = counted(20000, models_max=2)[0]["refused"]
    assert sentence.startswith("llama_services.fast.models_max: 2 seen, at most 1 is allowed, since more need ")
    (sentence,) = counted(20000, build="b7772")[0]["refused"]
    assert sentence.startswith("llama_services.fast.models_max: 1 seen with build b7772, all 2 models ")
    assert counted(40000, build="b7772")[0]["refused"] == []
    # Services without a choice come first.
    assert counted(40000, state="stopped")[0]["sharing"][-1] == "fast: stopped, not counted; it fits beside what runs"


def test_router_models_use_different_cards():
    two = nodes(20000)
    first = two["node3"]["devices"][0]
    two["node3"]["devices"].append(dict(first, device="GPU1"))
    models = dict(MODELS, medium=dict(MODELS["small"], quants={"Q8_0": {"files": ["m8"], "size": 9 * 10**9}}))
    router = dict(
        {name: FAST[name] for name in FAST if name != "models_max"}, models={"small": "Q8_0", "medium": "Q8_0"}
    )
    found = memory_plan({"fast": router}, models, GROUPS, two)["services"]["fast"]
    assert [one["models_max"] for one in found] == [2, 2]
    assert [one["counts"].index(0) for one in found] in ([0, 1], [1, 0])


def test_the_plan_does_not_wander():
    """Memory of the managed service is free for it, and a split that still fits is kept."""
    first = plan(chat())
    assert plan(chat(), previous=kept(first))["services"] == first["services"]
    busy = nodes()
    busy["node2"]["devices"][0]["others_mib"] = 20000
    moved = plan(chat(), busy)["services"]["chat"][0]["counts"]
    # Somebody else was there and has gone: nothing is restarted for that.
    assert moved != first["services"]["chat"][0]["counts"]
    assert plan(chat(), previous=kept(plan(chat(), busy)))["services"]["chat"][0]["counts"] == moved
    # A plan that no longer fits, or has other inputs, is made anew.
    assert plan(chat(), busy, previous=kept(first))["services"]["chat"][0]["counts"] == moved
    assert plan(chat(ctx_size=4096), previous=kept(plan(chat(), busy)))["services"]["chat"][0]["counts"] == [27, 27, 26]


def test_processes_of_others_on_card_are_named():
    busy = nodes()
    busy["node2"]["devices"][0].update(others_mib=20000, others={"vasp_std[4711]": 18000, "?[8]": None})
    (sentence,) = plan(chat(workers="node2", tensor_split={"node1": 20, "node2": 60}), busy)["refused"]
    assert " MiB are needed on GPU0 of node2 and " in sentence
    assert " MiB are there beside vasp_std[4711] (18000 MiB) and ?[8]" in sentence


def test_unchanged_service_is_one_line():
    first = plan(chat())
    assert first["unchanged"] == []
    again = plan(chat(), previous=kept(first))
    assert again["unchanged"] == ["chat"]
    (line,) = again["lines"]
    assert line.startswith("chat: big Q4_K_M, ")
    assert line.endswith(", planned as before: node2 0-26 (27), node3 27-53 (27), node1 54-79 (26)")
    assert len(lines(plan(chat(ctx_size=4096), previous=kept(first)))) > 4


def test_stored_plan_is_independent_of_free_memory():
    busy = nodes()
    busy["node2"]["devices"][0]["others_mib"] = 100
    assert stored(plan(chat())["services"]["chat"]) == stored(plan(chat(), busy)["services"]["chat"])


@pytest.mark.parametrize(
    "content", [None, "", "!", base64.b64encode(b"[]").decode(), base64.b64encode(b'[{"inputs": [1]}]').decode()]
)
def test_a_stored_plan_that_is_none(content):
    assert plan(chat(), previous=[{"item": "chat", "content": content}])["refused"] == []


def test_run_without_node_keeps_its_earlier_split():
    part = {name: facts for name, facts in nodes().items() if name != "node3"}
    planned = plan(chat(), part, previous=kept(plan(chat())))
    assert planned["refused"] == []
    assert planned["services"]["chat"][0]["tensor_split"] == [27, 27, 27]
    assert "node3 is not part of this run" in planned["unplanned"]["chat"]
    assert any("chat: not planned" in line for line in lines(planned))
    (sentence,) = plan(chat(), part)["refused"]
    assert sentence.startswith(
        "llama_services.chat.tensor_split: auto seen and node3 is not part of this run, all nodes of the service are "
        "needed: "
    )
    without_head = {name: facts for name, facts in nodes().items() if name != "node1"}
    assert plan(chat(), without_head)["refused"] == []


def test_layers_per_node_need_all_nodes():
    split = {"node1": 20, "node2": 35, "node3": 25}
    part = {name: facts for name, facts in nodes().items() if name != "node3"}
    for services in (chat(tensor_split=split), chat(model="unknown", quant="Q8_0", tensor_split=split)):
        assert plan(services, part)["refused"] == [
            "llama_services.chat.tensor_split: layers per node seen and node3 is not part of this run, all nodes of "
            "the service are needed: run without --limit"
        ]
    earlier = kept(plan(chat(tensor_split=split)))
    planned = plan(chat(tensor_split=split), part, previous=earlier)
    assert (planned["refused"], planned["services"]["chat"][0]["tensor_split"]) == ([], [35, 25, 21])
    assert len(plan(chat(tensor_split=dict(split, node2=34, node3=26)), part, previous=earlier)["refused"]) == 1
    # No command line of a head is written.
    assert plan(chat(tensor_split=split), {"node3": nodes()["node3"]})["refused"] == []


def test_the_plan_reaches_the_heads_command_line():
    hostvars = {name: {"ansible_host": name, "llama_fabric_address": "10.1.0." + name[-1]} for name in GROUPS["all"]}
    planned = json.loads(json.dumps(plan(chat())))
    (head,) = intent_services.head_instances(chat(), MODELS, "node1", GROUPS, hostvars, "/opt/models", planned)
    assert head.args[head.args.index("--tensor-split") + 1] == "27,27,27"
    assert head.layers == {"node2": 27, "node3": 27, "node1": 26}
    (head,) = intent_services.head_instances(chat(), MODELS, "node1", GROUPS, hostvars, "/opt/models")
    assert "--tensor-split" not in head.args


SERVICES = {
    "chat": dict(SERVICE, model="big", cards=[]),
    "code": dict(SERVICE, model="big", port=8001, cards=[]),
    "embed": dict(SERVICE, model="big", port=8002, cards=[], embeddings=True),
}


def read(plan):
    """The kept plan and measurement of `chat`."""
    inputs = plan["services"]["chat"][0]["inputs"]
    found = record({"tokens": 3686, "seconds": 36.86, "measured_at": "2026-11-24T05:00:00Z"}, inputs)
    (one,) = [one for one in kept(plan) if one["item"] == "chat"]
    return [dict(one, prompt=base64.b64encode(json.dumps(found).encode()).decode())]


def test_of_whom_nothing_is_known_is_one_line():
    assert "chat, code: " + NOT_KNOWN in planned(services=SERVICES)["lines"]


def test_what_is_known_has_line_of_its_own():
    first = planned(services=SERVICES)
    assert planned(services=SERVICES, previous=read(first))["unchanged"] == ["chat"]
    said = "chat: a full prompt of 4096 tokens takes about 40 s at 100.0 tokens/s (measured 2026-11-24)"
    # Planned as before: that is one line.
    assert said not in planned(services=SERVICES, previous=read(first))["lines"]
    (other,) = read(first)
    plan = json.loads(base64.b64decode(other["content"]))
    plan[0]["source"] = "catalog"
    changed = dict(other, content=base64.b64encode(json.dumps(plan).encode()).decode())
    lines = planned(services=SERVICES, previous=[changed])["lines"]
    assert said in lines and "code: " + NOT_KNOWN in lines


def test_measurement_with_other_settings_is_ignored():
    first = planned(services=SERVICES)
    services = dict(SERVICES, chat=dict(SERVICES["chat"], slot_ctx_size=8192))
    assert "chat, code: " + NOT_KNOWN in planned(services=services, previous=read(first))["lines"]
