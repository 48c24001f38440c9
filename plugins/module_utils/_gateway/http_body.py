# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Decodes the body of an HTTP/1.1 answer piece by piece. Private to the collection."""

from __future__ import annotations

import re

SIZE = re.compile(rb"^([0-9a-fA-F]{1,15})[ \t]*(?:;[^\r\n]*)?\r\n\Z")
# Bytes of a chunk's line.
LINE = 4096
# The end of a body in chunks.
LAST = b"0\r\n\r\n"


def chunk(content: bytes) -> bytes:
    """A chunk. Without content it is empty, since a chunk of no bytes ends the body."""
    return b"%x\r\n%s\r\n" % (len(content), content) if content else b""


class Plain:
    """A body of a known length, or with None until the connection ends. feed(data) -> content."""

    def __init__(self, length: int | None) -> None:
        self.left = length
        self.done = length == 0

    def feed(self, data: bytes) -> bytes:
        if self.left is not None:
            data = data[: self.left]
            self.left -= len(data)
            self.done = not self.left
        return data


class Chunks:
    """A chunked body. feed(data) -> content. Errors: ValueError."""

    def __init__(self) -> None:
        self.done = False
        self._left = 0  # bytes left of a chunk, with its line end
        self._line = b""
        self._trailer = False

    def feed(self, data: bytes) -> bytes:
        at, content = 0, []
        while at < len(data) and not self.done:
            if self._left:
                step = min(self._left, len(data) - at)
                content.append(data[at : at + max(0, min(step, self._left - 2))])
                self._left -= step
                at += step
                continue
            end = data.find(b"\n", at) + 1 or len(data)
            self._line += data[at:end]
            at = end
            if len(self._line) > LINE:
                raise ValueError("the line of a chunk is too long")
            if self._line.endswith(b"\n"):
                self._end_line(self._line)
                self._line = b""
        return b"".join(content)

    def _end_line(self, line: bytes) -> None:
        if self._trailer:
            self.done = line == b"\r\n"
            return
        size = SIZE.match(line)
        if not size:
            raise ValueError("no size of a chunk")
        length = int(size.group(1), 16)
        self._trailer = not length
        self._left = length + 2 if length else 0
