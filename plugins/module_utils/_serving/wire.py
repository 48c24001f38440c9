# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Counts the bytes between a head and its workers while it generates. Private to the
collection."""

from __future__ import annotations

import time
from typing import Any

from .._llama.api import NoAnswer, count, error_text, table
from .._node.sockets import connections, traffic
from .._text import Refusal
from .health import SLEEPS, Head

QUESTION = "Count from one to twenty in words, then say which of these numbers are prime."
TOKENS = 64
# At most so many answers, however long they are to go on.
ANSWERS = 20
Wire = dict[str, Any]


def look(head: Head, seconds: float, timeout: float) -> Wire:
    """-> result of llama_wire, see there. seconds: how long answers are generated, one after the other, at least one.

    Only of an idle head: other requests move bytes, too. Errors: Refusal.
    """
    found: Wire = head.check()
    if found["reason"] == SLEEPS:
        _ask(head, timeout)  # its connections are closed until then
    found.update(decode=_decode(head, seconds, timeout) if found["state"] == "ready" else None)
    # Lost connections do not count.
    found.update(connections=ends(head))
    return found


def ends(head: Head) -> list[Wire]:
    """The established connections of the head's process to each worker -> [{endpoint, ends: [[local, remote]]}]."""
    return [
        {"endpoint": one.endpoint, "ends": sorted([_shown(local), _shown(remote)] for local, remote in one.ends)}
        for one in (connections(head.endpoints, head.pid) if head.pid else [])
    ]


def _shown(end: tuple[str, int]) -> str:
    return "%s:%d" % end


def _decode(head: Head, seconds: float, timeout: float) -> Wire:
    tokens = 0
    rates: list[float] = []
    began, start = time.time(), time.monotonic()
    before = connections(head.endpoints, head.pid)
    while not rates or (time.monotonic() - start < seconds and len(rates) < ANSWERS):
        timings = table(_ask(head, timeout).get("timings"))
        tokens += count(timings.get("predicted_n"))
        rates.append(_rate(timings.get("predicted_per_second")))
    return {
        "tokens": tokens,
        "answers": len(rates),
        "began": round(began, 3),
        "ended": round(time.time(), 3),
        "tokens_per_second": round(sorted(rates)[len(rates) // 2], 2),
        "workers": [one._asdict() for one in traffic(before, connections(head.endpoints, head.pid))],
    }


def _ask(head: Head, timeout: float) -> Wire:
    """An uncached answer: a cached prompt would not pass through the workers. Errors: Refusal."""
    request = {"messages": [{"role": "user", "content": QUESTION}], "max_tokens": TOKENS, "seed": 0}
    try:
        status, body = head.api.converse(dict(request, ignore_eos=True, cache_prompt=False), timeout)
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
