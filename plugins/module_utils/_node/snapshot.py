# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Snapshots of a node's configuration of services, for a restoration. Private to the collection.

A snapshot is one JSON file of root's, of a node or of the jobs that a host submits. During a switch it is open.json;
after the new configuration is verified it becomes last.json. A run that died leaves open.json, which holds the
configuration from before that run.
"""

from __future__ import annotations

import base64
import fnmatch
import hashlib
import json
import os
import re
import stat
from collections.abc import Iterable, Sequence
from typing import Any, Optional

from .. import _files
from .._text import Refusal
from . import paths
from .build import releases_in
from .managed import is_managed_file, is_managed_unit
from .units import SERVICES, UNIT_NAME, installed_name

Entry = dict[str, Any]
# A path, its entry as it is, and as it was or is wanted.
Change = tuple[str, Optional[Entry], Optional[Entry]]
# Paths in a snapshot are relative to the root. A hold for maintenance is no part of the configuration.
UNITS, CONFIGURATION, KEYS, HELD, AT_BOOT, JOBS = (
    path[1:] for path in (paths.UNITS, paths.CONFIGURATION, paths.KEYS, paths.HELD, paths.AT_BOOT, paths.KEEPER_CONFIG)
)
TEMPLATE = re.compile(re.escape(paths.TEMPLATES[1:]).replace(r"\*", "(.+)") + r"\Z")
# Units, their drop-ins, and the links that start them at boot.
UNIT_FILES = tuple(pattern + "*" for pattern in SERVICES)


class Snapshots:
    """The snapshots of this node. root: directory that stands for /, in tests; jobs: whether they hold the scripts of
    the jobs that this host submits, and the configuration of their keeper, instead of the node's."""

    def __init__(
        self, folder: str = paths.ROLLBACK, prefix: str = paths.BUILDS, root: str = "/", jobs: bool = False
    ) -> None:
        self.folder = folder
        self.prefix = prefix
        self.root = root
        self.jobs = jobs

    def look(self) -> dict[str, Any]:
        """-> {open, last: {id, build, releases, units, scripts} or None, differs: paths that differ from the open
        snapshot, scripts: of the jobs now, {service: path}}."""
        opened, present = self._load("open"), self._present()
        differs = sorted(path for path, _old, _new in _differences(present, opened["files"])) if opened else []
        last = _summary(self._load("last"))
        return {"open": _summary(opened), "last": last, "differs": differs, "scripts": _scripts(present.get(JOBS))}

    def open(self, name: str, check: bool = False, releases: Sequence[str] = ()) -> bool:
        """Takes a snapshot under this name; an open one is kept and renamed, a closed one of this name is opened again:
        a run ended while it closed them. releases: that jobs need, whose scripts are on another host. -> whether it was
        written"""
        opened, last = self._load("open"), self._load("last")
        if opened and opened["id"] == name:
            return False
        if not opened and last and last["id"] == name:
            if not check:
                os.rename(self._path("last"), self._path("open"))
            return True
        if not check:
            current = os.path.join(self.prefix, "current")
            build = os.path.basename(os.path.realpath(current)) if os.path.isdir(current) else None
            held = os.path.exists(os.path.join(self.root, HELD))
            taken = {"build": build, "files": self._present(), "held": held, "kept": sorted(set(releases))}
            self._store("open", dict(opened or taken, id=name))
        return True

    def restore(self, name: str, check: bool = False) -> list[Change]:
        """Restores a snapshot, which becomes the open one until it is closed.

        Units that it lacks stay with their links, to be stopped first; unmanaged files stay. A unit without a link in
        the snapshot did not run, unless the node was held.
        -> [(path, entry as it is or None, entry as it was or None)] of the changes. Errors: Refusal.
        """
        found = [
            (key, one)
            for key, one in (("open", self._load("open")), ("last", self._load("last")))
            if one and one["id"] == name
        ]
        if not found:
            raise Refusal(
                f"{self.folder} holds no snapshot {name}: run site.yml with the version and the services as they were"
            )
        key, snapshot = found[0]
        changes = [
            change
            for change in _differences(self._present(), snapshot["files"])
            if change[2] or self._goes(change[0], snapshot)
        ]
        if not check:
            if key == "last":
                os.rename(self._path("last"), self._path("open"))
            # The keeper submits what its configuration names as soon as that changes.
            for path, _now, entry in sorted(changes, key=lambda change: change[0] == JOBS):
                self.put(path, entry)
        return changes

    def close(self) -> bool:
        """The open snapshot becomes the last one. -> whether there was one"""
        if not self._load("open"):
            return False
        os.rename(self._path("open"), self._path("last"))
        return True

    def drop(self) -> bool:
        """Removes the open snapshot and keeps the last one. -> whether there was one"""
        if not self._load("open"):
            return False
        os.unlink(self._path("open"))
        return True

    def opened(self) -> dict[str, Entry] | None:
        """{path: entry} of the open snapshot, None without one. Errors: Refusal."""
        snapshot = self._load("open")
        return snapshot["files"] if snapshot else None

    def entry(self, path: str) -> Entry | None:
        """The current entry of a path, None without a file."""
        return self._entry(path) if os.path.lexists(os.path.join(self.root, path)) else None

    def _goes(self, path: str, snapshot: dict[str, Any]) -> bool:
        """Whether a path that the snapshot lacks is removed."""
        if self.jobs:
            return False
        folder, name = os.path.split(path)
        template = TEMPLATE.match(path)
        if folder == KEYS or template:
            service = template.group(1) if template else name
            # A router has a template for each model, a head only one of its own name.
            router = service.partition(".")[0] if template else name
            units = os.path.join(self.root, UNITS)
            names = [installed_name("head", service, units), installed_name("router", router, units)]
            return any(is_managed_unit(os.path.join(units, one)) for one in names)
        # Snapshots of earlier versions lack `held`.
        if folder == AT_BOOT and os.path.join(UNITS, name) in snapshot["files"] and snapshot.get("held") is False:
            return True
        return not _stays(path) and is_managed_file(path, self.root)

    def _path(self, key: str) -> str:
        return os.path.join(self.folder, key + ".json")

    def _load(self, key: str) -> dict[str, Any] | None:
        try:
            snapshot = json.loads(_files.read(self._path(key)).decode("utf-8"))
            if not isinstance(snapshot, dict) or not isinstance(snapshot.get("files"), dict) or "id" not in snapshot:
                raise ValueError("id and files are needed")
        except FileNotFoundError:
            return None
        except (ValueError, RecursionError) as error:
            raise Refusal(f"{self._path(key)} is no snapshot ({error}): remove it") from None
        return snapshot

    def _store(self, key: str, snapshot: dict[str, Any]) -> None:
        with _files.directory(os.path.dirname(self.folder), make=0o755), _files.directory(self.folder, make=0o700):
            _files.write_atomically(self._path(key), json.dumps(snapshot, sort_keys=True).encode())

    def _present(self) -> dict[str, Entry]:
        """{path: entry} of the current configuration, paths relative to the root."""
        if self.jobs:
            config = self._entries([JOBS])
            return {**self._entries(path[1:] for path in _scripts(config.get(JOBS)).values()), **config}
        found: list[str] = []
        units = os.path.join(self.root, UNITS)
        for name in _files.names_in(units):
            if name.endswith(".wants"):
                found.extend(
                    os.path.join(UNITS, name, one)
                    for one in _files.names_in(os.path.join(units, name))
                    if _is_unit_file(one)
                )
            elif _is_unit_file(name):
                found.extend(self._below(os.path.join(UNITS, name)))
        found.extend(self._below(CONFIGURATION))
        return {path: self._entry(path) for path in found if path not in (HELD, JOBS)}

    def _entries(self, names: Iterable[str]) -> dict[str, Entry]:
        """Entries of existing files, below directories that only root can change."""
        found = {}
        for path in names:
            full = os.path.join(self.root, path)
            if os.path.isfile(full):
                with _files.directory(os.path.dirname(full)):
                    found[path] = self._entry(path)
        return found

    def _below(self, path: str) -> list[str]:
        """path itself, and everything below a directory."""
        full = os.path.join(self.root, path)
        # FIFOs and sockets are skipped: reading one would block.
        found = [path] if os.path.islink(full) or os.path.isfile(full) or os.path.isdir(full) else []
        if os.path.isdir(full) and not os.path.islink(full):
            for name in _files.names_in(full):
                found.extend(self._below(os.path.join(path, name)))
        return found

    def _entry(self, path: str) -> Entry:
        full = os.path.join(self.root, path)
        found = os.lstat(full)
        if stat.S_ISLNK(found.st_mode):
            return {"link": os.readlink(full)}
        entry = {"mode": stat.S_IMODE(found.st_mode), "uid": found.st_uid, "gid": found.st_gid}
        if stat.S_ISDIR(found.st_mode):
            return dict(entry, directory=True)
        with open(full, "rb") as stream:
            return dict(entry, content=base64.b64encode(stream.read()).decode("ascii"))

    def put(self, path: str, entry: Entry | None) -> None:
        """Writes an entry to its path; None removes the path."""
        full = os.path.join(self.root, path)
        if entry is None:
            if os.path.lexists(full) and (not os.path.isdir(full) or os.path.islink(full)):
                os.unlink(full)
            return
        if "link" in entry:
            os.makedirs(os.path.dirname(full), exist_ok=True)
            _files.link_atomically(full, entry["link"])
        elif entry.get("directory"):
            os.makedirs(full, exist_ok=True)
            os.chmod(full, entry["mode"])
            os.chown(full, entry["uid"], entry["gid"])
        else:
            os.makedirs(os.path.dirname(full), exist_ok=True)
            _files.write_atomically(
                full, base64.b64decode(entry["content"]), entry["mode"], (entry["uid"], entry["gid"])
            )


