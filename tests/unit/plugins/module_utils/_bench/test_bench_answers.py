# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Answers and figures from recorded pieces."""

import json

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._bench.answer import answer
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._bench.exchange import Exchange
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._bench.figures import figures, percentiles


def came(*pieces, failed=None, began=100.0, status=200):
    return Exchange(began, list(pieces), pieces[-1][0] if pieces else began, failed, status)


def piece(text=None, **fields):
    choice = {"index": 0, "delta": dict({"content": text} if text is not None else {}, **fields), "finish_reason": None}
    return b"data: " + json.dumps({"choices": [choice]}).encode() + b"\n\n"


def finish(**also):
    return (
        b"data: " + json.dumps(dict({"choices": [{"delta": {}, "finish_reason": "length"}]}, **also)).encode() + b"\n\n"
    )


LAST = finish() + b"data: [DONE]\n\n"


def test_piece_has_the_moment_of_its_bytes():
    read = answer(came((101.0, piece("a")), (101.25, piece("b")), (102.0, LAST)))
    assert (read.error, read.stamps, read.first_text, read.ended) == (None, [101.0, 101.25], 101.0, 101.25)


def test_event_counts_from_its_last_byte():
    whole = piece("ä")
    for cut in range(1, len(whole) - 2):
        read = answer(came((102, whole[:cut]), (103, whole[cut:]), (104, LAST)))
        assert read.stamps == [103], cut


def test_many_events_at_once_share_a_moment():
    read = answer(came((101, piece("a") + piece("b") + b": ping\n\n" + piece("c") + LAST)))
    assert read.stamps == [101, 101, 101] and read.error is None


def test_reasoning_and_text_have_own_moments():
    read = answer(came((101, piece(reasoning_content="hm")), (102, piece("yes")), (103, LAST)))
    assert (read.first_reasoning, read.first_text) == (101, 102)


def test_timings_and_usage_are_read():
    timings = {
        "prompt_ms": 250.0,
        "prompt_per_second": 128.0,
        "predicted_n": 2,
        "predicted_per_second": 10.0,
        "cache_n": 0,
    }
    usage = {"prompt_tokens": 32, "completion_tokens": 2}
    read = answer(
        came(
            (101, piece("a")),
            (102, piece("b") + finish(timings=timings, usage=usage) + LAST),
        )
    )
    assert (read.prompt_tokens, read.tokens, read.cached_tokens) == (32, 2, 0)
    assert (read.prompt_seconds, read.prompt_rate, read.rate) == (0.25, 128.0, 10.0)


@pytest.mark.parametrize(
    ("exchange", "error"),
    [
        (came(failed="no connection (Connection refused)", status=0), "no connection (Connection refused)"),
        (came((101, piece("a"))), "the stream ended without its last piece"),
        (came((101, piece("a")), failed="no whole answer in 5 s"), "no whole answer in 5 s"),
        (came((101, b"<html>")), "it answered without a stream"),
        (came((101, piece("a") + b'data: {"error": {"message": "full"}}\n\n' + LAST)), "the stream reports full"),
        (came((101, b"data: {broken\n\n" + LAST)), "a piece of the stream is no JSON ({broken)"),
        (came((101, b"data: " + b"[" * 100000 + b"\n\n")), "a piece of the stream is no JSON (" + "[" * 80 + ")"),
        (came((101, b'{"error": {"message": "Loading model"}}'), status=503), "it answers 503 (Loading model)"),
        (came(status=502), "it answers 502 (an empty answer)"),
    ],
)
def test_error_is_one_sentence(exchange, error):
    assert answer(exchange).error == error


def test_percentiles_lie_between_two_values():
    assert percentiles([4.0, 1.0, 3.0, 2.0, None]) == {"p50": 2.5, "p90": 3.7, "p95": 3.85, "p99": 3.97, "n": 4}
    assert percentiles([7.0])["p99"] == 7.0
    assert percentiles([None]) is None


def test_figures_of_two_answers_and_an_error():
    timings = {"prompt_ms": 400.0, "predicted_n": 3, "predicted_per_second": 2.5, "prompt_per_second": 80.0}
    last = finish(timings=timings, usage={"prompt_tokens": 32, "completion_tokens": 3}) + LAST
    one = answer(came((100.5, piece("a")), (101.0, piece("b")), (101.5, piece("c") + last)))
    two = answer(came((101.0, piece("a")), (102.0, piece("b")), (103.0, piece("c") + last), began=100.5))
    bad = answer(came(failed="no connection (Connection refused)", began=100.0))
    found = figures([one, two, bad])
    assert (found["requests"], found["errors"], found["reasons"]) == (3, 1, {"no connection (Connection refused)": 1})
    assert (found["seconds"], found["generated_tokens"], found["tokens_per_second"]) == (3.0, 6, 2.0)
    assert found["request_tokens_per_second"]["p50"] == 1.5  # of 2 and 1
    assert found["time_to_first_token"] == {"p50": 0.5, "p90": 0.5, "p95": 0.5, "p99": 0.5, "n": 2}
    assert found["queue_seconds"]["p50"] == pytest.approx(0.1)
    assert found["server"]["tokens_per_second"]["p50"] == 2.5
    assert found["time_to_first_reasoning"] is None and found["cached_tokens"] is None


def test_figures_without_an_answer():
    found = figures([answer(came(failed="no"))])
    assert (found["errors"], found["tokens_per_second"], found["generated_tokens"]) == (1, None, None)
