# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._reports import speed as reports_speed

BEFORE = {"chat": {"requests": 5, "tokens_per_second": 40.0, "prompt_tokens_per_second": 200.0, "build": "b1"}}


def measured(rate, prompt_rate=100.0, service="chat", others=0, errors=0, **also):
    """A result of llama_bench."""
    server = {
        "tokens_per_second": rate and {"p50": rate},
        "prompt_tokens_per_second": prompt_rate and {"p50": prompt_rate},
    }
    figures = {"requests": 5, "errors": errors, "reasons": {"it answers 503 (busy)": errors} if errors else {}}
    cells = [{"others": others, "figures": dict(figures, server=server)}]
    return dict({"item": {"service": service}, "cells": cells}, **also)


def speed(rate, prompt_rate=200.0):
    return {"chat": {"requests": 5, "tokens_per_second": rate, "prompt_tokens_per_second": prompt_rate}}


def test_rates_are_those_that_the_server_tells():
    found = reports_speed.rates(measured(1.2345, 100.456, errors=1)["cells"][0])
    assert found == {"requests": 4, "tokens_per_second": 1.23, "prompt_tokens_per_second": 100.46}
    assert reports_speed.rates(measured(None, 10.0)["cells"][0]) is None
    assert reports_speed.rates(measured(10.0, None)["cells"][0]) is None
    assert reports_speed.rates({}) is None


def test_what_is_at_the_limit_is_allowed():
    assert reports_speed.too_slow(speed(32.0, 160.0), BEFORE, 0.8) == []
    assert reports_speed.too_slow(speed(31.9, 160.0), BEFORE, 0.8) == [
        "llama_services.chat generates 31.9 tokens/s, 32.0 are needed (0.8 of the 40.0 before)",
    ]
    assert reports_speed.too_slow(speed(40.0, 100.0), BEFORE, 0.8) == [
        "llama_services.chat reads prompts at 100.0 tokens/s, 160.0 are needed (0.8 of the 200.0 before)",
    ]
    assert reports_speed.too_slow(speed(0.1, 0.1), BEFORE, 0) == []


def test_the_filter_measures_and_judges():
    rates = {"chat": {"requests": 5, "tokens_per_second": 5.0, "prompt_tokens_per_second": 50.0}}
    assert reports_speed.upgrade_speed([measured(5.0, 50.0)]) == {"rates": rates, "refused": [], "unmeasured": {}}
    found = reports_speed.upgrade_speed([measured(5.0, 50.0)], BEFORE, 0.8)
    assert (found["rates"], found["refused"]) == (rates, reports_speed.too_slow(rates, BEFORE, 0.8))
    assert len(found["refused"]) == 2


def test_a_service_that_was_busy_is_named():
    """One was busy from the beginning, one while it was measured, one answered nothing, one could not be asked."""
    looks = [
        {"state": "busy", "reason": "1 of 1 slots work", "item": {"service": "chat"}},
        {"state": "ready", "reason": "it is idle", "item": {"service": "embed"}},
    ]
    results = [
        measured(9.0, service="embed", others=3),
        measured(None, service="silent", errors=5),
        {"item": {"service": "locked"}, "msg": "llama_bench: http://h: it answers 401", "failed": True},
        measured(9.0, service="c"),
    ]
    found = reports_speed.upgrade_speed(results, BEFORE, 0.8, looks)
    assert list(found["rates"]) == ["c"]
    assert found["unmeasured"] == {
        "chat": "busy, 1 of 1 slots work",
        "embed": "busy, others came while it was measured",
        "silent": "it answers 503 (busy)",
        "locked": "llama_bench: http://h: it answers 401",
    }
    assert reports_speed.unmeasured_lines(found["unmeasured"])[0].startswith("chat: its speed was not measured (busy, ")


def test_without_a_baseline_nothing_is_judged():
    assert reports_speed.too_slow(speed(0.1), {}, 0.8) == []
    assert reports_speed.speed_lines(speed(20.0), {}) == [
        "chat: 20.0 tokens/s, prompts 200.0 tokens/s (median of 5); nothing to compare it with"
    ]
    assert reports_speed.speed_lines(speed(20.0), BEFORE) == [
        "chat: 20.0 tokens/s, prompts 200.0 tokens/s (median of 5); before: 40.0 and 200.0 with b1"
    ]


def test_without_a_ratio_nothing_is_too_slow():
    assert reports_speed.upgrade_speed([measured(0.1, 0.1)], BEFORE)["refused"] == []
