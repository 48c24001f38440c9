# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What serves llama.cpp on a node without being ours: units and processes made by hand, and what lies around them.
Private to the collection."""

from __future__ import annotations

import glob
import os
import pwd
import re
from collections.abc import Iterable, Sequence
from typing import Any

from .. import _files
from .._llama.api import LlamaApi
from .._node import paths
from .._node.running import below_root, systemd_group, unit_of_group
from .._node.sockets import process_tree
from .._node.units import DIGEST_VARIABLE, Show, number, parse_show, systemctl_show, unit_kind
from .._text import Refusal, printable

Process = dict[str, Any]
Settings = dict[str, Any]
Found = dict[str, list[dict[str, Any]]]
KINDS = {"llama-server": "head", "ggml-rpc-server": "worker", "rpc-server": "worker"}
# The program of an ExecStart line: its path may follow systemd's prefixes, or a wrapper such as numactl.
EXEC_START = re.compile(
    r"^\s*ExecStart=.*?(?<![\w.-])(llama-server|ggml-rpc-server|rpc-server)(?![\w.-])", re.MULTILINE
)
OURS = re.compile(rf"{DIGEST_VARIABLE}=|github\.com/thefermisea/")
PROPERTIES = ("Id", "FragmentPath", "DropInPaths", "UnitFileState", "ActiveState", "MainPID", "User")
# Where operators put what goes with a deployment: it is told and copied, never changed.
AROUND = (
    paths.UNITS + "/*.service",
    paths.UNITS + "/*.timer",
    paths.UNITS + "/*.path",
    "/usr/local/bin/*",
    "/usr/local/sbin/*",
    "/etc/nginx/sites-available/*",
    "/etc/nginx/sites-enabled/*",
    "/etc/nginx/conf.d/*",
    "/etc/nginx/ai-inference/*",
    "/etc/cron.d/*",
    "/etc/crontab",
    "/etc/rc.local",
    "/var/spool/cron/*",
    "/var/spool/cron/crontabs/*",
)
ABOUT_US = re.compile(r"llama-server|rpc-server|llama-(?:rpc|head)\b|ai-inference")
MOST_TEXT = 256 * 1024
# Control groups of what a login, cron or a boot script leaves behind. In any other, somebody else starts and ends it:
# SLURM, a user's systemd, a container.
LEFT_BEHIND = re.compile(
    r"(?:init\.scope|user\.slice/user-\d+\.slice/session-\w+\.scope"
    r"|system\.slice(?:/(?:system-sshd?\.slice/)?(?:sshd?|cron|crond|atd|rc-local)(?:@[^/]*)?\.service)?)?\Z"
)
# Of a namespace of its own, the names of files and users are others than root's.
NAMESPACES = ("mnt", "pid", "user")
# Of one name, what argv gives last wins, as in llama.cpp.
OPTIONS: dict[str, dict[str, tuple[str, ...]]] = {
    "head": {"port": ("--port",), "host": ("--host",), "model": ("-m", "--model"), "rpc": ("--rpc",)},
    "worker": {"port": ("-p", "--port"), "host": ("-H", "--host")},
}
DEFAULTS: dict[str, dict[str, str]] = {
    "head": {"port": "8080", "host": "127.0.0.1"},
    "worker": {"port": "50052", "host": "127.0.0.1"},
}


def arguments(kind: str, argv: Sequence[str]) -> Settings:
    """The settings of a command line that matter here: {host, port, model, rpc}; None where a value is neither given
    nor a default."""
    found: dict[str, str | None] = dict({"model": None, "rpc": None}, **DEFAULTS[kind])
    for name, spellings in OPTIONS[kind].items():
        for place, word in enumerate(argv):
            option, equals, value = word.partition("=")
            if option in spellings:
                found[name] = value if equals else (argv[place + 1] if place + 1 < len(argv) else None)
    return {
        "host": found["host"],
        "port": int(found["port"] or "") if re.match(r"[0-9]{1,5}\Z", found["port"] or "") else None,
        "model": found["model"],
        "rpc": [endpoint for endpoint in (found["rpc"] or "").split(",") if endpoint],
    }


def read_text(path: str) -> str:
    """The text of a file, empty where there is none to read or it is too large to be a configuration."""
    try:
        if not os.path.isfile(path) or os.path.getsize(path) > MOST_TEXT:
            return ""
        with open(path, "rb") as stream:
            data = stream.read()
    except OSError:
        return ""
    return "" if b"\0" in data else data.decode("utf-8", "replace")


def read_process(pid: int, proc: str = "/proc") -> Process | None:
    """A llama.cpp server process -> what the kernel says of it, enough to tell whether it is left alone; None for any
    other process."""
    base = os.path.join(proc, str(pid))
    try:
        executable = os.readlink(os.path.join(base, "exe")).replace(" (deleted)", "")
        kind = KINDS.get(os.path.basename(executable))
        if kind is None:
            return None
        with open(os.path.join(base, "stat"), encoding="utf-8", errors="replace") as stream:
            # The command name may hold spaces and parentheses: the state and the parent follow the last one.
            state, parent = stream.read().rsplit(")", 1)[1].split()[:2]
        # A user names the groups below his own: only a line feed, which no name holds, ends a line.
        with open(os.path.join(base, "cgroup"), encoding="utf-8", errors="replace", newline="\n") as stream:
            cgroup = systemd_group(stream.read())
        with open(os.path.join(proc, "1", "cgroup"), encoding="utf-8", errors="replace") as stream:
            root = systemd_group(stream.read())
        with open(os.path.join(base, "status"), encoding="utf-8", errors="replace") as stream:
            status = dict(line.split(":", 1) for line in stream.read().split("\n") if ":" in line)
        cwd = os.readlink(os.path.join(base, "cwd"))
    except OSError:
        return None  # it has gone, or is a kernel thread
    if state == "Z":
        return None
    unit, foreign = group_owner(cgroup, root)
    return {
        "pid": pid,
        "parent": int(parent),
        "kind": kind,
        "executable": executable,
        "cwd": cwd,
        "unit": unit,
        "uid": int(status["Uid"].split()[0]),
        "foreign": foreign,
        "sees_our_files": sees_our_files(pid, proc),
    }


def sees_our_files(pid: int, proc: str = "/proc") -> bool:
    """Whether a name stands for the same file to a process and to this one, which would start it again."""
    try:
        return all(
            os.readlink(os.path.join(proc, str(pid), *link)) == os.readlink(os.path.join(proc, "self", *link))
            for link in [("root",)] + [("ns", name) for name in NAMESPACES]
        )
    except OSError:
        return False


def with_words(process: Process, proc: str = "/proc") -> Process | None:
    """A process with the arguments, environment and output files that it says it has, None when it has gone.

    Not asked of one that is left alone: whoever owns it could hold up, or fill the memory of, who reads its.
    """
    base = os.path.join(proc, str(process["pid"]))
    try:
        with open(os.path.join(base, "environ"), "rb") as stream:
            environment = [
                entry.decode("utf-8", "surrogateescape") for entry in stream.read().split(b"\0") if b"=" in entry
            ]
        with open(os.path.join(base, "cmdline"), "rb") as stream:
            argv = [word.decode("utf-8", "surrogateescape") for word in stream.read().split(b"\0")[:-1]]
        outputs = {name: os.readlink(os.path.join(base, "fd", one)) for name, one in (("stdout", "1"), ("stderr", "2"))}
    except OSError:
        return None
    return dict(
        process,
        argv=argv,
        environment=dict(entry.split("=", 1) for entry in environment),
        outputs={name: path for name, path in outputs.items() if os.path.isfile(path)},
    )


def group_owner(cgroup: str, root: str) -> tuple[str | None, str | None]:
    """-> (service unit that a process runs in or None, who starts and ends it or None where nobody does). root: the
    control group of process 1."""
    unit, parts = unit_of_group(cgroup, root), below_root(cgroup, root)
    if LEFT_BEHIND.match("/".join(parts)):
        return unit, None
    first = next((part for part in parts if not part.endswith(".slice")), "")
    return unit, first if first.endswith((".service", ".scope")) else "/" + "/".join(parts)


def left_alone(process: Process) -> tuple[str | None, str | None]:
    """(whose a process is, why it is neither ended nor started again), (None, None) for one that was left behind and is
    root's in all that it runs."""
    if process["foreign"]:
        return process["foreign"], f"{process['foreign']} started it and ends it"
    needed = "end it with kill %d if its port or memory is needed" % process["pid"]
    if process["uid"] not in _files.owners():
        return user_name(process["uid"]), f"it belongs to {user_name(process['uid'])}, not to root: {needed}"
    if not process["sees_our_files"]:
        return (
            "a container",
            f"it runs in a container or another root directory, its files are not the node's: {needed}",
        )
    try:
        # llama.cpp loads libraries from where its program is and from where it was started.
        for folder in (os.path.dirname(process["executable"]), process["cwd"]):
            with _files.directory(folder):
                pass
    except Refusal as error:
        return "root", f"others may change what it runs as root ({error}): {needed}"
    except OSError as error:
        return "root", "what it runs is not where it was when it started (%s: %s): %s" % (
            error.filename,
            error.strerror,
            needed,
        )
    return None, None


