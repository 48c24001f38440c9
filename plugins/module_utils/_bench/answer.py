# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads an answer: when its first text came, its tokens, what the server measured itself, or its error. Private to the
collection."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from .._llama.api import count, error_text, plain, rows, table
from .exchange import Exchange


class Answer(NamedTuple):
    """Moments of time.monotonic(), seconds, tokens; None if not reported.

    stamps: of each piece with text or reasoning, in order. error: one sentence, None for a whole answer.
    prompt_seconds: that the server read the prompt; prompt_rate and rate: its own tokens a second.
    content: the text, without reasoning; finish_reason: why it ends, empty if not reported.
    """

    began: float
    ended: float
    error: str | None = None
    stamps: Sequence[float] = ()
    first_text: float | None = None
    first_reasoning: float | None = None
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    tokens: int | None = None
    prompt_seconds: float | None = None
    prompt_rate: float | None = None
    rate: float | None = None
    content: str = ""
    finish_reason: str = ""


def answer(exchange: Exchange) -> Answer:
    if not exchange.status:
        return Answer(exchange.began, exchange.ended, exchange.failed)
    if exchange.status != 200:
        body = b"".join(data for _moment, data in exchange.pieces)[:4096].decode("utf-8", "replace")
        said = "it answers %d (%s)" % (exchange.status, error_text(_json(body)))
        return Answer(exchange.began, exchange.ended, said)
    read = _Reader()
    for moment, line in _lines(exchange.pieces):
        if line.startswith(b"data:"):
            read.event(moment, line[5:].strip().decode("utf-8", "replace"))
    error = exchange.failed or read.error
    if not error and not read.finished:
        error = "the stream ended without its last piece" if read.stamps else "it answered without a stream"
    return read.answer(exchange.began, exchange.ended, error)


def _lines(pieces: Sequence[tuple[float, bytes]]) -> Iterator[tuple[float, bytes]]:
    """Each line with the moment of its last byte; the last line may be incomplete."""
    unfinished: list[bytes] = []
    for moment, data in pieces:
        *ends, rest = data.split(b"\n")
        for part in ends:
            yield moment, b"".join([*unfinished, part])
            unfinished = []
        unfinished.append(rest)
    if pieces:
        yield pieces[-1][0], b"".join(unfinished)


class _Reader:
    def __init__(self) -> None:
        self.stamps: list[float] = []
        self.first_text: float | None = None
        self.first_reasoning: float | None = None
        self.timings: Any = {}
        self.usage: Any = {}
        self.finished = False
        self.finish_reason = ""
        self.texts: list[str] = []
        self.error: str | None = None

    def event(self, moment: float, data: str) -> None:
        if data == "[DONE]":
            self.finished = True
            return
        body = _json(data)
        if not isinstance(body, dict):
            self.error = self.error or f"a piece of the stream is no JSON ({plain(data, 80)})"
        elif "error" in body:
            self.error = self.error or f"the stream reports {error_text(body)}"
        else:
            self._piece(moment, body)

    def _piece(self, moment: float, body: dict[str, Any]) -> None:
        self.timings = table(body.get("timings")) or self.timings
        self.usage = table(body.get("usage")) or self.usage
        for choice in rows(body.get("choices")) or []:
            self._choice(moment, choice)

    def _choice(self, moment: float, choice: Any) -> None:
        delta = table(choice.get("delta"))
        text = delta.get("content") or choice.get("text")
        thought = delta.get("reasoning_content") or delta.get("reasoning")
        if text:
            self.first_text = moment if self.first_text is None else self.first_text
            self.texts.append(text if isinstance(text, str) else "")
        if thought:
            self.first_reasoning = moment if self.first_reasoning is None else self.first_reasoning
        if text or thought or delta.get("tool_calls"):
            self.stamps.append(moment)
        if choice.get("finish_reason"):
            self.finished = True
            self.finish_reason = plain(choice["finish_reason"], 40)

    def answer(self, began: float, ended: float, error: str | None) -> Answer:
        details = table(self.usage.get("prompt_tokens_details"))
        timed = self.timings
        prompt_ms = _number(timed.get("prompt_ms"))
        return Answer(
            began=began,
            ended=self.stamps[-1] if self.stamps and not error else ended,
            error=error,
            stamps=self.stamps,
            first_text=self.first_text,
            first_reasoning=self.first_reasoning,
            prompt_tokens=_count(self.usage.get("prompt_tokens")),
            cached_tokens=_count(timed.get("cache_n", details.get("cached_tokens"))),
            tokens=_count(self.usage.get("completion_tokens", timed.get("predicted_n"))),
            prompt_seconds=None if prompt_ms is None else prompt_ms / 1000.0,
            prompt_rate=_number(timed.get("prompt_per_second")),
            # llama.cpp reports the rate of a single token as if it took no time.
            rate=_number(timed.get("predicted_per_second")) if count(timed.get("predicted_n")) > 1 else None,
            content="".join(self.texts),
            finish_reason=self.finish_reason,
        )


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _count(value: Any) -> int | None:
    return count(value) if isinstance(value, int) and not isinstance(value, bool) else None


def _number(value: Any) -> float | None:
    """A positive finite number; None for anything else."""
    good = isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < math.inf
    return float(min(value, 1e9)) if good else None
