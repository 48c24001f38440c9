# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The results that are kept on the controller. Private to the collection.

Kinds: benchmark (bench.bench_report()), verify (a service's report of role acceptance), report
(verify.criteria_report()), wire (the split proof), link, drill (drill.drill_report()), tune
(_tune/result).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

Map = Mapping[str, Any]
FORMAT = 1
MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ\Z")


class Results:
    """The results among files: {path: content}. A result that is kept twice, as the latest one and under its time,
    counts once; other formats are left out. unreadable: paths of files that are not JSON, or results without a time."""

    def __init__(self, texts: Mapping[str, str]) -> None:
        self.unreadable: list[str] = []
        found: dict[tuple[str, str, str], Map] = {}
        for path, text in sorted(texts.items()):
            try:
                result = json.loads(text)
            except (ValueError, RecursionError):
                result = None
            if isinstance(result, dict) and (result.get("format") != FORMAT or "kind" not in result):
                continue
            if isinstance(result, dict) and MOMENT.match(str(result.get("measured_at"))):
                found[(result["measured_at"], str(result["kind"]), label_of(result))] = result
            else:
                self.unreadable.append(path)
        self._ordered = [result for _key, result in sorted(found.items(), key=lambda one: one[0])]

    def history(self, kind: str, label: str | None = None) -> Sequence[Map]:
        """Results of a kind, the oldest first; label: of one service, replica or model of a router."""
        return [one for one in self._ordered if one["kind"] == kind and label in (None, label_of(one))]

    def latest(self, kind: str, label: str | None = None) -> Map | None:
        return next(reversed(self.history(kind, label)), None)


def files_of(folder: str, result: Map) -> dict[str, str]:
    """{path below the reports: content} of a result, under its time and as the latest one."""
    stamp = str(result["measured_at"]).replace("-", "").replace(":", "")
    label, text = label_of(result).replace("/", "_"), json.dumps(result, indent=4) + "\n"
    return {f"{folder}/{'-'.join(filter(None, (name, label)))}.json": text for name in (stamp, "latest")}


def label_of(one: Map) -> str:
    """The label of a result or head in file names: SERVICE, SERVICE.NODE of a replica, ROUTER.MODEL."""
    return str(one.get("label") or one.get("service") or "").replace(" on ", ".")


def value(one: Map, path: str) -> Any:
    """The value at a path such as figures.time_to_first_token.p50; None if a part of it is missing."""
    found: Any = one
    for name in path.split("."):
        found = found.get(name) if isinstance(found, Mapping) else None
    return found
