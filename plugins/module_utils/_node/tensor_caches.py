# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The directories in which workers keep tensors: made, and removed, below a directory that is root's alone. Private to
the collection.

The directory above holds a record of the caches that were made there. Nobody but root can write it, and nothing that it
does not name is ever touched.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
import subprocess
from collections.abc import Sequence

from .. import _files
from .._files import text_of
from .._text import Refusal

RECORD = ".llama-cluster.json"


class Caches:
    """The caches below ``directory``. check: only note what would be done."""

    def __init__(self, directory: str, check: bool = False) -> None:
        self.directory = directory
        self.check = check
        self.actions: list[str] = []

    def _path(self, name: str) -> str:
        return os.path.join(self.directory, name)

    def have(self, wanted: Sequence[str], owner: tuple[int, int]) -> None:
        """Makes the caches ``wanted`` for ``owner`` (uid, gid), and removes those that were made for services that are
        gone."""
        made = self._made()
        if not wanted and made is None:
            return
        # Root works by name in there: nobody else may exchange what a name stands for.
        with contextlib.suppress(FileNotFoundError), _files.directory(self.directory, None if self.check else 0o755):
            pass
        names = os.listdir(self.directory) if os.path.isdir(self.directory) else []
        if made is None and names:
            raise Refusal(
                "%s: %s in it and not from here, an empty directory or none is needed: choose another "
                "rpc_worker_cache_dir" % (self.directory, sorted(names)[0])
            )
        for name in sorted(set(wanted) - set(made or [])):
            if name in names:
                raise Refusal(
                    f"{self._path(name)}: there already and not from here, a free name is needed: move it away"
                )
        for name in sorted(set(made or []) - set(wanted)):
            self._remove(name)
        if made is None or set(made) != set(wanted):
            self._record(sorted(wanted))
        for name in wanted:
            self._make(name, owner)
        if not wanted:
            self._forget()

    def _made(self) -> list[str] | None:
        """The names of the caches that the record lists, None where there is no record."""
        path = self._path(RECORD)
        text = text_of(path)
        # In a directory that is everybody's anybody could have written one.
        if text is None or os.lstat(path).st_uid not in (0, os.geteuid()):
            return None
        try:
            names = json.loads(text)["caches"]
            if not all(os.path.basename(name) == name and name not in ("", ".", "..") for name in names):
                raise ValueError("a name with a slash")
        except (ValueError, KeyError, TypeError) as problem:
            raise Refusal(
                f"{path}: no record of caches ({problem}): look what is in its directory, and remove that"
            ) from None
        return names

    def _remove(self, name: str) -> None:
        path = self._path(name)
        # rm follows no link below it, even if the worker puts one there meanwhile, and goes as deep as the worker did.
        if os.path.isdir(path) and not os.path.islink(path):
            self.actions.append(f"remove {path}")
            if not self.check:
                done = subprocess.run(
                    ["rm", "-rf", "--one-file-system", "--", path],
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    check=False,
                )
                if done.returncode:
                    raise Refusal(
                        "%s: not removed (%s): remove it by hand"
                        % (path, done.stdout.decode(errors="replace").strip()[-200:])
                    )

    def _record(self, names: list[str]) -> None:
        """Before the caches: one that is made and not recorded would be somebody else's for ever."""
        if not self.check:
            _files.write_atomically(self._path(RECORD), (json.dumps({"caches": names}) + "\n").encode("ascii"), 0o644)

    def _make(self, name: str, owner: tuple[int, int]) -> None:
        path = self._path(name)
        if not os.path.lexists(path):
            self.actions.append(f"make {path}")
            if self.check:
                return
            os.mkdir(path, 0o700)
        # By descriptor: what is there may have become a link.
        try:
            descriptor = os.open(path, _files.DIRECTORY)
        except OSError:
            raise Refusal(f"{path}: no directory seen, one is needed: remove what is there") from None
        try:
            seen = os.fstat(descriptor)
            if (seen.st_uid, seen.st_gid, stat.S_IMODE(seen.st_mode)) == tuple(owner) + (0o700,):
                return
            if f"make {path}" not in self.actions:
                self.actions.append(f"change the owner of {path}")
            if not self.check:
                os.fchown(descriptor, *owner)
                os.fchmod(descriptor, 0o700)
        finally:
            os.close(descriptor)

    def _forget(self) -> None:
        if self.check:
            return
        os.unlink(self._path(RECORD))
        if not os.listdir(self.directory):
            os.rmdir(self.directory)
