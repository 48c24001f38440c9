# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Removes managed units, builds, models and files from a node, and directories that become empty. Private to the
collection."""

from __future__ import annotations

import contextlib
import fnmatch
import glob
import json
import os
import re
import shutil
import stat
from collections.abc import Iterator, Sequence
from typing import Any, Callable

from .._fetch.manifest import SUFFIX, is_model_name, manifest_path
from .._files import MOST_TEXT, is_trusted, names_in, owners, read_trusted
from .._node import paths
from .._node.managed import FIREWALL_FILES, GATEWAY_FILES, NODE_FILES, is_managed_file, is_managed_unit, record_of
from .._node.units import Unit, systemctl, unit_info
from .._text import Refusal

SHARD = re.compile(r"^(.+)-\d{5}-of-(\d{5})\.gguf\Z")
PARTIAL = ".partial"
JOURNAL = PARTIAL + ".journal"
RELEASE_LINK = re.compile(r"^releases/[^/]+\Z")
# The files of a part with their marks, and its directories, the deepest first.
MARKED: dict[str, tuple[Sequence[tuple[str, str]], Sequence[str]]] = {
    "firewall": (FIREWALL_FILES, (paths.NFTABLES_DROP_INS,)),
    "gateway": (GATEWAY_FILES, (paths.GATEWAY, os.path.dirname(paths.GATEWAY_SOCKET))),
    "node_files": (
        NODE_FILES,
        (
            *(paths.KEYS, paths.WATCHED, paths.CONFIGURATION),
            *(paths.PROGRAM_BIN, paths.PROGRAM_PACKAGE, paths.PROGRAM_LIB, paths.PROGRAMS),
            *(paths.BACKOFF, paths.DIGESTS, paths.NO_MODELS, paths.REPAIRS, paths.SERVED, paths.RUN),
            paths.JOURNALD_DROP_INS,
            *(paths.ADOPTED_FILES, paths.ADOPTED, paths.ROLLBACK, paths.STATE),
            paths.DOCS,
        ),
    ),
}


def _recorded_files(record: str) -> list[dict[str, Any]]:
    """The files that the record of a model lists, by the path of the record."""
    listed = (record_of(record) or {}).get("files")
    return [entry for entry in listed if isinstance(entry, dict)] if isinstance(listed, list) else []


class Removal:
    """Removes what carries the collection's mark; removed: the list of it. check: list only; root: directory in place
    of / (tests); run, look: systemctl."""

    def __init__(
        self,
        check: bool = False,
        root: str = "/",
        run: Callable[..., None] = systemctl,
        look: Callable[..., list[Unit]] = unit_info,
    ) -> None:
        self.check = check
        self.root = root
        self.run = run
        self.look = look
        self.removed: list[str] = []

    def stop(self, patterns: Sequence[str], kept: Sequence[str] = ()) -> list[Unit]:
        """Stops and disables managed units of these names or globs -> the units before that. Errors: Refusal."""
        found = [unit for unit in self.look(patterns) if unit.managed and unit.name not in kept] if patterns else []
        for unit in found:
            if unit.active_state not in ("inactive", "failed"):
                self._act("stop", unit.name)
            if unit.enabled:
                self._act("disable", unit.name)
        return found

    def _act(self, *words: str) -> None:
        self.removed.append(" ".join(words))
        if not self.check:
            self.run(*words)

    def units(self, patterns: Sequence[str], kept: Sequence[str] = (), unit_dir: str = paths.UNITS) -> None:
        """Removes unit files of these names or globs, with their compiled shaders, and reloads systemd."""
        before = len(self.removed)
        for name in names_in(unit_dir):
            path = os.path.join(unit_dir, name)
            wanted = name not in kept and any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)
            if wanted and is_managed_unit(path):
                self._file(path)
                self._tree(os.path.join(self._below(paths.SHADERS, self.root), name.removesuffix(".service")))
        if len(self.removed) > before and not self.check:
            self.run("daemon-reload")

    def builds(self, prefix: str, kept: Sequence[str] = ()) -> None:
        """Removes the files that the build.json of each release below ``prefix`` lists, except directories in
        ``kept``; if ``kept`` is empty, the managed links too."""
        releases = os.path.join(prefix, "releases")
        for name in names_in(releases):
            release = os.path.join(releases, name)
            record = record_of(os.path.join(release, "build.json")) or {}
            build, files = record.get("build"), record.get("files")
            if (
                release in kept
                or os.path.islink(release)
                or not isinstance(build, str)
                or not build
                or name not in (build, build + PARTIAL)
                or not isinstance(files, dict)
            ):
                continue
            self._build(
                release,
                [
                    one
                    for one in files
                    if one.isprintable() and os.path.normpath(one) == one and not one.startswith(("/", ".."))
                ],
            )
        if kept:
            return
        for name, target in (
            ("current", RELEASE_LINK),
            ("previous", RELEASE_LINK),
            ("build", re.compile(r"^current\Z")),
        ):
            path = os.path.join(prefix, name)
            if os.path.islink(path) and target.match(os.readlink(path)):
                self._file(path)
        self._folder(releases)
        self._folder(prefix)

    def _build(self, release: str, files: list[str]) -> None:
        folders = {os.path.dirname(os.path.join(release, name)) for name in files}
        own = [
            folder
            for folder in folders
            if os.path.realpath(folder) == os.path.join(os.path.realpath(release), os.path.relpath(folder, release))
        ]
        for path in sorted(os.path.join(release, name) for name in files):
            if os.path.dirname(path) in own and os.path.lexists(path) and not os.path.isdir(path):
                self._file(path)
        # Last: it lists the other files.
        self._file(os.path.join(release, "build.json"))
        for folder in sorted(own, reverse=True) + [release]:
            self._folder(folder)

    def model(self, path: str) -> None:
        """Removes a model, by the path of its (first) file: the fetched files of its record, and unfinished ones."""
        folder, name = os.path.split(path)
        with _held(folder) as here:
            if here:
                self._model(folder, name, here)

    def _model(self, folder: str, name: str, here: str) -> None:
        """here: another name of the folder."""
        record = manifest_path(name)
        entries = self._entries(os.path.join(here, record))
        for entry in entries:
            if not entry.get("found") and _is_file(os.path.join(here, entry["name"]), entry.get("size")):
                self._file(os.path.join(folder, entry["name"]), here)
        if entries:
            self._file(os.path.join(folder, record), here)
        shard = SHARD.match(name)
        names = (
            [
                "%s-%05d-of-%s.gguf" % (shard.group(1), number, shard.group(2))
                for number in range(1, int(shard.group(2)) + 1)
            ]
            if shard
            else [name]
        )
        for one in names:
            self._unfinished(folder, one, here)

    def retire(self, path: str) -> list[dict[str, Any]]:
        """Removes a model by the path of its (first) file, also one that was not fetched -> the files of its record.
        A model that is gone with its record is not an error.

        Errors: Refusal; nothing is removed then.
        """
        folder, name = os.path.split(path)
        with _held(folder) as here:
            entries = _recorded_files(os.path.join(here, manifest_path(name))) if here else []
            if here and not entries and os.path.lexists(os.path.join(here, name)):
                raise Refusal(
                    "%s: no record of root's seen, one is needed to remove that model: run site.yml --tags model, "
                    "which records the model that serves, then this again" % manifest_path(path)
                )
            odd = [json.dumps(entry.get("name")) for entry in entries if not is_model_name(entry.get("name"))]
            if odd:
                raise Refusal(
                    "%s: %s seen, names of .gguf files in its directory are needed: look who wrote it, remove it and "
                    "run again" % (manifest_path(path), ", ".join(odd))
                )
            there = [entry for entry in entries if os.path.lexists(os.path.join(here, entry["name"]))]
            for entry in there:
                seen = _unlike(os.path.join(here, entry["name"]), entry.get("size"))
                if seen:
                    raise Refusal(
                        "%s: %s seen, the file of root's that its record names is needed: look who changed it, then "
                        "run site.yml --tags model, which proves it, or leave -e retire out"
                        % (os.path.join(folder, entry["name"]), seen)
                    )
            for entry in there:
                self._file(os.path.join(folder, entry["name"]), here)
            if entries:
                self._file(manifest_path(path), here)
        return entries

    def models(self, folder: str) -> None:
        """Removes every recorded model of a directory, unfinished files, and the directory if it is empty then."""
        with _held(folder) as here:
            for name in _beside(here, SUFFIX):
                self._model(folder, name, here)
            for name in _beside(here, JOURNAL):
                self._unfinished(folder, name, here)
        self._folder(folder)

    def _entries(self, record: str) -> list[dict[str, Any]]:
        """The files of a model's record whose names stay inside its directory."""
        return [entry for entry in _recorded_files(record) if is_model_name(entry.get("name"))]

    def _unfinished(self, folder: str, name: str, here: str) -> None:
        with contextlib.suppress(OSError, ValueError, TypeError, RecursionError):
            journal = read_trusted(os.path.join(here, name + JOURNAL), MOST_TEXT)
            header = json.loads(journal.split(b"\n")[0].decode("utf-8"))
            if {"identity", "boot_id"} <= set(header):
                for one in (name + PARTIAL, name + JOURNAL):
                    if _is_file(os.path.join(here, one)):
                        self._file(os.path.join(folder, one), here)

    def marked(self, part: str) -> None:
        """Removes the marked files of a part of MARKED, and its directories that are empty; its units are down."""
        files, folders = MARKED[part]
        inner: set[str] = set()
        for pattern, _mark in files:
            for path in sorted(glob.glob(self._below(pattern, glob.escape(self.root)))):
                if is_managed_file(os.path.relpath(path, self.root), self.root):
                    self._file(path)
                    inner.add("/" + os.path.relpath(os.path.dirname(path), self.root))
        # Packages of node programs: only directories that had managed files.
        for folder in sorted(inner - set(folders)):
            if os.path.dirname(folder) in folders:
                self._folder(self._below(folder, self.root))
        for folder in folders:
            self._folder(self._below(folder, self.root))

    @staticmethod
    def _below(path: str, root: str) -> str:
        return os.path.join(root, path[1:])

    def _file(self, path: str, here: str = "") -> None:
        """here: another name of its directory."""
        if path not in self.removed:
            self.removed.append(path)
            if not self.check:
                try:
                    os.unlink(os.path.join(here, os.path.basename(path)) if here else path)
                except OSError as error:
                    raise OSError(error.errno, error.strerror, path) from None

    def _tree(self, path: str) -> None:
        """A directory with all that is below it; its parent is root's, and no link is followed."""
        if os.path.isdir(path) and not os.path.islink(path):
            self.removed.append(path)
            if not self.check:
                shutil.rmtree(path)

    def _folder(self, path: str) -> None:
        left = [name for name in names_in(path) if os.path.join(path, name) not in self.removed]
        if left or os.path.islink(path) or not os.path.isdir(path):
            return
        with contextlib.suppress(OSError):  # a mount point, or a file that appeared meanwhile
            if not self.check:
                os.rmdir(path)
            self.removed.append(path)


