# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which claims of a decision the results of a cluster confirm or contradict, and the page of them."""

import copy
import json
import re
from pathlib import Path

import pytest
import yaml
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._intent.tuned import TUNED
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._reports import decisions
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._reports.decisions import (
    CONFIRMED,
    CONTRADICTED,
    UNKNOWN,
    decisions_page,
    escaped,
    figures,
)
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._reports.results import Results
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._tune.race import BASELINE
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._tune.result import tune_result
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
SLOTS = {"figure": "total", "of": {"parallel": 3}, "against": {"parallel": 1}, "at_a_time": "several", "at_most": 1.5}
FLASH = {"figure": "answered", "of": {"flash_attn": "on", "cards": "V100"}, "at_most": 0}
LINK = {"figure": "link", "of": {"split_mode": "layer"}, "at_most": 1000}
ARGS = ["--model", "/opt/models/m.Q8_0.gguf", "--ctx-size", "4096", "--parallel", "1", "--split-mode", "layer"]
EARLIER = "2026-11-20T20:00:00Z"


def result(*cells, quant="Q8_0", at="2026-11-25T20:00:00Z", args=(), **changes):
    """A kept benchmark."""
    made = copy.deepcopy(report(*(cells or [cell()]), quant=quant, args=[*ARGS, *args])["result"])
    made["fingerprint"]["args"][1] = "/opt/models/m.%s.gguf" % quant
    made["fingerprint"]["plan"] = quant
    made.update(changes, measured_at=at)
    return made


def texts(*results):
    return {"%d.json" % number: json.dumps(one) for number, one in enumerate(results)}


def judged(claim, *results):
    return decisions.judged(claim, Results(texts(*results)))


@pytest.mark.parametrize(("q8", "verdict"), [(18.1, CONFIRMED), (18.0, CONFIRMED), (17.9, CONTRADICTED)])
def test_ratio_of_two_quants_decides(q8, verdict):
    found = judged(QUANT, result(cell(q8)), result(cell(12.0), quant="Q4_K_M", at=EARLIER))
    assert found.verdict == verdict and found.reason.startswith("%.2f measured" % (q8 / 12))
    assert [one["measured_at"][:10] for _words, one in found.results] == ["2026-11-25", "2026-11-20"]


@pytest.mark.parametrize(("rate", "verdict"), [(16.0, CONTRADICTED), (14.0, CONFIRMED)])
def test_upper_limit_ignores_context_of_slots(rate, verdict):
    one, three = (
        result(cell(each, concurrency=5), at=at) for each, at in ((10.0, EARLIER), (rate, "2026-11-25T20:00:00Z"))
    )
    three["fingerprint"]["args"][2:6] = ["--ctx-size", "12288", "--parallel", "3"]
    assert judged(SLOTS, one, three).verdict == verdict


def test_one_cell_is_enough_to_contradict():
    one = result(cell(20.0), cell(20.0, prompt="code"))
    other = result(cell(10.0), cell(19.0, prompt="code"), quant="Q4_K_M", at=EARLIER)
    for each in (one, other):
        each["settings"]["prompts"]["code"] = "x"
    found = judged(QUANT, one, other)
    assert found.verdict == CONTRADICTED and found.reason.startswith("1.05 ")


@pytest.mark.parametrize(
    "change",
    [
        lambda one: one.update(model="other"),
        lambda one: one.update(asked_from="controller"),
        lambda one: one["settings"].update(max_tokens=64),
        lambda one: one["settings"]["prompts"].update(short="x"),
        lambda one: one["fingerprint"]["nodes"]["node2"].update(driver="470"),
        lambda one: one["fingerprint"]["build"].update(commit="old"),
        lambda one: one["fingerprint"]["args"].extend(["--threads", "8"]),
    ],
)
def test_results_that_differ_in_more_are_not_compared(change):
    other = result(cell(12.7), quant="Q4_K_M", at=EARLIER)
    change(other)
    found = judged(QUANT, result(cell(7.1)), other)
    assert (found.verdict, len(found.results)) == (UNKNOWN, 2) and "alike in all else" in found.reason


def test_older_result_is_taken_if_the_newest_differs():
    driven = result(cell(3.0), quant="Q4_K_M", at="2026-11-24T20:00:00Z")
    driven["fingerprint"]["nodes"]["node1"]["driver"] = "470"
    found = judged(QUANT, result(cell(7.1)), driven, result(cell(13.0), quant="Q4_K_M", at=EARLIER))
    assert (found.verdict, found.results[1][1]["measured_at"]) == (CONTRADICTED, EARLIER)


