# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The steps by which a deployment made by hand is saved, stopped, put aside, and put back as it was. Private to the collection.

Everything is in one directory that only root may read: record.json says what there was and what ran, files/ holds copies of every file. What is too
large to copy is renamed where it is. Each step looks at what is there, so that a run that died is finished, or undone, by the next one.
"""

import contextlib
import hashlib
import json
import os
import re
import signal
import subprocess
import time

from . import _safe_files
from ._handmade import HandmadeError, around, describe, find, pids, url, words
from ._units import UNIT_DIR

FORMAT = 1
SECRET = re.compile(r"KEY|TOKEN|SECRET|PASS|CREDENTIAL|AUTH|COOKIE", re.IGNORECASE)
# Variables that name code for root to load.
LOADER = re.compile(r"(LD_\w+|GCONV_PATH|PYTHON\w*|GGML_BACKEND_PATH)\Z")
ASIDE = ".by-hand"
# Seconds that a server made by hand has to end by itself, and that one may take to come back.
PATIENCE = 20
RETURNS = 2


class Adoption:
    """One node's adoption. directory: where it is recorded; moved: directories whose places our links take; check: predict only."""

    def __init__(self, directory, moved=(), check=False, unit_dir=UNIT_DIR):
        self.directory = directory
        self.moved = list(moved)
        self.check = check
        self.unit_dir = unit_dir
        self.actions = []

    def _act(self, action):
        """Notes what is done -> whether to do it."""
        self.actions.append(action)
        return not self.check

    # The record.

    def read(self):
        """The record, None where there is none. Errors: HandmadeError; UnsafeFile when somebody else could have written it: root runs what it says."""
        path = os.path.join(self.directory, "record.json")
        try:
            record = json.loads(_safe_files.read(path).decode("utf-8"))
            if not isinstance(record, dict) or record.get("format") != FORMAT:
                raise ValueError("no format %d" % FORMAT)
        except FileNotFoundError:
            return None
        except ValueError as error:
            raise HandmadeError("%s: not a record of an adoption (%s): put the files in %s back by hand" % (path, error, self.directory)) from None
        return record

    def _write(self, record):
        _safe_files.write(os.path.join(self.directory, "record.json"), json.dumps(record, indent=1, sort_keys=True).encode("utf-8"))

    def save(self):
        """Everything that the next steps change, copied and recorded; what an earlier run recorded stays as it was then."""
        found = find(self.unit_dir)
        record = self.read() or {"format": FORMAT, "created": utc(), "units": [], "processes": [], "moved": [], "around": []}
        known_units = {unit["name"]: unit for unit in record["units"]}
        known_processes = [identity(process) for process in record["processes"]]
        units = [dict(unit_record(unit, self.unit_dir), serves=describe(unit["process"]) if unit["process"] else None) for unit in found["units"]]
        new_units = [unit for unit in units if unit["name"] not in known_units]
        for unit in units:
            known = known_units.get(unit["name"])
            if known and known["paths"] != unit["paths"]:
                raise HandmadeError(
                    "%s: it differs from the one that was saved at %s in %s: undo that adoption first, or move the unit away"
                    % (unit["name"], record["created"], self.directory)
                )
        new_processes = [process_record(process) for process in found["processes"] if identity(process) not in known_processes]
        new_moved = [path for path in self.moved if os.path.isdir(path) and not os.path.islink(path)]
        for path in new_moved:
            if os.path.lexists(path + ASIDE):
                raise HandmadeError("%s: there already, a free name for %s is needed: move it away" % (path + ASIDE, path))
        beside = [path_record(path) for path in around(found) if path not in [known["path"] for known in record["around"]]]
        if not (new_units or new_processes or new_moved):
            return record
        for unit in new_units:
            self._act("save unit %s" % unit["name"])
        for process in new_processes:
            self._act("save process %d (%s)" % (process["pid"], process["argv"][0]))
        for path in beside:
            self._act("save %s" % path["path"])
        if self.check:
            return record
        with _safe_files.directory(os.path.dirname(self.directory), make=0o755):
            pass
        with _safe_files.directory(os.path.join(self.directory, "files"), make=0o700):
            os.chmod(self.directory, 0o700)
        for path in beside + [path for unit in new_units for path in unit["paths"]]:
            if "sha256" in path:
                with open(path["path"], "rb") as stream:
                    _safe_files.write(self._copy_of(path["path"]), stream.read())
        record["units"] += new_units
        record["processes"] += new_processes
        record["around"] += beside
        record["moved"] += [path for path in new_moved if path not in record["moved"]]
        record["finished"] = False
        self._write(record)
        return record

    def _copy_of(self, path):
        return os.path.join(self.directory, "files", path.strip("/").replace("/", "|"))

    # Taking over.

    def stop(self, kind):
        """Ends the heads or the workers that are recorded, and makes sure that they stay down."""
        record = self.read() or {"units": [], "processes": []}
        found = self._recorded(record, kind)
        active = [unit["name"] for unit in found["units"] if unit["active"]]
        if active and self._act("stop %s" % ", ".join(active)):
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
                    raise HandmadeError(
                        "%s: process %d started after its like was ended, by process %d (%s): end what starts it, then run again"
                        % (process["executable"], process["pid"], process["parent"], command_name(process["parent"]))
                    )

    def _recorded(self, record, kind):
        """What is found of a kind. Errors: HandmadeError when something of it is not recorded."""
        found = find(self.unit_dir)
        units = [unit for unit in found["units"] if unit["kind"] == kind]
        processes = [process for process in found["processes"] if process["kind"] == kind]
        known = [unit["name"] for unit in record["units"]]
        missing = [unit["name"] for unit in units if unit["name"] not in known and not self.check]
        known_processes = [identity(process) for process in record["processes"]]
        missing += ["process %d" % process["pid"] for process in processes if identity(process) not in known_processes and not self.check]
        if missing:
            raise HandmadeError("%s: it came after everything had been looked at and saved: run again" % ", ".join(missing))
        return {"units": units, "processes": processes}

    def put_aside(self):
        """Takes the recorded units out of systemd, and the recorded directories out of the way."""
        record = self.read() or {"units": [], "moved": []}
        gone = False
        for unit in record["units"]:
            present = [path["path"] for path in unit["paths"] if holds(path)]
            if present and self._act("remove %s" % ", ".join(present)):
                for path in present:
                    os.unlink(path)
                for folder in {os.path.dirname(path) for path in present if os.path.dirname(path).endswith(".d")}:
                    if not os.listdir(folder):
                        os.rmdir(folder)
                gone = True
        for path in record["moved"]:
            if os.path.isdir(path) and not os.path.islink(path) and self._act("move %s to %s" % (path, path + ASIDE)):
                os.rename(path, path + ASIDE)
        if gone:
            systemctl("daemon-reload")
            subprocess.call(["systemctl", "reset-failed"] + [unit["name"] for unit in record["units"]], stderr=subprocess.DEVNULL)

    def finish(self):
        """What took the place of the recorded deployment serves."""
        record = self.read()
        if record and not record["finished"] and self._act("close the record"):
            self._write(dict(record, finished=True))

    # Putting back.

    def put_back(self):
        """Every recorded file and directory where it was, with content, owner, mode and time of then."""
        record = self.read()
        if record is None:
            return
        for path in record["moved"]:
            if os.path.isdir(path + ASIDE) and self._act("move %s to %s" % (path + ASIDE, path)):
                # Ours, that role llama_cpp puts there; another one is somebody's.
                if os.path.islink(path) and os.readlink(path) == "current":
                    os.unlink(path)
                try:
                    os.rename(path + ASIDE, path)
                except OSError as error:
                    raise HandmadeError("%s: %s has its place (%s): move that away, then run again" % (path + ASIDE, path, error.strerror)) from None
        changed = False
        for unit in record["units"]:
            missing = [path for path in unit["paths"] if not holds(path)]
            if missing and self._act("put back %s" % ", ".join(path["path"] for path in missing)):
                for path in missing:
                    self._put_back(path)
                changed = True
        if changed:
            systemctl("daemon-reload")

    def _put_back(self, path):
        folder = os.path.dirname(path["path"])
        if not os.path.isdir(folder):
            os.mkdir(folder, 0o755)
        if "link" in path:
            temporary = path["path"] + ".llama-cluster"
            if os.path.lexists(temporary):
                # Left by a run that died in between.
                os.unlink(temporary)
            os.symlink(path["link"], temporary)
            os.rename(temporary, path["path"])
            return
        _safe_files.write(path["path"], _safe_files.read(self._copy_of(path["path"])), path["mode"], (path["uid"], path["gid"]))
        os.utime(path["path"], ns=(path["mtime_ns"], path["mtime_ns"]))

    def start(self, kind):
        """Starts the recorded heads or workers that ran, units by systemd and processes detached as they were."""
        record = self.read() or {"units": [], "processes": []}
        found = find(self.unit_dir)
        running = {unit["name"] for unit in found["units"] if unit["active"]}
        wanted = [unit["name"] for unit in record["units"] if unit["kind"] == kind and unit["active"] and unit["name"] not in running]
        if wanted and self._act("start %s" % ", ".join(wanted)):
            systemctl("start", *wanted)
        alive = [identity(process) for process in found["processes"]]
        for process in record["processes"]:
            if process["kind"] == kind and identity(process) not in alive and self._act("start %s" % process["argv"][0]):
                start_detached(process)

    def forget(self):
        """The record goes: everything is as it was before there was one."""
        record = self.read()
        if record is None or not self._act("remove %s" % self.directory):
            return
        for path in record["around"] + [path for unit in record["units"] for path in unit["paths"]]:
            if "sha256" in path and os.path.isfile(self._copy_of(path["path"])):
                os.unlink(self._copy_of(path["path"]))
        os.unlink(os.path.join(self.directory, "record.json"))
        for folder in (os.path.join(self.directory, "files"), self.directory):
            if not os.listdir(folder):
                os.rmdir(folder)


