# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How many bytes a worker sends back for a token. Private to the collection.

Measured with b7772 and b11434 (docs/wire.md): a stage hands on n_embd numbers of four bytes for each token that is
read or generated, in an answer of eight bytes more; the last stage hands on n_vocab numbers for each token that is
answered, and nothing for the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from .wire_seen import Map, Seen

NUMBER = 4  # bytes
# Bytes of an answer around its numbers; older builds also answer that a graph was computed.
ANSWER, ANSWERS = 8, 32


class Bytes(NamedTuple):
    """least and most: what is expected of a worker for all that was asked. tokens: read and generated."""

    seen: int
    least: int
    most: int
    tokens: int


def expected(head: Map, seen: Seen) -> list[Bytes | None]:
    """Of each worker, None where bytes or the model's dimensions are not known."""
    decode, model = seen.wire["decode"], seen.wire["model"]
    n_embd, n_vocab = model.get("n_embd"), model.get("n_vocab")
    moved = {one["endpoint"]: one["bytes_received"] for one in decode["workers"]}
    last = _last(head, seen.load["devices"])
    generated, read, answers = decode["tokens"], decode["prompt_tokens"], decode["answers"]
    # The last token of an answer is not read again.
    handed = read + generated - answers
    found: list[Bytes | None] = []
    for share in head["shares"]:
        count = moved.get(share["endpoint"])
        if count is None or not n_embd or not n_vocab:
            found.append(None)
            continue
        least = (generated * n_vocab if share["endpoint"] == last else handed * n_embd) * NUMBER
        # An answer for each token at most, while prompts are read in batches.
        found.append(Bytes(count, least + ANSWER * generated, least + ANSWERS * (generated + read), handed))
    return found


def per_token(count: int, tokens: int) -> int:
    return round(count / tokens) if tokens else 0


def _last(head: Map, devices: Sequence[Map]) -> str | None:
    """The endpoint of the worker that has the output; None where a card of the head has it, which comes after them."""
    own = [one for one in devices if one["endpoint"] is None and one["layers"]]
    if own and head["cards"] != []:
        return None
    holding = [share["endpoint"] for share in head["shares"] if _layers(devices, share["endpoint"])]
    return holding[-1] if holding else None


def _layers(devices: Sequence[Map], endpoint: str) -> int:
    return sum(one["layers"] or 0 for one in devices if one["endpoint"] == endpoint)