@pytest.mark.parametrize(
    ("results", "missing", "shown"),
    [
        ([], "quant Q8_0 or quant Q4_K_M", 0),
        ([result(cell(7.1))], "quant Q4_K_M", 1),
        ([result(cell(7.1), quant="Q4_K_M")], "quant Q8_0", 1),
        # Disturbed by others, or of several requests at a time.
        (
            [result(cell(7.1), quant="Q4_K_M", at=EARLIER), result(cell(20.0, others=12), cell(20.0, concurrency=5))],
            "quant Q8_0",
            1,
        ),
    ],
)
def test_missing_results_are_named(results, missing, shown):
    found = judged(QUANT, *results)
    assert (found.verdict, len(found.results)) == (UNKNOWN, shown)
    assert found.reason == "no tokens/s of a request of %s is kept yet" % missing


@pytest.mark.parametrize(
    ("args", "errors", "cards", "verdict"),
    [
        (["--flash-attn", "on"], 0, None, CONTRADICTED),
        (["--flash-attn", "on"], 4, None, CONFIRMED),
        # A quantized cache has llama.cpp turn it on by itself.
        (["--cache-type-k", "q4_0", "--cache-type-v", "q4_0"], 0, None, CONTRADICTED),
        (["--cache-type-v", "bf16"], 0, None, UNKNOWN),
        (["--flash-attn", "off"], 0, None, UNKNOWN),
        ([], 0, None, UNKNOWN),
        (["--flash-attn", "on"], 0, ["NVIDIA L4"], UNKNOWN),
    ],
)
def test_flash_attention_on_volta(args, errors, cards, verdict):
    one = result(args=args)
    one["cells"][0]["figures"]["errors"] = errors
    if cards:
        one["fingerprint"]["nodes"] = {"node1": {"cards": cards}}
    assert judged(FLASH, one).verdict == verdict


def test_endpoint_without_arguments_has_no_settings():
    one = result()
    one["fingerprint"]["args"] = []
    assert judged(dict(FLASH, of={"parallel": 1}), one).verdict == UNKNOWN


def test_link_is_that_of_the_busiest_node():
    one = result()
    assert list(figures(LINK, one).values()) == [pytest.approx(60000 * 8 / 40 / 1e6)]
    one["cells"][0]["nodes"]["node2"] = {"fabric_rx_bytes": 6e9, "fabric_tx_bytes": 0}
    assert judged(LINK, one).verdict == CONTRADICTED
    one["cells"][0]["nodes"] = {"node1": None}
    assert judged(LINK, one).verdict == UNKNOWN


def drills(*entries):
    """A report of drill.yml."""
    found = {"format": 1, "kind": "drill", "measured_at": "2026-11-25T21:10:00Z", "service": "chat", "cluster": "lab"}
    return dict(found, drills=[dict(one, drill="head_kill") for one in entries])


def test_newest_drill_decides():
    claim = {"says": "it comes back", "drill": "head_kill"}
    old = {"result": "failed", "broken_at": 1764100000.0}
    new = {"result": "recovered", "broken_at": 1764104400.0, "phases": {"total": 12.34}}
    found = judged(claim, drills(new, old))
    assert (found.verdict, found.reason) == (
        CONFIRMED,
        "chat: recovered, the next answer 12.3 s after the break, 2025-11-25 21:00 UTC",
    )
    assert judged(claim, drills(old)).verdict == CONTRADICTED
    assert judged(dict(claim, drill="worker_kill"), drills(new)).verdict == UNKNOWN


def test_page_without_results_says_so():
    page = decisions_page(SHIPPED, {})
    claims = sum(len(one["claims"]) for one in SHIPPED)
    assert len(re.findall(r"^not measured here: no .* is kept yet\.$", page["text"], re.MULTILINE)) == claims
    assert page["lines"] == ["decisions: %d, their claims: %d not measured here" % (len(SHIPPED), claims)]


