# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Using pieces that are on the node already, with at most one piece's worth of extra disk.

All pieces are verified first. One that begins its target becomes the partial file by a rename; every other one is
copied to its place, hashed again as it is copied, and removed once its bytes are on disk and in the journal. So an
adopted piece is safe at any time, either as itself or as a recorded range of the partial file.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from typing import NamedTuple

from .._files import open_file
from .._text import Refusal, exact
from .manifest import hash_pieces
from .request import SENT, Advance
from .target import BLOCK, Piece, Span, Target, disk_failure


class Loose(NamedTuple):
    """A file on the node, and the piece of a target that it may be. renamed: whether it becomes the partial file."""

    path: str
    target: Target
    piece: Piece
    renamed: bool


def spans_of(target: Target, piece: Piece) -> list[tuple[int, Span]]:
    """[(number, span)] that make up exactly this piece and have a digest, or []."""
    end = piece.offset + piece.size
    found = [(number, span) for number, span in enumerate(target.spans) if piece.offset <= span.start < end]
    total = sum(span.end - span.start for _number, span in found if span.sha256)
    return found if total == piece.size and found[-1][1].end == end else []


def find_pieces(paths: Sequence[str], targets: Sequence[Target]) -> list[Loose]:
    """[Loose] of every path that exists.

    Raises Refusal for a file that others may write or exchange, one whose name or size is no piece's, and one without a
    known digest. Without targets no path is needed.
    """
    by_name = {os.path.basename(path): path for path in paths if os.path.lexists(path)}
    pieces = {piece.source.name: (target, piece) for target in targets for piece in target.pieces}
    found: list[Loose] = []
    for name, path in by_name.items() if targets else ():
        if name not in pieces:
            known = ", ".join(pieces)
            raise Refusal(f"adopt: {path}: no missing piece has this name, they are {known}: rename, move or remove it")
        target, piece = pieces[name]
        descriptor = open_file(path)
        seen = os.fstat(descriptor)
        os.close(descriptor)
        if seen.st_size != piece.size:
            size = f"{exact(seen.st_size)}, {exact(piece.size)} needed"
            raise Refusal(f"adopt: {path} has {size}: finish, move or remove it")
        if not spans_of(target, piece):
            raise Refusal(
                f"adopt: {path}: no sha256 of {name} is known, one is needed to use it: give that sha256, or move the "
                "file away and it is fetched"
            )
        first = not piece.offset and not target.ranges.total() and seen.st_nlink == 1
        found.append(Loose(path, target, piece, first and seen.st_dev == os.stat(os.path.dirname(target.path)).st_dev))
    return found


def extra_disk(pieces: Sequence[Loose]) -> int:
    """Bytes needed for a moment beyond the finished files: the largest piece that is copied and then removed."""
    return max((loose.piece.size for loose in pieces if not loose.renamed), default=0)


def bytes_to_read(pieces: Sequence[Loose]) -> int:
    """Bytes that adopt() reads: a piece that is copied is read twice."""
    return sum(loose.piece.size * (1 if loose.renamed else 2) for loose in pieces)


def adopt(pieces: Sequence[Loose], advance: Advance) -> None:
    """Use the pieces of find_pieces(): the targets are loaded but not open before, open but not allocated after.

    advance(bytes) is called as it goes. Raises Refusal if a digest differs; nothing has been changed then.
    """
    for loose in pieces:
        _verify(loose, advance)
    for loose in pieces:
        if loose.renamed:
            _rename(loose)
    for target in {id(loose.target): loose.target for loose in pieces}.values():
        target.open()
    for loose in sorted((loose for loose in pieces if not loose.renamed), key=lambda loose: loose.piece.size):
        if loose.target.ranges.gaps(loose.piece.offset, loose.piece.offset + loose.piece.size):
            _copy(loose, advance)
        os.unlink(loose.path)


def _verify(loose: Loose, advance: Advance) -> None:
    spans = spans_of(loose.target, loose.piece)
    digests = hash_pieces(loose.path, [span.end - span.start for _number, span in spans], advance)
    for (number, span), digest in zip(spans, digests):
        if digest == span.sha256:
            loose.target.digests[number] = digest
        elif loose.path.endswith(SENT):
            os.unlink(loose.path)
            raise Refusal(
                f"bundle: {os.path.basename(loose.target.path)} arrived with sha256 {digest}, {span.sha256} is needed "
                "by bundle.json: run sha256sum -c SHA256SUMS in the bundle and copy it again"
            )
        else:
            needed = f"{loose.piece.source.name} needs {span.sha256}"
            raise Refusal(f"adopt: {loose.path} has sha256 {digest}, {needed}: move or remove it and it is fetched")


def _rename(loose: Loose) -> None:
    target = loose.target
    with open(loose.path, "rb") as stream:
        os.fsync(stream.fileno())
    target.ranges.add(0, loose.piece.size)
    target.discard()
    # Recorded before it is renamed: the next run would discard a partial file without a record.
    target.journal.start(target.identity, target.ranges)
    os.rename(loose.path, target.partial)


def _copy(loose: Loose, advance: Advance) -> None:
    target, start, end = loose.target, loose.piece.offset, loose.piece.offset + loose.piece.size
    with open(loose.path, "rb") as stream:
        for _number, span in spans_of(target, loose.piece):
            digest = hashlib.sha256()
            for position in range(span.start, span.end, BLOCK):
                data = stream.read(min(BLOCK, span.end - position))
                digest.update(data)
                target.write(memoryview(data), position)
                advance(len(data))
            if digest.hexdigest() != span.sha256:
                raise Refusal(f"adopt: {loose.path} changed while it was read: run again")
    target.ranges.add(start, end)
    try:
        target.journal.add(start, end)
        target.flush()
        target.journal.durable(target.journal.count)
    except OSError as error:
        raise disk_failure(target.partial, error) from None
