# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is made of the bytes of an answer and of their moments."""

import json

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._bench import exchange
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._bench.answer import answer
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._bench.figures import figures, percentiles

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
PLAIN = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"


class Came:
    """An exchange that is over."""

    def __init__(self, *pieces, failed=None, began=100.0):
        self.pieces, self.failed, self.began = list(pieces), failed, began
        self.ended = pieces[-1][0] if pieces else began


def piece(text=None, **fields):
    choice = {"index": 0, "delta": dict({"content": text} if text is not None else {}, **fields), "finish_reason": None}
    return b"data: " + json.dumps({"choices": [choice]}).encode() + b"\n\n"


def finish(**also):
    return (
        b"data: " + json.dumps(dict({"choices": [{"delta": {}, "finish_reason": "length"}]}, **also)).encode() + b"\n\n"
    )


def chunked(*parts):
    return b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts)


LAST = finish() + b"data: [DONE]\n\n"


def test_each_piece_has_the_moment_of_its_bytes():
    came = Came(
        (100.5, HEAD),
        (101.0, chunked(piece("a"))),
        (101.25, chunked(piece("b"))),
        (102.0, chunked(LAST) + b"0\r\n\r\n"),
    )
    read = answer(came)
    assert (read.error, read.stamps, read.first_text, read.ended, read.text) == (
        None,
        [101.0, 101.25],
        101.0,
        101.25,
        "ab",
    )


def test_an_event_counts_from_its_last_byte():
    whole = chunked(piece("ä"))
    for cut in range(1, len(whole) - 3):
        read = answer(Came((101, HEAD), (102, whole[:cut]), (103, whole[cut:]), (104, chunked(LAST))))
        # Its end may be in the first part already, where only what follows the line was left.
        assert read.text == "ä" and read.stamps in ([103], [102]), cut
    assert answer(Came((101, HEAD), (102, whole[:10]), (103, whole[10:]), (104, chunked(LAST)))).stamps == [103]


def test_many_events_at_once_share_a_moment():
    read = answer(Came((101, PLAIN + piece("a") + piece("b") + b": ping\n\n" + piece("c") + LAST)))
    assert read.stamps == [101, 101, 101] and read.text == "abc" and read.error is None


def test_reasoning_is_apart_from_text():
    read = answer(Came((101, PLAIN + piece(reasoning_content="hm")), (102, piece("yes")), (103, LAST)))
    assert (read.first_reasoning, read.first_text, read.text) == (101, 102, "yes")


def test_what_the_server_says_of_itself():
    told = {
        "prompt_ms": 250.0,
        "prompt_per_second": 128.0,
        "predicted_n": 2,
        "predicted_per_second": 10.0,
        "cache_n": 0,
    }
    usage = {"prompt_tokens": 32, "completion_tokens": 2}
    read = answer(
        Came(
            (101, PLAIN + piece("a")),
            (102, piece("b") + finish(timings=dict(told, draft_n=4, draft_n_accepted=3), usage=usage) + LAST),
        )
    )
    assert (read.prompt_tokens, read.tokens, read.cached_tokens, read.drafted, read.accepted) == (32, 2, 0, 4, 3)
    assert (read.prompt_seconds, read.prompt_rate, read.rate) == (0.25, 128.0, 10.0)


@pytest.mark.parametrize(
    ("pieces", "failed", "error"),
    [
        ([], "no connection (Connection refused)", "no connection (Connection refused)"),
        ([], None, "the connection ended without an answer"),
        ([(101, b"SSH-2.0-OpenSSH_9.2\r\n\r\n")], None, "the connection ended without an answer"),
        ([(101, PLAIN + piece("a"))], None, "the stream ended without its last piece"),
        ([(101, PLAIN + piece("a"))], "no whole answer in 5 s", "no whole answer in 5 s"),
        ([(101, PLAIN + b"<html>")], None, "it answered without a stream"),
        (
            [(101, PLAIN + piece("a") + b'data: {"error": {"message": "context is full"}}\n\n' + LAST)],
            None,
            "the stream says context is full",
        ),
        ([(101, PLAIN + b"data: {broken\n\n" + LAST)], None, "a piece of the stream is no JSON ({broken)"),
        (
            [(101, b'HTTP/1.1 503 Busy\r\nContent-Length: 43\r\n\r\n{"error": {"message": "Loading model"}}')],
            None,
            "it answers 503 (Loading model)",
        ),
        ([(101, b"HTTP/1.1 502 Bad Gateway\r\n\r\n")], None, "it answers 502 (an empty answer)"),
    ],
)
def test_errors_are_one_sentence(pieces, failed, error):
    assert answer(Came(*pieces, failed=failed)).error == error


@pytest.mark.parametrize(
    "body", [b"zzzz\r\n" * 9, b"ffffffffff\r\na", b"5\r\nab", b"-1\r\nabc", b"data: " + b"[" * 100000 + b"\n\n"]
)
def test_a_hostile_body_is_an_error(body):
    for head in (HEAD, PLAIN):
        assert answer(Came((101, head + body))).error


def test_a_body_is_whole_when_it_says_so():
    length = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n"
    assert exchange.response([(1, length + b"abcd")]).whole
    assert not exchange.response([(1, length + b"abc")]).whole
    assert not exchange.response([(1, HEAD + b"4\r\nabcd\r\n")]).whole
    assert exchange.response([(1, HEAD + b"4\r\nabcd\r\n0\r\n\r\n")]).lines == [(1, b"abcd")]


def test_percentiles_lie_between_two_values():
    assert percentiles([4.0, 1.0, 3.0, 2.0, None]) == {"p50": 2.5, "p90": 3.7, "p95": 3.85, "p99": 3.97, "n": 4}
    assert percentiles([7.0])["p99"] == 7.0
    assert percentiles([None]) is None


def test_figures_of_two_answers_and_an_error():
    told = {"prompt_ms": 400.0, "predicted_n": 3, "predicted_per_second": 2.5, "prompt_per_second": 80.0}
    last = finish(timings=told, usage={"prompt_tokens": 32, "completion_tokens": 3}) + LAST
    one = answer(Came((100.5, PLAIN + piece("a")), (101.0, piece("b")), (101.5, piece("c") + last)))
    two = answer(Came((101.0, PLAIN + piece("a")), (102.0, piece("b")), (103.0, piece("c") + last), began=100.5))
    bad = answer(Came(failed="no connection (Connection refused)", began=100.0))
    found = figures([one, two, bad])
    assert (found["requests"], found["errors"], found["reasons"]) == (3, 1, {"no connection (Connection refused)": 1})
    assert (found["seconds"], found["generated_tokens"], found["tokens_per_second"]) == (3.0, 6, 2.0)
    assert found["request_tokens_per_second"]["p50"] == 1.5  # of 2 and 1
    assert found["time_to_first_token"] == {"p50": 0.5, "p90": 0.5, "p95": 0.5, "p99": 0.5, "n": 2}
    assert found["queue_seconds"]["p50"] == pytest.approx(0.1)
    assert found["inter_token_latency"]["p50"] == 0.75 and found["inter_token_latency"]["n"] == 4
    assert found["end_to_end"]["p50"] == 2.0
    assert found["server"]["tokens_per_second"]["p50"] == 2.5
    assert found["time_to_first_reasoning"] is None and found["cached_tokens"] is None


def test_figures_without_an_answer():
    found = figures([answer(Came(failed="no"))])
    assert (found["errors"], found["tokens_per_second"], found["generated_tokens"]) == (1, None, None)
