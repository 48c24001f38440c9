# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Output of programs of a node. Private to the collection."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence

from .._text import Refusal

# Debian keeps some programs where only root looks.
BINARIES = ":/usr/sbin:/sbin"


def environment() -> dict[str, str]:
    """The environment for programs: English output, and the directories of system programs."""
    return dict(os.environ, LC_ALL="C", PATH=os.environ.get("PATH", os.defpath) + BINARIES)


def said(command: Sequence[str], errors: bool = False) -> tuple[int, str]:
    """(exit status, output) of a program, with its errors if wanted; status 127 if it is missing."""
    try:
        process = subprocess.Popen(
            command,
            # A program that asks for a passphrase fails instead of waiting.
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT if errors else subprocess.DEVNULL,
            env=environment(),
        )
    except OSError:
        return 127, ""
    # Decoded here, because a stream of text would end a line at \r too, which a process may have in its name.
    output = process.communicate()[0].decode("utf-8", "replace")
    return process.returncode, output


def answer(command: Sequence[str], *statuses: int) -> str:
    """The output of a program that every node has. Errors: Refusal for a status other than 0 and these."""
    status, output = said(command)
    if status and status not in statuses:
        raise Refusal(
            "%s ended with status %d, an answer is needed: run `%s` on the node"
            % (command[0], status, " ".join(command))
        )
    return output
