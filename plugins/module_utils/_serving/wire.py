# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What goes over the wire between a head and its workers while it answers. Never touches an RPC port. Private to the
collection.

Two questions are asked: one that is generated token by token, whose bytes and text are judged, and a prompt of some
micro-batches, whose bytes and speed are told apart from it.
"""

from __future__ import annotations

import time
from typing import Any

from .._llama.api import NoAnswer, count, error_text, rows, table
from .._model.gguf import read_path
from .._node.sockets import connections, traffic
from .._text import Refusal
from .health import LOOK, Head

QUESTION = "Count from one to twenty in words, then say which of these numbers are prime."
TOKENS = 64
# At most so many answers, however long they are to go on.
ANSWERS = 20
# What is kept of a text: 64 tokens are far from it.
CHARACTERS = 4096
# Micro-batches of the prompt.
UBATCHES = 4
# Of which it consists, over and over.
TEXT = "The miller counted forty sacks of rye before the river rose and took the lowest of his three bridges. "
# Of a slot it fills at most this much.
SHARE = 0.75
Wire = dict[str, Any]


def look(head: Head, model_path: str, ubatch: int, seconds: float, timeout: float) -> Wire:
    """-> result of llama_wire, see there. seconds: how long answers are generated, one after the other, at least one.

    A head that serves others is asked nothing, its bytes would be theirs too. Errors: Refusal.
    """
    found: Wire = head.check()
    found.update(model=dimensions(model_path), connections=ends(head), decode=None, prefill=None)
    if found["state"] != "ready":
        return found
    found["decode"] = _decode(head, seconds, timeout)
    found["prefill"] = _prefill(head, ubatch, found["n_ctx"] or 0, timeout)
    # A connection that was lost meanwhile was none.
    found["connections"] = ends(head)
    return found


def dimensions(path: str) -> dict[str, int | None]:
    """-> {n_embd, n_vocab} of a model file: a stage hands on n_embd numbers a token, the last one n_vocab."""
    tensors = {tensor.name: tensor.dims for tensor in read_path(path).tensors}
    dims = tensors.get("token_embd.weight") or ()
    n_embd, n_vocab = dims if len(dims) == 2 else (None, None)
    return {"n_embd": n_embd, "n_vocab": n_vocab}


def ends(head: Head) -> list[Wire]:
    """The established connections of the head's process to each worker -> [{endpoint, ends: [[local, remote]]}]."""
    return [
        {"endpoint": one.endpoint, "ends": sorted([_shown(local), _shown(remote)] for local, remote in one.ends)}
        for one in (connections(head.endpoints, head.pid) if head.pid else [])
    ]


def _shown(end: tuple[str, int]) -> str:
    return "%s:%d" % end


def _decode(head: Head, seconds: float, timeout: float) -> Wire:
    texts: list[str] = []
    total = {"prompt_tokens": 0, "tokens": 0, "answers": 0}
    rates: list[float] = []
    began, start = time.time(), time.monotonic()
    before = connections(head.endpoints, head.pid)
    while not texts or (time.monotonic() - start < seconds and len(texts) < ANSWERS):
        request = {"messages": [{"role": "user", "content": QUESTION}], "max_tokens": TOKENS, "seed": 0}
        body = _ask(head, dict(request, ignore_eos=True), timeout)
        timings = table(body.get("timings"))
        message = table((rows(body.get("choices")) or [{}])[0].get("message"))
        texts.append(str(message.get("reasoning_content") or "") + str(message.get("content") or ""))
        total["prompt_tokens"] += count(timings.get("prompt_n"))
        total["tokens"] += count(timings.get("predicted_n"))
        total["answers"] += 1
        rates.append(_rate(timings.get("predicted_per_second")))
    workers = [one._asdict() for one in traffic(before, connections(head.endpoints, head.pid))]
    return dict(
        total,
        began=round(began, 3),
        ended=round(time.time(), 3),
        text=texts[0][:CHARACTERS],
        same=len(set(texts)) == 1,
        tokens_per_second=round(sorted(rates)[len(rates) // 2], 2),
        workers=workers,
    )


def _prefill(head: Head, ubatch: int, slot: int, timeout: float) -> Wire:
    wanted = min(UBATCHES * ubatch, int(slot * SHARE)) if slot else UBATCHES * ubatch
    try:
        status, answer = head.api.tokenize(TEXT, LOOK)
    except NoAnswer as error:
        raise Refusal(f"/tokenize is not answered ({error}): see the journal of {head.unit}") from None
    given = table(answer).get("tokens")
    if status != 200 or not isinstance(given, list) or not given:
        raise Refusal("/tokenize is answered %d (%s), a list of tokens is needed" % (status, error_text(answer)))
    text = TEXT * max(1, wanted // len(given))
    before = connections(head.endpoints, head.pid)
    body = _ask(head, {"messages": [{"role": "user", "content": text}], "max_tokens": 1}, timeout)
    timings = table(body.get("timings"))
    return {
        "prompt_tokens": count(timings.get("prompt_n")),
        "ubatches": round(count(timings.get("prompt_n")) / float(ubatch), 1),
        "tokens_per_second": round(_rate(timings.get("prompt_per_second")), 2),
        "workers": [one._asdict() for one in traffic(before, connections(head.endpoints, head.pid))],
    }


def _ask(head: Head, request: Wire, timeout: float) -> Wire:
    """An answer that is computed in full: a cached prompt would not pass through the workers. Errors: Refusal."""
    try:
        status, body = head.api.converse(dict(request, cache_prompt=False), timeout)
    except NoAnswer as error:
        raise Refusal(
            f"a completion is not answered ({error}): see the journals of {head.unit} and of its workers"
        ) from None
    if status != 200 or not isinstance(body, dict):
        raise Refusal("a completion is answered %d (%s): see the journal of %s" % (status, error_text(body), head.unit))
    return body


def _rate(value: Any) -> float:
    """Tokens a second."""
    return float(value) if isinstance(value, (int, float)) and 0 < value < 1e9 else 0.0
