# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One run at a time for each model. Private to the collection."""

import contextlib
import fcntl
import os
from collections.abc import Iterator

from .._files import open_regular
from .._text import Refusal


@contextlib.contextmanager
def lock(path: str) -> Iterator[None]:
    """One run at a time per model. Raises Refusal when another one is at it."""
    name = path + ".lock"
    while True:
        fd = open_regular(name, os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(fd)
            raise Refusal(f"{path}: another run is fetching it: wait for that one") from None
        try:
            same = os.stat(name).st_ino == os.fstat(fd).st_ino
        except FileNotFoundError:
            same = False
        if same:
            break
        os.close(fd)  # its last holder removed it between our open and flock
    try:
        yield
    finally:
        os.unlink(name)
        os.close(fd)