def user_name(uid: int) -> str:
    try:
        return f"user {pwd.getpwuid(uid).pw_name}"
    except KeyError:
        return "user id %d" % uid


def read_processes(proc: str = "/proc") -> list[Process]:
    """All llama.cpp server processes, children of others of them (a router's) left out."""
    names = sorted((name for name in os.listdir(proc) if name.isdigit()), key=int)
    found = [process for process in (read_process(int(name), proc) for name in names) if process]
    pids = {process["pid"] for process in found}
    return [process for process in found if process["parent"] not in pids]


def unit_files(unit_dir: str = paths.UNITS) -> dict[str, str]:
    """Names of the service units in unit_dir, and of drop-ins there, that start a llama.cpp server and are not ours."""
    names = {}
    for path in sorted(
        glob.glob(os.path.join(unit_dir, "*.service")) + glob.glob(os.path.join(unit_dir, "*.service.d", "*.conf"))
    ):
        text = read_text(path)
        found = EXEC_START.search(re.sub(r"\\\n", " ", text))
        if found and not OURS.search(text):
            folder, name = os.path.split(path)
            names[name if folder == unit_dir else os.path.basename(folder)[: -len(".d")]] = KINDS[found.group(1)]
    return names


def user_id(user: str) -> int | None:
    """The id of a unit's User=, root's where it has none; None of one that does not exist."""
    try:
        return int(user) if user.isdigit() else pwd.getpwnam(user or "root").pw_uid
    except KeyError:
        return None


