# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Writes the directories, files and links of a list. Private to the collection."""

from __future__ import annotations

import contextlib
import errno
import grp
import os
import pwd
import re
import stat
import subprocess
import tempfile
from collections.abc import Sequence
from typing import Any

from .. import _files
from .._files import MOST_TEXT, text_of
from .._text import Refusal

URL = re.compile(r"https?:\S+", re.IGNORECASE)
Entry = dict[str, Any]
Owner = tuple[int, int]


class Files:
    """Applies entries and keeps `changes`, a list of {before, after, before_header, after_header}. check: only the
    list; folder: for files to validate.

    An entry has path and state: file (content, mode, owner, group, validate, mark, hidden), directory (mode, owner,
    group, kept), link (target), absent.
    """

    def __init__(self, check: bool = False, folder: str | None = None) -> None:
        self.check = check
        self.folder = folder
        self.changes: list[dict[str, str]] = []
        self.paths: list[str] = []

    def apply(self, entry: Entry) -> None:
        """Errors: Refusal, OSError."""
        getattr(self, "_" + entry["state"])(entry["path"], entry)

    def _file(self, path: str, entry: Entry) -> None:
        data, mode = entry["content"].encode("utf-8"), int(entry["mode"] or "0644", 8)
        owner = self._owner(entry)
        seen = _lstat(path)
        if seen is not None and stat.S_ISDIR(seen.st_mode):
            raise Refusal(f"{path}: a directory seen, a file is needed: look at who made it, then remove it")
        if seen is not None and entry["mark"] and entry["mark"] not in (text_of(path) or ""):
            raise Refusal(
                "%s: a file that the collection has not written seen, none of that name is needed: rename it, then run "
                "again" % path
            )
        same = seen is not None and stat.S_ISREG(seen.st_mode) and _read(path) == data
        if (
            seen is not None
            and same
            and (stat.S_IMODE(seen.st_mode), seen.st_uid, seen.st_gid) == (mode,) + tuple(owner or ())
        ):
            return
        if not same and entry["validate"]:
            self._validate(path, entry["validate"], data, entry["hidden"])
        before = None if seen is None else "not shown\n" if entry["hidden"] else text_of(path) or ""
        self._changed(path, before, "not shown, another\n" if entry["hidden"] else entry["content"], same)
        if not self.check:
            _files.write_atomically(path, data, mode, owner)

    def _validate(self, path: str, command: Sequence[str], data: bytes, hidden: bool) -> None:
        """Errors: Refusal with the program's output; without URLs for a hidden file, which may hold a password."""
        with tempfile.NamedTemporaryFile(dir=self.folder) as stream:
            stream.write(data)
            stream.flush()
            words = [stream.name if word == "%s" else word for word in command]
            try:
                process = subprocess.Popen(
                    words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True, errors="replace"
                )
            except OSError as error:
                # Check mode has not installed the program.
                if self.check and error.errno == errno.ENOENT:
                    return
                raise Refusal(
                    "%s: %s cannot be run (%s), it has to read the file first: install it"
                    % (path, words[0], os.strerror(error.errno or 0))
                ) from None
            output = process.communicate()[0]
        if hidden:
            output = URL.sub("URL", output)
        if process.returncode:
            raise Refusal(
                "%s: %s refuses it (%s): correct what it is made of"
                % (path, words[0], " ".join(output.split())[-500:] or "no message")
            )

    def _directory(self, path: str, entry: Entry) -> None:
        seen = _lstat(path)
        if entry["kept"] and os.path.exists(path):
            return
        if seen is not None and not stat.S_ISDIR(seen.st_mode):
            raise Refusal(f"{path}: no directory, one is needed: look at who made it, then remove it")
        mode, owner = int(entry["mode"] or "0755", 8), self._owner(entry)
        if seen is not None and seen.st_uid not in _files.owners() + (owner or ())[:1]:
            # Its owner's files would stay in it.
            raise Refusal(
                "%s: it belongs to user id %d, %s is needed: look at who made it, then remove it"
                % (path, seen.st_uid, entry["owner"] or "root")
            )
        if seen is not None and (stat.S_IMODE(seen.st_mode), seen.st_uid, seen.st_gid) == (mode,) + tuple(owner or ()):
            return
        above, name = os.path.split(path.rstrip("/"))
        with contextlib.suppress(FileNotFoundError):
            # Check mode refuses it too.
            os.close(_files.open_directory(above))
        self._changed(path, None if seen is None else "directory\n", "directory\n", seen is not None)
        if self.check or owner is None:
            return
        with _files.directory(above, make=0o755) as folder:
            if seen is None:
                os.mkdir(name, 0o700, dir_fd=folder)
            descriptor = os.open(name, _files.DIRECTORY, dir_fd=folder)
            try:
                os.fchown(descriptor, *owner)
                os.fchmod(descriptor, mode)
            finally:
                os.close(descriptor)

    def _link(self, path: str, entry: Entry) -> None:
        seen, target = _lstat(path), entry["target"]
        if seen is not None and not stat.S_ISLNK(seen.st_mode):
            raise Refusal(f"{path}: no link, one to {target} is needed: move away what is there")
        before = os.readlink(path) if seen is not None else None
        if before == target:
            return
        self._changed(path, None if before is None else f"link to {before}\n", f"link to {target}\n")
        if not self.check:
            _files.link_atomically(path, target)

    def _absent(self, path: str, entry: Entry) -> None:
        seen = _lstat(path)
        if seen is None:
            return
        if stat.S_ISDIR(seen.st_mode):
            raise Refusal(f"{path}: a directory seen, a file is needed: look at who made it, then remove it")
        self._changed(path, "not shown\n" if entry["hidden"] else text_of(path) or "", None)
        if not self.check:
            os.unlink(path)

    def _owner(self, entry: Entry) -> Owner | None:
        """(user id, group id); None in check mode if the account does not exist yet."""
        try:
            return pwd.getpwnam(entry["owner"] or "root").pw_uid, grp.getgrnam(entry["group"] or "root").gr_gid
        except KeyError:
            if self.check:
                return None
            names = (entry["path"], entry["owner"], entry["group"])
            raise Refusal(
                "%s: no account %s or no group %s on this node, both are needed: run with --tags node" % names
            ) from None

    def _changed(self, path: str, before: str | None, after: str | None, attributes: bool = False) -> None:
        """attributes: whether the content is right, so that only owner or mode are not."""
        self.paths.append(path)
        note = " (owner or mode)" if attributes else ""
        self.changes.append(
            {
                "before_header": path + (" (absent)" if before is None else note),
                "after_header": path + (" (absent)" if after is None else note),
                "before": _shown(before),
                "after": _shown(after),
            }
        )


def _shown(text: str | None) -> str:
    """Text without control characters, for a terminal."""
    return "".join(one if one.isprintable() or one in "\t\n" else "?" for one in text or "")


def _lstat(path: str) -> os.stat_result | None:
    try:
        return os.lstat(path)
    except FileNotFoundError:
        return None


def _read(path: str) -> bytes:
    with open(path, "rb") as stream:
        return stream.read(MOST_TEXT)
