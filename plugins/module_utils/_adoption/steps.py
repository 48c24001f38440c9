# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The steps by which a deployment made by hand is saved, stopped, put aside, and put back as it was. Private to the
collection.

Everything is in one directory that only root may read: record.json says what there was and what ran, files/ holds
copies of every file. What is too large to copy is renamed where it is. Each step looks at what is there, so that a run
that died is finished, or undone, by the next one.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Sequence
from typing import Any

from .. import _files
from .._node import paths
from .._text import Refusal
from .handmade import around, describe, find
from .processes import command_name, end, identity, process_record, start_detached

Record = dict[str, Any]
PathRecord = dict[str, Any]
FORMAT = 1
ASIDE = ".by-hand"
# Seconds after which a server that somebody restarts would be back.
RETURNS = 2


class Adoption:
    """One node's adoption. directory: where it is recorded; moved: directories whose places our links take; check:
    predict only."""

    def __init__(
        self,
        directory: str,
        moved: Sequence[str] = (),
        check: bool = False,
        unit_dir: str = paths.UNITS,
    ) -> None:
        self.directory = directory
        self.moved = list(moved)
        self.check = check
        self.unit_dir = unit_dir
        self.actions: list[str] = []

    def _act(self, action: str) -> bool:
        """Notes what is done -> whether to do it."""
        self.actions.append(action)
        return not self.check

    # The record.

    def read(self) -> Record | None:
        """The record, None where there is none. Errors: Refusal, also when somebody else could have written it: root
        runs what it says."""
        path = os.path.join(self.directory, "record.json")
        try:
            record = json.loads(_files.read(path).decode("utf-8"))
            if not isinstance(record, dict) or record.get("format") != FORMAT:
                raise ValueError("no format %d" % FORMAT)
        except FileNotFoundError:
            return None
        except ValueError as error:
            raise Refusal(
                f"{path}: not a record of an adoption ({error}): put the files in {self.directory} back by hand"
            ) from None
        return record

    def _write(self, record: Record) -> None:
        _files.write_atomically(
            os.path.join(self.directory, "record.json"), json.dumps(record, indent=1, sort_keys=True).encode("utf-8")
        )

    def save(self) -> Record:
        """Everything that the next steps change, copied and recorded; what an earlier run recorded stays as it was
        then."""
        found = find(self.unit_dir)
        record = self.read() or {
            "format": FORMAT,
            "created": utc(),
            "units": [],
            "processes": [],
            "moved": [],
            "around": [],
        }
        known_units = {unit["name"]: unit for unit in record["units"]}
        known_processes = [identity(process) for process in record["processes"]]
        units = [
            dict(unit_record(unit, self.unit_dir), serves=describe(unit["process"]) if unit["process"] else None)
            for unit in found["units"]
        ]
        new_units = [unit for unit in units if unit["name"] not in known_units]
        for unit in units:
            known = known_units.get(unit["name"])
            if known and known["paths"] != unit["paths"]:
                raise Refusal(
                    "%s: it differs from the one that was saved at %s in %s: undo that adoption first, or move the "
                    "unit away" % (unit["name"], record["created"], self.directory)
                )
        new_processes = [
            process_record(process) for process in found["processes"] if identity(process) not in known_processes
        ]
        new_moved = [path for path in self.moved if os.path.isdir(path) and not os.path.islink(path)]
        for path in new_moved:
            if os.path.lexists(path + ASIDE):
                raise Refusal(f"{path + ASIDE}: there already, a free name for {path} is needed: move it away")
        beside = [
            path_record(path) for path in around(found) if path not in [known["path"] for known in record["around"]]
        ]
        if not (new_units or new_processes or new_moved):
            return record
        for unit in new_units:
            self._act(f"save unit {unit['name']}")
        for process in new_processes:
            self._act("save process %d (%s)" % (process["pid"], process["argv"][0]))
        for one in beside:
            self._act(f"save {one['path']}")
        if self.check:
            return record
        with _files.directory(os.path.dirname(self.directory), make=0o755):
            pass
        with _files.directory(os.path.join(self.directory, "files"), make=0o700):
            os.chmod(self.directory, 0o700)
        for one in beside + [path for unit in new_units for path in unit["paths"]]:
            if "sha256" in one:
                with open(one["path"], "rb") as stream:
                    _files.write_atomically(self._copy_of(one["path"]), stream.read())
        record["units"] += new_units
        record["processes"] += new_processes
        record["around"] += beside
        record["moved"] += [path for path in new_moved if path not in record["moved"]]
        record["finished"] = False
        self._write(record)
        return record

    def _copy_of(self, path: str) -> str:
        return os.path.join(self.directory, "files", path.strip("/").replace("/", "|"))

    # Taking over.

    def stop(self, kind: str) -> None:
        """Ends the heads or the workers that are recorded, and makes sure that they stay down."""
        record = self.read() or {"units": [], "processes": []}
        found = self._recorded(record, kind)
        active = [unit["name"] for unit in found["units"] if unit["active"]]
        if active and self._act(f"stop {', '.join(active)}"):
            systemctl("stop", *active)
        for process in found["processes"]:
            if self._act("end process %d (%s)" % (process["pid"], process["argv"][0])):
                end(process["pid"])
        if not found["processes"] or self.check:
            return
        deadline = time.monotonic() + RETURNS
        while time.monotonic() < deadline:
            time.sleep(0.25)
            for process in find(self.unit_dir)["processes"]:
                if process["kind"] == kind:
                    raise Refusal(
                        "%s: process %d started after its like was ended, by process %d (%s): end what starts it, then "
                        "run again"
                        % (process["executable"], process["pid"], process["parent"], command_name(process["parent"]))
                    )

    def _recorded(self, record: Record, kind: str) -> Record:
        """What is found of a kind. Errors: Refusal when something of it is not recorded."""
        found = find(self.unit_dir)
        units = [unit for unit in found["units"] if unit["kind"] == kind]
        processes = [process for process in found["processes"] if process["kind"] == kind]
        known = [unit["name"] for unit in record["units"]]
        missing = [unit["name"] for unit in units if unit["name"] not in known and not self.check]
        known_processes = [identity(process) for process in record["processes"]]
        missing += [
            "process %d" % process["pid"]
            for process in processes
            if identity(process) not in known_processes and not self.check
        ]
        if missing:
            raise Refusal(f"{', '.join(missing)}: it came after everything had been looked at and saved: run again")
        return {"units": units, "processes": processes}

    def put_aside(self) -> None:
        """Takes the recorded units out of systemd, and the recorded directories out of the way."""
        record = self.read() or {"units": [], "moved": []}
        gone = False
        for unit in record["units"]:
            present = [path["path"] for path in unit["paths"] if holds(path)]
            if present and self._act(f"remove {', '.join(present)}"):
                for path in present:
                    os.unlink(path)
                for folder in {os.path.dirname(path) for path in present if os.path.dirname(path).endswith(".d")}:
                    if not os.listdir(folder):
                        os.rmdir(folder)
                gone = True
        for path in record["moved"]:
            if os.path.isdir(path) and not os.path.islink(path) and self._act(f"move {path} to {path + ASIDE}"):
                os.rename(path, path + ASIDE)
        if gone:
            systemctl("daemon-reload")
            subprocess.call(
                ["systemctl", "reset-failed"] + [unit["name"] for unit in record["units"]], stderr=subprocess.DEVNULL
            )

    def finish(self) -> None:
        """What took the place of the recorded deployment serves."""
        record = self.read()
        if record and not record["finished"] and self._act("close the record"):
            self._write(dict(record, finished=True))

    # Putting back.

    def put_back(self) -> None:
        """Every recorded file and directory where it was, with content, owner, mode and time of then."""
        record = self.read()
        if record is None:
            return
        for path in record["moved"]:
            if os.path.isdir(path + ASIDE) and self._act(f"move {path + ASIDE} to {path}"):
                # Ours, that role llama_cpp puts there; another one is somebody's.
                if os.path.islink(path) and os.readlink(path) == "current":
                    os.unlink(path)
                try:
                    os.rename(path + ASIDE, path)
                except OSError as error:
                    raise Refusal(
                        f"{path + ASIDE}: {path} has its place ({error.strerror}): move that away, then run again"
                    ) from None
        changed = False
        for unit in record["units"]:
            missing = [path for path in unit["paths"] if not holds(path)]
            if missing and self._act(f"put back {', '.join((path['path'] for path in missing))}"):
                for path in missing:
                    self._put_back(path)
                changed = True
        if changed:
            systemctl("daemon-reload")

    def _put_back(self, path: PathRecord) -> None:
        folder = os.path.dirname(path["path"])
        if not os.path.isdir(folder):
            os.mkdir(folder, 0o755)
        if "link" in path:
            _files.link_atomically(path["path"], path["link"])
            return
        _files.write_atomically(
            path["path"], _files.read(self._copy_of(path["path"])), path["mode"], (path["uid"], path["gid"])
        )
        os.utime(path["path"], ns=(path["mtime_ns"], path["mtime_ns"]))

    def start(self, kind: str) -> None:
        """Starts the recorded heads or workers that ran, units by systemd and processes detached as they were."""
        record = self.read() or {"units": [], "processes": []}
        found = find(self.unit_dir)
        running = {unit["name"] for unit in found["units"] if unit["active"]}
        wanted = [
            unit["name"]
            for unit in record["units"]
            if unit["kind"] == kind and unit["active"] and unit["name"] not in running
        ]
        if wanted and self._act(f"start {', '.join(wanted)}"):
            systemctl("start", *wanted)
        alive = [identity(process) for process in found["processes"]]
        for process in record["processes"]:
            if process["kind"] == kind and identity(process) not in alive and self._act(f"start {process['argv'][0]}"):
                start_detached(process)

    def forget(self) -> None:
        """The record goes: everything is as it was before there was one."""
        record = self.read()
        if record is None or not self._act(f"remove {self.directory}"):
            return
        for path in record["around"] + [path for unit in record["units"] for path in unit["paths"]]:
            if "sha256" in path and os.path.isfile(self._copy_of(path["path"])):
                os.unlink(self._copy_of(path["path"]))
        os.unlink(os.path.join(self.directory, "record.json"))
        for folder in (os.path.join(self.directory, "files"), self.directory):
            if not os.listdir(folder):
                os.rmdir(folder)


