# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The notes of a plan on a valid inventory."""

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._intent.notes import intent_notes
from ansible_collections.thefermisea.llama_cluster.tests.unit import intents

GROUPS = dict(intents.GROUPS, llama_gateway=["ctl"])
MODELS = {
    **intents.MODELS,
    "small": {"repo": "some/small", "quants": {"Q8_0": {"files": ["s.gguf"]}}},
    "texts": {"repo": "some/texts", "embeddings": True, "quants": {"Q8_0": {"files": ["t.gguf"]}}},
    "ranks": {"repo": "some/ranks", "reranking": True, "quants": {"Q8_0": {"files": ["r.gguf"]}}},
}
SERVICES = {
    "big": intents.SERVICES["reasoning"],
    "fast": {"model": "small", "quant": "Q8_0", "head": "node2", "port": 8001},
    "embed": {"model": "texts", "quant": "Q8_0", "head": "node3", "port": 8002, "slot_ctx_size": 4096},
    "rank": {"model": "ranks", "quant": "Q8_0", "head": "node3", "port": 8003, "slot_ctx_size": 4096},
}


def notes(routes=None, tasks=None, on="ctl", gateway=True, facts=None, **services):
    """services: keys of a service, by its name; facts: of a host."""
    known = {name: dict(one, **services.get(name, {})) for name, one in SERVICES.items()}
    known = {name: {key: given for key, given in one.items() if given is not None} for name, one in known.items()}
    hostvars = dict(intents.HOSTVARS, ctl={"ansible_host": "10.0.0.5"})
    hostvars[on] = dict(hostvars[on], **(facts or {}))
    routes = dict(routes or {}, tasks=tasks or {})
    return intent_notes(known, MODELS, GROUPS if gateway else intents.GROUPS, hostvars, routes)


def test_nothing_is_noted_of_what_goes_together():
    tasks = {"chat": "big", "code": "small", "embed": "texts", "search-index": "texts", "rerank": "ranks"}
    assert notes({"default": "big"}, tasks, fast={"fallback": "big", "tier": "fast"}) == []
    assert notes(tasks={"rag": "small"}) == notes(gateway=False) == []


@pytest.mark.parametrize(
    ("task", "model", "words"),
    [
        ("chat", "texts", "which answers only /v1/embeddings"),
        ("code", "ranks", "which answers only /v1/rerank"),
        ("embed", "small", "which answers only chats and completions"),
        ("embeddings", "ranks", "which answers only /v1/rerank"),
        ("rerank", "small", "which answers only chats and completions"),
        ("rerank", "texts", "which answers only /v1/embeddings"),
    ],
)
def test_task_to_other_kind_of_model_is_noted(task, model, words):
    (note,) = notes(tasks={task: model})
    assert note.startswith("llama_routes.tasks.%s leads to %s of " % (task, model)) and words in note


def test_what_leads_to_a_stopped_service_is_noted():
    stopped = {"state": "stopped"}
    (note,) = notes({"default": "big"}, big=stopped)
    assert note == "llama_routes.default leads to big of big, which is stopped: start it, or name another model"
    (note,) = notes(tasks={"code": "small"}, fast=stopped)
    assert note.startswith("llama_routes.tasks.code leads to small of fast, which is stopped")
    (note,) = notes(fast=stopped, big={"fallback": "fast"})
    assert note.startswith("llama_services.big.fallback: fast is stopped")
    # Another one answers.
    assert notes(tasks={"code": "small"}, fast=dict(stopped, fallback="big")) == []
    assert (
        len(notes(tasks={"code": "small"}, fast=dict(stopped, fallback="big"), big=dict(stopped, fallback="fast"))) == 1
    )


def test_slots_that_no_text_may_fill_are_noted():
    (note,) = notes(embed={"ubatch_size": 512})
    assert note == (
        "llama_services.embed: a text of texts may have 512 tokens, the size of a micro-batch: leave out ubatch_size "
        "and batch_size for texts of 4096"
    )
    (note,) = notes(rank={"slot_ctx_size": None, "ctx_size": None})
    assert note.endswith("a text of ranks may have 512 tokens, the size of a micro-batch: set slot_ctx_size")
    assert notes(embed={"ubatch_size": 512, "pooling": "last"}) == notes(embed={"ubatch_size": 4096}) == []


def test_everybody_is_noted():
    for variable in ("llama_clients", "gateway_clients"):
        (note,) = notes(facts={variable: ["0.0.0.0/0"]})
        assert (
            note == "%s: 0.0.0.0/0 lets in everybody who reaches the node: name the networks of your clients" % variable
        )
    assert notes(facts={"llama_clients": ["10.0.0.0/8", "8.8.8.8"]}) == []


def test_what_stays_plain_beside_a_certificate_is_noted():
    tls = {"gateway_tls": {"certificate": "/c", "key": "/k"}}
    assert notes(facts=tls) == []
    (note,) = notes(facts=tls, fast={"tier": "fast"})
    assert note.startswith("gateway_tiers: the ports of tiers (fast 8080) stay plain HTTP beside TLS")


@pytest.mark.parametrize(
    ("card", "old"),
    [
        ("Tesla P40", True),
        ("Tesla V100S-PCIE-32GB", True),
        ("NVIDIA GeForce GTX 1080 Ti", True),
        ("Quadro P4000", True),
        ("Quadro GV100", True),
        ("NVIDIA TITAN Xp", True),
        ("Tesla T4", False),
        ("NVIDIA GeForce GTX 1660 Ti", False),
        ("Quadro RTX 4000", False),
        ("NVIDIA A40", False),
        ("NVIDIA TITAN RTX", False),
    ],
)
def test_cards_that_need_an_older_toolkit_are_noted(card, old):
    facts = {"llama_devices": [{"name": card, "memory_mib": 24000}]}
    found = notes(on="node3", facts=facts)
    assert [note.startswith("%s: CUDA 13 has no code for it" % card) for note in found] == [True] * old
    for build in ({"accelerator": "cpu"}, {"cuda_home": "/usr/local/cuda-12.8"}):
        assert notes(on="node3", facts=dict(facts, llama_builds={"default": build})) == []
