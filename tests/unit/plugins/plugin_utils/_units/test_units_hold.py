# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._units.changes import hold_changes

NOTHING = {"heads_down": [], "held": [], "unwanted": [], "workers_restart": [], "workers_start": [], "heads_up": []}


def unit(kind, service, sub_state="running", installed=True, managed=True, enabled=True):
    return {
        "name": "llama-%s-%s.service" % (kind, service),
        "kind": kind,
        "service": service,
        "sub_state": sub_state,
        "installed": installed,
        "managed": managed,
        "enabled": enabled,
    }


# Units of a node that node_facts returns beside the units of services.
OTHERS = [
    {"name": "llama-%s.service" % name, "installed": True, "managed": name in ("watchdog", "firewall"), "enabled": True}
    for name in ("firewall", "head", "rpc", "watchdog")
]
NODES = {
    "node1": [*OTHERS, unit("head", "chat"), unit("head", "embed"), unit("rpc", "code")],
    "node2": [*OTHERS, unit("rpc", "chat"), unit("head", "code")],
    "node3": OTHERS,
}


def test_all_of_the_node_stops_and_stays_down():
    assert hold_changes(NODES, "node2", "node2") == dict(
        NOTHING, heads_down=["llama-head-code.service"], held=["llama-rpc-chat.service", "llama-head-code.service"]
    )


def test_heads_of_other_nodes_wait_for_held_worker():
    found = hold_changes(NODES, "node1", "node2")
    assert found == dict(NOTHING, heads_down=["llama-head-chat.service"], heads_up=["llama-head-chat.service"])
    # The worker of a service whose head is on the held node has nothing to do, and neither has another node.
    assert hold_changes(NODES, "node3", "node2") == NOTHING


def test_a_head_that_waits_already_is_left_waiting():
    nodes = dict(NODES, node1=[unit("head", "chat", sub_state="start-pre")])
    assert hold_changes(nodes, "node1", "node2") == dict(NOTHING, heads_up=["llama-head-chat.service"])


def test_process_without_unit_is_not_held():
    nodes = {"node1": [unit("head", "chat")], "node2": [unit("rpc", "chat", installed=False)]}
    assert hold_changes(nodes, "node2", "node2") == NOTHING
    assert hold_changes(nodes, "node1", "node2") == NOTHING


def test_head_of_a_held_node_stays_down():
    nodes = dict(NODES, node1=[unit("head", "chat", sub_state="dead", enabled=False)])
    assert hold_changes(nodes, "node1", "node2") == NOTHING


def test_unmanaged_units_keep_running():
    nodes = {"node1": [unit("head", "chat")], "node2": [unit("rpc", "chat", managed=False)]}
    assert hold_changes(nodes, "node2", "node2") == NOTHING
    assert hold_changes(nodes, "node1", "node2") == NOTHING