def text_of(entry: Entry | None) -> str:
    """Text of an entry for a diff; the digest of a file that is not world-readable."""
    if entry is None or entry.get("directory"):
        return ""
    if "link" in entry:
        return f"link to {entry['link']}\n"
    if not entry["mode"] & 0o004:
        digest = hashlib.sha256(base64.b64decode(entry["content"])).hexdigest()
        return f"not shown, sha256 {digest[:8]}\n"
    return base64.b64decode(entry["content"]).decode("utf-8", "replace")


def _summary(snapshot: dict[str, Any] | None) -> dict[str, Any] | None:
    if not snapshot:
        return None
    names = (os.path.split(path) for path in snapshot["files"])
    return {
        "id": snapshot["id"],
        "build": snapshot["build"],
        "releases": sorted(releases_in(snapshot["files"])),
        "units": sorted(name for folder, name in names if folder == UNITS and UNIT_NAME.match(name)),
        "scripts": _scripts(snapshot["files"].get(JOBS)),
    }


def _scripts(config: Entry | None) -> dict[str, str]:
    """{service: path of its script}, by an entry of the keeper's configuration."""
    if config is None or "content" not in config:
        return {}
    try:
        services = json.loads(base64.b64decode(config["content"]).decode("utf-8"))["services"]
        return {service: "/" + one["script"].lstrip("/") for service, one in services.items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise Refusal(f"{paths.KEEPER_CONFIG} is no configuration ({error}): run site.yml with --tags slurm") from None


def _is_unit_file(name: str) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in UNIT_FILES)


def _differences(present: dict[str, Entry], wanted: dict[str, Entry]) -> list[Change]:
    """[(path, entry as it is, entry as wanted)], directories before what is in them."""
    both = sorted(set(present) | set(wanted))
    return [(path, present.get(path), wanted.get(path)) for path in both if present.get(path) != wanted.get(path)]


def _stays(path: str) -> bool:
    """Whether a path that the snapshot lacks stays: units are stopped first, extra firewall rules do no harm, and
    systemd needs the file of its firewall."""
    folder, name = os.path.split(path)
    return (folder.startswith(UNITS) and bool(UNIT_NAME.match(name))) or "firewall" in name
