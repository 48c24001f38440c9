# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which replica has read the beginning of a conversation before: its slots hold what it computed of it. Private to the
collection."""

import collections
import json
from typing import Any, Dict, List, NamedTuple, Tuple

# Characters of a prompt without messages that count as one part.
PART = 1024
# Parts that a replica is remembered to have read.
REMEMBERED = 4096


class Conversation(NamedTuple):
    """parts: a hash of everything up to the end of each message; shared: how many of them are no user's, as a system
    prompt that all conversations of a program have."""

    parts: Tuple[int, ...] = ()
    shared: int = 0


NONE = Conversation()


def conversation(model: str, body: Dict[str, Any]) -> Conversation:
    """Of a request's body."""
    messages = body.get("messages")
    if isinstance(messages, list):
        return _of_messages(model, body, messages)
    prompt = body.get("prompt")
    if not isinstance(prompt, str):
        return NONE
    parts, so_far = [], hash(model)
    for at in range(0, len(prompt) - PART + 1, PART):
        so_far = hash((so_far, prompt[at : at + PART]))
        parts.append(so_far)
    return Conversation(tuple(parts), 0)


def _of_messages(model: str, body: Dict[str, Any], messages: List[Any]) -> Conversation:
    so_far = hash((model, _text(body.get("system")), _text(body.get("tools"))))
    parts, shared = [], 0
    for message in messages:
        role = message.get("role") if isinstance(message, dict) else None
        content = message.get("content") if isinstance(message, dict) else message
        so_far = hash((so_far, role if isinstance(role, str) else "", _text(content)))
        parts.append(so_far)
        if role in ("system", "developer") and shared == len(parts) - 1:
            shared += 1
    return Conversation(tuple(parts), shared)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else "" if value is None else json.dumps(value)


class Memory:
    """What one replica has read, the oldest of it forgotten first."""

    def __init__(self) -> None:
        self._parts: "collections.OrderedDict[int, None]" = collections.OrderedDict()

    def add(self, one: Conversation) -> None:
        for part in one.parts:
            self._parts[part] = None
            self._parts.move_to_end(part)
        while len(self._parts) > REMEMBERED:
            self._parts.popitem(last=False)

    def known(self, one: Conversation) -> int:
        """How many parts of a conversation."""
        for count in range(len(one.parts), 0, -1):
            if one.parts[count - 1] in self._parts:
                return count
        return 0

    def clear(self) -> None:
        self._parts.clear()
