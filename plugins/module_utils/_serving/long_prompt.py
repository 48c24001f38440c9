# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Fills a slot with a long prompt, part by part: the slot keeps the parts before. Private to the collection."""

import time
from typing import Any

from .._llama.api import NoAnswer, error_text, table
from .._text import Refusal
from .health import LOOK, Head

SHARE = 0.9
PARTS = 10
# The prompt repeats this.
TEXT = "The quick brown fox jumps over the lazy dog and runs along the river until the evening comes. "
NEXT = "lower slot_ctx_size or ubatch_size"


def read_part(head: Head, part: int, timeout: float) -> dict[str, Any]:
    """part: 1 to PARTS. -> {state, reason, tokens: of this part, whole: of the prompt, slot: tokens of one, seconds}

    A busy head is not used: its state is busy. Errors: Refusal, if the part is not read as requested.
    """
    look = head.check()
    found = {"state": look["state"], "reason": look["reason"], "tokens": 0, "whole": 0, "slot": 0, "seconds": 0.0}
    if look["state"] != "ready" or not look["n_ctx"]:
        return found
    whole = int(look["n_ctx"] * SHARE)
    tokens = whole * part // PARTS
    start = time.monotonic()
    try:
        status, body = head.api.tokenize(TEXT, LOOK)
        given = table(body).get("tokens")
        words = [one for one in given if isinstance(one, int) and 0 <= one < 2**31] if isinstance(given, list) else []
        if status != 200 or not words:
            raise Refusal("/tokenize is answered %d (%s), a list of tokens is needed" % (status, error_text(body)))
        status, body = head.api.read((words * (tokens // len(words) + 1))[:tokens], timeout)
    except NoAnswer as error:
        if error.kind == "timeout":  # a head that hangs is ended by the watchdog, which cuts the connection
            return dict(found, state="busy", reason=str(error))
        changes = head.unanswered(error, timeout)
        seen = "a prompt of %d tokens in a slot of %d: %s" % (tokens, look["n_ctx"], changes["reason"])
        raise Refusal(f"{seen}: {NEXT}") from None
    seen = "a prompt of %d tokens in a slot of %d is answered %d" % (tokens, look["n_ctx"], status)
    if status != 200:
        raise Refusal(f"{seen} ({error_text(body)}), 200 is needed: {NEXT}")
    counted = table(body).get("tokens_evaluated")
    if counted != tokens:
        raise Refusal(f"{seen}, but {counted} tokens of it were read, all are needed: {NEXT}")
    seconds = round(time.monotonic() - start, 1)
    return dict(found, tokens=tokens, whole=whole, slot=look["n_ctx"], seconds=seconds)
