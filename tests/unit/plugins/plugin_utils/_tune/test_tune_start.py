# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How candidates are started."""

from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._tune.grid import tune_candidates
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._tune.race import BASELINE
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._tune.start import tune_start
from ansible_collections.thefermisea.llama_cluster.tests.unit.three_nodes import GROUPS, MODELS, chat, main_memory

BUILDS = {"default": {"version": "b11434"}}
HOSTVARS = {
    name: {"llama_fabric_address": "10.1.0.%d" % index, "llama_builds": BUILDS}
    for index, name in enumerate(GROUPS["all"], 1)
}


def starts(axes, **changes):
    memory = {name: main_memory(name, 64000) for name in GROUPS["all"]}
    services = chat(model="small", quant="Q8_0", force_split=True, **changes)
    found = tune_candidates(services, "chat", MODELS, GROUPS, HOSTVARS, memory, [], BUILDS, [], axes)
    return tune_start(found, "chat", "node1", MODELS, GROUPS, HOSTVARS, "/m")


def option(words, flag):
    return words[words.index(flag) + 1]


def test_worker_on_loopback_is_beside_its_head():
    found = starts(["placement"], threads=2)
    one = found["RPC on loopback"]
    assert one["worker"] == ["--host", "127.0.0.1", "--port", "50053", "--threads", "2"]
    assert one["rpc_endpoints"] == ["127.0.0.1:50053"] and one["workers"] == {}
    assert option(one["arguments"], "--rpc") == "127.0.0.1:50053" and "--tensor-split" not in one["arguments"]
    assert option(found[BASELINE]["arguments"], "--rpc") == "10.1.0.2:50052,10.1.0.3:50052"
    assert {name for name, other in found.items() if other["worker"]} == {"RPC on loopback"}


def test_only_changed_workers_are_started():
    found = starts(["threads"], threads=2)
    assert found[BASELINE]["workers"] == {}
    assert found["threads 1"]["workers"]["node3"][-2:] == ["--threads", "1"]
