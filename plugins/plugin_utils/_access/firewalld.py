# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What firewalld has to be told so that it lets heads and clients in, and which of its rules are ours. Private to the
collection.

The text of a rule is no proof: an operator may have written the same one. A rule is ours where it was not there before
a run added it. A record keeps those, a line each: PLACE ZONE RULE. PLACE is running or permanent.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

# Place, zone, text.
Rule = tuple[str, str, str]


def changes(
    recorded: Iterable[str],
    listed: Mapping[str, str | None],
    wanted: Mapping[str, str],
    timeout: str = "",
) -> dict[str, list[Any]]:
    """What firewalld has to be told so that each wanted rule is in its zone, and none of ours is elsewhere.

    recorded: lines of the record; listed: {place: what `firewall-cmd --list-all-zones` says}, of a firewalld that does
    not run {stopped: what firewall-offline-cmd says, None where there is none}; wanted: {rule: zone}; timeout: how long
    firewalld keeps what is added, for ever if empty. -> {calls: [command], before, after: lines to record before and
    after them, left: of those, what is not wanted any more}. A run that dies between forgets nothing.
    """
    ours = _read(recorded)
    if "stopped" in listed:
        return _stopped_changes(ours, listed["stopped"], wanted)
    needed = {(place, zone, rule) for place in listed for rule, zone in wanted.items()}
    found = _found(listed, needed | ours)
    added, gone = needed - found, (ours - needed) & found
    # Of a rule that an operator has in the configuration, the running one would be back at the next reload.
    gone -= {("running", zone, rule) for place, zone, rule in found - gone if place == "permanent"}
    calls = _calls(gone, "remove") + _calls(added, "add", ["--timeout=" + timeout] * bool(timeout))
    return {
        "calls": [["firewall-cmd", *call] for call in calls],
        "before": _lines(ours | added),
        "after": _lines((ours | added) & needed),
        "left": [],
    }


def _stopped_changes(ours: set[Rule], listed: str | None, wanted: Collection[str]) -> dict[str, list[Any]]:
    """No rule of ours that is not wanted any more comes back with it. Nothing is added: the run after its start does
    that."""
    kept = {one for one in ours if one[2] in wanted}
    unwanted = {one for one in ours - kept if one[0] == "permanent"}
    left = unwanted if listed is None else set()
    # The zone's options are those of firewall-cmd, but for --permanent.
    calls = [call[1:] for call in _calls(unwanted & _found({"permanent": listed}, unwanted), "remove")]
    return {
        "calls": [["firewall-offline-cmd", *call] for call in calls],
        "before": _lines(ours),
        "after": _lines(kept | left),
        "left": _lines(left),
    }


def _read(recorded: Iterable[str]) -> set[Rule]:
    rules = set()
    for line in recorded:
        place, zone, rule = line.split(" ", 2)
        rules.add((place, zone, rule))
    return rules


def _lines(rules: Iterable[Rule]) -> list[str]:
    return sorted(" ".join(one) for one in rules)


def _found(listed: Mapping[str, str | None], rules: set[Rule]) -> set[Rule]:
    """Which of the rules, by their text, are listed: {(place, zone, rule)}."""
    found: set[Rule] = set()
    texts = {rule for _place, _zone, rule in rules}
    for place, text in listed.items():
        for block in (text or "").split("\n\n"):
            lines = [line.strip() for line in block.strip().splitlines()]
            if lines:
                # "public (active)"
                found.update((place, lines[0].split()[0], rule) for rule in texts.intersection(lines))
    return found


def _calls(rules: Iterable[Rule], verb: str, option: Sequence[str] = ()) -> list[list[str]]:
    return [
        ["--permanent"] * (place == "permanent")
        + ["--zone=" + zone]
        + list(option)
        + ["--%s-rich-rule=%s" % (verb, rule)]
        for place, zone, rule in sorted(rules)
    ]