def utc():
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def systemctl(*arguments):
    process = subprocess.Popen(["systemctl"] + list(arguments), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True)
    output = process.communicate()[0]
    if process.returncode:
        raise HandmadeError("systemctl %s: failed (%s): see journalctl -xe on the node" % (" ".join(arguments), " ".join(output.split()) or process.returncode))


def path_record(path):
    """What it takes to put a file or link back."""
    if os.path.islink(path):
        return {"path": path, "link": os.readlink(path)}
    seen = os.stat(path)
    with open(path, "rb") as stream:
        digest = hashlib.sha256(stream.read()).hexdigest()
    return {"path": path, "sha256": digest, "mode": seen.st_mode & 0o7777, "uid": seen.st_uid, "gid": seen.st_gid, "mtime_ns": seen.st_mtime_ns}


def holds(path):
    """Whether the file or link of a path_record is there with its content."""
    if not os.path.lexists(path["path"]):
        return False
    now = path_record(path["path"])
    return now.get("link") == path.get("link") and now.get("sha256") == path.get("sha256")


def unit_record(unit, unit_dir=UNIT_DIR):
    """A unit as find() gives it -> what it takes to put it back: every file and link of its own below unit_dir, and whether it ran."""
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


def process_record(process):
    """A process as find() gives it -> what it takes to start it again; variables that look like secrets or name code are named, not kept."""
    kept = {name: value for name, value in safe_environment(process).items() if not SECRET.search(name)}
    left_out = sorted(set(process["environment"]) - set(kept))
    names = ("pid", "kind", "executable", "argv", "cwd", "outputs")
    return dict({name: process[name] for name in names}, environment=kept, left_out=left_out, serves=describe(process))


