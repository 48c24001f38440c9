# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The result of a tune: table, file and page."""

import pytest
import yaml
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._text import Refusal
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._tune.race import BASELINE, SCORES, tune_round
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._tune.result import tune_result

SERVICE = {"model": "small", "quant": "Q8_0", "head": "node1", "threads": 2}
ABOUT = {
    "service": "chat",
    "goal": "single",
    "at": "2026-11-28T05:00:00Z",
    "build": "b11434",
    "model": "small Q8_0",
    "sha256": [],
    "cards": [],
    "file": "20261128T050000Z-chat.jsonl",
}


def candidates(service=None):
    services = {"chat": service or SERVICE}
    return [
        {"name": BASELINE, "axis": "", "changes": {}, "services": services, "why": ""},
        {"name": "threads 4", "axis": "threads", "changes": {"threads": 4}, "why": ""},
        {"name": "flash_attn off", "axis": "flash_attn", "changes": {"flash_attn": "off"}, "why": ""},
        {"name": "cache q4_0", "axis": "cache", "changes": {"cache": "q4_0"}, "why": "<b>q4_0</b> seen"},
    ]


def result(rates, text="", service=None):
    some = {"first_token_s": 0.5, "memory_mib": 400, "error": ""}
    records = [
        {"name": name, "round": number, **dict.fromkeys(SCORES.values(), rate), **some}
        for number in range(1, 5)
        for name, rate in rates.items()
    ]
    given = candidates(service)
    return tune_result(given, records, tune_round(given, records), ABOUT, text)


FASTER = {BASELINE: 20, "threads 4": 26, "flash_attn off": 15}


def test_winner_is_written():
    found = result(FASTER, service={key: value for key, value in SERVICE.items() if key != "threads"})
    tuned = yaml.safe_load(found["text"])["llama_tuned"]["chat"]
    assert (found["changed"], tuned["threads"]) == (True, 4)
    assert tuned["measured"] == {
        "at": "2026-11-28T05:00:00Z",
        "goal": "single",
        "build": "b11434",
        "file": "20261128T050000Z-chat.jsonl",
        "model": "small Q8_0",
        "gain": 1.3,
    }
    assert "+    threads: 4" in found["diff"]
    assert found["lines"][-1].startswith("chat: round 4: threads 4: 1.30 times (")


class Tagged(str):
    """A text as a lookup returns it."""


@pytest.mark.parametrize("kind", [str, Tagged])
def test_what_the_file_had_stays(kind):
    text = "llama_tuned:\n  chat: {cache_type_k: f16, threads: 8, flash_attn: 'on'}\n  other: {parallel: 2}\nmore: 1\n"
    found = yaml.safe_load(result(FASTER, kind(text))["text"])
    assert found["llama_tuned"]["other"] == {"parallel": 2} and found["more"] == 1
    assert found["llama_tuned"]["chat"]["threads"] == 4 and found["llama_tuned"]["chat"]["flash_attn"] == "on"


def test_nothing_better_changes_nothing():
    text = "llama_tuned:\n  chat: {threads: 2}\n"
    found = result(dict(FASTER, **{"threads 4": 20}), text)
    assert (found["changed"], found["text"], found["diff"]) == (False, text, [])
    assert found["lines"][-1] == "chat: round 4: nothing is better than as deployed beyond the noise, finished"


def test_key_of_the_inventory_is_named():
    lines = result(FASTER)["lines"]
    assert lines[-1] == "llama_services.chat.threads is set, which is used: drop it, and group_vars/all/tuned.yml is"
    again = result(FASTER, "llama_tuned:\n  chat: {threads: 2}\n")["lines"]
    assert again[-1].startswith("chat: round 4")


def test_table_has_all_figures():
    lines = result(FASTER)["lines"]
    assert lines[0] == "chat: the tokens/s of one request of 4 candidates"
    assert " ".join(lines[2].split()).startswith("threads 4 4 26.0 26.0 26.0 0.500 s 1.30 (")
    assert "cache q4_0: not measured, <b>q4_0</b> seen" in lines


@pytest.mark.parametrize("text", ["llama_tuned: [", "- 1\n", "llama_tuned: 3\n"])
def test_other_file_is_refused(text):
    with pytest.raises(Refusal, match=r"group_vars/all/tuned.yml: no .* seen"):
        result(FASTER, text)


def test_page_is_whole_and_escaped():
    page = result(FASTER)["page"]
    assert page.startswith("<!DOCTYPE html>") and "<svg " in page and "<script" not in page
    assert "&lt;b&gt;q4_0&lt;/b&gt; seen" in page and "<b>" not in page
    assert "threads 4" in page and "1.30" in page
