# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Answers and verdicts that are kept on the controller, one file each. Private to the collection.

What is kept is neither asked for nor judged again. A file that cannot be read counts as missing.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
from collections.abc import Mapping
from typing import Any

from ...module_utils._files import write_atomically
from ...module_utils._text import Refusal

Map = Mapping[str, Any]
KEY = re.compile(r"[0-9a-f]{64}\Z")
# Bytes of a file.
LARGEST = 4 << 20
# The keys of a complete answer and verdict.
NUMBERS = {"completion_tokens", "first_token_s", "seconds"}
FIGURES = {*NUMBERS, "tokens_per_second"}
NOTHING = type(None)
JUDGED: dict[str, type | tuple[type, ...]] = {
    **{"passes": bool, "compiles": (bool, NOTHING), "reason": str, "errors": dict, "lines": int},
    "clippy_warnings": (int, NOTHING),
}
ANSWERS, VERDICTS = "answers", "verdicts"
# To be raised when module_utils/_judge judges otherwise: kept verdicts then count no more.
JUDGES = 2


class Store:
    """A directory with answers/KEY.json and verdicts/KEY.json, for its owner only."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def answer(self, key: str) -> dict[str, Any] | None:
        found = self._read(ANSWERS, key) or {}
        texts = all(isinstance(found.get(name), str) for name in ("content", "finish_reason"))
        complete = texts and found.get("key") == key and found.keys() >= FIGURES
        return found if complete and all(isinstance(found[name], (int, float)) for name in NUMBERS) else None

    def verdict(self, answer: Map, digest: str, by: str) -> dict[str, Any] | None:
        """digest: of the task; by: what judged, with its version."""
        found = self._read(VERDICTS, verdict_key(answer, digest, by))
        if not found or not all(name in found and isinstance(found[name], of) for name, of in JUDGED.items()):
            return None
        counted = all(isinstance(count, int) for count in found["errors"].values())
        return {**found, "answer": answer["key"]} if counted else None

    def keep_answer(self, answer: Map) -> None:
        """Errors: Refusal."""
        write(self.folder, f"{ANSWERS}/{_key(answer['key'])}.json", json.dumps(answer) + "\n")

    def keep_verdict(self, answer: Map, digest: str, by: str, verdict: Map) -> None:
        """Errors: Refusal."""
        write(self.folder, f"{VERDICTS}/{verdict_key(answer, digest, by)}.json", json.dumps(verdict) + "\n")

    def _read(self, kind: str, key: str) -> dict[str, Any] | None:
        path = os.path.join(self.folder, kind, f"{_key(key)}.json")
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            with open(descriptor, "rb") as stream:
                seen = os.fstat(descriptor)
                if not stat.S_ISREG(seen.st_mode) or seen.st_size > LARGEST:
                    return None
                found = json.loads(stream.read(LARGEST))
        except (OSError, ValueError, RecursionError):
            return None
        return found if isinstance(found, dict) else None


def write(folder: str, name: str, text: str) -> None:
    """Writes a file below a directory, for its owner only: all of it, or nothing. Errors: Refusal."""
    path = os.path.join(folder, name)
    try:
        for above in (folder, os.path.dirname(path)):
            os.makedirs(above, 0o700, exist_ok=True)
        write_atomically(path, text.encode("utf-8", "replace"), anywhere=True)
    except OSError as error:
        raise Refusal(
            f"evaluate: {error.strerror} seen, a file that can be written is needed at {path}: make room or correct "
            "its directory, and run again, which asks only for what is missing"
        ) from error


def _key(key: str) -> str:
    """The key, if it is one: it becomes a path."""
    if not KEY.match(key):
        raise ValueError("no sha256")
    return key


def verdict_key(answer: Map, digest: str, by: str) -> str:
    return key_of([answer["content"], answer["finish_reason"], digest, by, JUDGES])


def key_of(parts: Any) -> str:
    """sha256 of what a record depends on."""
    text = json.dumps(parts, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()
