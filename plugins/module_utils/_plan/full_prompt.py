# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How long a service reads a prompt that fills a slot, by what was measured of it. Private to the collection."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from .._text import duration

# Tokens that a prompt has at least whose rate says something of a full one.
LEAST = 1024
NOT_KNOWN = "how long a full prompt takes is not known yet, verify.yml -e deep=true measures it"
DAY = re.compile(r"^[0-9]{4}-[0-9]{2}-[0-9]{2}")


class Measured(NamedTuple):
    """inputs: what the plan was made for with which it was measured."""

    rate: float  # tokens a second
    day: str
    inputs: list[Any]


def record(long: Mapping[str, Any], inputs: list[Any]) -> dict[str, Any]:
    """The record of a long prompt on its head; empty if it was too short or the service has no plan. long:
    tokens and seconds of llama_long_prompt, and measured_at."""
    tokens, seconds = int(long.get("tokens") or 0), float(long.get("seconds") or 0)
    if tokens < LEAST or seconds <= 0 or not inputs:
        return {}
    return {"tokens": tokens, "seconds": seconds, "inputs": inputs, "measured_at": str(long["measured_at"])}


def measured(kept: Mapping[str, Any]) -> Measured | None:
    """The same of a record, as node_facts reads it with a plan (prompt: JSON in base64) or as record() made it; None
    if it is not one."""
    try:
        found = json.loads(base64.b64decode(kept["prompt"]).decode("utf-8")) if "prompt" in kept else dict(kept)
        tokens, seconds, day = int(found["tokens"]), float(found["seconds"]), DAY.match(found["measured_at"])
        if tokens < LEAST or seconds <= 0 or not day or not isinstance(found["inputs"], list):
            return None
        return Measured(tokens / seconds, day.group(), found["inputs"])
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def full_prompt(slot: int, inputs: list[Any], found: Measured | None) -> str | None:
    """In words; None if no service was measured with this plan. slot: tokens."""
    if not found or not inputs or json.dumps(found.inputs) != json.dumps(inputs):
        return None
    return "a full prompt of %d tokens takes about %s at %.1f tokens/s (measured %s)" % (
        slot,
        duration(slot / found.rate),
        found.rate,
        found.day,
    )
