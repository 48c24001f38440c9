# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An inventory's intent without a mistake, for tests that change it."""

import copy

from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._intent import check

GROUPS = {
    "all": ["node1", "node2", "node3", "ctl"],
    "llama_nodes": ["node1", "node2", "node3"],
    "llama_head": ["node1"],
    "llama_rpc": ["node2", "node3"],
}
HOSTVARS = {
    "node1": {"ansible_host": "10.0.0.31", "llama_fabric_address": "10.100.0.31"},
    "node2": {"ansible_host": "10.0.0.32", "llama_fabric_address": "10.100.0.32"},
    "node3": {"ansible_host": "10.0.0.33", "llama_fabric_address": "10.100.0.33"},
    "ctl": {},
}
MODELS = {
    "big": {
        "repo": "someone/Big-GGUF",
        "aliases": ["Big"],
        "quants": {
            "Q8_0": {"files": ["Big.Q8_0.gguf.part1of2", "Big.Q8_0.gguf.part2of2"]},
            "Q4_K_M": {"urls": ["https://files.example/Big.Q4_K_M.gguf?x=1"]},
        },
    }
}
SERVICES = {
    "reasoning": {
        "primary": True,
        "model": "big",
        "quant": "Q8_0",
        "head": "llama_head",
        "workers": "llama_rpc",
        "port": 8000,
        "rpc_port": 50052,
        "ctx_size": 4096,
        "parallel": 1,
        "threads": 40,
        "tensor_split": {"node1": 26, "node2": 27, "node3": 27},
        "launcher": "systemd",
    }
}


def mistakes(services=None, models=None, groups=None, hostvars=None):
    return check.intent_errors(services or SERVICES, models or MODELS, groups or GROUPS, hostvars or HOSTVARS)


def changed(**settings):
    services = copy.deepcopy(SERVICES)
    for key, value in settings.items():
        if value is None:
            del services["reasoning"][key]
        else:
            services["reasoning"][key] = value
    return services
