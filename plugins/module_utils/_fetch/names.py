# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Names of raw pieces and shards, and which of them make one model. Private to the collection."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence

from .._model.describe import shard_name, shard_names
from .._text import Refusal

# Suffixes of raw pieces: .part1of2, .part-01-of-02, .part00, -split-a.
_PIECE = re.compile(
    r"^(?P<stem>.+\.gguf)(?:[.-]part-?(?P<number>[0-9]+)(?:-?of-?(?P<count>[0-9]+))?|-split-(?P<letter>[a-z]))\Z"
)


def piece_name(name: str) -> tuple[str, int, int] | None:
    """'m.gguf.part1of2' -> ('m.gguf', 1, 2); the count is 0 if the name does not have it; None for other names."""
    match = _PIECE.match(name)
    if not match:
        return None
    letter = match.group("letter")
    number = ord(letter) - ord("a") if letter else int(match.group("number"))
    return match.group("stem"), number, int(match.group("count") or 0)


def order_files(names: Iterable[str], known: Collection[str] | None = None) -> list[str]:
    """The files of one model in order: one file, all raw pieces of one file, or all gguf-split shards.

    names: paths; known: all existing paths, so that the first shard stands for all of them. Raises Refusal that names
    what is missing.
    """
    names = list(names)
    if len(names) == 1 and known is not None:
        folder, slash, base = names[0].rpartition("/")
        names = [folder + slash + name for name in shard_names(base)]
        for name in names:
            if name not in known:
                raise Refusal(f"{name}: missing in the repository, the other shards are there: choose another quant")
    if len(names) == 1 and not piece_name(names[0]):
        return names
    found = sorted((piece_name(name) or shard_name(name) or ("", 0, 0), name) for name in names)
    (stem, first, count), _name = found[0]
    if not stem or any(key[0] != stem for key, _name in found):
        raise Refusal(
            f"files: {', '.join(names)} are not one file, or its pieces or shards: give the files of one model"
        )
    first = min(first, 1)
    numbers = [key[1] for key, _name in found]
    needed = list(range(first, first + (count or numbers[-1] + 1 - first)))
    if numbers != needed:
        raise Refusal(f"{stem}: pieces {numbers} given, {needed} needed: give every piece once")
    return [name for _key, name in found]


def model_name(names: Sequence[str]) -> str:
    """The file name under which the (ordered) files are published: a raw piece without its suffix, else the name of the
    first one."""
    base = names[0].rpartition("/")[2]
    piece = piece_name(base)
    return piece[0] if piece else base
