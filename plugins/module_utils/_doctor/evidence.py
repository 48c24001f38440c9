# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Collects evidence of a node as tables: read-only, in bounded time, without contacting an RPC port.
Private to the collection."""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Iterable, Mapping
from typing import Any, Callable

from . import journal, system, units

# Seconds of the journal that are read, and time limits of probes.
WINDOW = 6 * 3600.0
UNITS, JOURNAL, OTHERS, CARDS = 40.0, 25.0, 15.0, 15.0


def collect(rules: Iterable[Mapping[str, Any]], since: float | None = None, node: str = "") -> dict[str, Any]:
    """{node, at, since, units, lines, cards, ..., failed: {probe: reason}}. rules: their patterns select lines of the
    servers; since: seconds since 1970."""
    began = time.time()
    since = began - WINDOW if since is None else since
    evidence: dict[str, Any] = {"node": node or os.uname().nodename, "at": began, "since": since, "units": []}
    seen, failed = gather({"units": (UNITS, units.look)})
    evidence.update(seen.get("units") or {})
    evidence["is_held"] = bool(evidence.get("held"))
    known = evidence["units"]
    served = units.models_of(known)
    names = [unit["name"] for unit in known]
    ends = system.addresses_of(known)
    wanted = patterns(rules)
    more, why = gather(
        {
            "journal": (2 * JOURNAL, lambda: journal.read(names, since, JOURNAL, wanted)),
            "cards": (CARDS, lambda: system.cards(known)),
            "disks": (OTHERS, lambda: system.disks(served)),
            "models": (OTHERS, lambda: system.models(served)),
            "fabric": (OTHERS, lambda: system.fabric_of(ends["address"], ends["peers"])),
            "firewall": (OTHERS, system.firewall),
            "machine": (OTHERS, system.machine),
            "gateway": (OTHERS, system.gateway),
            "slurm": (OTHERS, system.jobs),
            "differences": (2 * OTHERS, system.differences),
        }
    )
    failed.update(why)
    for name in ("cards", "machine", "slurm", "differences"):
        evidence.update(more.pop(name, {}))
    lines = more.pop("journal", [])
    evidence.update(more, lines=annotated(lines, evidence), failed=failed)
    evidence["took"] = round(time.time() - began, 2)
    return evidence


def annotated(lines: list[dict[str, Any]], evidence: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Lines with the service of their unit; current: logged by its present process; over: the unit is well, or has
    served since."""
    known = {unit["name"]: unit for unit in evidence["units"]}
    fences = table_of(evidence.get("firewall"))
    fenced = all(one["fenced"] for one in fences.get("fences") or ())
    served = {
        line["unit"]: line["at"] for line in lines if line["by"] == "watchdog" and line["text"].startswith("serves")
    }
    for line in lines:
        unit = known.get(line["unit"] or "")
        if unit is None:
            # The firewall's rules, or the kernel; a killed process is reported by its unit.
            line["over"] = fenced if line["by"] == "watchdog" else None
            continue
        start = unit.get("started_at")
        line["service"] = unit["service"]
        line["current"] = bool(start and line["at"] >= start - 1)
        line["over"] = units.is_well(unit) or line["at"] < served.get(line["unit"], 0.0)
    return lines


def table_of(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def patterns(rules: Iterable[Mapping[str, Any]]) -> list[str]:
    """The patterns of rules for lines, without group names, which several rules share."""
    return [
        re.sub(r"\(\?P<\w+>", "(?:", condition["matches"])
        for rule in rules
        if rule.get("each") == "lines"
        for condition in rule["when"]
        if condition["path"] == "text" and "matches" in condition
    ]


def gather(probes: dict[str, tuple[float, Callable[[], Any]]]) -> tuple[dict[str, Any], dict[str, str]]:
    """Runs {name: (seconds, function)} in parallel -> ({name: result}, {name: error}).

    A probe that hangs, as on a lost share, is left behind: its thread ends with the process.
    """
    seen: dict[str, Any] = {}
    failed: dict[str, str] = {}

    def look(name: str, probe: Callable[[], Any]) -> None:
        try:
            seen[name] = probe()
        except Exception as error:  # the other probes go on
            failed[name] = str(error) or type(error).__name__

    threads = []
    for name, (seconds, probe) in probes.items():
        thread = threading.Thread(target=look, args=(name, probe), daemon=True)
        thread.start()
        threads.append((name, seconds, thread))
    for name, seconds, thread in threads:
        thread.join(seconds)
        if name not in seen and name not in failed:
            failed[name] = f"no answer in {seconds:g} s"
    # Copies: late threads do not change them.
    return dict(seen), dict(failed)
