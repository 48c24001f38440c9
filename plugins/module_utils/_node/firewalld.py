# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What firewalld has to be told so that it lets heads, clients and borrowers in, and which of its rules are ours.
Private to the collection.

The text of a rule is no proof: an operator may have written the same one. A rule is ours where it was not there before
a run added it. A record keeps those, a line each: PLACE ZONE RULE. PLACE is running or permanent.

By command: firewalld's Python bindings exist only for the distribution's own Python.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import subprocess
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from .._files import directory, write_atomically
from .._text import Refusal, printable
from .facts import answer, environment, records, routes, said

# Place, zone, text.
Rule = tuple[str, str, str]
PEER = 'rule family="ipv4" source address="%s" port port="%s" protocol="tcp" accept'
HEADER = "# Rules of firewalld that were added here\n"


class Told(NamedTuple):
    """Commands for firewalld; the lines to record before and after them, so that a run that dies between forgets
    nothing; of those lines, what is not wanted any more and cannot be removed."""

    calls: list[list[str]]
    before: list[str]
    after: list[str]
    left: list[str]


def peer_rules(peers: Iterable[str]) -> dict[str, str]:
    """{rule: the interface that packets come in on} that lets each ADDRESS:PORT in; the port is this node's."""
    split = [peer.rpartition(":")[::2] for peer in peers]
    ways = routes(address for address, _port in split)
    return {PEER % (address, port): ways[address] for address, port in split}


def tell(record: str, rules: Mapping[str, str], timeout: str = "", check_mode: bool = False) -> Told:
    """Has firewalld let in who is wanted, and nobody any more whom an earlier run let in, where it filters -> what it
    was told.

    record: the file of what was added; rules: {rule: interface}; timeout: how long firewalld keeps what is added, such
    as 6h, and then in no configuration; for ever if empty. Errors: Refusal, OSError.
    """
    recorded = records([record])["records"][record]
    if not rules and not recorded:
        return Told([], [], [], [])
    if said(["firewall-cmd", "--state"])[0] == 0:
        places = ["running"] if timeout else ["running", "permanent"]
        listed: dict[str, str | None] = {place: _listed(place) for place in places}
        told = changes(recorded, listed, _zones(rules), timeout)
    elif not recorded:
        return Told([], [], [], [])
    else:
        status, text = said(["firewall-offline-cmd", "--list-all-zones"])
        told = changes(recorded, {"stopped": None if status else text}, rules)
    if not check_mode:
        _keep(record, told.before, recorded)
        for call in told.calls:
            _call(call)
        _keep(record, told.after, told.before)
    return told


def _listed(place: str) -> str:
    return answer(["firewall-cmd", "--list-all-zones"] + ["--permanent"] * (place == "permanent"))


def _zones(rules: Mapping[str, str]) -> dict[str, str]:
    """{rule: the zone of its interface}; what is in none is filtered by the default zone."""
    default = answer(["firewall-cmd", "--get-default-zone"]).strip()
    zones = {"": default}
    for interface in set(rules.values()) - {""}:
        zone = answer(["firewall-cmd", "--get-zone-of-interface=" + interface], 2).strip()
        zones[interface] = default if zone in ("", "no zone") else zone
    return {rule: zones[interface] for rule, interface in rules.items()}


def _call(command: Sequence[str]) -> None:
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment(), check=False)
    if done.returncode:
        raise Refusal(
            "%s: it ended with status %d (%s), 0 is needed: run it on the node"
            % (
                " ".join(map(shlex.quote, command)),
                done.returncode,
                printable(done.stdout.decode("utf-8", "replace").strip()),
            )
        )


def _keep(record: str, lines: Sequence[str], was: Sequence[str]) -> None:
    """A record without lines is no file."""
    if lines and list(lines) != sorted(was):
        write_atomically(record, (HEADER + "\n".join(lines) + "\n").encode("utf-8"), 0o644)
    elif was and not lines:
        with directory(os.path.dirname(record)) as folder, contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.basename(record), dir_fd=folder)


def changes(
    recorded: Iterable[str],
    listed: Mapping[str, str | None],
    wanted: Mapping[str, str],
    timeout: str = "",
) -> Told:
    """What firewalld has to be told so that each wanted rule is in its zone, and none of ours is elsewhere.

    recorded: lines of the record; listed: {place: what `firewall-cmd --list-all-zones` says}, of a firewalld that does
    not run {stopped: what firewall-offline-cmd says, None where there is none}; wanted: {rule: zone}; timeout: see
    tell().
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
    return Told(
        calls=[["firewall-cmd"] + call for call in calls],
        before=_lines(ours | added),
        after=_lines((ours | added) & needed),
        left=[],
    )


def _stopped_changes(ours: set[Rule], listed: str | None, wanted: Collection[str]) -> Told:
    """No rule of ours that is not wanted any more comes back with it. Nothing is added: the run after its start does
    that."""
    kept = {one for one in ours if one[2] in wanted}
    unwanted = {one for one in ours - kept if one[0] == "permanent"}
    left = unwanted if listed is None else set()
    # The zone's options are those of firewall-cmd, but for --permanent.
    calls = [call[1:] for call in _calls(unwanted & _found({"permanent": listed}, unwanted), "remove")]
    return Told(
        calls=[["firewall-offline-cmd"] + call for call in calls],
        before=_lines(ours),
        after=_lines(kept | left),
        left=_lines(left),
    )


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
        ["--permanent"] * (place == "permanent") + ["--zone=" + zone] + list(option) + [f"--{verb}-rich-rule={rule}"]
        for place, zone, rule in sorted(rules)
    ]