def find(unit_dir: str = paths.UNITS, proc: str = "/proc", show: Show = systemctl_show) -> Found:
    """What serves by hand -> {units, processes, foreign}.

    units: [{name, kind, path, drop_ins, unit_file_state, active, main_pid, process}], process as with_words gives it,
    None when none runs.
    processes: root's own outside every unit that was made by hand. foreign: those that are left alone, with why.
    """
    running = read_processes(proc)
    names = unit_files(unit_dir)
    inside: dict[str, list[Process]] = {}
    for process in running:
        if process["unit"]:
            inside.setdefault(process["unit"], []).append(process)
    # A template is no unit: its instances are found by their processes.
    asked = sorted(name for name in set(names) | set(inside) if not name.endswith("@.service"))
    units, ours = [], set()
    for shown in parse_show(show(asked, PROPERTIES)) if asked else []:
        name, path = shown["Id"], shown.get("FragmentPath", "")
        if OURS.search(read_text(path)) or (unit_kind(name)[0] and not path):
            # Also one whose file has gone while it ran.
            ours.add(name)
            continue
        main_pid = number(shown, "MainPID") or None
        processes = inside.get(name, [])
        # Where the unit does not name the program, a wrapper may have become it. Beside the main process, any user's
        # may run: those of a JupyterHub or of a CI runner do.
        if name not in names and re.sub(r"@.*", "@.service", name) not in names:
            processes = [
                process
                for process in processes
                if process["pid"] == main_pid and process["uid"] in (0, user_id(shown.get("User", "")))
            ]
            if not processes or not path.startswith(unit_dir + "/"):
                continue
        units.append(
            {
                "name": name,
                "kind": processes[0]["kind"] if processes else names[name],
                "path": path,
                "drop_ins": shown.get("DropInPaths", "").split(),
                "unit_file_state": shown.get("UnitFileState", ""),
                "active": shown.get("ActiveState") in ("active", "activating", "reloading"),
                "main_pid": main_pid,
                "process": with_words(processes[0], proc) if processes else None,
            }
        )
    owned = {unit["name"] for unit in units} | ours
    loose, foreign = [], []
    for process in running:
        if process["unit"] not in owned:
            owner, why = left_alone(process)
            if why:
                foreign.append(dict(process, foreign=owner, why=why))
            else:
                loose.append(with_words(process, proc))
    return {"units": units, "processes": [process for process in loose if process], "foreign": foreign}


