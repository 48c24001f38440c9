# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules of firewalld that let heads, clients and model copies in. Private to the collection.

A rule is the collection's if it was not there before a run added it; its text is no proof, because an operator may have
written the same one. A record lists the added rules, a line each: PLACE ZONE RULE. PLACE is running or permanent.

By command: firewalld's Python bindings exist only for the distribution's own Python.
"""

from __future__ import annotations

import contextlib
import os
import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from .._files import directory, write_atomically
from .._text import Refusal, printable
from .command import answer, said
from .facts import records, routes

# Place, zone, text.
Rule = tuple[str, str, str]
PEER = 'rule family="ipv4" source address="%s" port port="%s" protocol="tcp" accept'
HEADER = "# Rules of firewalld that were added here\n"


class Actions(NamedTuple):
    """calls: commands for firewalld. before, after: the record's lines before and after them, so that an interrupted
    run forgets nothing. left: lines of unwanted rules that cannot be removed now."""

    calls: list[list[str]]
    before: list[str]
    after: list[str]
    left: list[str]


NOTHING = Actions([], [], [], [])


def peer_rules(peers: Iterable[str]) -> dict[str, str]:
    """{rule: the interface that packets come in on} that lets each ADDRESS:PORT in; the port is this node's."""
    split = [peer.rpartition(":")[::2] for peer in peers]
    ways = routes(address for address, _port in split)
    return {PEER % (address, port): ways[address] for address, port in split}


def apply(record: str, rules: Mapping[str, str], timeout: str = "", check_mode: bool = False) -> Actions:
    """Adds the wanted rules to firewalld and removes unwanted ones of earlier runs -> what it did.

    record: file of the added rules; rules: {rule: interface}; timeout: how long firewalld keeps the rules, such as 6h,
    then not in its configuration; empty: permanently. Errors: Refusal, OSError.
    """
    recorded = records([record])["records"][record]
    if not rules and not recorded:
        return NOTHING
    if said(["firewall-cmd", "--state"])[0]:
        # The next run with firewalld removes them.
        unwanted = [line for line in recorded if line.startswith("permanent ") and line.split(" ", 2)[2] not in rules]
        return NOTHING._replace(left=unwanted)
    listed = {place: _listed(place) for place in (["running"] if timeout else ["running", "permanent"])}
    actions = changes(recorded, listed, _zones(rules), timeout)
    if not check_mode:
        _keep(record, actions.before, recorded)
        for call in actions.calls:
            _call(call)
        _keep(record, actions.after, actions.before)
    return actions


def _listed(place: str) -> str:
    return answer(["firewall-cmd", "--list-all-zones"] + ["--permanent"] * (place == "permanent"))


def _zones(rules: Mapping[str, str]) -> dict[str, str]:
    """{rule: the zone of its interface}; an interface without a zone belongs to the default zone."""
    default = answer(["firewall-cmd", "--get-default-zone"]).strip()
    zones = {"": default}
    for interface in set(rules.values()) - {""}:
        zone = answer(["firewall-cmd", "--get-zone-of-interface=" + interface], 2).strip()
        zones[interface] = default if zone in ("", "no zone") else zone
    return {rule: zones[interface] for rule, interface in rules.items()}


def _call(command: Sequence[str]) -> None:
    status, output = said(command, errors=True)
    if status:
        raise Refusal(
            "%s: it ended with status %d (%s), 0 is needed: run it on the node"
            % (
                " ".join(map(shlex.quote, command)),
                status,
                printable(output.strip()),
            )
        )


def _keep(record: str, lines: Sequence[str], was: Sequence[str]) -> None:
    """Writes the record, or removes it if it has no lines."""
    if lines and list(lines) != sorted(was):
        write_atomically(record, (HEADER + "\n".join(lines) + "\n").encode("utf-8"), 0o644)
    elif was and not lines:
        with directory(os.path.dirname(record)) as folder, contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.basename(record), dir_fd=folder)


def changes(
    recorded: Iterable[str],
    listed: Mapping[str, str],
    wanted: Mapping[str, str],
    timeout: str = "",
) -> Actions:
    """The actions that put each wanted rule into its zone and remove recorded ones from elsewhere.

    recorded: lines of the record; listed: {place: output of `firewall-cmd --list-all-zones`}; wanted: {rule: zone};
    timeout: see apply().
    """
    known = _read(recorded)
    needed = {(place, zone, rule) for place in listed for rule, zone in wanted.items()}
    found = _found(listed, needed | known)
    added, gone = needed - found, (known - needed) & found
    # A rule that the operator has in the configuration stays: the next reload would bring it back.
    gone -= {("running", zone, rule) for place, zone, rule in found - gone if place == "permanent"}
    calls = _calls(gone, "remove") + _calls(added, "add", ["--timeout=" + timeout] * bool(timeout))
    return Actions(
        calls=[["firewall-cmd"] + call for call in calls],
        before=_lines(known | added),
        after=_lines((known | added) & needed),
        left=[],
    )


def _read(recorded: Iterable[str]) -> set[Rule]:
    rules = set()
    for line in recorded:
        place, zone, rule = line.split(" ", 2)
        rules.add((place, zone, rule))
    return rules


def _lines(rules: Iterable[Rule]) -> list[str]:
    return sorted(" ".join(one) for one in rules)


def _found(listed: Mapping[str, str], rules: set[Rule]) -> set[Rule]:
    """Which of the rules, by their text, are listed: {(place, zone, rule)}."""
    found: set[Rule] = set()
    texts = {rule for _place, _zone, rule in rules}
    for place, text in listed.items():
        for block in text.split("\n\n"):
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