def test_contradicted_claim_is_printed_with_its_figures():
    flash = ["--flash-attn", "on"]
    kept = texts(result(cell(7.1), args=flash), result(cell(12.7), quant="Q4_K_M", at=EARLIER, args=flash))
    page = decisions_page(SHIPPED, kept)
    text = page["text"]
    assert "| Q8_0 over Q4_K_M | 2026-01 | in force for the deployment under systemd | **CONTRADICTED** |" in text
    assert "**CONTRADICTED**: 0.56 measured, at least 1.5 claimed." in text
    assert "| quant Q4_K_M | short at 0 tokens, 1 at a time | 12.7 tokens/s of a request | " + EARLIER in text
    assert "| b11434, commit abc | node1: Tesla V100S-PCIE-32GB; node2: " in text
    assert [line.partition(": ")[2].partition(": ")[0] for line in page["lines"][1:]] == [
        "No flash attention on Volta",
        "Q8_0 over Q4_K_M",
    ]
    assert decisions_page(SHIPPED, dict(reversed(kept.items()))) == page


def test_alternatives_have_what_tune_measured():
    about = {
        "service": "chat",
        "goal": "total",
        "at": EARLIER,
        "build": "b11434",
        "sha256": "",
        "cards": [],
        "file": "",
    }
    service = {"model": "small", "quant": "Q8_0", "head": "node1"}
    ratio = {"ratio": 1.2, "low": 1.1, "high": 1.3, "rounds": 4}
    known = [
        {"name": BASELINE, "axis": "", "changes": {}, "services": {"chat": service}, "why": ""},
        {"name": "parallel 3", "axis": "parallel", "changes": {"parallel": 3}, "why": ""},
    ]
    race = {"best": BASELINE, "ratios": {"parallel 3": ratio}, "left": [], "words": "", "gain": ratio}
    page = decisions_page(SHIPPED, tune_result(known, [], race, about)["files"])["text"]
    assert "  - chat, 2026-11-20: 1.20 times (1.10 to 1.30) the tokens/s (goal total) of parallel 1\n" in page


def test_files_that_are_not_results_are_named():
    strange = {"a.json": "{", "b.json": json.dumps({"kind": "benchmark", "format": 1}), "c.json": "{}"}
    strange["d.json"] = json.dumps({"kind": "benchmark", "format": 1, "measured_at": EARLIER})
    page = decisions_page(SHIPPED, strange)
    assert page["lines"][1:] == ["left out: a.json", "left out: b.json"] and "- a.json\n" in page["text"]


def test_text_of_others_is_not_markdown():
    evil = "x | y\n# <script>alert(1)</script> `code` [a](b) *b* _c_ {{ d }} \x1b[31m"
    assert escaped(evil) == (
        r"x \| y \# \<script\>alert(1)\</script\> \`code\` \[a\](b) \*b\* \_c\_ \{\{ d \}\} ?\[31m"
    )
    assert escaped("qwen3_32b Q4_K_M") == "qwen3_32b Q4_K_M"
    page = decisions_page(SHIPPED, texts(result(args=["--flash-attn", "on"], label=evil, model=evil)))["text"]
    assert "\x1b" not in page and "{{" not in page and "<script>" not in page
    # Every row of a table has as many cells as its head.
    for block in re.findall(r"^(?:\|.*\n)+", page, re.MULTILINE):
        assert len({len(re.findall(r"(?<!\\)\|", line)) for line in block.splitlines()}) == 1, block


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_decision_file_has_what_the_page_shows(path):
    one = yaml.safe_load(path.read_text())
    assert set(one) == {"title", "date", "status", "decision", "alternatives", "claims"}
    assert one["alternatives"] and all(set(each) - {"tune"} == {"what", "why"} for each in one["alternatives"])
    assert all(set(each.get("tune", {})) <= set(TUNED) for each in one["alternatives"])
    catalog = yaml.safe_load((ROOT / "roles/drill/vars/main.yml").read_text())["__drill_catalog"]
    for claim in one["claims"]:
        if "drill" in claim:
            assert set(claim) == {"says", "drill"} and claim["drill"] in catalog
            continue
        rate = claim["figure"] in decisions.RATES
        assert {"says", "figure", "of"} <= set(claim) <= {*QUANT, "at_most", *(["tasks"] if rate else [])}
        assert (rate or claim["figure"] in decisions.FIGURES) and ("at_least" in claim) != ("at_most" in claim)
        assert claim.get("at_a_time", "one") in ("one", "several")
        known = {"model", "quant", "service"} if rate else {"quant", "cards", *decisions.FLAGS}
        assert {*claim["of"], *claim.get("against", {})} <= known
