# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Loads the node's rules for RPC again when something else has flushed or changed them. Private to the collection.

Nothing is polled: the kernel tells everybody who listens that its rules have changed.
"""

from __future__ import annotations

import errno
import os
import select
import socket
import time
from typing import Callable

from .._node import paths
from .._node.command import said

Say = Callable[[str], None]
# Counts a repair: of which unit, and why.
Note = Callable[[str, str], None]
Run = Callable[[list[str]], tuple[int, str]]
UNIT = "llama-firewall.service"
LIST = ["nft", "--stateless", "list", "table", "inet", "llama_cluster"]
# Linux: the protocol of nftables on a netlink socket, and the group that hears of changes.
NETLINK_NETFILTER, GROUP_NFTABLES = 12, 7
# Seconds until a change has settled (who flushes usually loads again), between two loads that did not help, and between
# two looks anyway.
SETTLE, AGAIN, ANYWAY = 0.5, 10, 60


class Rules:
    """Compares the kernel's rules with those after the last load of the file."""

    def __init__(self, say: Say, note: Note, run: Run = said, path: str = paths.FIREWALL_RULES) -> None:
        self._say, self._note, self._run, self._path = say, note, run, path
        self._file: tuple[float, int, int] | None = None  # the file as it was loaded
        self._wanted: str | None = None  # the kernel's list then

    def check(self) -> bool:
        """Has the rules of the file in force, if they are to be: while the unit is active. Returns whether all is
        well."""
        try:
            seen = os.stat(self._path)
        except OSError:
            self._file = None
            return True
        if self._run(["systemctl", "is-active", "--quiet", UNIT])[0]:
            return True
        file = (seen.st_mtime, seen.st_size, seen.st_ino)
        if file != self._file:
            # New here, or written by a role that loads it too: once more does no harm, and what the kernel lists then
            # is what is wanted.
            self._load()
            listed, self._wanted = self._run(LIST)
            self._file = None if listed else file
            return not listed
        status, text = self._run(LIST)
        if (status, text) == (0, self._wanted):
            return True
        self._load()
        why = f"rules were {'gone' if status else 'changed'}"
        self._say(f"firewall: {why}: loaded again")
        self._note(UNIT, why)
        return self._run(LIST) == (0, self._wanted)

    def _load(self) -> None:
        # By its unit: this program may look at rules, but writes none.
        self._run(["systemctl", "reload", UNIT])


class Firewall:
    """Waits for changes."""

    def __init__(self, say: Say, note: Note, clock: Callable[[], float] = time.monotonic) -> None:
        self._rules = Rules(say, note)
        self._clock = clock
        self._due = clock()
        self._not_before = self._due
        try:
            self._socket: socket.socket | None = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_NETFILTER)
            self._socket.bind((0, 1 << (GROUP_NFTABLES - 1)))
            self._socket.setblocking(False)
        except OSError:
            self._socket = None  # then the look every minute has to do

    def round(self, seconds: float) -> None:
        """Returns after that many seconds."""
        end = self._clock() + seconds
        while self._clock() < end:
            if self._changed(max(0, min(end, self._due) - self._clock())):
                self._due = max(min(self._due, self._clock() + SETTLE), self._not_before)
            if self._clock() >= self._due:
                well = self._rules.check()
                now = self._clock()
                self._due = now + (ANYWAY if well else AGAIN)
                self._not_before = now if well else self._due

    def _changed(self, seconds: float) -> bool:
        """Whether the rules change within that many seconds."""
        if self._socket is None:
            time.sleep(seconds)
            return False
        if not select.select([self._socket], [], [], seconds)[0]:
            return False
        while True:
            try:
                self._socket.recv(1 << 16)
            except OSError as error:
                # Too many at once are news too.
                if error.errno != errno.ENOBUFS:
                    return True
