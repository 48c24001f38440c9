# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Using pieces that are on the node already, with at most one piece's worth of extra disk.

A piece that begins its target becomes the partial file by a rename; every other one is copied to its place, hashed as
it is copied, and removed once its bytes are on disk and in the journal. So what was adopted is safe at any moment,
either as the piece itself or as a recorded range of the partial file.
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

    def spans(self) -> list[tuple[int, Span]]:
        return spans_of(self.target, self.piece)


def spans_of(target: Target, piece: Piece) -> list[tuple[int, Span]]:
    """[(number, span)] that make up exactly this piece and have a digest; empty if there are none."""
    end = piece.offset + piece.size
    found = [(number, span) for number, span in enumerate(target.spans) if piece.offset <= span.start < end]
    total = sum(span.end - span.start for _number, span in found if span.sha256)
    return found if total == piece.size and found[-1][1].end == end else []


def find_pieces(paths: Sequence[str], targets: Sequence[Target]) -> list[Loose]:
    """[Loose] of every path that exists; paths that an earlier run has consumed are passed over.

    A path fits the piece of its size, preferably the one of its name. Raises Refusal for a file that others may write
    or exchange, one that fits no piece, and one without a known digest.
    """
    found: list[Loose] = []
    for path in paths if targets else ():
        try:
            descriptor = open_file(path)
        except FileNotFoundError:
            continue
        seen = os.fstat(descriptor)
        os.close(descriptor)
        target, piece = _match(path, seen.st_size, targets, [other.piece for other in found])
        first = not piece.offset and not target.ranges.total() and seen.st_nlink == 1
        here = os.stat(os.path.dirname(target.path)).st_dev if first else None
        found.append(Loose(path, target, piece, seen.st_dev == here))
    return found


def _match(path: str, size: int, targets: Sequence[Target], taken: Sequence[Piece]) -> tuple[Target, Piece]:
    pairs = [(target, piece) for target in targets for piece in target.pieces]
    fitting = [pair for pair in pairs if pair[1].size == size and pair[1] not in taken]
    fitting.sort(key=lambda pair: pair[1].source.name != os.path.basename(path))
    if not fitting:
        sizes = ", ".join(exact(piece.size) for _target, piece in pairs)
        raise Refusal(f"adopt: {path} has {exact(size)}, the pieces have {sizes}: finish, move or remove it")
    for target, piece in fitting:
        if spans_of(target, piece):
            return target, piece
    raise Refusal(
        f"adopt: {path}: no sha256 of {fitting[0][1].source.name} is known, one is needed to use it: give that sha256, "
        "or move the file away and it is fetched"
    )


def extra_disk(pieces: Sequence[Loose]) -> int:
    """Bytes needed for a moment beyond the finished files: the largest piece that is copied and then removed."""
    return max((loose.piece.size for loose in pieces if not loose.renamed), default=0)


def adopt(pieces: Sequence[Loose], advance: Advance) -> None:
    """Use what find_pieces() found: the targets are loaded but not open before, open but not allocated after.

    advance(bytes) is called as it goes. Raises Refusal if a digest differs; that piece is left as it is.
    """
    for loose in pieces:
        if loose.renamed:
            _rename(loose, advance)
    for target in {id(loose.target): loose.target for loose in pieces}.values():
        target.open()
    for loose in sorted((loose for loose in pieces if not loose.renamed), key=lambda loose: loose.piece.size):
        if loose.target.ranges.gaps(loose.piece.offset, loose.piece.offset + loose.piece.size):
            _copy(loose, advance)
        os.unlink(loose.path)


def _rename(loose: Loose, advance: Advance) -> None:
    target, spans = loose.target, loose.spans()
    digests = hash_pieces(loose.path, [span.end - span.start for _number, span in spans], advance)
    for (number, span), digest in zip(spans, digests):
        _accept(loose, number, span, digest)
    with open(loose.path, "rb") as stream:
        os.fsync(stream.fileno())
    target.ranges.add(0, loose.piece.size)
    target.discard()
    # Recorded before it is renamed: the next run would discard a partial file without a record.
    target.journal.start(target.identity, target.ranges)
    os.rename(loose.path, target.partial)


def _copy(loose: Loose, advance: Advance) -> None:
    target, piece = loose.target, loose.piece
    buffer = memoryview(bytearray(BLOCK))
    try:
        with open(loose.path, "rb", buffering=0) as stream:
            for number, span in loose.spans():
                digest, position = hashlib.sha256(), span.start
                while position < span.end:
                    count = stream.readinto(buffer[: span.end - position])
                    if not count:
                        raise Refusal(f"adopt: {loose.path} became shorter while it was read: run again")
                    digest.update(buffer[:count])
                    target.write(buffer[:count], position)
                    position += count
                    advance(count)
                _accept(loose, number, span, digest.hexdigest())
    except BaseException:
        target.forget(piece.offset, piece.offset + piece.size)
        raise
    target.ranges.add(piece.offset, piece.offset + piece.size)
    try:
        target.journal.add(piece.offset, piece.offset + piece.size)
        target.flush()
        target.journal.durable(target.journal.count)
    except OSError as error:
        raise disk_failure(target.partial, error) from None


def _accept(loose: Loose, number: int, span: Span, digest: str) -> None:
    if digest == span.sha256:
        loose.target.digests[number] = digest
        return
    if loose.path.endswith(SENT):
        os.unlink(loose.path)
        raise Refusal(
            f"bundle: {os.path.basename(loose.target.path)} arrived with sha256 {digest}, {span.sha256} is needed by "
            "bundle.json: run sha256sum -c SHA256SUMS in the bundle and copy it again"
        )
    needed = f"{loose.piece.source.name} needs {span.sha256}"
    raise Refusal(f"adopt: {loose.path} has sha256 {digest}, {needed}: move or remove it and it is fetched")
