# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where the parts of a sampler put what they have seen. Private to the collection."""

import threading
import time
from typing import Callable, Dict, List, Optional, Sequence, Tuple

from .._node.notify import say
from .exposition import Family, render


class Board:
    """The last word of each part. One that does not come any more keeps its last word for `lasts` seconds: whoever
    reads it must not take an old state for a new one."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._parts: Dict[str, Tuple[float, float, Sequence[Family]]] = {}

    def put(self, part: str, families: Sequence[Family], lasts: float) -> None:
        with self._lock:
            self._parts[part] = (self._clock(), lasts, families)

    def drop(self, part: str) -> None:
        with self._lock:
            self._parts.pop(part, None)

    def text(self) -> str:
        """The samples of all parts. Families of one name become one, as the format wants it."""
        now = self._clock()
        with self._lock:
            parts = [families for at, lasts, families in self._parts.values() if now - at <= lasts]
        merged: Dict[str, Family] = {}
        for families in parts:
            for family in families:
                one = merged.setdefault(family.name, Family(family.name, family.kind, family.words))
                one.samples.extend(family.samples)
        return render(merged.values())


class Part(threading.Thread):
    """What is looked at by itself, because it may hang or fail without the others. look() -> families."""

    def __init__(
        self, board: Board, name: str, interval: float, look: Callable[[], List[Family]], lasts: Optional[float] = None
    ) -> None:
        super(Part, self).__init__(daemon=True)
        self._board, self.words, self._interval, self._look = board, name, interval, look
        self._lasts = lasts or 3 * interval + 10
        self._over = threading.Event()

    def stop(self) -> None:
        self._over.set()

    def run(self) -> None:
        complaint = None
        while not self._over.is_set():
            began = time.monotonic()
            try:
                self._board.put(self.words, self._look(), self._lasts)
                complaint = None
            except Exception as error:
                # Whatever a server, a driver or a file system says: the other parts go on. Said once, tried again.
                if str(error) != complaint:
                    complaint = str(error)
                    say("%s: cannot be sampled: %s: %s" % (self.words, type(error).__name__, error))
            self._over.wait(max(0.1, self._interval - (time.monotonic() - began)))
        self._board.drop(self.words)
