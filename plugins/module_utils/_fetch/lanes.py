# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What several connections share out among them: chunks of the spans that are hashed side by side. Private to the
collection."""

from __future__ import annotations

import time
from collections.abc import Iterable

from .errors import Transient
from .http import Client
from .sources import Body
from .target import Piece, Target

_READ = 64 << 10  # bytes received at once, so that a slow connection shows progress too
_HELD_UP = 5.0  # seconds that a chunk is given before an idle connection takes the rest of it, doubled each time
_MAX_TAKEN = 5  # times


class Segment:
    """The part of a piece that lies in one span, with its bytes still to be asked for."""

    def __init__(self, target: Target, piece: Piece, start: int, end: int) -> None:
        self.target, self.piece = target, piece
        self.gaps = target.ranges.gaps(start, end)

    def take(self, size: int) -> tuple[int, int] | None:
        """(start, end) of the next at most ``size`` bytes, or None."""
        if not self.gaps:
            return None
        start, end = self.gaps[0]
        cut = min(end, start + size) if self.piece.source.ranges else end
        self.gaps[0:1] = [(cut, end)] if cut < end else []
        return start, cut


class Chunk:
    """Bytes that one connection fetches: [start, end) of a segment's target, those before ``position`` are written or
    being written."""

    def __init__(self, segment: Segment, start: int, end: int, taken: int = 0) -> None:
        self.segment, self.start, self.end, self.taken = segment, start, end, taken
        self.position, self.begun = start, time.monotonic()
        self.client: Client | None = None


def held_up(chunks: Iterable[Chunk], now: float, usual: float) -> Chunk | None:
    """The chunk that holds the transfer up longest, None when none does. usual: bytes per second that a connection has
    got so far.

    That is one whose connection is four times slower than usual, had its time to begin, and needs longer than that for
    the rest.
    """
    found: Chunk | None = None
    longest = 0.0
    for chunk in chunks:
        went, left = now - chunk.begun, chunk.end - chunk.position
        patience = _HELD_UP * 2**chunk.taken
        if not chunk.segment.piece.source.ranges or chunk.taken == _MAX_TAKEN or not left or went < patience:
            continue
        rate = (chunk.position - chunk.start) / went
        needs = left / rate if rate else float("inf")
        if rate < usual / 4 and needs > max(patience, longest):
            found, longest = chunk, needs
    return found


class Lane:
    """One span of one target: its segments in order, and its digest in the making."""

    def __init__(self, target: Target, number: int) -> None:
        self.target, self.number, self.span = target, number, target.spans[number]
        self.segments: list[Segment] = []
        for piece in target.pieces:
            start, end = max(self.span.start, piece.offset), min(self.span.end, piece.offset + piece.size)
            if not piece.source.ranges and self.span.start <= piece.offset < self.span.end:
                # A source without ranges comes in one go from its first byte: what an earlier run has of it is of no
                # use.
                end = piece.offset + piece.size
                if target.ranges.gaps(start, end):
                    target.ranges.remove(start, end)
            elif not piece.source.ranges:
                continue
            if start < end:
                self.segments.append(Segment(target, piece, start, end))

    def waiting(self) -> int:
        return sum(end - start for segment in self.segments for start, end in segment.gaps)

    def take(self, size: int) -> tuple[Segment, tuple[int, int]] | None:
        for segment in self.segments:
            chunk = segment.take(size)
            if chunk:
                return segment, chunk
        return None


def fill(body: Body, buffer: memoryview) -> tuple[int, Transient | None]:
    """Receive a bufferful, less when a second has passed or the body ends. -> (bytes received, the Transient that ended
    it or None)"""
    filled, deadline = 0, time.monotonic() + 1.0
    try:
        while filled < len(buffer) and body.length and time.monotonic() < deadline:
            filled += body.readinto(buffer[filled : filled + _READ])
    except Transient as failure:
        return filled, failure
    return filled, None
