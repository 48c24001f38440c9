# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Questions for an evaluation, one at a time, with the text of their answers. Private to the collection."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from .._llama.api import plain
from .answer import Answer, answer
from .exchange import Target, exchange

# Bytes of an answer's text.
LARGEST = 256 << 10


class Question(NamedTuple):
    """key: what its answer is kept under. max_tokens: of the answer. seed: only matters at another temperature than
    0."""

    key: str
    prompt: str
    max_tokens: int
    temperature: float
    seed: int


def ask(
    to: Target, model: str | None, questions: Sequence[Question], seconds: float, timeout: float
) -> list[dict[str, Any]]:
    """Asks one after the other until none is left or `seconds` are over, at least one; after an error no further one.
    timeout: seconds for each. -> [{key, content, finish_reason, completion_tokens, first_token_s, seconds,
    tokens_per_second: None if not known, error: a sentence or None}]."""
    end, answers = time.monotonic() + seconds, []
    for question in questions:
        done = exchange(to, _body(question, model), timeout)
        got = answer(done)
        if done.instead_of is not None:
            got = got._replace(error=f"{plain(done.instead_of)} does not serve, its fallback answered")
        found = _record(question, got)
        answers.append(found)
        if found["error"] or time.monotonic() >= end:
            break
    return answers


def _body(question: Question, model: str | None) -> bytes:
    request: dict[str, Any] = {
        "messages": [{"role": "user", "content": question.prompt}],
        "max_tokens": question.max_tokens,
        "temperature": question.temperature,
        "seed": question.seed,
        "stream": True,
        "stream_options": {"include_usage": True},
        # An answer must not depend on earlier prompts.
        "cache_prompt": False,
    }
    return json.dumps({**request, "model": model} if model else request).encode()


def _record(question: Question, got: Answer) -> dict[str, Any]:
    # Half a pair of surrogates cannot be written as UTF-8.
    data = got.content.encode("utf-8", "replace")
    error = got.error or (f"an answer of more than {LARGEST >> 10} KiB" if len(data) > LARGEST else None)
    return {
        "key": question.key,
        "content": "" if error else data.decode(),
        "finish_reason": got.finish_reason,
        # Servers that count no tokens send about one with each piece.
        "completion_tokens": len(got.stamps) if got.tokens is None else got.tokens,
        "first_token_s": round((got.stamps[0] if got.stamps else got.ended) - got.began, 3),
        "seconds": round(got.ended - got.began, 3),
        "tokens_per_second": _rate(got),
        "error": error,
    }


def _rate(got: Answer) -> float | None:
    """Tokens a second after the first one: as the server reports it, else by the stamps."""
    if got.rate:
        return round(got.rate, 2)
    span = got.stamps[-1] - got.stamps[0] if got.stamps else 0
    return round((got.tokens - 1) / span, 2) if got.tokens and got.tokens > 1 and span > 0 else None
