# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The steps that save, stop, put aside and restore a deployment of the operators. Private to the collection.

Everything is in one directory that only root may read: record.json is the manifest, files/ has a copy of every file.
Directories are too large to copy and are renamed in place. Each step looks at what is there, so the next run finishes,
or undoes, one that died.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Sequence
from typing import Any, Callable

from .. import _files
from .._node import paths
from .._node.units import Show, parse_show, systemctl, systemctl_show
from .._text import Refusal
from .servers import ACTIVE, MANAGED, Unit, is_directory, read_text, url

Record = dict[str, Any]
# (units, other files, nginx sites among these files)
Found = tuple[Sequence[Unit], Sequence[str], Sequence[str]]
FORMAT = 2
ASIDE = ".by-hand"


class Adoption:
    """The adoption of one host's servers, or of its gateway.

    directory: of the record; find: returns the current units, files and sites; moved: directories to rename; check:
    predict only; run, show: systemctl; load: makes nginx load the restored sites.
    """

    def __init__(
        self,
        directory: str,
        find: Callable[[], Found],
        moved: Sequence[str] = (),
        check: bool = False,
        unit_dir: str = paths.UNITS,
        run: Callable[..., None] = systemctl,
        show: Show = systemctl_show,
        load: Callable[[], None] = lambda: None,
    ) -> None:
        self.directory = directory
        self.find = find
        self.moved = list(moved)
        self.check = check
        self.unit_dir = unit_dir
        self.run = run
        self.show = show
        self.load = load
        self.actions: list[str] = []

    def _act(self, action: str) -> bool:
        """Records an action -> whether to take it."""
        self.actions.append(action)
        return not self.check

    def read(self) -> Record | None:
        """The record, None without one. Errors: Refusal, also if a user other than root could have written it."""
        path = os.path.join(self.directory, "record.json")
        try:
            record = json.loads(_files.read(path).decode("utf-8"))
            if not isinstance(record, dict) or record.get("format") != FORMAT:
                raise ValueError("no format %d" % FORMAT)
        except FileNotFoundError:
            return None
        except ValueError as error:
            raise Refusal(
                f"{path}: not a record of an adoption ({error}): restore the files in {self.directory} yourself, then "
                "remove it"
            ) from None
        return record

    def summary(self) -> Record | None:
        """{created, finished, heads: [{name, url, rpc_endpoints}] of the servers that ran}; None without a record."""
        record = self.read()
        if record is None:
            return None
        heads = [
            {"name": unit["name"], "url": url(unit["serves"]), "rpc_endpoints": unit["serves"]["rpc"]}
            for unit in record["units"]
            if unit["kind"] == "head" and unit["serves"] and unit["serves"]["port"]
        ]
        return {"created": record["created"], "finished": record["finished"], "heads": heads}

    def _write(self, record: Record) -> None:
        _files.write_atomically(
            os.path.join(self.directory, "record.json"), json.dumps(record, indent=1, sort_keys=True).encode("utf-8")
        )

    def _copy_of(self, path: str) -> str:
        return os.path.join(self.directory, "files", path.strip("/").replace("/", "|"))

    def save(self) -> None:
        """Copies and records the current state of everything that the next steps change."""
        units, files, sites = self.find()
        record = self.read() or {"files": [], "units": [], "moved": [], "sites": [], "finished": False}
        known = {one["path"]: one for one in record["files"]}
        seen = [path_record(path) for unit in units for path in files_of(unit, self.unit_dir)]
        seen += [path_record(path) for path in files]
        new = [one for one in seen if known.get(one["path"]) != one]
        for one in new:
            if record["finished"] and one["path"] in known:
                raise Refusal(
                    "%s: it differs from the one that was saved at %s in %s: undo that adoption first, or move the "
                    "file away" % (one["path"], record["created"], self.directory)
                )
            self._act(f"save {one['path']}")
        moved = [path for path in self.moved if is_directory(path)]
        for path in moved:
            if os.path.lexists(path + ASIDE):
                raise Refusal(f"{path + ASIDE}: cannot move {path} aside because that name is taken: move it away")
        names = [unit["name"] for unit in record["units"]]
        added = [unit for unit in units if unit["name"] not in names]
        again = record.pop("restored", False)
        if self.check or not (new or added or set(moved) - set(record["moved"]) or again):
            return
        with _files.directory(os.path.dirname(self.directory), make=0o755):
            pass
        with _files.directory(os.path.join(self.directory, "files"), make=0o700):
            os.chmod(self.directory, 0o700)
        for one in new:
            if "sha256" in one:
                _files.write_atomically(self._copy_of(one["path"]), _files.read(one["path"]))
        known.update((one["path"], one) for one in new)
        record.update(
            format=FORMAT,
            created=record.get("created") or time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            files=[known[path] for path in sorted(known)],
            units=record["units"] + added,
            moved=sorted({*record["moved"], *moved}),
            sites=sorted({*record["sites"], *sites}),
            finished=False,
        )
        self._write(record)

    def stop(self, kind: str | None = None) -> None:
        """Stops the recorded units, of one kind if it is given."""
        record = self.read() or {"units": []}
        found = [unit for unit in self.find()[0] if kind in (None, unit["kind"])]
        known = [unit["name"] for unit in record["units"]]
        missing = [unit["name"] for unit in found if unit["name"] not in known and not self.check]
        if missing:
            raise Refusal(f"{', '.join(missing)}: it appeared after everything was saved: run again")
        # One after the other, timers first: they would start their service again.
        for name in [unit["name"] for unit in found if unit["active"]]:
            if self._act(f"stop {name}"):
                self.run("stop", name)

    def put_aside(self) -> None:
        """Removes the recorded files, and renames the recorded directories. nginx serves what it has loaded."""
        record = self.read() or {"files": [], "units": [], "moved": []}
        gone = []
        for one in record["files"]:
            if holds(one):
                gone.append(one["path"])
            elif in_the_way(one["path"]):
                raise Refusal(f"{one['path']}: it has changed since it was saved: run again")
        if gone and self._act(f"remove {', '.join(gone)}"):
            for path in gone:
                os.unlink(path)
                with contextlib.suppress(OSError):
                    # The directory of a unit's drop-ins, once it is empty.
                    if os.path.dirname(path).endswith(".d"):
                        os.rmdir(os.path.dirname(path))
            self.run("daemon-reload")
            with contextlib.suppress(Refusal):
                self.run("reset-failed", *[unit["name"] for unit in record["units"]])
        for path in record["moved"]:
            if is_directory(path) and self._act(f"move {path} to {path + ASIDE}"):
                os.rename(path, path + ASIDE)

    def finish(self) -> None:
        """Records that the replacement serves."""
        record = self.read()
        if record and not record["finished"] and self._act("close the record"):
            self._write(dict(record, finished=True))

    def put_back(self) -> None:
        """Restores every recorded file and directory, with content, owner, mode and time."""
        record = self.read()
        if record is None:
            return
        for path in record["moved"]:
            if os.path.isdir(path + ASIDE) and self._act(f"move {path + ASIDE} to {path}"):
                # The link that role llama_cpp makes there; another one stays.
                if os.path.islink(path) and os.readlink(path) == "current":
                    os.unlink(path)
                try:
                    os.rename(path + ASIDE, path)
                except OSError as error:
                    raise Refusal(
                        f"{path + ASIDE}: cannot move it back because {path} is there ({error.strerror}): move that "
                        "away, then run again"
                    ) from None
        # An updater that runs again has written its files since.
        missing = [one for one in record["files"] if not record.get("restored") and not holds(one)]
        for one in missing:
            if in_the_way(one["path"]):
                raise Refusal(f"{one['path']}: another file is in its place: move it away, then run again")
        if missing and self._act(f"put back {', '.join(one['path'] for one in missing)}"):
            for one in missing:
                self._restore(one)
            self.run("daemon-reload")

    def _restore(self, one: Record) -> None:
        path = one["path"]
        os.makedirs(os.path.dirname(path), 0o755, exist_ok=True)
        if "link" in one:
            _files.link_atomically(path, one["link"])
            return
        _files.write_atomically(path, _files.read(self._copy_of(path)), one["mode"], (one["uid"], one["gid"]))
        os.utime(path, ns=(one["mtime_ns"], one["mtime_ns"]))

    def start(self, kind: str | None = None) -> None:
        """Loads the restored sites into nginx and starts the recorded units that ran, of one kind if it is given."""
        record = self.read()
        if record is None:
            return
        if not self.check and not record.get("restored"):
            self._write(dict(record, restored=True, finished=False))
        if record["sites"] and self._act("reload nginx"):
            self.load()
        names = [unit["name"] for unit in record["units"] if unit["active"] and kind in (None, unit["kind"])]
        shown = parse_show(self.show(names, ("Id", "ActiveState"))) if names else []
        wanted = [one["Id"] for one in shown if one.get("ActiveState") not in ACTIVE]
        if wanted and self._act(f"start {', '.join(wanted)}"):
            # An updater is a service that ends: it is not waited for.
            self.run("start", *([] if kind else ["--no-block"]), *wanted)

    def forget(self) -> None:
        """Removes the record."""
        record = self.read()
        if record is None or not self._act(f"remove {self.directory}"):
            return
        for one in record["files"]:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._copy_of(one["path"]))
        os.unlink(os.path.join(self.directory, "record.json"))
        for folder in (os.path.join(self.directory, "files"), self.directory):
            if not os.listdir(folder):
                os.rmdir(folder)


