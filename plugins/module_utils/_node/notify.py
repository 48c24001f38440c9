# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Output of node programs: the journal, and notifications to systemd (sd_notify). Private to the collection."""

import contextlib
import os
import socket
import sys


def say(text: str) -> None:
    """Prints a line at once, in a unit to the journal. Write errors are ignored."""
    with contextlib.suppress(OSError):
        sys.stdout.write(text + "\n")
        sys.stdout.flush()


def notify(message: str) -> None:
    """Sends 'READY=1', 'STATUS=...' and the like to systemd, if it listens. Errors are ignored."""
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return
    # A leading @ means the abstract namespace.
    place = "\0" + address[1:] if address[0] == "@" else address
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as stream:
        stream.sendto(message.encode("utf-8"), place)
