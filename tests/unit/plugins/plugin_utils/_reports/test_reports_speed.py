# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._reports import speed as reports_speed

BEFORE = {"chat": {"requests": 5, "tokens_per_second": 40.0, "prompt_tokens_per_second": 200.0, "build": "b1"}}


def answer(rate, prompt_rate=100.0, state="ready"):
    return {"state": state, "tokens_per_second": rate, "prompt_tokens_per_second": prompt_rate}


def speed(rate, prompt_rate=200.0):
    return {"chat": {"requests": 5, "tokens_per_second": rate, "prompt_tokens_per_second": prompt_rate}}


def test_rates_are_medians_of_the_answers_that_have_some():
    answers = [("chat", answer(rate, 10 * rate)) for rate in (9.0, 1.0, 5.0)] + [
        ("chat", answer(100.0, state="busy")),
        ("chat", answer(None)),
    ]
    assert reports_speed.rates(answers) == {
        "chat": {"requests": 3, "tokens_per_second": 5.0, "prompt_tokens_per_second": 50.0}
    }
    assert reports_speed.rates([("chat", answer(1.0)), ("chat", answer(2.0))])["chat"]["tokens_per_second"] == 1.5
    assert reports_speed.rates([("chat", answer(1.0, state="degraded"))]) == {}


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
    answers = [dict(answer(rate, 10 * rate), item=[{"service": "chat"}, 0]) for rate in (9.0, 1.0, 5.0)]
    rates = {"chat": {"requests": 3, "tokens_per_second": 5.0, "prompt_tokens_per_second": 50.0}}
    assert reports_speed.upgrade_speed(answers) == {"rates": rates, "refused": [], "unmeasured": {}}
    found = reports_speed.upgrade_speed(answers, BEFORE, 0.8)
    assert (found["rates"], found["refused"]) == (rates, reports_speed.too_slow(rates, BEFORE, 0.8))
    assert len(found["refused"]) == 2


def test_a_service_that_was_busy_is_named():
    """One was busy from the beginning, the other from the first answer that counts, the third once."""
    busy = {"state": "busy", "reason": "1 of 1 slots work"}
    first = [dict(one, item={"service": name}) for name, one in (("chat", busy), ("embed", answer(1.0)), ("c", busy))]
    counted = [dict(one, item=[{"service": name}, 0]) for name, one in (("embed", busy), ("c", busy), ("c", answer(1)))]
    found = reports_speed.upgrade_speed(counted, BEFORE, 0.8, first)
    why = "busy, 1 of 1 slots work"
    assert (list(found["rates"]), found["unmeasured"]) == (["c"], {"chat": why, "embed": why})
    assert reports_speed.unmeasured_lines(found["unmeasured"])[0].startswith("chat: its speed was not measured (busy, ")


def test_without_a_baseline_nothing_is_judged():
    assert reports_speed.too_slow(speed(0.1), {}, 0.8) == []
    assert reports_speed.speed_lines(speed(20.0), {}) == [
        "chat: 20.0 tokens/s, prompts 200.0 tokens/s (median of 5); nothing to compare it with"
    ]
    assert reports_speed.speed_lines(speed(20.0), BEFORE) == [
        "chat: 20.0 tokens/s, prompts 200.0 tokens/s (median of 5); before: 40.0 and 200.0 with b1"
    ]


def test_an_answer_needs_both_rates_to_count():
    answers = [("chat", answer(None, 10.0)), ("chat", answer(10.0, None)), ("chat", answer(0.0)), ("chat", {})]
    assert reports_speed.rates(answers) == {}
    assert reports_speed.rates([*answers, ("chat", answer(1.0, 2.0))])["chat"]["requests"] == 1


def test_rates_have_two_decimals():
    measured = reports_speed.rates([("chat", answer(1.2345, 100.456))])["chat"]
    assert (measured["tokens_per_second"], measured["prompt_tokens_per_second"]) == (1.23, 100.46)


def test_the_middle_of_four_is_between_the_two_in_it():
    answers = [("chat", answer(rate)) for rate in (8.0, 1.0, 4.0, 2.0)]
    assert reports_speed.rates(answers)["chat"]["tokens_per_second"] == 3.0


def test_without_a_ratio_nothing_is_too_slow():
    answers = [dict(answer(0.1, 0.1), item=[{"service": "chat"}, 0])]
    assert reports_speed.upgrade_speed(answers, BEFORE)["refused"] == []
