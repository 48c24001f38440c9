# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One cell of a benchmark: a prompt at a depth with a concurrency. Private to the collection."""

from __future__ import annotations

import json
import time
import uuid
from typing import Any, NamedTuple

from .._llama.api import LlamaApi, NoAnswer, parse_metrics, table
from .._text import Refusal
from .answer import answer
from .exchange import Target, closed_loop, target
from .figures import figures, tokens

# Seconds for what a server answers from memory.
LOOK = 5
# The text before a prompt, repeated.
FILLER = "The river ran past the mill and the three bridges, and no book in the town said who had built them. "
# Tokens of FILLER if the server does not count them.
ABOUT = 22


class Cell(NamedTuple):
    """depth: tokens before the prompt. concurrency: requests at a time."""

    prompt: str
    text: str
    depth: int
    concurrency: int
    requests: int
    warmup: int


class Asked(NamedTuple):
    """The parameters of each request."""

    model: str | None
    max_tokens: int
    ignore_eos: bool
    cache_prompt: bool
    timeout: float


def measure(url: str, key: str | None, cell: Cell, asked: Asked, pid: int | None = None) -> dict[str, Any]:
    """-> a cell's record, see llama_bench. pid: the process that the key is for, that of a unit of this node.

    Errors: Refusal if no request can be sent at all."""
    base = url[: -len("/v1")] if url.rstrip("/").endswith("/v1") else url
    base = base.rstrip("/")
    api = LlamaApi(base, key, asked.model, pid)
    to = target(base, key, pid)
    before, counted = _filler(api, cell.depth)
    if cell.warmup:
        _first(to, [request_body(asked, before + cell.text) for _number in range(cell.warmup)], asked)
    bodies = [request_body(asked, before + cell.text) for _number in range(cell.requests)]
    before_tokens, began = _counters(api), time.time()
    done = closed_loop(to, bodies, cell.concurrency, asked.timeout)
    ended = time.time()
    answers = [answer(one) for one in done]
    return {
        "prompt": cell.prompt,
        "depth": cell.depth,
        "depth_counted": counted,
        "concurrency": cell.concurrency,
        "began": round(began, 3),
        "ended": round(ended, 3),
        "others": _others(before_tokens, _counters(api), sum(tokens(one) for one in answers)),
        "figures": figures(answers),
    }


def _first(to: Target, bodies: list[bytes], asked: Asked) -> None:
    """Sends the requests that are not counted. Refusal if none of them is answered."""
    errors = [one.error for one in map(answer, closed_loop(to, bodies, 1, asked.timeout)) if one.error]
    if len(errors) == len(bodies):
        raise Refusal(
            f"a request is not answered: {errors[0]}; a stream of text is needed: look at the service with status.yml"
        )


def request_body(asked: Asked, text: str) -> bytes:
    # The first words differ: no server has this prompt in its cache.
    own = text if asked.cache_prompt else f"{uuid.uuid4().hex[:8]}: {text}"
    request: dict[str, Any] = {
        "messages": [{"role": "user", "content": own}],
        "max_tokens": asked.max_tokens,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
        "cache_prompt": asked.cache_prompt,
    }
    if asked.ignore_eos:
        request["ignore_eos"] = True
    if asked.model:
        request["model"] = asked.model
    return json.dumps(request).encode()


def _filler(api: LlamaApi, depth: int) -> tuple[str, bool]:
    """(text of `depth` tokens, whether the server counted them)"""
    if not depth:
        return "", True
    try:
        status, body = api.tokenize(FILLER, LOOK)
        given = table(body).get("tokens") if status == 200 else None
    except (NoAnswer, Refusal):
        given = None
    counted = isinstance(given, list) and bool(given)
    of_one = len(given) if counted and isinstance(given, list) else ABOUT
    words = FILLER.split(" ")
    part = " ".join(words[: round(len(words) * (depth % of_one) / of_one)])
    return FILLER * (depth // of_one) + part + "\n", counted


def _counters(api: LlamaApi) -> float | None:
    """Tokens that the server has generated in total; None if it does not report them."""
    try:
        status, text = api.get("/metrics", LOOK, of_model=True)
    except (NoAnswer, Refusal):
        return None
    return parse_metrics(text).get("tokens_predicted_total") if status == 200 and isinstance(text, str) else None


def _others(before: float | None, after: float | None, own: int) -> int | None:
    """Tokens that were generated for other clients meanwhile."""
    return None if before is None or after is None else max(0, int(after - before) - own)
