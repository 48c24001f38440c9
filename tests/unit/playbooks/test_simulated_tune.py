# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""tune.yml over simulated nodes, whose service is faster with settings that a test has planted."""

import copy
import json
import re

import pytest
from ansible_collections.thefermisea.llama_cluster.tests.unit.playbooks.simulation import (
    BRIEF,
    INVENTORY,
    SERVICE,
    deployment,
)

CHAT = ("-e", "service=chat")
AXIS = (*CHAT, "-e", "axes=ubatch_size")
MEASURED = (*AXIS, "-e", "interrupt=true")
# The planted optimum, of a change of the head only.
SERVICES = {"chat": dict(SERVICE, tensor_split={"node2": 30})}
BEST = {"--ubatch-size 256": 1.3, "--ubatch-size 128": 0.8}


@pytest.fixture(scope="module")
def deployed(tmp_path_factory):
    return deployment(tmp_path_factory, "tuned", "-e", json.dumps({"llama_services": SERVICES}), **BRIEF)


@pytest.fixture
def cluster(deployed, tmp_path):
    found = deployed.copy(tmp_path)
    found.inventory = copy.deepcopy(INVENTORY)
    found.inventory["llama_nodes"]["vars"]["llama_services"] = copy.deepcopy(SERVICES)
    (found.node("node1") / "planted.json").write_text(json.dumps(BEST))
    return found


def variants(cluster):
    return [event for event in cluster.events if " variant " in event or " deployed " in event]


def kept(cluster):
    """The measurements that were kept."""
    (path,) = cluster.folder.rglob(".reports/tune/*-chat.jsonl")
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_planted_optimum_is_found_and_deployed_serves(cluster):
    before = cluster.builds()
    output = cluster.done("tune", *MEASURED)
    assert "ubatch_size: 256" in output
    assert variants(cluster)[-1] == "node1 deployed llama-head-chat.service on node1"
    events = [event for event in cluster.events if " copy " not in event]
    assert events[-1] == "node1 ask llama-head-chat.service"
    assert cluster.builds() == before
    assert {one["name"] for one in kept(cluster)} >= {"as deployed", "ubatch_size 256", "ubatch_size 128"}
    assert not list(cluster.folder.glob("group_vars/all/tuned.yml"))


def test_write_puts_it_into_the_inventory(cluster):
    # A commit that speaks as the deployed release does.
    commit = {"repository": "https://example.org/llama.cpp", "commit": "a" * 40, "number": 1, "accelerator": "cpu"}
    cluster.inventory["llama_nodes"]["vars"]["llama_builds"] = {"default": commit}
    cluster.done("tune", *MEASURED, "-e", "write=true")
    (path,) = cluster.folder.rglob("group_vars/all/tuned.yml")
    assert "ubatch_size: 256" in path.read_text() and "build: b1\n" in path.read_text()


def test_minutes_hold_for_the_first_candidate(cluster):
    (cluster.node("node1") / "slow").write_text("")
    output = cluster.done("tune", *MEASURED, "-e", "minutes=0.1")
    assert "as deployed: not measured, the minutes were over before it was measured" in output
    assert len(kept(cluster)) == 1
    assert variants(cluster)[-1] == "node1 deployed llama-head-chat.service on node1"


def test_without_interrupt_nothing_is_asked(cluster):
    for arguments in (AXIS, (*MEASURED, "--check")):
        files = cluster.files()
        output = cluster.done("tune", *arguments)
        assert "as deployed; ubatch_size 128; ubatch_size 256" in output
        assert cluster.events == [] and cluster.files() == files
    assert "run with -e interrupt=true" in cluster.done("tune", *AXIS)


def test_absent_quant_is_no_candidate(cluster):
    output = cluster.done("tune", *CHAT, "-e", "axes=placement")
    headers = [event for event in cluster.events if event.startswith("node1 header of ")]
    assert headers and headers == cluster.events
    assert "as deployed" in output and "; quant " not in output


def test_worker_on_loopback_is_measured_and_gone(cluster):
    (cluster.node("node1") / "planted.json").write_text(json.dumps({"--rpc 127.0.0.1": 1.4}))
    output = cluster.done("tune", *CHAT, "-e", "axes=placement", "-e", "interrupt=true", "-e", "write=true")
    (start,) = {event for event in variants(cluster) if " beside " in event}
    assert start.endswith(": 127.0.0.1:50053 beside --host 127.0.0.1 --port 50053")
    assert {one["name"] for one in kept(cluster)} == {"as deployed", "only node1", "RPC on loopback"}
    assert not [one for one in kept(cluster) if one["error"]]
    assert "nothing is better than as deployed" in output
    assert not list(cluster.folder.rglob("llama-tune-*")) and not list(cluster.folder.rglob("tuned.yml"))


