# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Conversations that a replica has read before: its slots hold the computed part. Private to the collection."""

from __future__ import annotations

import collections
from itertools import islice
from typing import Any, NamedTuple

# Characters of a prompt without messages that count as one part.
PART = 1024
# Parts of one conversation, and parts that a replica is remembered to have read.
PARTS, REMEMBERED = 1024, 4096
# Values of a message, and letters of each text in it, that identify it: an image has millions.
VALUES, LETTERS = 64, 4096


class Conversation(NamedTuple):
    """parts: a hash of everything up to the end of each message; shared: how many leading parts are a system prompt,
    which all conversations of a program have."""

    parts: tuple[int, ...] = ()
    shared: int = 0

    def of(self, model: str) -> Conversation:
        """The conversation as that model reads it."""
        return self._replace(parts=tuple(hash((model, part)) for part in self.parts))


NONE = Conversation()


def conversation(path: str, body: dict[str, Any]) -> Conversation:
    """The conversation in the body of a request."""
    messages = body.get("messages")
    if path.endswith("/responses"):
        messages = body.get("input")
        if isinstance(messages, str):
            messages = [{"role": "user", "content": messages}]
    if isinstance(messages, list):
        return _of_messages(body, messages)
    prompt = body.get("prompt")
    if not isinstance(prompt, str):
        return NONE
    parts, so_far = [], 0
    for at in range(0, min(len(prompt), PARTS * PART) - PART + 1, PART):
        so_far = hash((so_far, prompt[at : at + PART]))
        parts.append(so_far)
    return Conversation(tuple(parts), 0)


def _of_messages(body: dict[str, Any], messages: list[Any]) -> Conversation:
    so_far = hash(tuple(_outline(body.get(key)) for key in ("system", "instructions", "tools")))
    parts, shared = [], 0
    for message in messages[:PARTS]:
        role = message.get("role") if isinstance(message, dict) else None
        content = message.get("content", message) if isinstance(message, dict) else message
        so_far = hash((so_far, role if isinstance(role, str) else "", _outline(content)))
        parts.append(so_far)
        if role in ("system", "developer") and shared == len(parts) - 1:
            shared += 1
    return Conversation(tuple(parts), shared)


def _outline(value: Any) -> tuple[Any, ...]:
    """The first values in a value, in order. A text in a block equals the text itself."""
    found: list[Any] = []
    todo = [value]
    for _step in range(VALUES):
        if not todo:
            break
        one = todo.pop()
        if isinstance(one, dict):
            text = one.get("text")
            one = [text] if isinstance(text, str) else list(islice(one.values(), VALUES))
        if isinstance(one, list):
            todo.extend(reversed(one[:VALUES]))
        else:
            found.append((len(one), one[:LETTERS]) if isinstance(one, str) else one)
    return tuple(found)


class Memory:
    """The parts that one replica has read. The oldest are forgotten first."""

    def __init__(self) -> None:
        self._parts: collections.OrderedDict[int, None] = collections.OrderedDict()

    def add(self, one: Conversation) -> None:
        for part in one.parts:
            self._parts[part] = None
            self._parts.move_to_end(part)
        while len(self._parts) > REMEMBERED:
            self._parts.popitem(last=False)

    def known(self, one: Conversation) -> int:
        """The number of leading parts that were read."""
        for count in range(len(one.parts), 0, -1):
            if one.parts[count - 1] in self._parts:
                return count
        return 0

    def clear(self) -> None:
        self._parts.clear()
