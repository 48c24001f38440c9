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
FORMAT = 1
# benchmark: of bench.benchmark(); verify: a service's report of role acceptance; report: of verify.criteria_report();
# wire: what its workers held and moved; link: what the fabric can carry; drill: of drill.drill_report().
KINDS = ("benchmark", "verify", "report", "wire", "link", "drill")
MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ\Z")


class Results:
    """The results among files: {path: content}. A result that is kept twice, as the latest one and under its time,
    counts once. unreadable: paths of files that are not JSON, or results without a time."""

    def __init__(self, texts: Mapping[str, str]) -> None:
        self.unreadable: list[str] = []
        found: dict[tuple[str, str, str], Map] = {}
        for path, text in sorted(texts.items()):
            try:
                result = json.loads(text)
            except (ValueError, RecursionError):
                result = None
            if not isinstance(result, dict):
                self.unreadable.append(path)
            elif result.get("kind") in KINDS and result.get("format") == FORMAT:
                # A later format may mean something else.
                if MOMENT.match(str(result.get("measured_at"))):
                    found[(result["measured_at"], result["kind"], label_of(result))] = result
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


def label_of(result: Map) -> str:
    """As files are called: SERVICE, SERVICE.NODE of a replica, ROUTER.MODEL."""
    return str(result.get("label") or result.get("service") or "")
