# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The path of a request: one spelling of it, by which it is judged and which is sent on. Private to the collection."""

from typing import List, NamedTuple, Optional, Tuple
from urllib.parse import quote, unquote

# What llama-server understands in a path as it stands.
SAFE = "/-._~!$&'()*+,;=:@"
# A POST that generates nothing, so it takes no slot.
NO_SLOT = (
    "/tokenize",
    "/detokenize",
    "/apply-template",
    "/input_tokens",
    "/count_tokens",
    "/control",
    "/streams/lookup",
)


class Target(NamedTuple):
    """path: decoded and without detours; query: with its question mark, or nothing."""

    path: str
    query: str

    @property
    def sent(self) -> str:
        """As it is sent to a server."""
        return quote(self.path, safe=SAFE) + self.query


def normalise(target: str) -> Optional[Target]:
    """None for what has no one meaning: no path, a percent sign that is still there after decoding, a backslash, a
    control or non-ASCII character, a fragment."""
    path, mark, query = target.partition("?")
    decoded = unquote(path, "latin-1")
    if not decoded.startswith("/") or any(not "!" <= letter <= "~" or letter in "%\\#?" for letter in decoded):
        return None
    if any(not "!" <= letter <= "~" or letter == "#" for letter in query):
        return None
    parts: List[str] = []
    for part in decoded.split("/"):
        if part == "..":
            del parts[-1:]
        elif part not in ("", "."):
            parts.append(part)
    trailing = "/" if parts and decoded.endswith(("/", "/.", "/..")) else ""
    return Target("/" + "/".join(parts) + trailing, mark + query)


def is_closed(method: str, path: str) -> bool:
    """Whether no client may ask for it, at whichever port. Letters count alike in both cases, and what stands behind a
    semicolon, which some programs take for parameters, not at all."""
    parts = [part.partition(";")[0] for part in path.lower().split("/") if part]
    # A server may be asked with or without /v1.
    names = parts[1:] if parts[:1] == ["v1"] else parts
    if names[:1] == ["slots"] or parts[-2:] in (["models", "load"], ["models", "unload"]):
        return True
    reads = method in ("GET", "HEAD", "OPTIONS")
    return not reads and names[:1] in (["props"], ["lora-adapters"], ["models"])


def takes_slot(method: str, path: str) -> bool:
    """Whether the request generates or reads a prompt, and so needs a slot of its server."""
    return method == "POST" and not path.rstrip("/").endswith(NO_SLOT)


def task_of(path: str) -> Tuple[Optional[str], str]:
    """/task/NAME/v1/... -> (NAME, /v1/...); (None, path) of others."""
    parts = path.split("/", 3)
    if len(parts) == 4 and parts[1] == "task" and parts[2]:
        return parts[2], "/" + parts[3]
    return None, path
