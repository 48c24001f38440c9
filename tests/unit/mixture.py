# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One node with a card, and a mixture of experts that is too large for it, for tests of plans."""

import json

from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._model import gguf, memory
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._plan import devices
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._cluster_plan.plan import memory_plan
from ansible_collections.thefermisea.llama_cluster.tests.unit import model_files
from ansible_collections.thefermisea.llama_cluster.tests.unit.three_nodes import FACTS

GROUPS = {"all": ["node1"], "llama_nodes": ["node1"]}
SERVICE = {"model": "moe", "quant": "Q4_K_M", "head": "node1", "port": 8000, "slot_ctx_size": 4096}


def shape_of(model):
    data = model().header()
    return memory.read_shape(gguf.read_header(lambda offset, length: data[offset : offset + length], "m.gguf"))


SHAPE = shape_of(model_files.qwen3_235b)
SIZE = sum(SHAPE.block_bytes) + SHAPE.input_bytes + SHAPE.output_bytes
MODELS = {
    "moe": {
        "repo": "some/moe",
        # A dense model, without experts.
        "header": FACTS,
        "quants": {"Q4_K_M": {"files": ["m4"], "size": SIZE}, "Q8_0": {"files": ["m8"], "size": 2 * SIZE}},
    },
    "big": {"repo": "some/big", "header": FACTS, "quants": {"Q4_K_M": {"files": ["b"], "size": 20 * 10**9}}},
}
DENSE = shape_of(model_files.qwen3_32b)
HEADERS = [
    {"item": {"model": model, "quant": "Q4_K_M"}, "shape": json.loads(json.dumps(shape.as_dict()))}
    for model, shape in (("moe", SHAPE), ("big", DENSE))
]


def node(memory_mib=257000, cards=(32510,)):
    """Its devices; without cards its main memory."""
    described = [{"memory_mib": size} for size in cards] or [{"main": True, "memory_mib": memory_mib}]
    found = devices.as_dicts(devices.of_inventory("node1", described, 1024))
    main = devices.main_memory("node1", {"memory_mib": memory_mib}, 1024).as_dict() if memory_mib else {}
    return {"devices": found, "main": main, "cores": 40}


def other_words():
    """The plan of a service whose draft model has other tokens."""
    other = dict(HEADERS[1], shape=dict(HEADERS[1]["shape"], n_vocab=152192))
    service = dict(SERVICE, model="big", draft={"model": "moe", "quant": "Q4_K_M"})
    nodes = {"node1": node(cards=(300000,))}
    return memory_plan({"chat": service}, MODELS, GROUPS, nodes, [HEADERS[0], other], "b11434")


def planned(memory_mib=257000, cards=(32510,), previous=(), services=None, headers=HEADERS, complete=False, **keys):
    """The plan of a service with these keys."""
    return memory_plan(
        services or {"chat": dict(SERVICE, **keys)},
        MODELS,
        GROUPS,
        {"node1": node(memory_mib, cards)},
        headers,
        {},
        previous,
        complete,
    )
