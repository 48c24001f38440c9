# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is kept and said of what a split costs."""

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._reports import overhead
from ansible_collections.thefermisea.llama_cluster.tests.unit.plugins.plugin_utils._reports import (
    test_reports_bench as made,
)

TITLES = {"all": "2 workers", "local": "node1 alone", "loopback": "RPC on loopback", "one": "worker node2"}
SETTINGS = {"requests": "5", "max_tokens": "128"}
AT = "2026-11-26T20:00:00Z"


def way(name, rate=None, spread=0.0, why="", fits=True, ceiling=None):
    """One that was measured with these tokens/s, else one that was not."""
    one = {"name": name, "title": TITLES[name], "why": why, "fits": fits, "ceiling": ceiling, "cells": []}
    if rate is not None:
        one["cells"] = [made.cell(rate, 0.5, spread), made.cell(rate - 1, 4.0, spread, prompt="long")]
    return one


def verdict(*ways):
    return overhead.verdict("chat", ways)


def test_a_split_that_is_slower_is_to_go():
    said = verdict(way("all", 10.0), way("local", 25.0), way("loopback", 24.0), way("one", 12.0))
    assert said == (
        "chat: the split costs more than it gives, 10.0 tokens/s with 2 workers, 25.0 with node1 alone: drop workers, "
        "node1 alone is 2.5 times as fast"
    )


def test_a_split_that_is_faster_stays_unless_one_worker_is_faster_still():
    said = verdict(way("all", 30.0), way("local", 20.0), way("loopback", 19.0), way("one", 25.0))
    assert said == (
        "chat: the split gives more than it costs, 30.0 tokens/s with 2 workers, 20.0 with node1 alone, 1.5 times as "
        "fast"
    )
    said = verdict(way("all", 30.0), way("local", 20.0), way("loopback", 19.0), way("one", 40.0))
    assert said.endswith("1.5 times as fast; worker node2 as its only one is faster, 40.0 tokens/s")


def test_what_scatters_is_no_difference():
    said = verdict(way("all", 10.0, 0.5), way("local", 11.0, 0.5), way("loopback", 11.0))
    assert "the split gives no tokens/s beyond the noise, 10.0 tokens/s with 2 workers, 11.0 with node1 alone" in said
    assert said.endswith("drop workers, their nodes are free then")
    assert "costs more" in verdict(way("all", 10.0, 0.01), way("local", 11.0, 0.01), way("loopback", 11.0))


def test_a_split_that_is_needed_says_what_would_fit_instead():
    why = "m Q8_0 does not fit, 9 MiB are needed and 8 MiB are there: choose quant Q4_K_M (3.2 GB)"
    ways = [way(name, why=why, fits=False) for name in ("local", "loopback")]
    assert verdict(way("all", 10.0), *ways, way("one", 9.0)) == "chat: the split is needed, " + why
    assert verdict(way("all", 10.0), *ways, way("one", 12.0)).endswith(
        why + "; worker node2 as its only one is faster, 12.0 tokens/s"
    )


def test_what_was_not_measured_is_not_judged():
    said = verdict(way("all", 10.0), way("local", why="it did not load"), way("loopback", 9.0))
    assert said == "chat: not judged, node1 alone was not measured: it did not load"
    assert verdict(way("all"), way("local", 9.0), way("loopback")) == "chat: not judged, no figure of 2 workers"


def test_without_workers_only_rpc_itself_is_judged():
    assert verdict(way("local", 20.0), way("loopback", 18.0)) == (
        "chat: it is not split, and RPC by itself would cost 10 % of its 20.0 tokens/s"
    )
    said = verdict(way("local", 20.0), way("loopback", why="nft is missing"))
    assert said == "chat: not judged, RPC on loopback was not measured: nft is missing"


@pytest.fixture
def report():
    ways = [way("all", 12.0, ceiling=48.0), way("local", 25.0, ceiling=50.0)]
    ways += [way("loopback", why="llama_variant: no"), way("one", 13.0)]
    plan = [{"node": "node1", "model": "or1-behemoth"}]
    return overhead.overhead(made.HEAD, ways, SETTINGS, AT, {"node1": made.WATCHED}, plan)


def test_all_of_it_is_kept_with_what_it_depends_on(report):
    result = report["result"]
    assert (report["name"], report["latest"]) == ("20261126T200000Z-reasoning.node1", "latest-reasoning.node1")
    assert (result["kind"], result["format"], result["measured_at"]) == ("overhead", 1, AT)
    assert result["settings"] == {"requests": 5, "max_tokens": 128}
    assert result["fingerprint"]["build"] == made.MACHINE["build"] and result["fingerprint"]["plan"]
    assert [one["share"] for one in result["variants"]] == [0.25, 0.5, None, None]
    assert result["variants"][1]["cells"][1]["figures"]["time_to_first_token"]["p50"] == 4.0
    assert result["verdict"].startswith("reasoning: the split costs more than it gives, ")


def test_the_table_has_a_row_for_each_way_and_prompt_and_why_one_is_missing(report):
    lines = report["lines"]
    assert lines[0] == "reasoning.node1 (or1-behemoth Q8_0), the same flags in each variant"
    assert [line.split() for line in lines[2:5]] == [
        ["2", "workers", "short", "80.0", "12.0", "0.500", "s", "25", "%"],
        ["2", "workers", "long", "80.0", "11.0", "4.000", "s", "-"],
        ["node1", "alone", "short", "80.0", "25.0", "0.500", "s", "50", "%"],
    ]
    assert len(lines) == 10 and lines[-2] == "RPC on loopback: not measured, llama_variant: no"
    assert lines[-1] == report["result"]["verdict"]


def test_requests_that_failed_are_told():
    broken = way("local", 20.0)
    broken["cells"][0]["figures"]["errors"] = 2
    ways = [way("all", 12.0), broken, way("loopback", 19.0)]
    lines = overhead.overhead(made.HEAD, ways, SETTINGS, AT, {}, [])["lines"]
    assert lines[-2] == "node1 alone: 2 requests failed"
