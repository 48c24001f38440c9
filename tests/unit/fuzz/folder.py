# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where the fuzz program keeps the files that it has read."""

import os
import tempfile


class Folder(object):
    """A directory for what is damaged, made when it is first used and gone with the process."""

    def __init__(self):
        self._made = None

    def path(self, *names):
        if self._made is None:
            self._made = tempfile.TemporaryDirectory(prefix="llama-fuzz-")
        return os.path.join(self._made.name, *names)

    def write(self, data, *names):
        path = self.path(*names)
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        with open(path, "wb") as stream:
            stream.write(data)
        return path


FOLDER = Folder()
