# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Names of raw pieces and shards, and which of them make one model. Private to the collection."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from typing import Optional

from .._model.describe import shard_name, shard_names
from .._text import Refusal

# What publishers append to NAME.gguf when they cut it into raw pieces: .part1of2, .part-01-of-02, .part00, -split-a.
_PIECE = re.compile(
    r"^(?P<stem>.+\.gguf)(?:[.-]part-?(?P<number>[0-9]+)(?:-?of-?(?P<count>[0-9]+))?|-split-(?P<letter>[a-z]))\Z"
)
# The name of the model, the number of the piece, and how many there are where the name says it.
PieceName = tuple[str, int, Optional[int]]


def piece_name(name: str) -> PieceName | None:
    """'m.gguf.part1of2' -> ('m.gguf', 1, 2); the count is None where the name does not say it; None for no piece's
    name."""
    match = _PIECE.match(name)
    if not match:
        return None
    number = ord(match.group("letter")) - ord("a") if match.group("letter") else int(match.group("number"))
    return match.group("stem"), number, int(match.group("count")) if match.group("count") else None


def order_files(names: Iterable[str], known: Collection[str] | None = None) -> list[str]:
    """The files of one model in order: one file, all raw pieces of one file, or all gguf-split shards.

    names: paths; known: all paths there are, so that the first shard stands for all of them. Raises Refusal naming what
    is missing.
    """
    names = list(names)
    if len(names) == 1 and known is not None and shard_name(names[0].rpartition("/")[2]):
        folder, slash, base = names[0].rpartition("/")
        names = [folder + slash + name for name in shard_names(base)]
        for name in names:
            if name not in known:
                raise Refusal(f"{name}: missing in the repository, the other shards are there: choose another quant")
        return names
    pieces = [(piece, name) for piece, name in zip(map(piece_name, names), names) if piece]
    if len(names) == 1 and not pieces:
        return names
    if len(pieces) == len(names):
        return _order_pieces(pieces)
    shards = [shard_name(name.rpartition("/")[2]) for name in names]
    if all(shards):
        wanted = shard_names(names[0].rpartition("/")[2])
        given = {name.rpartition("/")[2]: name for name in names}
        for name in wanted:
            if name not in given:
                raise Refusal(f"{name}: missing, {len(names)} of {len(wanted)} shards given: give all shards")
        if len(names) != len(wanted):
            raise Refusal(f"files: {', '.join(names)} are not the shards of one model: give the files of one model")
        return [given[name] for name in wanted]
    raise Refusal(
        f"files: {', '.join(names)} are neither one file nor the pieces or shards of one: give the files of one model"
    )


def _order_pieces(pieces: list[tuple[PieceName, str]]) -> list[str]:
    pieces.sort(key=lambda entry: entry[0][:2])
    stem, first, count = pieces[0][0]
    count = count or len(pieces)
    first = first if first in (0, 1) else 1
    numbers = [piece[1] for piece, _name in pieces]
    if any(piece[0] != stem for piece, _name in pieces):
        raise Refusal(
            "files: %s are pieces of different models: give the pieces of one"
            % ", ".join(name for _piece, name in pieces)
        )
    for number in range(first, first + count):
        if number not in numbers:
            raise Refusal(
                "%s: piece %d is missing, pieces %s are there: give all pieces"
                % (stem, number, ", ".join(map(str, numbers)))
            )
    if len(numbers) != count:
        raise Refusal(
            "%s: pieces %s are given, %d are needed: give every piece once"
            % (stem, ", ".join(map(str, numbers)), count)
        )
    return [name for _piece, name in pieces]


def model_name(names: Sequence[str]) -> str:
    """The file name under which the (ordered) files are published: a raw piece without its suffix, else the first
    one's."""
    base = names[0].rpartition("/")[2]
    piece = piece_name(base)
    return piece[0] if piece else base
