# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is wanted, what that comes to, and who looks on. Private to the collection."""

from __future__ import annotations

import functools
import os
import re
import time
from collections.abc import Sequence
from re import Pattern
from typing import Any, Callable, Optional, TypeVar

from .._files import open_directory
from .._model.describe import describe
from .._model.gguf import Header
from .._text import Refusal
from .errors import DiskTooSmall, Stopped
from .hub import DEFAULT_ENDPOINT
from .journal import CLOSED
from .target import Target
from .urls import content_url

# progress(state), state: {phase: fetch, verify or hash; done, total, moved: bytes; rate: bytes/s}; a watch adds the
# name of the file.
Progress = Callable[[dict[str, Any]], None]
# A reason to stop, None to go on.
Stopping = Callable[[], Optional[str]]
# Called with bytes as a file is read.
Advance = Callable[[int], None]

_REACHED = "/proc/self/fd/"
Result = TypeVar("Result")

_SHA256 = re.compile(r"^[0-9a-f]{64}\Z")


class Request:
    """What is wanted. Either urls (in order; http, https, file), or repo with files or quant.

    dest: the model's path, or an existing directory; sha256: hex digests, one per file, or a single one of the joined
    file; pieces: [{size, sha256}] of the joined file, in order; adopt: paths on this node to consume instead of
    fetching;
    copy_of: {url, files, commit}, a node that has the model: url is where it serves the files of its result();
    owner: whom the caller gives the files to, None where they are to be root's.
    """

    def __init__(
        self,
        dest: str,
        urls: list[str] | None = None,
        repo: str | None = None,
        files: list[str] | None = None,
        quant: str | None = None,
        revision: str = "main",
        endpoint: str = DEFAULT_ENDPOINT,
        token: str | None = None,
        sha256: list[str] | None = None,
        pieces: list[dict[str, Any]] | None = None,
        adopt: list[str] | None = None,
        connections: int = 8,
        full: bool = False,
        copy_of: dict[str, Any] | None = None,
        owner: str | None = None,
    ) -> None:
        self.urls, self.repo, self.files, self.quant = urls or [], repo, files or [], quant
        self.revision, self.endpoint, self.token = revision, endpoint, token
        self.sha256, self.pieces = [digest.lower() for digest in sha256 or []], pieces or []
        self.adopt, self.connections, self.full, self.copy_of, self.owner = (
            adopt or [],
            connections,
            full,
            copy_of,
            owner,
        )
        for digest in self.sha256 + [piece["sha256"] for piece in self.pieces]:
            if not _SHA256.match(digest):
                raise Refusal(f"sha256: {digest} is no sha256 digest: 64 hexadecimal digits are needed")
        if not 1 <= connections <= 16:
            raise Refusal("connections: %d given, 1 to 16 are possible: servers refuse more" % connections)
        if repo and not self.files and not quant:
            raise Refusal(f"repo: {repo} holds several models: name the quant, or the files of one")
        if copy_of and not copy_of["files"]:
            raise Refusal("copy_of: no files given, those of gguf_fetch on the node that has the model are needed")
        self.into_folder = dest.endswith("/") or os.path.isdir(dest)
        self.dest = os.path.abspath(dest)
        # Paths of files that were published for this very request and are damaged: they are fetched again.
        self.damaged: set[str] = set()

    def identity(self) -> dict[str, Any]:
        """What decides the content: two requests with the same identity want the same bytes. No secret is in it.

        A copy is known by what its original was fetched from, so that it is found again whichever node it came from.
        """
        if self.repo:
            asked = {"repo": self.repo, "revision": self.revision, "files": self.files, "quant": self.quant}
        else:
            asked = {"urls": [content_url(url) for url in self.urls]}
        return dict(asked, sha256=self.sha256, pieces=self.pieces)

    def folder(self) -> str:
        """The directory the model goes to, there or not."""
        return self.dest if self.into_folder else os.path.dirname(self.dest)

    def in_folder(self, work: Callable[[], Result]) -> Result:
        """What work() returns. Meanwhile the folder, which may be somebody else's, is reached by a descriptor: its name
        may lead elsewhere at any moment. What is returned and refused has its name. Raises Refusal."""
        folder, dest, adopt = self.folder(), self.dest, self.adopt
        try:
            fd = CLOSED if folder.startswith(_REACHED) else open_directory(folder, others=True)
        except FileNotFoundError:
            fd = CLOSED  # nothing is there that could be touched
        if fd == CLOSED:
            return work()
        reached = "%s%d" % (_REACHED, fd)
        told = functools.partial(_told, re.compile(re.escape(reached) + "(?![0-9])"), folder)
        try:
            self.dest = reached + dest[len(folder) :]
            self.adopt = [
                os.path.join(reached, os.path.basename(path)) if os.path.dirname(path) == folder else path
                for path in adopt
            ]
            return told(work())
        except Refusal as error:
            error.args = told(error.args)
            if isinstance(error, DiskTooSmall):
                error.disk = told(error.disk)
            raise
        except OSError as error:
            error.filename = told(error.filename)
            raise
        finally:
            self.dest, self.adopt = dest, adopt
            self.damaged.clear()
            os.close(fd)


def _told(reached: Pattern[str], folder: str, value: Any) -> Any:
    """A value with the folder's name in all of its texts."""
    if isinstance(value, dict):
        return {key: _told(reached, folder, one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_told(reached, folder, one) for one in value)
    return reached.sub(lambda _match: folder, value) if isinstance(value, str) else value


class Plan:
    """A resolved request. targets and headers: in the order of the model's files, None where nobody was asked; facts:
    what they say (describe())."""

    def __init__(self, targets: list[Target], headers: Sequence[Header | None], commit: str | None) -> None:
        self.targets, self.headers, self.commit = targets, headers, commit
        known = [header for header in headers if header]
        self.facts = describe(known) if known else {}
        self.path = targets[0].path
        self.size = sum(target.size for target in targets)
        self.verified = (
            "sha256" if all(span.sha256 for target in targets for span in target.spans) else "size and header"
        )


class Watch:
    """The caller's hooks: progress(state) receives updates, stopping() returns a reason to stop."""

    def __init__(self, progress: Progress | None = None, stopping: Stopping | None = None) -> None:
        self._progress: Progress = progress or (lambda state: None)
        self.stopping: Stopping = stopping or (lambda: None)
        self.name: str | None = None

    def progress(self, state: dict[str, Any]) -> None:
        self._progress(dict(state, name=self.name))

    def meter(self, path: str, total: int) -> Advance:
        """advance(bytes) for reading ``total`` bytes that are there already; raises Stopped."""
        self.name = os.path.basename(path)
        begun = time.monotonic()
        seen = {"done": 0, "told": begun}

        def advance(count: int) -> None:
            now = time.monotonic()
            seen["done"] += count
            if now - seen["told"] < 1.0:
                return
            seen["told"] = now
            self.progress(
                {
                    "phase": "hash",
                    "done": seen["done"],
                    "total": total,
                    "moved": 0,
                    "rate": seen["done"] / (now - begun),
                }
            )
            reason = self.stopping()
            if reason:
                raise Stopped(reason)

        return advance