def around(found: Found, places: Iterable[str] = AROUND) -> list[str]:
    """Files beside the deployment that speak of it and are neither ours nor part of what was found, sorted."""
    known = {path for unit in found["units"] for path in [unit["path"]] + unit["drop_ins"]}
    result = set()
    for place in places:
        for path in glob.glob(place):
            text = read_text(path)
            if path not in known and ABOUT_US.search(text) and not OURS.search(text):
                result.add(path)
    return sorted(result)


def url(settings: Settings) -> str:
    """Where a head made by hand answers on its own node."""
    host = "127.0.0.1" if settings["host"] in ("0.0.0.0", "localhost", None) else settings["host"]
    return "http://%s:%d" % (host, settings["port"])


def build_of(kind: str, settings: Settings) -> str | None:
    """The build that a running head says it is, None where it does not say."""
    if kind != "head" or settings["port"] is None:
        return None
    try:
        status, body = LlamaApi(url(settings)).get("/props", 3)
    except Refusal:
        return None
    return body.get("build_info") if status == 200 and isinstance(body, dict) else None


def describe(process: Process) -> Settings:
    """What a process serves, for people and for the record: {program, host, port, model, rpc, build}; never its whole
    command line."""
    settings = arguments(process["kind"], process["argv"])
    return dict(settings, program=process["executable"], build=build_of(process["kind"], settings))


def words(kind: str, serves: Settings | None) -> str:
    """One line's worth of what describe() says. A process may call its model anything: what a terminal would act on is
    shown as a question mark."""
    if serves is None:
        return f"a {kind} that does not run"
    parts = [f"{serves['program']} at {serves['host']}:{serves['port']}"]
    parts += [f"model {serves['model']}"] if serves["model"] else []
    parts += [f"over {', '.join(serves['rpc'])}"] if serves["rpc"] else []
    parts += [f"build {serves['build']}"] if serves["build"] else []
    return printable(", ".join(parts), None)


def pids(found: Found, proc: str = "/proc") -> list[int]:
    """Every process that will have ended when what was found is stopped."""
    roots = [
        unit["main_pid"] or unit["process"]["pid"] for unit in found["units"] if unit["main_pid"] or unit["process"]
    ]
    roots += [process["pid"] for process in found["processes"]]
    return sorted({pid for root in roots for pid in process_tree(root, proc)})
