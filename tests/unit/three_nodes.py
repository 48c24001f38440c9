# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Three nodes with a card each, some models and a service, for tests of plans."""

import base64
import json

from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._plan import devices
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._plan.stored import stored
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._cluster_plan.plan import memory_plan

GROUPS = {
    "all": ["node1", "node2", "node3"],
    "llama_nodes": ["node1", "node2", "node3"],
    "llama_head": ["node1"],
    "llama_rpc": ["node2", "node3"],
}
FACTS = {
    "architecture": "qwen3",
    "block_count": 80,
    "context_length": 40960,
    "embedding_length": 8192,
    "feed_forward_length": 29568,
    "head_count": 64,
    "head_count_kv": 8,
    "key_length": 128,
    "vocab_size": 151936,
}
SMALL = dict(FACTS, block_count=12, embedding_length=2048, feed_forward_length=8192, head_count=16, vocab_size=32000)
MODELS = {
    "big": {
        "repo": "some/big",
        "header": FACTS,
        "quants": {"Q8_0": {"files": ["b8"], "size": 77 * 10**9}, "Q4_K_M": {"files": ["b4"], "size": 47 * 10**9}},
    },
    "small": {"repo": "some/small", "header": SMALL, "quants": {"Q8_0": {"files": ["s8"], "size": 15 * 10**9}}},
    "unknown": {"repo": "some/unknown", "quants": {"Q8_0": {"files": ["u8"]}}},
}
CHAT = {
    "model": "big",
    "quant": "Q4_K_M",
    "head": "llama_head",
    "workers": "llama_rpc",
    "port": 8000,
    "rpc_port": 50052,
    "ctx_size": 8192,
    "parallel": 1,
}
FAST = {
    "kind": "router",
    "head": "node3",
    "models": {"small": "Q8_0"},
    "models_max": 1,
    "port": 8080,
    "ctx_size": 4096,
    "parallel": 1,
}


def nodes(memory=32510, cores=40, **changed):
    found = {
        name: {"devices": described(name, {"name": "card", "memory_mib": memory}), "cores": cores}
        for name in GROUPS["all"]
    }
    found.update(changed)
    return found


def main_memory(node, memory=8192):
    return {"devices": devices.as_dicts(devices.of_node(node, [], memory, 1024)), "cores": 2}


def plan(services, nodes=None, headers=(), previous=(), build="b11434", **builds):
    """builds: more of them."""
    builds = {"default": {"version": build}, **builds}
    return memory_plan(services, MODELS, GROUPS, nodes or globals()["nodes"](), headers, builds, previous)


def kept(planned, name="chat"):
    """As preflight reads back what head_server wrote."""
    text = json.dumps(stored(planned["services"][name]))
    return [{"item": name, "content": base64.b64encode(text.encode()).decode()}]


def chat(**changes):
    return {"chat": {key: value for key, value in dict(CHAT, **changes).items() if value is not None}}


def cards(node, *sizes):
    return described(node, *[{"memory_mib": size} for size in sizes])


def described(node, *cards):
    return devices.as_dicts(devices.of_inventory(node, cards, 1024))
