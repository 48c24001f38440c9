# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Settings that were measured, in every reader of services."""

import inspect

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.filter import intent, reports, units
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._intent.notes import intent_notes
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._intent.tuned import TUNED, services_tuned
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._tune.grid import AXES
from ansible_collections.thefermisea.llama_cluster.tests.unit import intents

MEASURED = {"at": "2026-11-28T05:00:00Z", "build": "b11434", "model": "big Q8_0", "gain": 1.3}


def hostvars(**tuned):
    return {node: dict(facts, llama_tuned=tuned) for node, facts in intents.HOSTVARS.items()}


def filters():
    return {**intent.FilterModule().filters(), **reports.FilterModule().filters(), **units.FilterModule().filters()}


def notes(services, tuned, **build):
    facts = hostvars(reasoning=tuned)
    for one in facts.values():
        one["llama_builds"] = {"default": {"version": "b11434", **build}}
    services = services_tuned(services, facts["node1"]["llama_tuned"])
    return intent_notes(services, intents.MODELS, intents.GROUPS, facts, {})


def test_only_unset_keys_are_filled():
    tuned = {"reasoning": {"threads": 20, "ubatch_size": 128, "measured": MEASURED}}
    found = services_tuned(intents.SERVICES, tuned)["reasoning"]
    assert (found["threads"], found["ubatch_size"], "measured" in found) == (40, 128, False)
    assert services_tuned(services_tuned(intents.SERVICES, tuned), tuned) == {"reasoning": found}
    assert services_tuned(intents.SERVICES, None) == intents.SERVICES


def test_other_spellings_count_as_set():
    tuned = {"reasoning": {"cache": "q8_0", "slot_ctx_size": 8192, "parallel": 3}}
    services = intents.changed(cache_type_k="f16", parallel=None)
    # Slots of a context that the inventory gives would be smaller.
    assert services_tuned(services, tuned) == services
    found = services_tuned(intents.changed(parallel=None, ctx_size=None), tuned)["reasoning"]
    assert (found["cache"], found["slot_ctx_size"], found["parallel"]) == ("q8_0", 8192, 3)


def test_readers_see_it():
    tuned = {"reasoning": {"ubatch_size": 128, "measured": MEASURED}}
    serving = filters()["node_serving"](
        intents.SERVICES, intents.MODELS, "node1", intents.GROUPS, hostvars(**tuned), "/opt/models"
    )
    args = serving["heads"][0]["args"]
    assert args[args.index("--ubatch-size") + 1] == "128"
    workers = filters()["node_rpc"](
        intents.changed(threads=None), "node2", intents.GROUPS, hostvars(reasoning={"threads": 20})
    )
    assert workers["workers"][0]["threads"] == 20


def test_each_filter_of_services_and_hostvars_is_filled():
    for name, function in filters().items():
        inner, takes = function, {"services", "hostvars"} <= inspect.signature(function).parameters.keys()
        while hasattr(inner, "__wrapped__"):
            inner, above = inner.__wrapped__, inner
        assert not takes or above.__name__ == name and above.__code__.co_name == "filled", name


@pytest.mark.parametrize(
    ("tuned", "sentence"),
    [
        ([], "llama_tuned: [] seen, a map is needed: write a service's name with its keys below it"),
        ({"reasoning": {"thread": 4}}, "llama_tuned.reasoning.thread: unknown key, did you mean threads?"),
        (
            {"reasoning": {"threads": 0}},
            "llama_tuned.reasoning.threads: 0 seen, at least 1 is needed: raise it or remove the key",
        ),
        ({"reasoning": 4}, "llama_tuned.reasoning: 4 seen, a map is needed: write its keys below it"),
        (
            {"reasoning": {"ubatch_size": 128, "measured": {"cards": 5}}},
            "llama_tuned.reasoning.measured.cards: 5 seen, a list of strings is needed: correct it",
        ),
    ],
)
def test_mistakes_are_refused(tuned, sentence):
    facts = {node: dict(one, llama_tuned=tuned) for node, one in intents.HOSTVARS.items()}
    assert intents.mistakes(hostvars=facts) == [sentence]
    assert services_tuned(intents.SERVICES, tuned) == intents.SERVICES


