# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How long a full prompt takes, by what was measured."""

import base64
import json

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._plan import full_prompt

INPUTS = ["m", "Q4_K_M", "header", 9, [11434, 8192], [["node1", "GPU0", 32510, 1024]]]
LONG = {"tokens": 7372, "seconds": 61.0, "measured_at": "2026-11-24T05:00:00Z"}


def read(found):
    return {"item": "chat", "prompt": base64.b64encode(json.dumps(found).encode()).decode()}


def test_measured_rate_gives_time_of_full_slot():
    kept = full_prompt.record(LONG, INPUTS)
    for found in (full_prompt.measured(kept), full_prompt.measured(read(kept))):
        assert full_prompt.full_prompt(8192, INPUTS, found) == (
            "a full prompt of 8192 tokens takes about 1 min 07 s at 120.9 tokens/s (measured 2026-11-24)"
        )


@pytest.mark.parametrize(
    "change",
    [{"tokens": full_prompt.LEAST - 1}, {"tokens": 0}, {"seconds": 0}, {"seconds": None}],
)
def test_short_prompt_says_nothing_of_full_one(change):
    assert full_prompt.record(dict(LONG, **change), INPUTS) == {}
    kept = dict(full_prompt.record(LONG, INPUTS), **change)
    assert full_prompt.measured(kept) is None and full_prompt.measured(read(kept)) is None


def test_as_many_tokens_as_are_needed_do():
    assert full_prompt.record(dict(LONG, tokens=full_prompt.LEAST), INPUTS)["tokens"] == full_prompt.LEAST
    assert full_prompt.record({}, INPUTS) == {} == full_prompt.record(LONG, [])


def test_another_plan_is_another_rate():
    found = full_prompt.measured(full_prompt.record(LONG, INPUTS))
    assert full_prompt.full_prompt(8192, [*INPUTS, ["auto"]], found) is None
    assert full_prompt.full_prompt(8192, [], found._replace(inputs=[])) is None
    assert full_prompt.full_prompt(8192, INPUTS, None) is None


@pytest.mark.parametrize(
    "found", [{}, [], 7, {"tokens": 2048}, dict(LONG, measured_at="never", inputs=[]), dict(LONG, inputs={})]
)
def test_what_is_no_record_is_none(found):
    assert full_prompt.measured(read(found)) is None


@pytest.mark.parametrize("text", ["", "a", "bm8=", "/w=="])
def test_nor_is_another_text(text):
    assert full_prompt.measured({"prompt": text}) is None
    assert full_prompt.measured({}) is None
