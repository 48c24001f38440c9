# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Draining at the gateway while playbooks change services, on simulated nodes (simulation.py)."""

import copy
import json
import shutil

import pytest
from ansible_collections.thefermisea.llama_cluster.tests.unit.playbooks.simulation import INVENTORY, deployment

UNIT = "llama-head-embed.service"
EMBED = {"model": "m", "quant": "F16", "head": "llama_nodes", "port": 8000}
BOTH = ["node1", "node2"]


def with_gateway(services):
    inventory = copy.deepcopy(INVENTORY)
    inventory["llama_gateway"] = {"hosts": {"gateway1": {"ansible_connection": "local", "ansible_become": False}}}
    inventory["llama_nodes"]["vars"]["llama_services"] = services
    return inventory


def one_of(tmp_path_factory, name, services):
    made = deployment(tmp_path_factory, name, "-e", json.dumps({"llama_services": services}))
    return made, with_gateway(services)


@pytest.fixture
def replicas(tmp_path_factory, tmp_path):
    return begun(tmp_path, *one_of(tmp_path_factory, "replicas_of_gateway", {"embed": EMBED}))


@pytest.fixture
def split(tmp_path_factory, tmp_path):
    """A service with a worker."""
    services = INVENTORY["llama_nodes"]["vars"]["llama_services"]
    return begun(tmp_path, *one_of(tmp_path_factory, "split_of_gateway", services))


def begun(tmp_path, made, inventory):
    cluster = made.copy(tmp_path)
    cluster.inventory = inventory
    cluster.node("gateway1").mkdir()
    return cluster


def steps(cluster):
    """Drains, stops, starts and questions in their order."""
    return [
        event.partition("gateway1: ")[2] or event
        for event in cluster.events
        if "gateway gateway1" in event or event.split()[1] in ("started", "stopped", "drain", "ask")
    ]


def in_order(events, *wanted):
    """Whether these are among the events, in this order."""
    rest = iter(events)
    return all(any(one == event for event in rest) for one in wanted)


def drains(cluster):
    path = cluster.node("gateway1") / "draining.json"
    return [(one["service"], one["node"]) for one in json.loads(path.read_text())["endpoints"]] if path.exists() else []


def rolling(first, second):
    return (
        "drains embed on %s for change" % first,
        "%s stopped %s" % (first, UNIT),
        "%s started %s" % (first, UNIT),
        "%s ask %s" % (first, UNIT),
        "drains nothing",
        "drains embed on %s for change" % second,
        "%s stopped %s" % (second, UNIT),
        "%s started %s" % (second, UNIT),
        "%s ask %s" % (second, UNIT),
        "drains nothing",
    )


@pytest.mark.parametrize(
    "playbook, arguments",
    [
        ("switch_model", ("-e", "service=embed quant=Q8_0")),
        ("upgrade", ("-e", "tag=b2")),
        ("site", ("-e", "tag=b2")),
    ],
)
def test_replicas_restart_one_after_another(replicas, playbook, arguments):
    replicas.done(playbook, *arguments)
    assert in_order(steps(replicas), *rolling(*BOTH)), steps(replicas)
    assert drains(replicas) == []


def test_rollback_restarts_one_replica_after_another(replicas):
    said = "restarted node after node behind the gateway in"
    assert said in replicas.done("upgrade", "-e", "tag=b2")
    assert said in replicas.done("rollback")
    assert in_order(steps(replicas), *rolling(*BOTH)), steps(replicas)
    assert drains(replicas) == []


def test_unchanged_run_drains_nothing(replicas):
    replicas.done("site")
    assert not [event for event in steps(replicas) if "drains" in event]


def test_second_replica_serves_when_the_first_fails(replicas):
    assert "rolled back, b1 serves again" in replicas.refused("upgrade", "-e", "tag=b2-mute")
    events = steps(replicas)
    assert "node2 stopped %s" % UNIT not in events, events
    assert drains(replicas) == []


def test_second_replica_keeps_its_model_on_failure(replicas):
    output = replicas.refused("switch_model", "-e", "service=embed quant=Q4_X")
    assert "the new model does not serve" in output and "the old one serves again" in output
    events = steps(replicas)
    assert in_order(events, "node1 stopped %s" % UNIT, "node1 started %s" % UNIT, "node1 ask %s" % UNIT), events
    assert "node2 stopped %s" % UNIT not in events, events
    assert "drains embed on node1 for change, embed on node2 for change" not in events, events
    assert drains(replicas) == []


