# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Projectors and adapters in the plan."""

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._cluster_plan.plan import memory_plan
from ansible_collections.thefermisea.llama_cluster.tests.unit.mixture import DENSE, GROUPS, HEADERS, MODELS, node

SERVICE = {"model": "big", "quant": "Q4_K_M", "head": "node1", "port": 8000, "slot_ctx_size": 4096}
FILES = {"mmproj": {"urls": ["https://a.b/p.gguf"]}, "loras": {"tone": {"urls": ["https://a.b/t.gguf"]}}}
SEEING = {"kind": "projector", "architecture": "", "whole": 800 << 20, "blocks": [], "entry": 0}
SEEING.update(compute=100 << 20, compute_plain=900 << 20)
TONE = {"kind": "adapter", "architecture": DENSE.architecture, "whole": 640 << 20, "blocks": [10 << 20] * 64}
TONE.update(entry=0, compute=0, compute_plain=0)


def planned(nodes=None, groups=None, previous=(), **settings):
    seeing, tone = settings.pop("seeing", SEEING), settings.pop("tone", TONE)
    headers = [{"item": {"model": "big", "quant": "mmproj"}, "companion": seeing, "msg": "no model"}]
    headers += [{"item": {"model": "big", "quant": "lora tone"}, "companion": tone, "msg": "no model"}]
    return memory_plan(
        {"chat": {**SERVICE, **settings}},
        {**MODELS, "big": {**MODELS["big"], **FILES}},
        groups or GROUPS,
        nodes or {"node1": node(cards=(40000,))},
        [*HEADERS, *headers],
        {},
        previous,
        True,
    )


def rows(found):
    return {(row["node"], row["device"]): row for row in found["services"]["chat"][0]["devices"]}


def weights(found):
    return {place: row["weights_mib"] for place, row in rows(found).items()}


def test_projector_lies_on_first_card():
    with_it, without = planned(), planned(mmproj=False)
    card = ("node1", "GPU0")
    assert weights(with_it)[card] - weights(without)[card] == 800
    assert rows(with_it)[card]["compute_mib"] - rows(without)[card]["compute_mib"] == 100
    assert "  with its projector, 900 MiB" in with_it["lines"]
    plain = planned(flash_attn="off")
    assert rows(plain)[card]["compute_mib"] - rows(planned(flash_attn="off", mmproj=False))[card]["compute_mib"] == 900


def test_projector_in_main_memory_has_its_row():
    found, without = planned(mmproj="cpu"), planned(mmproj=False)
    card, main = ("node1", "GPU0"), ("node1", "main")
    assert weights(found)[card] == weights(without)[card]
    assert weights(found)[main] >= 800 and main not in weights(without)


def test_projector_without_room_is_refused():
    tight = {"node1": node(cards=(21000,))}
    assert planned(tight, mmproj=False)["refused"] == []
    assert planned(tight, seeing=dict(SEEING, whole=2000 << 20))["refused"]


def test_split_leaves_room_for_projector():
    two = {"node1": node(cards=(11700, 11700))}
    found, without = (rows(planned(two, **keys)) for keys in ({}, {"mmproj": False}))
    assert found["node1", "GPU0"]["layers"] < without["node1", "GPU0"]["layers"]
    assert all(row["total_mib"] <= row["free_mib"] for row in found.values())


def test_projector_of_split_service_stays_with_head():
    two, groups = {"node1": node(cards=(14000,)), "node2": node2()}, {**GROUPS, "llama_nodes": ["node1", "node2"]}
    groups.update(all=["node1", "node2"], node2=["node2"])
    found, without = (planned(two, groups, workers="node2", rpc_port=50052, **keys) for keys in ({}, {"mmproj": False}))
    assert weights(found) == weights(without)
    host, bare = (one["services"]["chat"][0]["host"]["weights_mib"] for one in (found, without))
    assert host - bare == 800


def node2():
    one = node(cards=(14000,))
    return {**one, "devices": [dict(device, node="node2") for device in one["devices"]], "main": {}}


def test_adapter_lies_with_its_layers():
    two = {"node1": node(cards=(14000, 14000))}
    found, without = (planned(two, mmproj=False, **keys) for keys in ({"lora": {"tone": 1}}, {}))
    more = {place: size - weights(without)[place] for place, size in weights(found).items()}
    layers = {place: row["layers"] for place, row in rows(found).items()}
    assert {place: round(size, -1) for place, size in more.items()} == {
        place: 10 * count for place, count in layers.items()
    }
    assert "  with its adapter tone, 640 MiB" in found["lines"]


@pytest.mark.parametrize(
    "given, words",
    [
        ({"tone": dict(TONE, architecture="gemma3")}, "chat.lora.tone: an adapter for 64 layers of gemma3 seen, one "),
        ({"tone": dict(TONE, blocks=[1] * 65)}, "chat.lora.tone: an adapter for 65 layers of qwen3 seen, one for the "),
        ({"tone": SEEING}, "chat.lora.tone: the file of a projector seen, another is needed"),
        ({"seeing": TONE}, "chat.mmproj: the file of an adapter seen, another is needed"),
        ({"seeing": None}, "mmproj of big: no model"),
    ],
)
def test_wrong_file_beside_model_is_refused(given, words):
    assert any(words in one for one in planned(lora={"tone": 1}, **given)["refused"])
