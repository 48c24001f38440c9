# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""overhead.yml over simulated nodes: what it stops, what it starts again, and what it keeps."""

import copy
import json

import pytest
from ansible_collections.thefermisea.llama_cluster.tests.unit.playbooks.simulation import BRIEF, deployment

HEAD, WORKER = "llama-head-chat.service", "llama-rpc-chat.service"
SERVICE = ("-e", "service=chat")
SAID = (*SERVICE, "-e", "interrupt=true")
# What puts the service back.
BACK = ["node2 restarted " + WORKER, "node1 started " + HEAD, "node1 ask " + HEAD]


def variant(name, title, **changes):
    one = {"name": name, "title": title, "running": False, "workers": [], "rpc_endpoints": [], "tensor_split": []}
    return {**one, "loopback": False, "ceiling": None, "why": "", "fits": True, **changes}


OVER_RPC = {"workers": ["node2"], "rpc_endpoints": ["10.0.0.2:50052"]}
VARIANTS = [
    variant("all", "worker node2", running=True, **OVER_RPC),
    variant("local", "node1 alone"),
    variant("loopback", "RPC on loopback", loopback=True),
]


@pytest.fixture(scope="module")
def deployed(tmp_path_factory):
    return deployment(tmp_path_factory, "deployed", **BRIEF)


@pytest.fixture
def cluster(deployed, tmp_path):
    found = deployed.copy(tmp_path)
    plan(found, VARIANTS)
    return found


def plan(cluster, variants):
    cluster.inventory = copy.deepcopy(cluster.inventory)
    facts = cluster.inventory["llama_nodes"]["vars"]
    facts["planned_variants"] = {"minutes": 3, "variants": variants}


def events(cluster):
    """What became of units."""
    return [event for event in cluster.events if event.split()[1] not in ("measure", "copy")]


def measured(cluster, *arguments):
    """The lines that it printed, and what it kept."""
    status, output = cluster.run("overhead", *(arguments or SAID))
    assert status == 0, output
    # On the controller, whose files lie with those of the node that hands them over.
    (kept,) = (cluster.folder / "nodes").rglob(".reports/overhead")
    result = json.loads((kept / "latest-chat.json").read_text())
    (dated,) = kept.glob("2*Z-chat.json")
    assert json.loads(dated.read_text()) == result
    return output, result


def test_each_variant_is_measured_and_the_service_is_back(cluster):
    before = cluster.builds()
    output, result = measured(cluster)
    assert events(cluster) == [
        *("node1 ask " + HEAD, "node1 drain %s for 60 s" % HEAD, "node1 stopped " + HEAD),
        *("node1 serve chat with nobody", "node1 ask llama-overhead-chat.service"),
        "node1 end llama-overhead-chat.service",
        *("node1 serve chat with 127.0.0.1:40001", "node1 ask llama-overhead-chat.service"),
        "node1 end llama-overhead-chat.service, llama-rpc-loopback.service",
        *BACK,
    ]
    assert cluster.builds() == before
    assert "chat: the split costs more than it gives, 10.0 tokens/s with worker node2, 20.0 with node1 alone" in output
    assert [one["name"] for one in result["variants"]] == ["all", "local", "loopback"]
    assert [len(one["cells"]) for one in result["variants"]] == [2, 2, 2]
    assert result["fingerprint"]["nodes"]["node2"]["kernel"] == "kernel of node2"
    assert "kept as %s/.reports/overhead/2" % cluster.folder in output


def test_it_changes_nothing(cluster):
    files = cluster.files()
    _output, _result = measured(cluster)
    after = {name: content for name, content in cluster.files().items() if "/.reports/" not in name}
    assert after == files


def test_the_workers_of_a_variant_restart_before_it_and_what_does_not_fit_says_why(cluster):
    why = "m F16 does not fit, 9 MiB are needed and 8 MiB are there: choose quant Q8_0 (1.0 GB)"
    lone = [dict(one, why=why, fits=False) for one in VARIANTS[1:]]
    plan(cluster, [VARIANTS[0], *lone, variant("one", "worker node2 too", tensor_split=[31], **OVER_RPC)])
    output, result = measured(cluster)
    assert events(cluster)[3:] == [
        *("node2 restarted " + WORKER, "node1 serve chat with 10.0.0.2:50052"),
        *("node1 ask llama-overhead-chat.service", "node1 end llama-overhead-chat.service"),
        *BACK,
    ]
    assert "chat: the split is needed, " + why in output and "node1 alone: not measured, m F16 does not fit" in output
    assert [bool(one.get("cells")) for one in result["variants"]] == [True, True, False, False]


@pytest.mark.parametrize("event", ["node1 serve chat with nobody", "node1 serve chat with 127*"])
def test_a_variant_that_fails_is_a_row_and_the_others_are_measured(cluster, event):
    cluster.fail(event)
    output, result = measured(cluster)
    assert events(cluster)[-3:] == BACK
    failed = [one["title"] for one in result["variants"] if one["why"]]
    assert failed == ["node1 alone" if event.endswith("nobody") else "RPC on loopback"]
    assert "%s: not measured, no space left" % failed[0] in output


def test_a_head_that_cannot_be_stopped_is_started(cluster):
    before = cluster.builds()
    cluster.fail("node1 stopped " + HEAD)
    status, output = cluster.run("overhead", *SAID)
    assert status != 0 and "no space left" in output
    assert cluster.builds() == before and events(cluster)[-1] == BACK[-1]


def test_nothing_is_interrupted_that_nobody_has_said(cluster):
    status, output = cluster.run("overhead", *SERVICE)
    assert status != 0 and events(cluster) == ["node1 ask " + HEAD]
    assert (
        "llama_services.chat: interrupt false seen, true is needed, since it answers nobody for about 3 minutes while "
        "node1 serves its model with node1 alone, RPC on loopback: say -e interrupt=true when nobody needs it"
    ) in output
    assert not (cluster.folder / ".reports").exists()


def test_a_dry_run_says_what_it_would_do(cluster):
    status, output = cluster.run("overhead", *SERVICE, "--check")
    assert status == 0, output
    assert events(cluster) == []
    assert "chat: would be measured with worker node2, node1 alone, RPC on loopback, and away for about 3 min" in output


@pytest.mark.parametrize(
    "arguments, sentence",
    [
        ((), "overhead: service none seen, one of chat is needed: say -e service="),
        (("-e", "service=chta"), "overhead: service chta seen, one of chat is needed, did you mean chat?"),
    ],
)
def test_a_service_is_needed(cluster, arguments, sentence):
    status, output = cluster.run("overhead", *arguments)
    assert status != 0 and events(cluster) == [] and sentence in output


@pytest.mark.parametrize("keys", [{"launcher": "slurm"}, {"state": "stopped"}, {"embeddings": True}])
def test_one_that_does_not_run_or_generates_nothing_is_refused(cluster, keys):
    cluster.inventory["llama_nodes"]["vars"]["llama_services"]["chat"].update(keys)
    status, output = cluster.run("overhead", *SAID)
    assert status != 0 and events(cluster) == []
    assert "overhead: llama_services.chat seen, a service of one model is needed that systemd runs, that is" in output
