# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a head that nobody asks can be talked with. Private to the collection."""

from __future__ import annotations

import time
from typing import Any

from .._llama.args import told as told_by
from .._node.units import unit_info
from .._serving.conversation import Conversation
from .._serving.health import Head
from .config import Watched
from .exposition import Family
from .heads import Asked
from .metrics import Families

# Seconds between two proofs, without a request before one, so that it disturbs nobody, and for an answer.
PROOF, IDLE, ANSWER = 3600.0, 60.0, 120.0
# Seconds between two looks at whether it is time, and that one may last.
LOOK, LASTS = 15.0, 600.0
ASKED: dict[str, Any] = {"prompt": "Hello. Answer with one word.", "max_tokens": 16, "timeout": ANSWER}


class Proof:
    """Of one head. asked: who knows whether it is idle. look() is called by one thread alone, since an answer may take
    minutes."""

    def __init__(self, told: Watched, asked: Asked) -> None:
        self._told, self._asked = told, asked
        self._due = time.monotonic() + IDLE
        self._held: bool | None = None
        self._at = 0.0

    def look(self) -> list[Family]:
        idle = self._asked.idle()
        if idle is not None and idle >= IDLE and time.monotonic() >= self._due:
            self._due = time.monotonic() + PROOF
            self._prove()
        found = Families()
        if self._held is not None:
            found.add("llama_conversation_ok", int(self._held), service=self._told.service)
            found.add("llama_conversation_timestamp_seconds", round(self._at, 1), service=self._told.service)
        return found.all()

    def _prove(self) -> None:
        """Without its workers, which the answer goes over anyway: to see whose connections these are takes more rights
        than the sampler has."""
        unit = self._told.unit
        words = [one.arguments for one in unit_info([unit])]
        head = Head(self._asked.api(), unit=unit, own_key=True, told=told_by(words[0] if words else []))
        # One at work has no time for us, and one that loads or ends is others' business.
        if head.check()["state"] != "ready":
            return
        result = head.check(0, ASKED)
        if result["state"] == "ready":
            Conversation(head, head.told, result, **ASKED).hold(False)
        if result["state"] in ("ready", "degraded"):
            self._held, self._at = result["state"] == "ready", time.time()
