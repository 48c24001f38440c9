# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Normalises the path of a request, and decides which paths are open. Private to the collection."""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import quote, unquote

# Characters that llama-server accepts unquoted in a path.
SAFE = "/-._~!$&'()*+,;=:@"
# Open paths of a llama-server, with or without /v1; all others are closed. READ by GET, the others by POST: WORK takes
# a slot, since it generates or reads a prompt, COUNT does not.
READ = ("/health", "/metrics", "/props", "/models", "/lora-adapters", "/api/tags")
WORK = (
    *("/chat/completions", "/completions", "/completion", "/responses", "/messages", "/infill", "/api/chat"),
    *("/embeddings", "/embedding", "/rerank", "/reranking", "/systemone"),
)
COUNT = (
    *("/tokenize", "/detokenize", "/apply-template", "/api/show"),
    *("/chat/completions/input_tokens", "/responses/input_tokens", "/messages/count_tokens"),
)
# Closed paths of a server, which get 403; unknown paths get 404.
CLOSED = ("slots", "props", "lora-adapters", "stream", "streams", "tools", "cors-proxy")


class Target(NamedTuple):
    """path: decoded, without dot segments. A query is not sent on: no open path needs one, and a router loads a model
    by it."""

    path: str

    @property
    def sent(self) -> str:
        """The path for a server, quoted."""
        return quote(self.path, safe=SAFE)


def normalise(target: str) -> Target | None:
    """The target, or None if it is ambiguous: not a path, a percent sign after decoding, a backslash, a control or
    non-ASCII character, a fragment."""
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
    """Whether clients may request it of a server."""
    name = _name(path)
    return name in READ if method in ("GET", "HEAD") else method == "POST" and name in (*WORK, *COUNT)


def _name(path: str) -> str:
    return path[3:] if path.startswith("/v1/") else path


def is_closed(method: str, path: str) -> bool:
    """Whether a path that is not open may exist at a server."""
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


def task_of(path: str) -> tuple[str | None, str]:
    """/task/NAME/v1/... -> (NAME, /v1/...); other paths -> (None, path)."""
    parts = path.split("/", 3)
    if len(parts) == 4 and parts[1] == "task" and parts[2]:
        return parts[2], "/" + parts[3]
    return None, path
