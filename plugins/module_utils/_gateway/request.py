# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads a client's request: one per connection, with a length. Ambiguous requests are refused. Private to the
collection."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from typing import Callable, NamedTuple

from . import answers, paths
from .answers import Answer, Answered
from .paths import Target

# Bytes of a head, and of a body: nginx allows far less (gateway_max_body).
HEAD, BODY = 64 << 10, 256 << 20
LINE = re.compile(r"^([A-Z]{1,20}) (\S+) HTTP/1\.1\Z")
NAME = re.compile(r"^[!#$%&'*+.^_`|~0-9A-Za-z-]+\Z")
LENGTH = re.compile(r"^[0-9]{1,15}\Z")
# Headers that may occur only once.
ONCE = {
    *("content-length", "content-type", "content-encoding", "host", "authorization", "x-api-key", "expect"),
    *("x-task", "x-llama-tier", "x-real-ip"),
}
# Headers that a server gets. It acts on others: X-Conversation-Id gives the answer of one client to another.
PASSED = {"accept", "accept-language", "content-type", "traceparent", "tracestate", "user-agent"}
PASSED_PREFIXES = ("anthropic-", "openai-")

Headers = list[tuple[str, str]]


def malformed(words: str, status: int = 400) -> Answered:
    return Answered(answers.error(status, "bad_request", f"{words}: send one HTTP/1.1 request with a length"))


class Head(NamedTuple):
    """target: None for an ambiguous path; shown: the path for logs."""

    method: str
    target: Target | None
    shown: str
    headers: Headers
    length: int

    def get(self, name: str) -> str | None:
        return next((value for key, value in self.headers if key == name), None)

    @property
    def key(self) -> str | None:
        """The key of a client, in the header of OpenAI or Anthropic."""
        value = self.get("authorization")
        if value is not None:
            kind, _space, key = value.partition(" ")
            return key.strip() if kind.lower() == "bearer" else value
        return self.get("x-api-key")

    @property
    def reads(self) -> bool:
        return self.method in ("GET", "HEAD")

    def passed(self) -> Headers:
        """The headers that a server gets."""
        return [(name, value) for name, value in self.headers if name in PASSED or name.startswith(PASSED_PREFIXES)]


def parse(data: bytes) -> Head:
    """Parses a head, including its empty line. Errors: Answered."""
    lines = data[:-4].decode("latin-1").split("\r\n")
    line = LINE.match(lines[0])
    if not line:
        raise malformed("request line")
    headers = parse_headers(lines[1:])
    seen = Counter(name for name, _value in headers)
    twice = sorted(name for name in ONCE if seen[name] > 1)
    if twice:
        raise malformed(f"{twice[0]} twice")
    if "transfer-encoding" in seen or "host" not in seen:
        raise malformed("transfer-encoding" if "transfer-encoding" in seen else "no host")
    length = dict(headers).get("content-length", "0")
    if not LENGTH.match(length):
        raise malformed(f"content-length {answers.shown(length)}")
    if int(length) > BODY:
        raise malformed(f"a body of {length} bytes", 413)
    shown = answers.shown(line.group(2).partition("?")[0])
    return Head(line.group(1), paths.normalise(line.group(2)), shown, headers, int(length))


def parse_headers(lines: list[str]) -> Headers:
    """Errors: Answered."""
    found = []
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or not NAME.match(name) or any(letter in value for letter in "\r\n\0"):
            raise malformed(f"header line {answers.shown(line)}")
        found.append((name.lower(), value.strip(" \t")))
    return found


async def read(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, refused: Callable[[Head], Answer | None]
) -> tuple[Head, bytes]:
    """refused: returns the answer to a head whose body is not read, or None. Errors: Answered, EOFError if the client
    has left."""
    try:
        head = parse(await reader.readuntil(b"\r\n\r\n"))
    except asyncio.LimitOverrunError:
        raise malformed("a head of more than %d bytes" % HEAD, 431) from None
    expected = head.get("expect")
    if expected is not None and expected.lower() != "100-continue":
        raise malformed(f"expect: {answers.shown(expected)}", 417)
    answer = refused(head)
    if answer is not None:
        raise Answered(answer)
    if expected is not None and head.length:
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    return head, await reader.readexactly(head.length) if head.length else b""
