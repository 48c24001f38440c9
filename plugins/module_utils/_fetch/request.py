# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A request for a model, the plan that it becomes, and the hooks of its caller. Private to the collection."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Callable, Optional

from .._files import directory
from .._model.describe import describe
from .._model.gguf import Header
from .._text import Refusal
from .errors import Stopped
from .hub import DEFAULT_ENDPOINT
from .manifest import is_digest
from .target import Target
from .urls import content_url

# progress(state), state: {phase: fetch, verify or hash; done, total, moved: bytes; rate: bytes/s}; a watch adds the
# name of the file.
Progress = Callable[[dict[str, Any]], None]
# A reason to stop, None to go on.
Stopping = Callable[[], Optional[str]]
# Called with bytes as a file is read.
Advance = Callable[[int], None]

SENT = ".sent"  # suffix of a file that the controller sends from a bundle


@dataclass
class Request:
    """A wanted model. Either urls (in order; http, https, file), or repo with files.

    dest: the model's path, or an existing directory; sha256: hex digests, one per file, or a single one of the joined
    file; adopt: paths on this node to consume instead of fetching; copy_of: {url, files, commit}, a node that has the
    model and serves the files of its result() or manifest below url; bundle: {files: [{name, size, pieces}], commit,
    gguf}, an entry of bundle.json, whose files the controller sends to NAME.gguf.sent.
    """

    dest: str
    urls: Sequence[str] = ()
    repo: str | None = None
    files: Sequence[str] = ()
    revision: str = "main"
    endpoint: str = DEFAULT_ENDPOINT
    token: str | None = None
    sha256: Sequence[str] = ()
    adopt: Sequence[str] = ()
    connections: int = 8
    full: bool = False
    copy_of: dict[str, Any] | None = None
    bundle: dict[str, Any] | None = None
    # Paths of files that were published for this request and are damaged: they are fetched again.
    damaged: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.sha256 = [digest.lower() for digest in self.sha256]
        for digest in self.sha256:
            if not is_digest(digest):
                raise Refusal(f"sha256: {digest} is no sha256 digest: 64 hexadecimal digits are needed")
        if not 1 <= self.connections <= 16:
            raise Refusal(f"connections: {self.connections} given, 1 to 16 are possible: servers refuse more")
        if self.repo and not self.files:
            raise Refusal(f"repo: {self.repo} may hold several models: name the files of one")
        if self.copy_of and not self.copy_of["files"]:
            raise Refusal(
                "copy_of: no files given: give the files that gguf_fetch returned on the node that has the model"
            )
        self.into_folder = self.dest.endswith("/") or os.path.isdir(self.dest)
        self.dest = os.path.abspath(self.dest)

    def identity(self) -> dict[str, Any]:
        """The part of the request that decides the content; without secrets.

        A copy is known by the source of its original, so it is found again whichever node it came from.
        """
        if self.repo:
            asked = {"repo": self.repo, "revision": self.revision, "files": list(self.files)}
        else:
            asked = {"urls": [content_url(url) for url in self.urls]}
        return dict(asked, sha256=self.sha256)

    def folder(self) -> str:
        """The directory the model goes to, which may not exist yet."""
        return self.dest if self.into_folder else os.path.dirname(self.dest)

    def bundled_files(self) -> list[tuple[str, str, int]]:
        """[(name in the bundle, path of the model's file, bytes)]; the first is the one that is loaded."""
        files = self.bundle["files"] if self.bundle else []
        single = len(files) == 1 and not self.into_folder
        return [
            (one["name"], self.dest if single else os.path.join(self.folder(), one["name"]), one["size"])
            for one in files
        ]

    def require_own_folder(self) -> None:
        """Raise Refusal if other users than root can exchange files in the folder of root's run."""
        if os.geteuid() == 0:
            with contextlib.suppress(FileNotFoundError), directory(self.folder()):
                pass


class Plan:
    """A resolved request. targets and headers: in the order of the model's files; a header is None if it was not read;
    facts: of describe()."""

    def __init__(
        self,
        targets: list[Target],
        headers: Sequence[Header | None],
        commit: str | None,
        facts: dict[str, Any] | None = None,
    ) -> None:
        self.targets, self.headers, self.commit = targets, headers, commit
        known = [header for header in headers if header]
        self.facts = describe(known) if known else facts or {}
        self.path = targets[0].path
        self.size = sum(target.size for target in targets)
        hashed = all(span.sha256 for target in targets for span in target.spans)
        self.verified = "sha256" if hashed else "size and header"


class Watch:
    """The caller's hooks: progress(state) receives updates, stopping() returns a reason to stop."""

    def __init__(self, progress: Progress | None = None, stopping: Stopping | None = None) -> None:
        self._progress: Progress = progress or (lambda state: None)
        self.stopping: Stopping = stopping or (lambda: None)
        self.name: str | None = None

    def progress(self, state: dict[str, Any]) -> None:
        self._progress(dict(state, name=self.name))

    def meter(self, path: str, total: int) -> Advance:
        """advance(bytes) for reading ``total`` bytes that are on the disk already; raises Stopped."""
        self.name = os.path.basename(path)
        begun = last = time.monotonic()
        done = 0

        def advance(count: int) -> None:
            nonlocal done, last
            done, now = done + count, time.monotonic()
            if now - last < 1.0:
                return
            last = now
            self.progress({"phase": "hash", "done": done, "total": total, "moved": 0, "rate": done / (now - begun)})
            reason = self.stopping()
            if reason:
                raise Stopped(reason)

        return advance