def test_failed_site_leaves_nothing_draining(replicas):
    replicas.refused("site", "-e", "tag=b2-mute")
    assert "node2 stopped %s" % UNIT not in steps(replicas)
    assert drains(replicas) == []


def test_next_run_releases_endpoints_of_killed_run(replicas):
    path = replicas.node("gateway1") / "draining.json"
    left = [{"service": "embed", "node": "node1", "since": 1.0, "reason": "change"}]
    for playbook, arguments in (("site", ()), ("upgrade", ()), ("switch_model", ("-e", "service=embed quant=F16"))):
        path.write_text(json.dumps({"endpoints": left}))
        replicas.done(playbook, *arguments)
        assert drains(replicas) == [], playbook


def test_held_replica_drains_until_its_return(replicas):
    replicas.done("maintenance", "-e", "node=node2")
    assert in_order(
        steps(replicas),
        "drains embed on node2 for maintenance",
        "node2 drain %s for 300 s" % UNIT,
        "node2 stopped %s" % UNIT,
    ), steps(replicas)
    assert drains(replicas) == [("embed", "node2")]
    replicas.done("site")
    assert drains(replicas) == [("embed", "node2")]
    replicas.done("maintenance", "-e", "node=node2 state=return")
    assert in_order(steps(replicas), "node2 started %s" % UNIT, "node2 ask %s" % UNIT, "drains nothing")
    assert drains(replicas) == []


def test_head_of_held_worker_is_not_awaited(split):
    split.done("maintenance", "-e", "node=node2")
    assert drains(split) == [("chat", "node1")]
    split.done("site")
    assert drains(split) == [("chat", "node1")]
    split.done("maintenance", "-e", "node=node2 state=return")
    assert drains(split) == []


def test_stopped_service_drains_first(split):
    services = copy.deepcopy(INVENTORY["llama_nodes"]["vars"]["llama_services"])
    services["chat"]["state"] = "stopped"
    split.inventory = with_gateway(services)
    split.done("site")
    assert in_order(
        steps(split), "drains chat on node1 for change", "node1 stopped llama-head-chat.service", "drains nothing"
    ), steps(split)


def test_adoption_starts_all_nodes_at_once(tmp_path_factory, tmp_path):
    made, inventory = one_of(tmp_path_factory, "replicas_of_gateway", {"embed": EMBED})
    cluster = begun(tmp_path, made, inventory)
    for name in BOTH:
        (cluster.node(name) / "run" / UNIT).unlink()
    (cluster.node("node1") / "by-hand").write_text("head")
    cluster.done("adopt")
    assert [event for event in steps(cluster) if "started" in event] == [
        "%s started %s" % (name, UNIT) for name in BOTH
    ]
    assert drains(cluster) == []


def test_unchanged_node_delays_no_other(replicas):
    """The third node runs no task of site.yml that changes something."""
    shutil.copytree(replicas.node("node1"), replicas.node("node3"), symlinks=True)
    for folder in ("run", "etc/systemd/system"):
        shutil.rmtree(replicas.node("node3") / folder)
        (replicas.node("node3") / folder).mkdir()
    nodes = replicas.inventory["llama_nodes"]
    nodes["hosts"]["node3"] = {"llama_fabric_address": "10.0.0.3"}
    nodes["children"] = {"both": {"hosts": {name: {} for name in BOTH}}}
    nodes["vars"]["llama_services"] = {"embed": dict(EMBED, head="both")}
    replicas.done("site", "-e", "tag=b2")
    assert in_order(steps(replicas), *rolling(*BOTH)), steps(replicas)


def test_status_without_gateway_shows_the_nodes(replicas):
    (replicas.node("gateway1") / "lost").touch()
    output = replicas.refused("status")
    for node in BOTH:
        assert "embed on %s %s ready" % (node, node) in output, output


def test_replica_that_is_measured_drains_nothing_lasting(replicas):
    """An entry at the gateway would outlive a run that dies."""
    replicas.done("tune", "-e", "service=embed interrupt=true axes=ubatch_size")
    events = [event.partition("gateway1: ")[2] or event for event in replicas.events]
    (stops, *_others) = [event for event in events if event.startswith("node1 variant head")]
    assert in_order(events, f"node1 drain {UNIT} for 60 s", stops, f"node1 deployed {UNIT} on node1"), events
    assert not [event for event in events if event.startswith("drains ")] and drains(replicas) == []
    assert not [event for event in events if event.startswith("node2 ")]