def path_record(path: str) -> Record:
    """Returns the data that restores a file or link."""
    if os.path.islink(path):
        return {"path": path, "link": os.readlink(path)}
    seen = os.stat(path)
    return {
        "path": path,
        "sha256": _files.sha256_file(path),
        "mode": seen.st_mode & 0o7777,
        "uid": seen.st_uid,
        "gid": seen.st_gid,
        "mtime_ns": seen.st_mtime_ns,
    }


def holds(one: Record) -> bool:
    """Whether the file or link of a path_record is there with its content."""
    if not os.path.lexists(one["path"]):
        return False
    now = path_record(one["path"])
    return now.get("link") == one.get("link") and now.get("sha256") == one.get("sha256")


def in_the_way(path: str) -> bool:
    """Whether an unmanaged file exists at a path; a dangling link does not count."""
    return os.path.exists(path) and not MANAGED.search(read_text(path))


def files_of(unit: Unit, unit_dir: str = paths.UNITS) -> list[str]:
    """Every file and link of a unit below unit_dir: its file, drop-ins, aliases, and the links that enable it."""
    own = []
    for folder, _folders, names in os.walk(unit_dir):
        for name in names:
            path = os.path.join(folder, name)
            alias = os.path.islink(path) and os.path.basename(os.readlink(path)) == unit["name"]
            drop_in = folder == os.path.join(unit_dir, unit["name"] + ".d")
            # A FIFO would block its reader.
            if (name == unit["name"] or alias or drop_in) and (os.path.islink(path) or os.path.isfile(path)):
                own.append(path)
    return sorted(own)
