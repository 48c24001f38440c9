# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a node program says: a line of the journal, and to systemd how it is doing (sd_notify), without a library.
Private to the collection."""

import contextlib
import os
import socket
import sys


def say(text: str) -> None:
    """A line of output, at once: the journal's, where the program is a unit's. One that cannot be written is lost."""
    with contextlib.suppress(OSError):
        sys.stdout.write(text + "\n")
        sys.stdout.flush()


def notify(message: str) -> None:
    """Sends 'READY=1', 'STATUS=...' and the like; where nobody listens, nothing happens."""
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as stream:
            # A leading @ stands for the abstract namespace.
            stream.sendto(message.encode("utf-8"), "\0" + address[1:] if address[0] == "@" else address)
    except OSError:
        pass  # what cannot be said is no reason to fail
