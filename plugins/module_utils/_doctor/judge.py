# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Finds faults in evidence, by rules. Private to the collection.

A rule is data. `scope`: cluster for evidence of all nodes, absent for one node. `each`: a list of the evidence; the
conditions of `when` must all hold for one of its items, or without `each` for the evidence itself. A condition on an
unknown value never holds.
"""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Callable

from .._text import counted, duration, human, printable

Evidence = Mapping[str, Any]
Rule = Mapping[str, Any]
Finding = dict[str, Any]
# The worst first. A notice has repaired itself.
SEVERITIES = ("problem", "warning", "notice")
FIELD = re.compile(r"\{([@/]?[\w.]+)(?:\|(\w+))?\}")
MISSING = object()
WORDS_MOST = 400


def at_path(value: Any, path: str) -> Any:
    """The value at a.b.c in nested tables; MISSING if it is not there or None."""
    for name in path.split("."):
        value = value.get(name, MISSING) if isinstance(value, Mapping) else MISSING
    return MISSING if value is None else value


class _Item:
    """An item of evidence. Paths lead into the item, with @ into the record of its unit, with / into the evidence; the
    name of a group leads to what the rule's pattern matched."""

    def __init__(self, item: Any, evidence: Evidence) -> None:
        self._item, self._evidence = item, evidence
        self.found: dict[str, Any] = {}

    def look(self, path: str) -> Any:
        if path.startswith("/"):
            return at_path(self._evidence, path[1:])
        if path.startswith("@"):
            return at_path(self._unit(), path[1:])
        return self.found[path] if path in self.found else at_path(self._item, path)

    def _unit(self) -> Any:
        name = at_path(self._item, "unit")
        return next((unit for unit in self._evidence.get("units") or () if unit.get("name") == name), {})

    def holds(self, condition: Mapping[str, Any]) -> bool:
        value = self.look(condition["path"])
        if value is MISSING:
            return False
        for name, wanted in condition.items():
            if name == "path":
                continue
            other = self.look(wanted["path"]) if isinstance(wanted, Mapping) else wanted
            if other is MISSING or not OPERATORS[name](value, other):
                return False
        if "matches" in condition:
            found = re.search(condition["matches"], str(value))
            self.found.update(found.groupdict() if found else {})
        return True

    def words(self, text: str, quoted: bool = False) -> str:
        """A text of the rule with its {fields} filled in. quoted: for a shell."""

        def field(found: Any) -> str:
            value = self.look(found.group(1))
            shown = "unknown" if value is MISSING else FORMS[found.group(2) or ""](value)
            return shlex.quote(printable(shown, WORDS_MOST)) if quoted else printable(shown, WORDS_MOST)

        return FIELD.sub(field, text)


def _number(value: Any) -> float | None:
    try:
        return float(value)
    except (TypeError, ValueError):
        return None


def _over(value: Any, other: Any) -> bool:
    left, right = _number(value), _number(other)
    return left is not None and right is not None and left > right


def _under(value: Any, other: Any) -> bool:
    least, most = _number(value), _number(other)
    return least is not None and most is not None and least < most


OPERATORS = {
    "is": lambda value, other: value == other,
    "not": lambda value, other: value != other,
    "over": _over,
    "under": _under,
    "among": lambda value, other: value in other,
    "has": lambda value, other: isinstance(value, (list, tuple, Mapping)) and other in value,
    "matches": lambda value, other: re.search(other, str(value)) is not None,
    "lacks": lambda value, other: re.search(other, str(value)) is None,
}
FORMS: dict[str, Callable[[Any], str]] = {
    "": str,
    "bytes": lambda value: human(_number(value) or 0),
    "percent": lambda value: "%d %%" % round(100 * (_number(value) or 0)),
    "seconds": lambda value: duration(_number(value) or 0),
    "list": lambda value: ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value),
    "host": lambda value: str(value).rpartition(":")[0],
    "port": lambda value: str(value).rpartition(":")[2],
}


def judge(rules: Iterable[Rule], evidence: Evidence) -> list[Finding]:
    """Findings, the worst and latest first: {rule, severity, over, node, service, unit, at, count, sentence, cause,
    fix, command}; over: it has repaired itself."""
    found: list[Finding] = []
    for rule in rules:
        if rule.get("scope") != evidence.get("scope"):
            continue
        kept: dict[Any, Finding] = {}
        for place, item in enumerate(_items(rule, evidence)):
            look = _Item(item, evidence)
            if not all(look.holds(condition) for condition in rule["when"]):
                continue
            finding = _finding(rule, look)
            # Repeated lines of a unit are one finding, the newest.
            key = (
                (finding["unit"], finding["service"], look.words(rule.get("by", "")))
                if rule.get("each") == "lines"
                else place
            )
            finding["count"] = kept[key]["count"] + 1 if key in kept else 1
            kept[key] = finding
        found += kept.values()
    return sorted(found, key=order)


def order(finding: Finding) -> Any:
    return (
        SEVERITIES.index(finding["severity"]),
        -(finding["at"] or 0),
        str(finding["node"]),
        str(finding["service"]),
        finding["rule"],
    )


def _items(rule: Rule, evidence: Evidence) -> Sequence[Any]:
    if not rule.get("each"):
        return [evidence]
    items = at_path(evidence, rule["each"])
    return items if isinstance(items, (list, tuple)) else []


def _finding(rule: Rule, look: _Item) -> Finding:
    # A fault in a line is over if its unit is well again, unless the rule says that it stays.
    over = rule.get("each") == "lines" and not rule.get("stays") and look.look("over") is True

    def known(path: str) -> Any:
        value = look.look(path)
        return None if value is MISSING else value

    return {
        "rule": rule["name"],
        "severity": "notice" if over else rule["severity"],
        "over": over,
        "node": known("node") or known("/node"),
        "service": known("service") or known("@service"),
        "unit": known("unit"),
        "at": known("at"),
        "sentence": look.words(rule["sentence"]),
        "cause": look.words(rule["cause"]),
        "fix": look.words(rule["fix"]),
        "command": look.words(rule["command"], quoted=True),
    }


def needed(findings: Iterable[Finding]) -> list[Finding]:
    """Findings that require an action."""
    return [one for one in findings if not one["over"] and one["severity"] != "notice"]


def end_of(findings: Sequence[Finding], seconds: float) -> str:
    """The last line of a complete report. seconds: of the journal that was read."""
    wrong, over = len(needed(findings)), len([one for one in findings if one["over"]])
    if wrong:
        return counted(wrong, "finding")
    hours, minutes = divmod(round(seconds / 60), 60)
    span = duration(seconds) if minutes or not hours else "%d h" % hours
    return "healthy" + ("; repaired in the last %s: %d" % (span, over) if over else "")


def lines_of(findings: Iterable[Finding], failed: Mapping[str, str]) -> list[str]:
    """The report's lines, one for a finding that is over. failed: {probe: reason}."""
    lines = []
    for one in findings:
        where = " ".join(filter(None, [one["node"], one["service"]]))
        when = []
        if one["at"]:
            when.append(time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(one["at"])))
        if one.get("count", 1) > 1:
            when.append("%d times" % one["count"])
        lines.append(
            "%s: %s: %s%s" % (one["severity"], where, one["sentence"], " (%s)" % ", ".join(when) if when else "")
        )
        if one["over"]:
            continue
        lines += ["  cause: " + one["cause"], "  fix:   " + one["fix"], "  run:   " + one["command"]]
    lines += [f"not looked at: {what}: {printable(why)}" for what, why in sorted(failed.items())]
    return lines
