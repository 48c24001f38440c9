# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which claims of a decision the results of a cluster confirm or contradict, and the page that says so."""

import copy
import json
import re
from pathlib import Path

import pytest
import yaml
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._reports import decisions
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._reports.decisions import judged, unlike
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._reports.decisions_page import (
    decisions_page,
    escaped,
)
from ansible_collections.thefermisea.llama_cluster.tests.unit.plugins.plugin_utils._reports.test_reports_bench import (
    cell,
    report,
)

ROOT = Path(__file__).resolve().parents[5]
FILES = sorted((ROOT / "roles/acceptance/files/decisions").glob("*.yml"))
SHIPPED = [yaml.safe_load(path.read_text()) for path in FILES]
QUANT = {
    "says": "Q8_0 is 1.5 times as fast",
    "figure": "generation",
    "of": {"quant": "Q8_0"},
    "against": {"quant": "Q4_K_M"},
    "at_a_time": "one",
    "at_least": 1.5,
}
ARGS = ["--model", "/opt/models/m.Q8_0.gguf", "--ctx-size", "4096", "--parallel", "1", "--split-mode", "layer"]


def result(*cells, quant="Q8_0", at="2026-11-25T20:00:00Z", args=(), **changes):
    """One that benchmark.yml keeps."""
    made = copy.deepcopy(report(*(cells or [cell()]), quant=quant, args=[*ARGS, *args])["result"])
    made["fingerprint"]["args"][1] = "/opt/models/m.%s.gguf" % quant
    made["fingerprint"]["plan"] = quant
    made.update(changes, measured_at=at)
    return made


def newest_first(*results):
    return sorted(results, key=lambda one: one["measured_at"], reverse=True)


@pytest.mark.parametrize(
    ("q8", "q4", "spread", "verdict"),
    [
        (18.1, 12.0, 0.0, "confirmed"),
        (7.1, 12.7, 0.0, "contradicted"),
        # 1.42 of 1.5, with an error that twice over is more than that.
        (17.0, 12.0, 0.2, "not decided"),
        (19.0, 12.0, 0.2, "not decided"),
    ],
)
def test_two_results_that_differ_in_the_quant_alone_are_compared(q8, q4, spread, verdict):
    results = newest_first(
        result(cell(q8, spread=spread)), result(cell(q4, spread=spread), quant="Q4_K_M", at="2026-11-20T20:00:00Z")
    )
    found = judged(QUANT, results)
    (row,) = found.rows
    assert (found.verdict, found.reason) == (verdict, "")
    assert (row.of, row.against, round(row.seen, 4)) == (q8, q4, round(q8 / q4, 4))
    assert [side.result["measured_at"][:10] for side in found.sides] == ["2026-11-25", "2026-11-20"]


def test_an_upper_limit_is_held_the_other_way_round():
    claim = {
        "figure": "total",
        "of": {"parallel": 3},
        "against": {"parallel": 1},
        "at_a_time": "several",
        "at_most": 1.5,
    }
    one, three = (result(cell(rate, concurrency=5)) for rate in (10.0, 16.0))
    three["fingerprint"]["args"][2:6] = ["--ctx-size", "12288", "--parallel", "3"]
    assert judged(claim, [three, one]).verdict == "contradicted"
    three["cells"][0]["figures"]["tokens_per_second"] = 14.0
    assert judged(claim, [three, one]).verdict == "confirmed"


