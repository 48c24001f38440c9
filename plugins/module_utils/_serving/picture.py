# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The picture that a server with a projector is asked about. Private to the collection."""

from __future__ import annotations

import base64
import struct
import zlib
from typing import Any, Optional

SIDE = 64
RED = b"\xff\x00\x00"


def _png() -> bytes:
    """A red square."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    lines = (b"\0" + RED * SIDE) * SIDE
    head = struct.pack(">IIBBBBB", SIDE, SIDE, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(lines)) + chunk(b"IEND", b"")


def with_picture(prompt: str) -> dict[str, Any]:
    """The request for an answer to a prompt with the picture."""
    url = "data:image/png;base64," + base64.b64encode(_png()).decode("ascii")
    parts = [{"type": "text", "text": prompt}, {"type": "image_url", "image_url": {"url": url}}]
    return {"messages": [{"role": "user", "content": parts}]}


def judge_picture(tokens: int, without: int) -> tuple[Optional[str], Optional[str]]:
    """tokens: of the prompt with the picture; without: of the same prompt. Returns the result and the error."""
    if tokens > without:
        return "%d tokens read" % (tokens - without), None
    return None, (
        "a picture added no tokens to a prompt of %d, some are needed: set the mmproj that was made for this model"
        % without
    )
