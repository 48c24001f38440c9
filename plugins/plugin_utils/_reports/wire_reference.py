# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The answer that a model gave before, and whether it gives it again. Private to the collection.

At temperature 0 the same model, build and hardware give the same text. What differs in one of them gives another text
without being wrong: it is not compared.
"""

from __future__ import annotations

import hashlib
import os
from typing import Any

from .wire_seen import Check, Map, Seen

# What a text depends on, in words.
PARTS = {"model": "model", "build": "build", "machines": "machines", "args": "arguments"}
# Answers that are kept of a service, the newest: one for each build, machine and setting.
KEPT = 16
# Characters of two texts that are shown where they part.
SHOWN = 40


def basis(head: Map, seen: Seen) -> dict[str, Any]:
    """What the text of an answer depends on."""
    return {
        "model": f"{head['model']} {head['quant']}",
        "build": {node: (process.get("build") or {}).get("sha256") for node, process in seen.nodes(head)},
        "machines": {node: process.get("machine") for node, process in seen.nodes(head)},
        "args": hashlib.sha256("\0".join(head.get("args") or []).encode()).hexdigest()[:12],
    }


def with_reference(head: Map, seen: Seen, measured_at: str) -> list[Map]:
    """The answers that are kept, this one among them; empty where they stay as they are."""
    decode, now = seen.wire["decode"], basis(head, seen)
    if not decode["same"] or not decode["text"].strip() or _kept(seen, now):
        return []
    return [*seen.references, {"measured_at": measured_at, "basis": now, "text": decode["text"]}][-KEPT:]


def _kept(seen: Seen, now: Map) -> Map | None:
    return next((one for one in reversed(seen.references) if one["basis"] == now), None)


def answer(head: Map, seen: Seen) -> Check:
    """The same text as before, where all is as before."""
    decode, now = seen.wire["decode"], basis(head, seen)
    if not decode["text"].strip():
        return Check("answer", False, "empty", ["its answer is empty, a text is needed: see its conversation"])
    if not decode["same"]:
        return Check("answer", None, "not comparable: it differs from one time to the next here", [])
    if not seen.references:
        return Check("answer", None, "kept as reference, there was none", [])
    kept = _kept(seen, now)
    if not kept:
        last = seen.references[-1]["basis"]
        differs = [PARTS[name] for name in now if now[name] != last.get(name)]
        return Check("answer", None, f"not comparable here, other {', '.join(differs)}; kept as reference", [])
    text, before = decode["text"], kept["text"]
    if text == before:
        return Check("answer", True, f"as on {kept['measured_at']}, {len(before)} characters", [])
    at = len(os.path.commonprefix([text, before]))
    shown = [" ".join(one[at : at + SHOWN].split()) for one in (text, before)]
    words = "its answer goes on %r and did %r on %s, with the same build, arguments and machines the same is needed"
    step = ": have the model's file verified with --tags model"
    return Check(
        "answer", False, f"another than on {kept['measured_at']}", [words % (*shown, kept["measured_at"]) + step]
    )
