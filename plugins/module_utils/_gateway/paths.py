# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The path of a request: one spelling of it, by which it is judged and which is sent on. Private to the collection."""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import quote, unquote

# What llama-server understands in a path as it stands.
SAFE = "/-._~!$&'()*+,;=:@"
# Open paths of a llama-server, with or without /v1; everything else is closed. READ by GET, the others by
# POST: WORK generates or reads a prompt, so it takes a slot, COUNT does not.
READ = ("/health", "/metrics", "/props", "/models", "/lora-adapters", "/api/tags")
WORK = (
    *("/chat/completions", "/completions", "/completion", "/responses", "/messages", "/infill", "/api/chat"),
    *("/embeddings", "/embedding", "/rerank", "/reranking", "/audio/transcriptions", "/systemone"),
)
COUNT = (
    *("/tokenize", "/detokenize", "/apply-template", "/api/show"),
    *("/chat/completions/input_tokens", "/responses/input_tokens", "/messages/count_tokens"),
)
# Other paths of a server: a request for one gets 403.
CLOSED = ("slots", "props", "lora-adapters", "stream", "streams", "tools", "cors-proxy")


class Target(NamedTuple):
    """path: decoded and without detours. A query is not sent on: no server needs one of what is open, and a router
    loads a model by it."""

    path: str

    @property
    def sent(self) -> str:
        """As it is sent to a server."""
        return quote(self.path, safe=SAFE)


def normalise(target: str) -> Target | None:
    """None for what has no one meaning: no path, a percent sign that is still there after decoding, a backslash, a
    control or non-ASCII character, a fragment."""
    path, _mark, query = target.partition("?")
    decoded = unquote(path, "latin-1")
    if not decoded.startswith("/") or any(not "!" <= letter <= "~" or letter in "%\\#?" for letter in decoded):
        return None
    if any(not "!" <= letter <= "~" or letter == "#" for letter in query):
        return None
    parts: list[str] = []
    for part in decoded.split("/"):
        if part == "..":
            del parts[-1:]
        elif part not in ("", "."):
            parts.append(part)
    trailing = "/" if parts and decoded.endswith(("/", "/.", "/..")) else ""
    return Target("/" + "/".join(parts) + trailing)


def is_open(method: str, path: str) -> bool:
    """Whether clients may ask a server for it."""
    name = _name(path)
    return name in READ if method in ("GET", "HEAD") else method == "POST" and name in (*WORK, *COUNT)


def _name(path: str) -> str:
    return path[3:] if path.startswith("/v1/") else path


def is_closed(method: str, path: str) -> bool:
    """Of a path that is not open, whether a server may have it."""
    parts = [part.partition(";")[0] for part in path.lower().split("/") if part]
    names = parts[1:] if parts[:1] == ["v1"] else parts
    if is_open(method, path) or (method == "OPTIONS" and (is_open("GET", path) or is_open("POST", path))):
        return False
    return (
        (names or [""])[0] in CLOSED
        or parts[-1:] == ["control"]
        or parts[-2:] in (["models", "load"], ["models", "unload"])
        or (names[:1] == ["models"] and method not in ("GET", "HEAD"))
    )


def takes_slot(method: str, path: str) -> bool:
    """Whether the request generates or reads a prompt, and so needs a slot of its server."""
    return method == "POST" and _name(path) in WORK


def takes_form(path: str) -> bool:
    """Whether its body may be a form, an upload."""
    return _name(path) == "/audio/transcriptions"


def task_of(path: str) -> tuple[str | None, str]:
    """/task/NAME/v1/... -> (NAME, /v1/...); (None, path) of others."""
    parts = path.split("/", 3)
    if len(parts) == 4 and parts[1] == "task" and parts[2]:
        return parts[2], "/" + parts[3]
    return None, path