def safe_environment(process):
    """The variables of a process without those that name code; of LD_LIBRARY_PATH the directories that nobody else can exchange or write."""
    kept = {name: value for name, value in process["environment"].items() if not LOADER.match(name)}
    libraries = process["environment"].get("LD_LIBRARY_PATH")
    folders = []
    for entry in re.split("[:;]", libraries) if libraries else []:
        # Empty and relative ones are meant from where it was started.
        folder = os.path.join(process["cwd"], entry)
        with contextlib.suppress(OSError, _safe_files.UnsafeFile), _safe_files.directory(folder):
            folders.append(folder)
    return dict(kept, LD_LIBRARY_PATH=":".join(folders)) if folders else kept


def identity(process):
    """Two processes of one identity are the same server, started twice."""
    return [process["argv"], process["cwd"]]


def command_name(pid, proc="/proc"):
    try:
        with open(os.path.join(proc, str(pid), "comm"), encoding="utf-8", errors="replace") as stream:
            return stream.read().strip()
    except OSError:
        return "gone"


def end(pid):
    """SIGTERM, and SIGKILL for what does not heed it."""
    for number, seconds in ((signal.SIGTERM, PATIENCE), (signal.SIGKILL, PATIENCE)):
        deadline = time.monotonic() + seconds
        try:
            os.kill(pid, number)
            while time.monotonic() < deadline:
                os.kill(pid, 0)
                if is_zombie(pid):
                    return
                time.sleep(0.05)
        except ProcessLookupError:
            return
    raise HandmadeError("process %d: it does not end, not even killed: see what it waits for in /proc/%d/stack, or reboot the node" % (pid, pid))


