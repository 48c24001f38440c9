# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads a passing answer: whether an event has come, and the cost of the answer. Private to the collection."""

from __future__ import annotations

import re
from typing import Any

# Bytes of a line that show its kind.
LINE = 64
# Bytes at the beginning and at the end of an answer that contain its cost.
BEGINNING, END = 1 << 10, 2 << 10
# Numbers in JSON, with few enough digits. Within a string the quotes are escaped.
NUMBERS = re.compile(
    rb'"((?:cache|prompt|predicted)_n|(?:prompt|predicted)_ms|(?:prompt|(?:cache_read_)?input|completion|output|cached)_tokens)"'
    rb"[ ]?:[ ]?([0-9]{1,9}(?:\.[0-9]{1,20})?)[ \r\n]*[,}]"
)


class Events:
    """An event stream. Comments, pings and events without data only show that the server runs."""

    def __init__(self) -> None:
        self._line = b""  # the beginning of the current line
        self._return = False  # whether the last line ended with a carriage return, whose line feed may follow
        self._ping = False  # whether the current event is a ping

    def feed(self, content: bytes) -> bool:
        """Whether the content has data."""
        found = False
        for piece in content.splitlines(True):
            if self._return and piece == b"\n":
                self._return = False
                continue
            self._line = (self._line + piece[:LINE])[:LINE]
            ends = piece.endswith((b"\n", b"\r"))
            self._return = piece.endswith(b"\r")
            field, colon, value = self._line.rstrip(b"\r\n").partition(b":")
            if field == b"data" and (colon or ends):
                found = found or not self._ping
            elif field == b"event" and ends:
                self._ping = value.strip() == b"ping"
            if ends:
                if not self._line.strip():
                    self._ping = False
                self._line = b""
        return found


def only_comments(content: bytes) -> bool:
    """Whether the content consists of complete comment lines: another stream may follow."""
    return content.endswith((b"\n", b"\r")) and all(line[:1] in (b"", b":") for line in content.splitlines())


class Cost:
    """The cost of an answer as its server reports it, by `usage` of OpenAI or Anthropic and by its own `timings`."""

    def __init__(self) -> None:
        self._beginning, self._end = b"", b""

    def feed(self, content: bytes) -> None:
        if len(self._beginning) < BEGINNING:
            self._beginning += content[:BEGINNING]
        self._end = (self._end + content[-END:])[-END:]

    def found(self) -> dict[str, Any]:
        """Fields of the log; None if not reported."""
        text = self._beginning + b"\n" + self._end
        seen = {name.decode("ascii"): float(number) for name, number in NUMBERS.findall(text)}

        def count(*names: str) -> int | None:
            return next((int(seen[name]) for name in names if name in seen), None)

        def seconds(name: str) -> float | None:
            return round(seen[name] / 1000, 3) if name in seen else None

        cached = count("cache_n", "cached_tokens", "cache_read_input_tokens")
        prompt = count("prompt_tokens", "input_tokens", "prompt_n")
        whole = "prompt_tokens" in seen or ("input_tokens" in seen and "cache_read_input_tokens" not in seen)
        if prompt is not None and not whole:
            # Anthropic's fields and the timings leave out cached tokens.
            prompt += cached or 0
        return {
            "prompt_tokens": prompt,
            "cached_tokens": cached,
            "tokens": count("completion_tokens", "output_tokens", "predicted_n"),
            "prompt_seconds": seconds("prompt_ms"),
            "generation_seconds": seconds("predicted_ms"),
        }
