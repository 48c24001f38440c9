# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The access log: a line of JSON for each request, without any text of prompts or answers. Private to the
collection."""

from __future__ import annotations

import json
import time
from typing import Any

from .._node.notify import say


class Entry:
    """The log entry of a request."""

    def __init__(self) -> None:
        self.began = time.monotonic()
        self.fields: dict[str, Any] = {
            "time": round(time.time(), 3),
            "service": None,
            "node": None,
            "model": None,
            "key": None,
            "key_seen": "none",
            "status": None,
            "ttfb": None,
            "seconds": None,
            "bytes_in": 0,
            "bytes_out": 0,
            "queued": 0.0,
            # Reported by the server.
            "prompt_seconds": None,
            "generation_seconds": None,
            "prompt_tokens": None,
            "cached_tokens": None,
            "tokens": None,
            "tries": 0,
            "fallback": None,
            "method": None,
            "path": None,
            "client": None,
        }

    def set(self, **fields: Any) -> None:
        self.fields.update(fields)

    def first_byte(self, status: int) -> None:
        self.fields["status"] = status
        self.fields["ttfb"] = round(time.monotonic() - self.began, 4)

    def sent(self, count: int) -> None:
        self.fields["bytes_out"] += count

    def queued(self, seconds: float) -> None:
        self.fields["queued"] = round(self.fields["queued"] + seconds, 4)

    def tried(self, node: str | None) -> None:
        self.fields["tries"] += 1
        self.fields["node"] = node

    def write(self) -> None:
        self.fields["seconds"] = round(time.monotonic() - self.began, 4)
        say(json.dumps(self.fields))