@pytest.mark.parametrize("event", ["node1 variant head on node1: *256*", "node1 ask llama-tune-head-chat.service"])
def test_failed_candidate_is_a_row(cluster, event):
    cluster.fail(event)
    cluster.done("tune", *MEASURED)
    failed = [one for one in kept(cluster) if one["error"]]
    assert len(failed) == 1 and "no space left" in failed[0]["error"]
    assert variants(cluster)[-1] == "node1 deployed llama-head-chat.service on node1"


@pytest.mark.parametrize(
    "file, text, said",
    [
        ("busy", "", "1 of 1 slots works on node1, an idle service is needed"),
        ("etc/llama-cluster/held.json", '{"since": "2026-11-28T05:00:00Z"}', "node1 is held for maintenance"),
    ],
)
def test_service_that_cannot_stop_is_refused(cluster, file, text, said):
    (cluster.node("node1") / file).write_text(text)
    before = cluster.builds()
    assert said in cluster.refused("tune", *MEASURED)
    assert variants(cluster) == [] and cluster.builds() == before


def test_trial_is_refused(cluster):
    trial = {"service": "chat", "quant": "Q8_0", "was": "F16", "until": "2100-01-01T00:00:00Z", "state": "running"}
    trial.update(at="", reason="", files={}, model="/opt/models/m.gguf")
    path = cluster.node("node1") / "var/lib/llama-cluster/trial-chat.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(trial))
    assert "chat: on trial with Q8_0" in cluster.refused("tune", *MEASURED)
    assert variants(cluster) == []


@pytest.mark.parametrize(
    "arguments, said",
    [
        ((), "no service given, one of chat is needed"),
        (("-e", "service=chta"), "service chta seen, one of chat is needed"),
        ((*CHAT, "-e", "goal=fast"), "goal fast seen, single, total or prompt is needed"),
        ((*CHAT, "-e", "axes=ubatch"), "axes ubatch seen"),
        ((*AXIS, "-e", "goal=total"), "goal total seen, a candidate with several slots is needed"),
        ((*CHAT, "-e", "minutes=1h"), "minutes '1h' seen, a number above 0 is needed"),
        ((*CHAT, "--limit", "node1"), "node1 seen, node1, node2 is needed to measure chat: run without --limit"),
        ((*CHAT, "--limit", "node2"), "node2 seen, a node of its head is needed to measure chat: run without"),
        ((*CHAT, "-e", "requests=x"), "requests 'x' seen, a whole number of 1 or more is needed"),
    ],
)
def test_mistakes_are_refused(cluster, arguments, said):
    assert said in cluster.refused("tune", *arguments)
    assert cluster.events == []


def test_stopped_service_is_refused(cluster):
    cluster.inventory["llama_nodes"]["vars"]["llama_services"]["chat"]["state"] = "stopped"
    assert "chat seen, a started service of one model that generates is needed" in cluster.refused("tune", *MEASURED)
    assert variants(cluster) == []


def test_reading_is_a_goal(cluster):
    (cluster.node("node1") / "planted.json").write_text(json.dumps({"--batch-size 512": 1.3}))
    output = cluster.done("tune", *CHAT, "-e", "goal=prompt", "-e", "axes=batch_size", "-e", "interrupt=true")
    assert re.search("batch_size 512: 1[.][23].* the tokens/s of reading of as deployed, finished", output), output


def test_other_configuration_than_the_inventory_is_refused(cluster):
    cluster.inventory["llama_nodes"]["vars"]["llama_services"]["chat"]["threads"] = 7
    assert "other settings than the inventory's seen" in cluster.refused("tune", *MEASURED)
    assert variants(cluster) == []


def test_killed_controller_leaves_what_the_next_run_ends(cluster, tmp_path):
    cluster.keep_moments(killed="node1 ask llama-tune-head-chat.service")
    cluster.done("tune", *MEASURED)
    left = cluster.copy(tmp_path / "left", "at-killed")
    output = left.done("status")
    assert "tune.yml measures it until 2026-11-28 05:00 UTC, then it serves as deployed" in output