@contextlib.contextmanager
def _held(folder: str) -> Iterator[str]:
    """A path that stays this directory's if another user renames it meanwhile; "" without a directory."""
    try:
        descriptor = os.open(folder, os.O_DIRECTORY)
    except (FileNotFoundError, NotADirectoryError):
        yield ""
        return
    try:
        yield "/proc/self/fd/%d" % descriptor
    finally:
        os.close(descriptor)


def _beside(folder: str, suffix: str) -> list[str]:
    """The models that have a file with this suffix beside them."""
    names = [name for name in names_in(folder) if name.endswith(".gguf" + suffix) and not name.startswith(".")]
    return [name[: -len(suffix)] for name in names]


def _unlike(path: str, size: Any) -> str:
    """How a file differs from root's file of this size; empty if it does not."""
    seen = os.lstat(path)
    if not stat.S_ISREG(seen.st_mode):
        return "a directory" if stat.S_ISDIR(seen.st_mode) else "a link" if stat.S_ISLNK(seen.st_mode) else "no file"
    if seen.st_uid not in owners():
        return "a file of user id %d" % seen.st_uid
    if seen.st_nlink != 1:
        return "a file with %d names" % seen.st_nlink
    return "" if size in (None, seen.st_size) else "a file of %d bytes, not of %d," % (seen.st_size, size)


def _is_file(path: str, size: int | None = None) -> bool:
    """Whether a regular file of root or of this user exists, of this size if one is given."""
    try:
        seen = os.lstat(path)
    except OSError:
        return False
    return is_trusted(seen) and size in (None, seen.st_size)
