# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The report of verify.yml on simulated nodes: files of localhost lie below node1, earlier results in a real
directory."""

import copy
import json

import pytest
from ansible_collections.thefermisea.llama_cluster.tests.unit.playbooks.simulation import INVENTORY, deployment

BENCHMARK = {
    "format": 1,
    "kind": "benchmark",
    "service": "chat",
    "label": "chat",
    "model": "m",
    "quant": "F16",
    "measured_at": "2026-11-25T08:00:00Z",
    "fingerprint": {"build": {"release": "b1"}},
    "cells": [
        {
            "prompt": "short",
            "depth": 0,
            "concurrency": 1,
            "others": 0,
            "nodes": {},
            "figures": {
                "errors": 0,
                "prompt_tokens": 60,
                "request_tokens_per_second": {"p50": 12.7},
                "time_to_first_token": {"p50": 0.8},
                "queue_seconds": {"p50": 0.01},
            },
        }
    ],
}
VERIFIED = {
    "format": 1,
    "kind": "verify",
    "service": "chat",
    "label": "chat",
    "measured_at": "2026-11-25T09:00:00Z",
    "tokens_per_second": 10.0,
    "plan": [],
    "workers": [{"node": "node2", "endpoint": "10.0.0.2:50052", "layers": 30, "bytes_sent": 9, "bytes_received": 9}],
}


@pytest.fixture(scope="module")
def deployed(tmp_path_factory):
    return deployment(tmp_path_factory, "deployed")


@pytest.fixture
def cluster(deployed, tmp_path):
    """Deployed, with a benchmark and an earlier report, and a log of decisions."""
    cluster = deployed.copy(tmp_path)
    (tmp_path / ".reports/benchmarks").mkdir(parents=True)
    (tmp_path / ".reports/benchmarks/latest-chat.json").write_text(json.dumps(BENCHMARK))
    (tmp_path / ".reports/chat.json").write_text(json.dumps(VERIFIED))
    (cluster.node("node1") / "health.json").write_text(json.dumps({"tokens_per_second": 12.7}))
    return cluster


def written(cluster, name):
    return cluster.node("node1") / str(cluster.folder / ".reports" / name).lstrip("/")


def test_sound_cluster_is_accepted_and_kept(cluster):
    output = cluster.done("verify")
    assert "acceptance: 8 of 10 criteria met" in output
    assert "met all GPUs active: 1 service with 1 worker" in output
    assert "met first token < 5 s: chat 0.50 s" in output
    assert "not measurable here throughput: chat 12.7 tokens/s, the header of its model was not read" in output
    assert "chat throughput 12.7 tokens/s acceptable" in output
    result = json.loads(written(cluster, "verify/latest.json").read_text())
    assert (result["kind"], len(result["criteria"])) == ("report", 10)
    assert len(list(written(cluster, "verify").iterdir())) == 2
    page = written(cluster, "report.html").read_text()
    assert "8 of 10 criteria met" in page and "12.7 tokens/s" in page
    kept = json.loads(written(cluster, "chat.json").read_text())
    assert (kept["kind"], kept["label"], kept["workers"][0]["bytes_sent"]) == ("verify", "chat", 9)


def test_unmet_criterion_fails_the_run(cluster):
    found = dict(VERIFIED, workers=[dict(VERIFIED["workers"][0], bytes_sent=0)])
    (cluster.folder / ".reports/chat.json").write_text(json.dumps(found))
    assert (
        "verify: all GPUs active: chat: worker node2 holds 30 layers and moved 0 bytes, every worker has to"
        in cluster.refused("verify")
    )
    # The report is kept nevertheless.
    assert "not met" in written(cluster, "report.html").read_text()


def test_models_are_hashed_on_request(cluster):
    output = cluster.done("verify", "-e", "models=hash")
    assert "met model complete and verified: 1 of 1, hashed just now" in output
    (cluster.node("node1") / "flipped").touch()
    output = cluster.refused("verify", "-e", "models=hash")
    assert "model complete and verified: node1: /opt/models/m.gguf: bytes 0 to 9 have sha256 a, b recorded, " in output
    assert "the bytes that were published are needed: run site.yml with --tags model" in output
    assert "m.gguf: bytes 0 to 9 have sha256 a, b recorded: run site.yml --tags model" in cluster.refused(
        "verify", "-e", "models=hash", "--limit", "node1"
    )
    assert "models: hsah seen, hash is needed: run with -e models=hash" in cluster.refused(
        "verify", "-e", "models=hsah"
    )


def test_too_few_hours_are_no_failure(cluster):
    (cluster.node("node2") / "hand.json").write_text(json.dumps({"at": 200000.0 - 7300, "what": "a unit was started"}))
    output = cluster.done("verify")
    assert "24 h without a manual change: 2 of 24 hours, a unit was started on node2" in output and "not yet" in output


def test_a_node_that_failed_before_is_named(cluster):
    (cluster.node("node1") / "closed").touch()
    cluster.node("asker").write_text("10.0.0.2")
    assert "verify: binaries of one version: node1 not looked at, all nodes are needed" in cluster.refused("verify")


def test_check_mode_writes_no_report(cluster):
    before = cluster.configuration()
    output = cluster.done("verify", "--check")
    assert "acceptance:" not in output and not written(cluster, "report.html").exists()
    assert cluster.configuration() == before


def test_site_writes_no_report(cluster):
    output = cluster.done("site")
    assert "criteria met" not in output and not written(cluster, "verify/latest.json").exists()


def with_others(cluster):
    """A gateway and a host of monitoring, which know nothing of services."""
    here = {"ansible_connection": "local", "ansible_become": False}
    cluster.inventory = copy.deepcopy(INVENTORY)
    for group, name in (("llama_gateway", "front"), ("llama_monitoring", "watch")):
        cluster.inventory[group] = {"hosts": {name: here}}
        cluster.node(name).mkdir()
    return cluster


def test_manual_change_of_the_gateway_counts(cluster):
    with_others(cluster)
    (cluster.node("front") / "hand.json").write_text(
        json.dumps({"at": 200000.0 - 3600, "what": "gateway.json changed"})
    )
    output = cluster.done("verify")
    assert "24 h without a manual change: 1 of 24 hours, gateway.json changed on front" in output
    assert "met monitoring works: everything is scraped and every rule known" in output