def test_one_cell_that_speaks_against_a_claim_is_enough():
    fast = [cell(20.0), cell(20.0, prompt="code")]
    slow = [cell(10.0), cell(19.0, prompt="code")]
    one, other = result(*fast), result(*slow, quant="Q4_K_M")
    for each in (one, other):
        each["settings"]["prompts"]["code"] = "x"
    found = judged(QUANT, [one, other])
    assert found.verdict == "contradicted" and [row.where[:5] for row in found.rows] == ["short", "code "]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda one: one.update(model="other"), "model or1-behemoth and other"),
        (lambda one: one.update(asked_from="controller"), "asked_from head and controller"),
        (lambda one: one["settings"].update(max_tokens=64), "max_tokens 100 and 64"),
        (lambda one: one["fingerprint"]["nodes"]["node2"].update(driver="470"), "driver of node2: 470 before, 535"),
        (lambda one: one["fingerprint"]["build"].update(commit="old"), "commit: old before, abc now"),
        (lambda one: one["fingerprint"]["args"].extend(["--threads", "8"]), "--threads 8 before, fewer now"),
    ],
)
def test_what_differs_in_more_is_not_compared_and_named(change, words):
    other = result(cell(12.7), quant="Q4_K_M", at="2026-11-20T20:00:00Z")
    change(other)
    found = judged(QUANT, [result(cell(7.1)), other])
    assert found.verdict == "not measured here"
    assert found.reason.startswith("not comparable, they differ in more than quant: ") and words in found.reason
    # Both are shown all the same, without a ratio.
    assert [(row.of, row.against, row.seen) for row in found.rows] == [(7.1, 12.7, None)]


def test_an_older_result_is_taken_where_the_newest_cannot_be_compared():
    driven = result(cell(12.0), quant="Q4_K_M", at="2026-11-24T20:00:00Z")
    driven["fingerprint"]["nodes"]["node1"]["driver"] = "470"
    alike = result(cell(13.0), quant="Q4_K_M", at="2026-11-20T20:00:00Z")
    found = judged(QUANT, newest_first(result(cell(7.1)), driven, alike))
    assert (found.verdict, found.rows[0].against) == ("contradicted", 13.0)


def test_figures_that_mean_something_else_are_left_out():
    disturbed, several = cell(20.0, others=12), cell(20.0, concurrency=5)
    other = result(cell(10.0), cell(10.0, concurrency=5), quant="Q4_K_M")
    found = judged(QUANT, [result(disturbed, several), other])
    assert (
        found.verdict == "not measured here"
        and "no undisturbed figure is kept yet of tokens/s of a request" in found.reason
    )
    # Another text under the same name is another prompt.
    changed = result(cell(10.0), quant="Q4_K_M")
    changed["settings"]["prompts"]["short"] = "x"
    assert not judged(QUANT, [result(), changed]).rows


def test_what_is_missing_is_said():
    assert judged(QUANT, []).reason == "no benchmark of quant Q8_0 or quant Q4_K_M is kept yet"
    alone = judged(QUANT, [result(cell(7.1))])
    assert alone.reason == "no benchmark of quant Q4_K_M is kept yet"
    assert [(row.of, row.against) for row in alone.rows] == [(7.1, None)]
    other = judged(QUANT, [result(cell(12.7), quant="Q4_K_M")])
    assert other.reason == "no benchmark of quant Q8_0 is kept yet"
    assert [(row.of, row.against) for row in other.rows] == [(None, 12.7)]
    # A later benchmark of many requests at a time says nothing of one.
    later = result(cell(20.0, concurrency=5), at="2026-11-26T20:00:00Z")
    found = judged(QUANT, newest_first(result(cell(7.1)), later))
    assert [(row.of, row.against) for row in found.rows] == [(7.1, None)]
    assert found.sides[0].result["measured_at"] == "2026-11-25T20:00:00Z"


FLASH = {"figure": "answered", "of": {"flash_attn": "on", "cards": "V100"}, "at_most": 0}


@pytest.mark.parametrize(
    ("args", "errors", "verdict"),
    [
        (["--flash-attn", "on"], 0, "contradicted"),
        (["--flash-attn", "on"], 4, "confirmed"),
        # A quantized cache has llama.cpp turn it on by itself.
        (["--cache-type-k", "q4_0", "--cache-type-v", "q4_0"], 0, "contradicted"),
        (["--cache-type-v", "bf16"], 0, "not measured here"),
        (["--flash-attn", "off"], 0, "not measured here"),
        ([], 0, "not measured here"),
    ],
)
def test_flash_attention_that_answers_on_volta_contradicts_the_notes(args, errors, verdict):
    one = result(args=args)
    one["cells"][0]["figures"]["errors"] = errors
    assert judged(FLASH, [one]).verdict == verdict
    one["fingerprint"]["nodes"] = {"node1": {"cards": ["NVIDIA L4"]}}
    assert judged(FLASH, [one]).verdict == "not measured here"