def is_zombie(pid, proc="/proc"):
    """Whether only its parent has not noticed yet that it ended."""
    try:
        with open(os.path.join(proc, str(pid), "stat"), encoding="utf-8", errors="replace") as stream:
            return stream.read().rsplit(")", 1)[1].split()[0] == "Z"
    except OSError:
        return True


def start_detached(process):
    """Starts a recorded process as nohup would: a child of init in a session of its own, hang-ups ignored, output where it went before.

    Only what was root's was recorded. Whether its program, libraries and logs are still root's is looked at again.
    """
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setsid()
            if os.fork():
                os._exit(0)
            become(process)
            os.execve(process["executable"], process["argv"], safe_environment(process))
        except (OSError, _safe_files.UnsafeFile) as error:
            os.write(writer, str(error).encode())
        finally:
            os._exit(1)
    os.close(writer)
    os.waitpid(child, 0)
    # Closed without a word by a successful execve.
    with open(reader, "rb") as stream:
        problem = stream.read().decode("utf-8", "replace")
    if problem:
        raise HandmadeError("%s: it cannot be started again in %s (%s): start it by hand" % (process["executable"], process["cwd"], problem))


def become(process):
    """Gives this process what a recorded one had: directory and outputs."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    os.close(_safe_files.open_file(process["executable"]))
    with _safe_files.directory(process["cwd"]) as folder:
        os.fchdir(folder)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for number, name in ((1, "stdout"), (2, "stderr")):
        os.dup2(open_log(process["outputs"].get(name, os.devnull)), number)


def open_log(path):
    """-> descriptor to append to. Where others can say what the name stands for the log is lost, not what they made it stand for."""
    try:
        return _safe_files.open_file(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    except (OSError, _safe_files.UnsafeFile):
        return os.open(os.devnull, os.O_WRONLY)


def look(directory, moved=(), unit_dir=UNIT_DIR):
    """What serves by hand, what would be done with it, and what is recorded -> result of adoption_info, see there. Errors: HandmadeError, UnitError."""
    adoption = Adoption(directory, moved, unit_dir=unit_dir)
    record = adoption.read()
    found = find(unit_dir)
    beside = around(found)
    units = [
        {
            "name": unit["name"],
            "kind": unit["kind"],
            "active": unit["active"],
            "enabled": unit["unit_file_state"],
            "serves": describe(unit["process"]) if unit["process"] else None,
        }
        for unit in found["units"]
    ]
    processes = [{"pid": process["pid"], "kind": process["kind"], "serves": describe(process)} for process in found["processes"]]
    lines = ["%s (%s): %s" % (unit["name"], unit["enabled"] or "no state", words(unit["kind"], unit["serves"])) for unit in units]
    lines += ["process %d, in no unit: %s" % (process["pid"], words(process["kind"], process["serves"])) for process in processes]
    if units or processes:
        lines += ["%s: a directory, moved to %s" % (path, path + ASIDE) for path in moved if os.path.isdir(path) and not os.path.islink(path)]
        lines += ["%s: left alone, copied to %s" % (path, directory) for path in beside]
        lines += ["process %d: left alone, %s" % (process["pid"], process["why"]) for process in found["foreign"]]
    return {
        "units": units,
        "processes": processes,
        "pids": pids(found),
        "around": beside,
        "foreign": [{"pid": process["pid"], "owner": process["foreign"]} for process in found["foreign"]],
        "lines": lines,
        "recorded": None if record is None else {"created": record["created"], "finished": record["finished"], "heads": recorded_heads(record)},
    }


def recorded_heads(record):
    """The recorded heads that ran: where they answer and over which workers."""
    served = [(unit["name"], unit["kind"], unit["serves"]) for unit in record["units"]]
    served += [("process %d" % process["pid"], process["kind"], process["serves"]) for process in record["processes"]]
    return [
        {"name": name, "url": url(serves), "rpc_endpoints": serves["rpc"], "model": serves["model"]}
        for name, kind, serves in served
        if kind == "head" and serves and serves["port"]
    ]
