# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The sampler's parts, and their latest samples. Private to the collection."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Callable

from .._llama.api import plain
from .._node.notify import say
from .exposition import Family, render
from .metrics import METRICS


class Board:
    """The latest samples of each part, kept for `lasts` seconds: old samples must not pass for new ones."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        # By object: a part that was replaced does not touch the samples of its successor.
        self._parts: dict[object, tuple[str, float, Sequence[Family]]] = {}

    def put(self, part: object, name: str, families: Sequence[Family], lasts: float) -> None:
        with self._lock:
            self._parts[part] = (name, self._clock() + lasts, families)

    def drop(self, part: object) -> None:
        with self._lock:
            self._parts.pop(part, None)

    def content(self) -> bytes:
        """The samples of all parts as a page. Families with the same name are merged, as the format requires."""
        now = self._clock()
        with self._lock:
            parts = list(self._parts.values())
        alive = Family("llama_sampler_part_up", *METRICS["llama_sampler_part_up"])
        merged = {alive.name: alive}
        for name, until, families in parts:
            alive.add(int(now <= until), part=name)
            for family in families if now <= until else ():
                one = merged.setdefault(family.name, Family(family.name, family.kind, family.words))
                one.samples.extend(family.samples)
        # Labels may hold surrogates.
        return render(merged.values()).encode("utf-8", "replace")


class Part(threading.Thread):
    """Samples one thing in its own thread, since it may hang or fail. look() -> families."""

    def __init__(self, board: Board, name: str, interval: float, look: Callable[[], list[Family]]) -> None:
        super().__init__(daemon=True)
        self._board, self.words, self._interval, self._look = board, name, interval, look
        self._lasts = 3 * interval + 10
        self._over = threading.Event()
        board.put(self, name, [], self._lasts)

    def stop(self) -> None:
        """Removes the part from the page, even if it hangs."""
        self._over.set()
        self._board.drop(self)

    def run(self) -> None:
        complaint = None
        while not self._over.is_set():
            began = time.monotonic()
            try:
                self._board.put(self, self.words, self._look(), self._lasts)
                complaint = None
            except Exception as error:
                # Whatever a server, driver or file system reports: logged once, retried, and other parts go on.
                if str(error) != complaint:
                    complaint = str(error)
                    say(f"{self.words}: cannot be sampled: {type(error).__name__}: {ascii_words(complaint)}")
            self._over.wait(max(0.1, self._interval - (time.monotonic() - began)))
        self._board.drop(self)


def ascii_words(text: str) -> str:
    """Python without a locale prints ASCII only."""
    return plain(text).encode("ascii", "backslashreplace").decode("ascii")
