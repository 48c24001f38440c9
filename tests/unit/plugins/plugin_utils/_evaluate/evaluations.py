# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A cluster with models to evaluate, as playbooks have it."""

from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._intent.services import node_serving

MODELS = {
    name: {
        "aliases": [name.upper()],
        "quants": {"Q4": {"urls": [f"file:///{name}.gguf"], "file": name + ".gguf", "sha256": [name * 64]}},
    }
    for name in "abc"
}
SERVICES = {
    "chat": {"model": "a", "quant": "Q4", "head": "node1", "workers": "node2", "rpc_port": 50052, "port": 8000},
    "solo": {"model": "b", "quant": "Q4", "head": "node1,node2", "port": 8001},
    "many": {"kind": "router", "models": {"b": {"quant": "Q4"}, "c": {"quant": "Q4"}}, "head": "node2", "port": 8002},
    "embed": {"model": "c", "quant": "Q4", "head": "node2", "port": 8003, "embeddings": True},
    "off": {"model": "c", "quant": "Q4", "head": "node2", "port": 8004, "state": "stopped"},
}
BUILDS = {"default": {"version": "b11434", "accelerator": "cpu"}}
HOSTVARS = {
    f"node{at}": {"ansible_host": f"10.0.0.{at}", "llama_fabric_address": f"10.1.0.{at}", "llama_builds": BUILDS}
    for at in (1, 2, 3)
}
GROUPS = {"llama_nodes": ["node1", "node2"], "all": ["node1", "node2", "node3"]}
BEHIND = {**GROUPS, "llama_gateway": ["node3"]}


def heads(services=None, groups=None):
    """The heads of all nodes."""
    return [
        head
        for node in GROUPS["llama_nodes"]
        for head in node_serving(services or SERVICES, MODELS, node, groups or GROUPS, HOSTVARS, "/opt/models")["heads"]
    ]
