# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What was measured before, as it is kept on the controller. Private to the collection."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

Map = Mapping[str, Any]
# benchmark: of bench.benchmark(); verify: a service's report of role acceptance; report: of verify.criteria_report();
# wire: what its workers held and moved; link: what the fabric can carry.
FORMAT = 1
KINDS = ("benchmark", "verify", "report", "wire", "link")
MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ\Z")


class Results:
    """texts: {path: content}. What is kept twice, as the latest one and under its moment, counts once; what is no
    result of these kinds is left out, and unreadable names what has the ending of one and is none."""

    def __init__(self, texts: Mapping[str, str]) -> None:
        self.unreadable: list[str] = []
        found: dict[tuple[str, str, str], Map] = {}
        for path, text in sorted(texts.items()):
            result = _parsed(text)
            if result is None:
                self.unreadable.append(path)
            elif _is_known(result):
                found[(result["measured_at"], result["kind"], label_of(result))] = result
        self._ordered = [result for _key, result in sorted(found.items(), key=lambda one: one[0])]

    def history(self, kind: str, label: str | None = None) -> Sequence[Map]:
        """Those of a kind, the oldest first; label: of one service, replica or model of a router."""
        return [one for one in self._ordered if one["kind"] == kind and label in (None, label_of(one))]

    def latest(self, kind: str, label: str | None = None) -> Map | None:
        found = self.history(kind, label)
        return found[-1] if found else None


def label_of(result: Map) -> str:
    """As files are called: SERVICE, SERVICE.NODE of a replica, ROUTER.MODEL."""
    return str(result.get("label") or result.get("service") or "")


def _is_known(result: Map) -> bool:
    """A later format may mean something else."""
    known = result.get("kind") in KINDS and result.get("format") == FORMAT
    return known and MOMENT.match(str(result.get("measured_at"))) is not None


def _parsed(text: str) -> Map | None:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None