def test_an_endpoint_does_not_say_how_it_was_started():
    one = result()
    one["fingerprint"]["args"] = []
    assert judged(dict(FLASH, of={"parallel": 1}), [one]).verdict == "not measured here"


def test_the_link_is_that_of_the_busiest_node():
    claim = {"figure": "link", "of": {"split_mode": "layer"}, "at_most": 1000}
    one = result()
    assert judged(claim, [one]).rows[0].seen == pytest.approx(60000 * 8 / 40 / 1e6)
    one["cells"][0]["nodes"]["node2"] = {"fabric_rx_bytes": 6e9, "fabric_tx_bytes": 0}
    found = judged(claim, [one])
    assert (found.verdict, found.rows[0].seen) == ("contradicted", pytest.approx(1200))
    one["cells"][0]["nodes"] = {"node1": None}
    assert judged(claim, [one]).reason == "no undisturbed figure is kept yet of Mb/s over the fabric"


def drills(*entries):
    return {"service": "chat", "cluster": "lab", "drills": [dict(one, drill="head_kill") for one in entries]}


def test_the_newest_drill_counts():
    claim = {"says": "it comes back", "drill": "head_kill"}
    old = {"result": "failed", "broken_at": 1764100000.0}
    new = {"result": "recovered", "broken_at": 1764104400.0, "phases": {"total": 12.34}}
    found = judged(claim, [], [drills(new), drills(old)])
    assert (found.verdict, found.reason) == (
        "confirmed",
        "chat: recovered, the next answer 12.3 s after the break, 2025-11-25 21:00 UTC",
    )
    assert judged(claim, [], [drills(old)]).verdict == "contradicted"
    assert judged(dict(claim, drill="worker_kill"), [], [drills(new)]).reason == ("no drill worker_kill is kept yet")


def test_the_plan_follows_from_the_quant_and_the_context_from_the_slots():
    one, other = result(), result(quant="Q4_K_M")
    assert unlike(one, other, ["quant"]) == []
    assert unlike(one, other, []) != []
    other = result()
    other["fingerprint"]["args"][2:6] = ["--ctx-size", "12288", "--parallel", "3"]
    assert unlike(one, other, ["parallel"]) == []


def texts(*results):
    return {"%d.json" % number: json.dumps(one) for number, one in enumerate(results)}


def test_a_site_without_any_result_says_so_of_each_figure():
    page = decisions_page(SHIPPED, {}, {})
    claims = sum(len(one["claims"]) for one in SHIPPED)
    assert len(re.findall(r"^not measured here: no .* is kept yet\.$", page["text"], re.MULTILINE)) == claims
    figures = [claim for one in SHIPPED for claim in one["claims"] if "figure" in claim]
    assert page["text"].count("| not measured yet |") == len(figures)
    assert page["lines"] == ["decisions: %d, their claims: %d not measured here" % (len(SHIPPED), claims)]


def test_what_measurement_contradicts_is_flagged_with_both_results_beside_each_other():
    flash = ["--flash-attn", "on"]
    page = decisions_page(
        SHIPPED,
        texts(result(cell(7.1), args=flash), result(cell(12.7), quant="Q4_K_M", at="2026-11-20T20:00:00Z", args=flash)),
        {},
    )
    text = page["text"]
    assert "| Q8_0 over Q4_K_M | 2026-01 | in force for the deployment under systemd | **CONTRADICTED** |" in text
    assert "| short at 0 tokens, 1 at a time | 7.1 | 12.7 | 0.56, noise 0.00 |" in text
    assert "| measured | 2026-11-25T20:00:00Z | 2026-11-20T20:00:00Z |" in text
    assert "| build | b11434, commit abc | b11434, commit abc |" in text
    assert "| cards | node1, node2: Tesla V100S-PCIE-32GB | " in text
    assert [line for line in page["lines"] if line.startswith("contradicted by measurement: ")] == [
        "contradicted by measurement: No flash attention on Volta: With flash attention a V100 answers no request",
        "contradicted by measurement: Q8_0 over Q4_K_M: Q8_0 generates 1.5 to 2 times as fast as Q4_K_M",
    ]


