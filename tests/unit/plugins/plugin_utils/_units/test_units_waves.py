# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._intent.services import wanted_units
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._units.changes import unit_changes
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._units.waves import change_waves

NODES = ["node1", "node2", "node3"]
GROUPS = {"all": NODES, "both": NODES[:2]}
EMBED = {"embed": {"head": "all"}}


def unit(kind, service, stale=False, active="active", enabled=True):
    return {
        "name": "llama-%s-%s.service" % (kind, service),
        "kind": kind,
        "service": service,
        "stale": stale,
        "active_state": active,
        "sub_state": "running" if active == "active" else "dead",
        "installed": True,
        "enabled": enabled,
        "managed": True,
    }


def waves(units, services):
    """(the nodes that act, what drains, who has to answer) of each wave."""
    units = {node: units.get(node, []) for node in NODES}
    wanted = wanted_units(services, GROUPS)
    changes = {node: unit_changes(units, node, wanted) for node in NODES}
    return shown(change_waves(units, changes))


def shown(found):
    return [
        (
            [node for node, todo in wave["changes"].items() if any(v for k, v in todo.items() if k != "idle")],
            ["%(service)s on %(node)s" % one for one in wave["drain"]],
            {node: names for node, names in wave["answers"].items() if names},
        )
        for wave in found
    ]


def head(service):
    return ["llama-head-%s.service" % service]


def test_replicas_restart_one_after_the_other():
    assert waves({node: [unit("head", "embed", stale=True)] for node in NODES}, EMBED) == [
        ([node], ["embed on %s" % node], {node: head("embed")}) for node in NODES
    ]


def test_stopped_units_start_first():
    units = {node: [unit("head", "embed", stale=True)] for node in NODES[:2]}
    assert waves({**units, "node3": [unit("head", "embed", active="inactive")]}, EMBED) == [
        (["node3"], [], {"node3": head("embed")}),
        (["node1"], ["embed on node1"], {"node1": head("embed")}),
        (["node2"], ["embed on node2"], {"node2": head("embed")}),
    ]


def test_services_with_one_head_change_at_one_time():
    units = {"node1": [unit("head", "one", stale=True)], "node2": [unit("head", "two", stale=True)]}
    assert waves(units, {"one": {"head": "node1"}, "two": {"head": "node2"}}) == [
        (NODES[:2], ["one on node1", "two on node2"], {"node1": head("one"), "node2": head("two")})
    ]


def test_nodes_of_a_service_with_workers_change_together():
    services = {**EMBED, "chat": {"head": "node1", "workers": "node2"}}
    units = {node: [unit("head", "embed", stale=True)] for node in NODES}
    units["node1"].append(unit("head", "chat"))
    units["node2"].append(unit("rpc", "chat", stale=True))
    assert waves(units, services) == [
        (
            NODES[:2],
            ["chat on node1", "embed on node1", "embed on node2"],
            {"node1": head("embed") + head("chat"), "node2": head("embed")},
        ),
        (["node3"], ["embed on node3"], {"node3": head("embed")}),
    ]


def test_a_service_with_workers_that_stays_joins_nothing():
    services = {**EMBED, "chat": {"head": "node1", "workers": "node2"}}
    units = {node: [unit("head", "embed", stale=True)] for node in NODES}
    units["node1"].append(unit("head", "chat"))
    units["node2"].append(unit("rpc", "chat"))
    found = waves(units, services)
    assert [wave[1] for wave in found] == [["embed on %s" % node] for node in NODES]


def test_head_with_held_worker_need_not_answer():
    units = {
        "node1": [unit("head", "chat", active="inactive")],
        "node2": [unit("rpc", "chat", active="inactive", enabled=False)],
    }
    assert waves(units, {"chat": {"head": "node1", "workers": "node2"}}) == [(["node1"], [], {})]


def test_leaving_replica_drains_and_stays_down():
    units = {node: [unit("head", "embed")] for node in NODES}
    found = waves(units, {"embed": {"head": "both"}})
    assert [one for wave in found for one in wave[1]] == ["embed on node3"]
    assert all(not wave[2] for wave in found)


def test_every_change_is_in_one_wave():
    units = {node: [unit("head", "embed", stale=True), unit("head", "old")] for node in NODES}
    changes = {node: unit_changes(units, node, wanted_units(EMBED, GROUPS)) for node in NODES}
    found = change_waves(units, changes)
    for node in NODES:
        acted = [wave["changes"][node] for wave in found if wave["changes"][node]["heads_down"]]
        assert acted == [changes[node]]


def test_endpoints_lost_by_a_hold_drain():
    units = {
        "node1": [unit("head", "chat"), unit("head", "embed")],
        "node2": [unit("rpc", "chat"), unit("head", "embed")],
        "node3": [unit("head", "embed")],
    }
    found = shown(change_waves(units, held="node2"))
    assert sorted(one for wave in found for one in wave[1]) == ["chat on node1", "embed on node2"]
