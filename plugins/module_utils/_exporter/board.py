# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where the parts of a sampler put what they have seen. Private to the collection."""

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
    """The last word of each part. One that does not come any more keeps its last word for `lasts` seconds: whoever
    reads it must not take an old state for a new one."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        # By who puts it: one that hangs and was replaced by another of its name takes nothing of that away.
        self._parts: dict[object, tuple[str, float, Sequence[Family]]] = {}

    def put(self, part: object, name: str, families: Sequence[Family], lasts: float) -> None:
        with self._lock:
            self._parts[part] = (name, self._clock() + lasts, families)

    def drop(self, part: object) -> None:
        with self._lock:
            self._parts.pop(part, None)

    def content(self) -> bytes:
        """The samples of all parts. Families of one name become one, as the format wants it."""
        now = self._clock()
        with self._lock:
            parts = list(self._parts.values())
        heard = Family("llama_sampler_part_up", *METRICS["llama_sampler_part_up"])
        merged = {heard.name: heard}
        for name, until, families in parts:
            heard.add(int(now <= until), part=name)
            for family in families if now <= until else ():
                one = merged.setdefault(family.name, Family(family.name, family.kind, family.words))
                one.samples.extend(family.samples)
        # What others write may hold what is no character.
        return render(merged.values()).encode("utf-8", "replace")


class Part(threading.Thread):
    """What is looked at by itself, because it may hang or fail without the others. look() -> families."""

    def __init__(
        self, board: Board, name: str, interval: float, look: Callable[[], list[Family]], lasts: float | None = None
    ) -> None:
        super().__init__(daemon=True)
        self._board, self.words, self._interval, self._look = board, name, interval, look
        self._lasts = lasts or 3 * interval + 10
        self._over = threading.Event()
        # From here on it is missed.
        board.put(self, name, [], self._lasts)

    def stop(self) -> None:
        """It is not missed any more, also where it hangs."""
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
                # Whatever a server, a driver or a file system says: the other parts go on. Said once, tried again.
                if str(error) != complaint:
                    complaint = str(error)
                    say(f"{self.words}: cannot be sampled: {type(error).__name__}: {ascii_words(complaint)}")
            self._over.wait(max(0.1, self._interval - (time.monotonic() - began)))
        self._board.drop(self)


def ascii_words(text: str) -> str:
    """As every journal takes it: Python 3.6 without a locale cannot print more."""
    return plain(text).encode("ascii", "backslashreplace").decode("ascii")
