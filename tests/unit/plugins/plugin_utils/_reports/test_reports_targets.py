# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Both readings of the targets."""

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._reports import targets
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._reports.targets import Measured


@pytest.mark.parametrize(
    ("levels", "value", "verdict"),
    [
        (targets.RATE, 15, "target"),
        (targets.RATE, 14.9, "acceptable"),
        (targets.RATE, 9.9, "below"),
        (targets.RATE, 7.9, "critical"),
        (targets.RATE, None, "not measured"),
        (targets.FIRST_TOKEN, 2, "target"),
        (targets.FIRST_TOKEN, 4.9, "acceptable"),
        (targets.FIRST_TOKEN, 9.9, "below"),
        (targets.FIRST_TOKEN, 10.1, "critical"),
        (targets.MEMORY, 28.0, "target"),
        (targets.MEMORY, 29.9, "acceptable"),
        (targets.MEMORY, 30.1, "critical"),
        (targets.LINK, 55, "target"),
        (targets.LINK, 0.9, "critical"),
        (targets.SHARE, 45, "acceptable"),
    ],
)
def test_a_figure_is_judged(levels, value, verdict):
    assert levels.judge(value) == verdict


def test_what_is_asked_for_is_said():
    assert targets.RATE.words() == "at least 15 tokens/s, acceptable 10, critical 8"
    assert targets.FIRST_TOKEN.words() == "at most 2 s, acceptable 5, critical 10"


def rows(**known):
    return {row.metric: row for row in targets.readings(Measured("chat", **{"model": "or1-behemoth", **known}))}


def test_tokens_are_judged_twice():
    row = rows(rate=12.7, ceiling=23.9)["throughput"]
    assert (row.value, row.noted, row.meant, row.judged) == (
        "12.7 tokens/s",
        "acceptable",
        "53.1 % of 23.9 tokens/s",
        "acceptable",
    )
    # Q8_0: what the notes want is more than these cards can do.
    row = rows(rate=9.0, ceiling=14.7)["throughput"]
    assert (row.noted, row.judged) == ("below", "target")


def test_a_service_has_the_targets_of_the_inventory():
    wanted = {
        "tokens_per_second": {"target": 20, "acceptable": 10, "critical": 8, "source": "notes of 2026-01-31"},
        "first_token_seconds": {"target": 1, "acceptable": 5, "critical": 10},
    }
    found = rows(targets=wanted, rate=18.0, first_token=1.5)
    assert (found["throughput"].noted, found["first token"].noted) == ("acceptable", "acceptable")
    assert found["throughput"].target == "at least 20 tokens/s, acceptable 10, critical 8, by notes of 2026-01-31"
    assert found["first token"].target == "at most 1 s, acceptable 5, critical 10"
    # No name of a model says what is wanted of it.
    assert rows(model="Strand-Rust-Coder-14B", rate=18.0, first_token=1.5)["throughput"].noted == "target"


def test_what_a_request_waited_is_apart():
    row = rows(first_token=6.0, queue=4.5)["first token"]
    assert (row.noted, row.meant, row.judged) == ("below", "1.500 s without 4.500 s of waiting", "target")


def test_unmeasured_figures_have_no_verdict():
    found = rows(no_ceiling="no plan says what a token reads")
    assert {(row.value, row.noted, row.meant, row.judged) for row in found.values()} == {
        (None, "not measured", "", "not measured")
    }


DEVICE = {"node": "node1", "device": "GPU0", "planned_mib": {"weights": 20000, "kv": 2000}, "total_mib": 26098}


@pytest.mark.parametrize(
    ("card", "peaks", "noted", "judged"),
    [
        (22574, {}, "target", "target"),
        # The notes' peak in prefill is ten percent beyond the plan, and 28.03 GB.
        (22574, {"node1": {0: 28707}}, "acceptable", "acceptable"),
        (22574, {"node1": {0: 28709}}, "acceptable", "critical"),
        (32000, {}, "critical", "critical"),
        (None, {"node2": {0: 1}}, "not measured", "not measured"),
    ],
)
def test_memory_is_judged_by_its_plan(card, peaks, noted, judged):
    row = rows(devices=[dict(DEVICE, card_mib=card, loaded_mib=None)], peaks=peaks)["memory node1 GPU0"]
    assert (row.noted, row.judged) == (noted, judged)


def test_where_no_card_tells_the_log_does():
    device = dict(DEVICE, device="main", total_mib=1000, card_mib=None, loaded_mib={"weights": 900.0, "kv": 50.0})
    row = rows(devices=[device])["memory node1 main"]
    # The notes' limit is of a card.
    assert (row.value, row.noted, row.judged, row.evidence) == ("950 MiB", "not measured", "target", "llama.cpp's log")


@pytest.mark.parametrize(
    ("percent", "noted", "judged"), [(33.0, "critical", "acceptable"), (20.0, "critical", "below")]
)
def test_utilization_is_judged_by_stages(percent, noted, judged):
    row = rows(utilization={("node1", 0): percent}, stages=3)["GPU node1 0"]
    assert (row.noted, row.meant, row.judged) == (noted, "more than 23 % with 3 stages", judged)


def test_the_slowest_pair_is_the_link():
    pairs = [{"from": "node1", "to": to, "gbit_per_second": rate} for to, rate in (("node2", 93.2), ("node3", 0.94))]
    row = targets.link_reading({"measured_at": "2026-11-25T08:00:00Z", "pairs": pairs})
    assert (row.value, row.noted, row.evidence) == ("0.9 Gb/s", "critical", "node1 to node3")
    assert row.measured_at == "2026-11-25T08:00:00Z"


@pytest.mark.parametrize("link", [None, {"measured_at": "x", "pairs": []}])
def test_unmeasured_link_has_no_verdict(link):
    assert targets.link_reading(link).judged == "not measured"
