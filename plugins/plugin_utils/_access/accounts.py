# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Checks of the accounts of heads and workers on a node. Private to the collection."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

Account = Mapping[str, Any]
Entry = Sequence[str]


def account_refusals(node: Mapping[str, Any], host: str, accounts: Sequence[Account]) -> list[str]:
    """One sentence for each thing that keeps a node from having these accounts.

    node: its fact llama_node with `accounts` and `writable`; accounts: {option, name, id_option, id}, first that of
    heads, then that of workers.
    """
    passwd, groups = node["accounts"]["passwd"], node["accounts"]["group"]
    found = []
    if node["writable"]:
        found.append(
            "%s of %s: others than root may write there, a directory that only root can write to is needed there: "
            "look at who changed it, then chown root and chmod go-w" % (", ".join(node["writable"]), host)
        )
    heads, workers = accounts
    if heads["name"] == workers["name"]:
        found.append(
            "%s: %s seen, another account than %s is needed: a worker that is taken over would read what belongs to a "
            "head" % (workers["option"], workers["name"], heads["option"])
        )
    for account in accounts:
        entry = _named(passwd, account["name"])
        found.extend(_account(account, entry, host))
        if int(account["id"]):
            found.extend(
                _id(account, entry, [other for other in accounts if other["name"] != account["name"]], passwd, host)
            )
        found.extend(_group(account, entry, _named(groups, account["name"]), host))
    return found


def _named(entries: Sequence[Entry], name: str) -> Entry | None:
    return next((entry for entry in entries if entry[0] == name), None)


def _account(account: Account, entry: Entry | None, host: str) -> Iterator[str]:
    if entry and not (
        0 < int(entry[2]) < 1000 and entry[5] == "/nonexistent" and os.path.basename(entry[6]) in ("nologin", "false")
    ):
        yield (
            "%s: account %s of %s was there before, with id %s, home %s and shell %s, one with an id below 1000, home "
            "/nonexistent and shell /usr/sbin/nologin is needed: name an account that is free"
            % (account["option"], account["name"], host, entry[2], entry[5], entry[6])
        )


def _id(
    account: Account, entry: Entry | None, others: Sequence[Account], passwd: Sequence[Entry], host: str
) -> Iterator[str]:
    """The first fault of a configured id."""
    wanted = int(account["id"])
    same = [other["id_option"] for other in others if int(other["id"]) == wanted]
    holders = [one[0] for one in passwd if one[2] == str(wanted) and one[0] != account["name"]]
    seen, needed, step = "", "", "choose another one"
    if not 1 <= wanted < 1000:
        needed = "from 1 to 999"
    elif same:
        seen, needed = f"{same[0]} has it too, ", "of its own"
    elif holders:
        seen, needed = f"on {host} it is the id of {' and '.join(holders)}, ", "that is free"
    elif entry and entry[2] != str(wanted):
        seen, needed = f"on {host} {account['name']} has {entry[2]}, ", "that this account has"
        step = f"write {entry[2]}, or run teardown.yml first"
    if needed:
        yield "%s: %d seen, %san id %s is needed, the same on every node: %s" % (
            account["id_option"],
            wanted,
            seen,
            needed,
            step,
        )


def _group(account: Account, entry: Entry | None, group: Entry | None, host: str) -> Iterator[str]:
    """A group without other members: they would read the keys of the heads."""
    if group and not (entry and group[2] == entry[3] and group[3] in ("", account["name"])):
        yield (
            "%s: group %s of %s was there before, with members %s, a group of only the account %s is needed: name an "
            "account that is free, its group too"
            % (account["option"], account["name"], host, group[3] or "none", account["name"])
        )
