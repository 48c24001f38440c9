# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads the model and the conversation of a request's body. The body is not changed, and its values are not kept.
Private to the collection."""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple

from . import affinity, answers, paths
from .affinity import Conversation
from .answers import Answer

# Marks around the values of a JSON body. A value takes many times its bytes, and all requests wait during parsing. A
# prompt with more marks is longer than any context.
VALUES = 512 << 10
# Letters of a name that are read.
NAME = 1024
# Fields of a form, and bytes of the lines above each.
FIELDS, LINES = 64, 4096
BOUNDARY = re.compile(r';\s*boundary=(?:"([^"\r\n]{1,70})"|([^\s;,"]{1,70}))', re.IGNORECASE)
FIELD = re.compile(rb'^content-disposition:[^\r\n]*;[ \t]*name="?model"?[ \t]*(;|\r|\Z)', re.IGNORECASE | re.MULTILINE)
FILE = re.compile(rb"^content-disposition:[^\r\n]*;[ \t]*filename", re.IGNORECASE | re.MULTILINE)


class Read(NamedTuple):
    """asked: the model's name, False if it is not a text; place: the bytes that another name replaces; before, after:
    bytes around that name."""

    asked: Any = None
    talk: Conversation = affinity.NONE
    place: tuple[int, int] | None = None
    before: bytes = b""
    after: bytes = b""
    json: bool = True

    def named(self, body: bytes, name: str) -> bytes:
        """The body with another model. All other bytes stay."""
        if self.place is None:
            return body
        start, end = self.place
        view, text = memoryview(body), json.dumps(name) if self.json else name
        return b"".join((view[:start], self.before, text.encode("utf-8"), self.after, view[end:]))


def read(path: str, kind: str, body: bytes) -> Answer | Read:
    """kind: its content type."""
    if kind.lower().startswith("multipart/form-data"):
        if not paths.takes_form(path):
            words = "content-type: multipart/form-data seen, application/json is needed here: send a JSON object"
            return answers.error(400, "invalid_form", words)
        return _form(kind, body)
    # The server ignores the content type too.
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
    asked = parsed.get("model")
    if isinstance(asked, str):
        asked = asked[:NAME]
    elif asked is not None:
        asked = False
    # The last of two keys with one name counts, at the servers too.
    end = body.rindex(b"}")
    return Read(asked, affinity.conversation(path, parsed), (end, end), b',"model":' if parsed else b'"model":')


def _form(kind: str, body: bytes) -> Answer | Read:
    """Reads the field `model` of an upload."""
    boundary = BOUNDARY.search(kind)
    if not boundary:
        return _malformed("no boundary in content-type")
    line = b"--" + (boundary.group(1) or boundary.group(2)).encode("latin-1")
    before = -2 if body.startswith(line) else body.find(b"\r\n" + line)
    if before == -1:
        return _malformed("no field")
    first = before + 2
    found, at = None, first + len(line)
    for _field in range(FIELDS):
        if body.startswith(b"--", at):
            break
        lines = body.find(b"\r\n\r\n", at, at + LINES)
        end = body.find(b"\r\n" + line, lines + 2)
        if lines < 0 or end < 0:
            return _malformed("a field without an end")
        head = body[at + 2 : lines]
        if b"\0" in head:
            return _malformed("a NUL byte above a field")
        if FIELD.search(head) and not FILE.search(head):
            if found:
                return _malformed("two fields model")
            found = (lines + 4, end)
        at = end + 2 + len(line)
    else:
        return _malformed("more than %d fields" % FIELDS)
    if found is None:
        part = line + b'\r\nContent-Disposition: form-data; name="model"\r\n\r\n'
        return Read(place=(first, first), before=part, after=b"\r\n", json=False)
    asked = body[found[0] : found[1]][: 4 * NAME].decode("utf-8", "replace")[:NAME]
    if "\0" in asked:
        return _malformed("a NUL byte in its field model")
    return Read(asked, place=found, json=False)


def _malformed(seen: str) -> Answer:
    words = f"body: {seen}, fields of multipart/form-data are needed: correct the request"
    return answers.error(400, "invalid_form", words)
