# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""wait_for_workers [--user NAME] [--build bNUMBER] HOST:PORT...: returns when every RPC worker answers the handshake of
this build.

Run before a head starts: a head that finds a worker absent aborts, older builds go on without it.
"""

from __future__ import annotations

import argparse
import os
import pwd
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Callable

from .._llama.handshake import PAUSE, Say, number_of, wait
from .._node.notify import notify, say

RULES = ("nft", "list", "table", "inet", "llama_cluster")


def wait_for_rules(
    announce: Say = say,
    sleep: Callable[[float], None] = time.sleep,
    command: Sequence[str] = RULES,
) -> None:
    """Returns when the firewall's table is loaded, without which other users would reach the workers of a head that
    runs."""

    def loaded() -> bool:
        try:
            return not subprocess.call(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        except OSError:
            return False

    said = False
    while not loaded():
        if not said:
            announce(
                "waits for the rules of llama-firewall.service: table inet llama_cluster is not loaded, see systemctl "
                "status llama-firewall"
            )
        said = True
        sleep(PAUSE)


def become(user: str) -> None:
    """Goes on as that user, the only one whom the firewall lets through to the workers."""
    entry = pwd.getpwnam(user)
    os.setgroups([])
    os.setgid(entry.pw_gid)
    os.setuid(entry.pw_uid)


def announce(text: str) -> None:
    say(text)
    notify("STATUS=" + text)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="wait_for_workers")
    parser.add_argument("--user")
    parser.add_argument("--build", default="")
    parser.add_argument("endpoints", nargs="+", metavar="HOST:PORT")
    options = parser.parse_args(arguments)
    if options.user:
        wait_for_rules(announce)
        become(options.user)
    versions = wait(options.endpoints, number_of(options.build), announce)
    if len(set(versions.values())) > 1:
        say(
            "the RPC workers are of different llama.cpp builds: %s"
            % ", ".join("%s has protocol %s" % pair for pair in sorted(versions.items()))
        )
    notify("STATUS=")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