def test_mistake_of_a_filled_key_stands_there():
    facts = hostvars(reasoning={"draft": {"type": "ngram-mo"}})
    check = filters()["intent_errors"]
    (sentence,) = check(intents.SERVICES, intents.MODELS, intents.GROUPS, facts)
    assert sentence.startswith("llama_tuned.reasoning.draft.type: 'ngram-mo' seen, one of ")
    (sentence,) = check(intents.changed(draft={"type": "ngram"}), intents.MODELS, intents.GROUPS, facts)
    assert sentence.startswith("llama_services.reasoning.draft.type: 'ngram' seen")


def test_only_what_tune_varies_is_known():
    for key, value in (("port", 8001), ("state", "stopped")):
        (sentence,) = intents.mistakes(hostvars=hostvars(reasoning={key: value}))
        assert sentence.startswith(f"llama_tuned.reasoning.{key}: unknown key")
    assert {axis.name for axis in AXES} | {"ctx_size"} == set(TUNED)


def test_key_set_twice_is_noted():
    (note,) = notes(intents.SERVICES, {"threads": 20, "ubatch_size": 128, "measured": MEASURED})
    assert note == (
        "llama_services.reasoning.threads: 40 seen, which is used, beside threads 20 of llama_tuned, which was "
        "measured: drop one of both"
    )
    assert notes(intents.changed(threads=20), {"threads": 20, "measured": MEASURED}) == []
    (note,) = notes(intents.SERVICES, {"slot_ctx_size": 8192})
    assert note.startswith("llama_services.reasoning.ctx_size: 4096 seen, which is used, beside slot_ctx_size 8192")


def test_stale_measurement_is_noted():
    assert notes(intents.SERVICES, {"ubatch_size": 128, "measured": MEASURED}) == []
    tuned = {"ubatch_size": 128, "measured": dict(MEASURED, model="big Q4_K_M")}
    (note,) = notes(intents.SERVICES, tuned, version="b11500")
    assert note == (
        "llama_tuned.reasoning: build b11434 then, b11500 now, model big Q4_K_M then, big Q8_0 now: measure it again "
        "with tune.yml -e service=reasoning"
    )


@pytest.mark.parametrize(
    ("name", "step"),
    [("reasonin", ", did you mean reasoning?"), ("other", ": rename it there, or remove it")],
)
def test_entry_of_a_renamed_service_is_noted(name, step):
    facts = {node: dict(one, llama_tuned={name: {"threads": 4}}) for node, one in intents.HOSTVARS.items()}
    assert intents.mistakes(hostvars=facts) == []
    (note,) = intent_notes(intents.SERVICES, intents.MODELS, intents.GROUPS, facts, {})
    assert note == f"llama_tuned.{name}: is not in llama_services, nothing uses it{step}"


def test_service_on_other_nodes_is_stale():
    tuned = {"ubatch_size": 128, "measured": dict(MEASURED, nodes=["node1", "node3"])}
    (note,) = notes(intents.SERVICES, tuned)
    assert note.startswith("llama_tuned.reasoning: nodes node1, node3 then, node1, node2, node3 now: measure it again")


def test_what_tune_writes_is_not_stale():
    facts = {node: dict(one, llama_devices=[{"name": "RTX 3090"}, {"main": True}]) for node, one in hostvars().items()}
    about = filters()["tune_about"](intents.SERVICES, "reasoning", intents.MODELS, intents.GROUPS, facts)
    assert about["cards"] == ["RTX 3090"] * 3 and about["model"] == "big Q8_0"
    for one in facts.values():
        one["llama_tuned"] = {"reasoning": {"ubatch_size": 128, "measured": about}}
    services = services_tuned(intents.SERVICES, facts["node1"]["llama_tuned"])
    assert intent_notes(services, intents.MODELS, intents.GROUPS, facts, {}) == []
    facts["node2"]["llama_devices"] = [{"name": "RTX 4090"}]
    (note,) = intent_notes(services, intents.MODELS, intents.GROUPS, facts, {})
    assert "cards RTX 3090, RTX 3090, RTX 3090 then, RTX 3090, RTX 3090, RTX 4090 now" in note