def utc() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def systemctl(*arguments: str) -> None:
    process = subprocess.Popen(
        ["systemctl"] + list(arguments), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True
    )
    output = process.communicate()[0]
    if process.returncode:
        raise Refusal(
            "systemctl %s: failed (%s): see journalctl -xe on the node"
            % (" ".join(arguments), " ".join(output.split()) or process.returncode)
        )


def path_record(path: str) -> PathRecord:
    """What it takes to put a file or link back."""
    if os.path.islink(path):
        return {"path": path, "link": os.readlink(path)}
    seen = os.stat(path)
    digest = _files.sha256_file(path)
    return {
        "path": path,
        "sha256": digest,
        "mode": seen.st_mode & 0o7777,
        "uid": seen.st_uid,
        "gid": seen.st_gid,
        "mtime_ns": seen.st_mtime_ns,
    }


def holds(path: PathRecord) -> bool:
    """Whether the file or link of a path_record is there with its content."""
    if not os.path.lexists(path["path"]):
        return False
    now = path_record(path["path"])
    return now.get("link") == path.get("link") and now.get("sha256") == path.get("sha256")


def unit_record(unit: Record, unit_dir: str = paths.UNITS) -> Record:
    """A unit as find() gives it -> what it takes to put it back: every file and link of its own below unit_dir, and
    whether it ran."""
    name = unit["name"]
    own = []
    for folder, _folders, files in os.walk(unit_dir):
        for entry in files:
            path = os.path.join(folder, entry)
            # Its file, what enables it (links of its name in .wants and .requires), its drop-ins and its aliases.
            is_alias = os.path.islink(path) and os.path.basename(os.readlink(path)) == name
            belongs = entry == name or path == unit["path"] or folder == os.path.join(unit_dir, name + ".d") or is_alias
            # A FIFO would hold up who reads it.
            if belongs and (os.path.islink(path) or os.path.isfile(path)):
                own.append(path)
    return {
        "name": name,
        "kind": unit["kind"],
        "active": unit["active"],
        "enabled": unit["unit_file_state"],
        "paths": [path_record(path) for path in sorted(own)],
    }
