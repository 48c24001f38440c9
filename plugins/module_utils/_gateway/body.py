# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads the model and the conversation of a request's body. The body is not changed, and its values are not kept.
Private to the collection."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from . import affinity, answers
from .affinity import Conversation
from .answers import Answer

# Marks around the values of a JSON body. A value takes many times its bytes, and all requests wait during parsing. A
# prompt with more marks is longer than any context.
VALUES = 512 << 10
# Letters of a name that are read.
NAME = 1024
# Types of message parts with a picture, sound or video, and the keys that hold it or its address. llama-server would
# fetch an http address itself, from inside the network.
MEDIA = ("image_url", "input_image", "image", "input_audio", "input_video", "video_url")
HOLDERS = ("image_url", "input_audio", "input_video", "video_url", "source")


class Read(NamedTuple):
    """asked: the model's name, False if not a text; end: place of the last brace; empty: whether the object is."""

    asked: Any = None
    talk: Conversation = affinity.NONE
    end: int = 0
    empty: bool = False

    def named(self, body: bytes, name: str) -> bytes:
        """The body with another model. All other bytes stay."""
        view, model = memoryview(body), b'"model":' + json.dumps(name).encode("ascii")
        return b"".join((view[: self.end], b"" if self.empty else b",", model, view[self.end :]))


def read(path: str, body: bytes) -> Answer | Read:
    """Reads a JSON body. Its content type is ignored, as by the server."""
    values = sum(body.count(mark) for mark in (b",", b":", b"[", b"{"))
    if values > VALUES:
        words = "body: %d commas, colons and brackets seen, at most %d are read: send a shorter request"
        words %= (values, VALUES)
        return answers.error(413, "request_too_large", words)
    parsed, seen = None, "no JSON"
    try:
        # Only UTF-8: json.loads takes UTF-16 too, which the server reads differently. Servers skip a byte order mark of
        # UTF-8 too. An integer of many digits takes Python hours.
        parsed = json.loads(body.decode("utf-8-sig"), parse_int=float)
        seen = type(parsed).__name__
    except UnicodeDecodeError:
        seen = "no UTF-8"
    except RecursionError:
        seen = "JSON that is nested too deeply"
    except ValueError:
        pass
    if not isinstance(parsed, dict):
        return answers.error(400, "invalid_json", f"body: {seen} seen, a JSON object is needed: correct the request")
    if "lora" in parsed:
        words = "lora: seen in a request, adapters and their scales are set by the inventory: remove it"
        return answers.error(400, "bad_request", words)
    if _has_address(parsed):
        words = "body: the address of a picture, sound or video seen, its data is needed: send a data: URL"
        return answers.error(400, "bad_request", words)
    asked = parsed.get("model")
    if isinstance(asked, str):
        asked = asked[:NAME]
    elif asked is not None:
        asked = False
    # The last of two keys with one name counts, at the servers too.
    return Read(asked, affinity.conversation(path, parsed), body.rindex(b"}"), not parsed)


def _has_address(body: dict[str, Any]) -> bool:
    """Whether a part of a message has the address of a file, not its data."""
    todo: list[Any] = [body]
    while todo:
        one = todo.pop()
        if isinstance(one, dict):
            if one.get("type") in MEDIA and any(_is_address(one.get(key)) for key in HOLDERS):
                return True
            one = list(one.values())
        todo.extend(value for value in one if isinstance(value, (dict, list)))
    return False


def _is_address(held: Any) -> bool:
    """held: a text, or a map with it. Data is base64, with or without data: before it; base64 has no colon."""
    texts = [held.get("url"), held.get("data")] if isinstance(held, dict) else [held]
    return any(
        not text.startswith("data:") and (":" in text or text.startswith("http"))
        for text in texts
        if isinstance(text, str)
    )