def test_the_same_results_are_the_same_page_in_whatever_order_they_are_found():
    one, other = result(), result(quant="Q4_K_M", at="2026-11-20T20:00:00Z")
    pages = {decisions_page(SHIPPED, files, {})["text"] for files in (texts(one, other), texts(other, one))}
    assert len(pages) == 1


def test_files_that_are_no_results_are_named():
    strange = {
        "a.json": "{",
        "b.json": json.dumps(dict(result(), format=2)),
        "c.json": json.dumps({"kind": "benchmark", "format": 1}),
        "d.json": "[1]",
        "e.json": json.dumps({"kind": "overhead"}),
    }
    page = decisions_page(SHIPPED, strange, {"drill-chat.json": "{}"})
    assert page["lines"][1:] == [
        "left out: a.json: no result of a benchmark",
        "left out: b.json: format 2 seen, 1 is read",
        "left out: c.json: no label",
        "left out: d.json: no result of a benchmark",
        "left out: drill-chat.json: no report of drills",
    ]
    assert "- a.json: no result of a benchmark\n" in page["text"]


def test_words_of_somebody_else_are_no_markdown():
    evil = "x | y\n# <script>alert(1)</script> `code` [a](b) *b* _c_ {{ d }} \x1b[31m"
    assert escaped(evil) == (
        r"x \| y \# \<script\>alert(1)\</script\> \`code\` \[a\](b) \*b\* \_c\_ \{\{ d \}\} ?\[31m"
    )
    assert escaped("qwen3_32b Q4_K_M") == "qwen3_32b Q4_K_M"
    one = result(args=["--flash-attn", "on", "--alias", evil])
    page = decisions_page(SHIPPED, texts(one), {})["text"]
    assert "\x1b" not in page and "{{" not in page and "<script>" not in page
    # Every row of a table has as many cells as its head.
    for block in re.findall(r"^(?:\|.*\n)+", page, re.MULTILINE):
        assert len({len(re.findall(r"(?<!\\)\|", line)) for line in block.splitlines()}) == 1, block


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_decision_says_all_that_the_page_shows(path):
    one = yaml.safe_load(path.read_text())
    assert set(one) == {"title", "date", "status", "decision", "alternatives", "claims"}
    assert one["alternatives"] and all(set(each) == {"what", "why"} for each in one["alternatives"])
    catalog = yaml.safe_load((ROOT / "roles/drill/vars/main.yml").read_text())["__drill_catalog"]
    for claim in one["claims"]:
        if "drill" in claim:
            assert set(claim) == {"says", "drill"} and claim["drill"] in catalog
            continue
        assert {"says", "figure", "of"} <= set(claim) <= {*QUANT, "at_most"}
        assert claim["figure"] in decisions.FIGURES and ("at_least" in claim) != ("at_most" in claim)
        assert claim.get("at_a_time", "one") in ("one", "several")
        for kind in (claim["of"], claim.get("against", {})):
            assert set(kind) <= {"quant", "cards", *decisions.FLAGS}


def test_what_the_notes_decided_is_there():
    titles = [one["title"] for one in SHIPPED]
    wanted = ["Q8_0 over Q4_K_M", "systemd over nohup", "--parallel 1", "Layer split", "No flash attention on Volta"]
    wanted += ["b7760", "q4_0", "512", "NUMA", "InfiniBand", "SLURM"]
    assert [one for one in wanted if not any(one in title for title in titles)] == []
