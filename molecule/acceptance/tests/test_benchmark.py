"""Benchmarks of a deployed service."""

import json
import re

import pytest

SMALL = ("-e", "prompts=short,code", "-e", "concurrency=1,2", "-e", "requests=2", "-e", "max_tokens=16")


def folder(lab):
    return lab.reports / "benchmarks"


def latest(lab):
    return json.loads((folder(lab) / "latest-chat.json").read_text())


@pytest.fixture(scope="module", name="measured")
def fixture_measured(lab):
    status, output = lab.playbook("benchmark", *SMALL)
    assert status == 0, output
    return output


def test_figures_are_kept_with_what_they_depend_on(lab, measured):
    # The page of decisions.
    assert lab.changed(measured) == 1
    kept = latest(lab)
    assert [(one["prompt"], one["concurrency"]) for one in kept["cells"]] == [
        ("short", 1),
        ("short", 2),
        ("code", 1),
        ("code", 2),
    ]
    for cell in kept["cells"]:
        figures = cell["figures"]
        assert (figures["errors"], figures["generated_tokens"], cell["others"]) == (0, 32, 0), cell
        assert figures["cached_tokens"] == 0
        # The client's stamps and llama.cpp's own rate agree.
        client, server = (
            one["p50"] for one in (figures["request_tokens_per_second"], figures["server"]["tokens_per_second"])
        )
        assert 0.5 < client / server < 2, cell
        assert 0 < figures["time_to_first_token"]["p50"] < figures["seconds"]
        # Both workers worked for it, over the fabric.
        for node in ("node1", "node2", "node3"):
            assert cell["nodes"][node] is None or cell["nodes"][node]["cpu"] > 0
    watched = [cell["nodes"]["node1"] for cell in kept["cells"] if cell["nodes"]["node1"]]
    assert watched and all(one["fabric_rx_bytes"] > 32000 for one in watched if one["fabric_rx_bytes"])
    depends = kept["fingerprint"]
    assert depends["build"]["release"].startswith("b11434") and depends["build"]["sha256"]
    assert "--rpc" in depends["args"] and sorted(depends["nodes"]) == ["node1", "node2", "node3"]
    # Nothing stays behind on a node.
    assert lab.node2.run("ls /run/llama-cluster/bench-*.stop").rc != 0


def test_a_service_that_was_faster_before_is_refused(lab, measured, tmp_path):
    before = latest(lab)
    for cell in before["cells"]:
        cell["figures"]["tokens_per_second"] *= 10
    before["fingerprint"]["build"]["release"] = "b7772"
    (tmp_path / "before.json").write_text(json.dumps(before))
    small = ("-e", "prompts=short", "-e", "concurrency=1", "-e", "requests=2", "-e", "max_tokens=16")
    status, output = lab.playbook("benchmark", *small, "-e", "compare=%s" % (tmp_path / "before.json"), "-e", "loss=5")
    assert status != 0
    assert "chat: short at 0 tokens, 1 at a time: tokens/s" in output and "is needed" in output
    assert "build: b7772 before, b11434" in output


def test_a_dry_run_sends_nothing(lab, measured):
    kept = latest(lab)["measured_at"]
    status, output = lab.playbook("benchmark", *SMALL, "--check")
    assert status == 0, output
    assert "chat: would be asked 8 times from head, short, code" in output
    assert latest(lab)["measured_at"] == kept


def test_the_controller_asks_too(lab, measured):
    status, output = lab.playbook(
        "benchmark",
        "-e",
        "asked_from=controller",
        "-e",
        "prompts=short",
        "-e",
        "requests=2",
        "-e",
        "max_tokens=8",
    )
    assert status == 0, output
    kept = latest(lab)
    assert (kept["asked_from"], kept["cells"][0]["figures"]["errors"]) == ("controller", 0)


def test_decisions_are_judged_by_it_where_heads_are(lab, measured):
    page = "/opt/docs/architecture-decisions.md"
    text = lab.node1.file(page).content_string
    # One slot was measured, three were not.
    claim = text.partition("### A single request is answered")[2]
    assert re.search(r"^not measured here: no .* of parallel 3 is kept yet\.$", claim, re.MULTILINE)
    assert re.search(r"^\| parallel 1 \| short at 0 tokens, 1 at a time \| [\d.]+ tokens/s", claim, re.MULTILINE)
    assert (lab.node1.file(page).user, oct(lab.node1.file(page).mode)) == ("root", "0o644")
    assert not lab.node2.file(page).exists
    status, output = lab.playbook("decisions")
    assert status == 0 and lab.changed(output) == 0, output
