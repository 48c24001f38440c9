# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Servers of llama.cpp that operators set up on a node themselves. Private to the collection."""

from __future__ import annotations

import contextlib
import glob
import ipaddress
import os
import re
import stat
import struct
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from .. import _files
from .._node import paths
from .._node.running import below_root, group_of, unit_of_group
from .._node.sockets import process_tree
from .._node.units import DIGEST_VARIABLE, Show, number, parse_show, systemctl_show, unit_kind
from .._text import Refusal, printable

Settings = dict[str, Any]
Unit = dict[str, Any]
KINDS = {"llama-server": "head", "ggml-rpc-server": "worker", "rpc-server": "worker"}
# The program of an ExecStart line: its path may follow systemd's prefixes, or a wrapper such as numactl.
EXEC_START = re.compile(
    r"^\s*ExecStart=.*?(?<![\w.-])(llama-server|ggml-rpc-server|rpc-server)(?![\w.-])", re.MULTILINE
)
MANAGED = re.compile(rf"{DIGEST_VARIABLE}=|github\.com/thefermisea/")
PROPERTIES = ("Id", "FragmentPath", "ActiveState", "MainPID", "UnitFileState")
ACTIVE = ("active", "activating", "reloading")
# Usual places of scripts, sites and jobs of a deployment: listed and never changed.
BESIDE = (
    paths.UNITS + "/*.service",
    paths.UNITS + "/*.timer",
    paths.UNITS + "/*.path",
    "/usr/local/bin/*",
    "/usr/local/sbin/*",
    "/etc/nginx/sites-enabled/*",
    "/etc/nginx/conf.d/*",
    "/etc/nginx/ai-inference/*",
    "/etc/cron.d/*",
    "/etc/crontab",
    "/etc/rc.local",
    "/var/spool/cron/*",
    "/var/spool/cron/crontabs/*",
)
MENTIONS = re.compile(r"llama-server|rpc-server|llama-(?:rpc|head)\b|ai-inference")
MOST_TEXT = 256 * 1024
# In /proc/net/tcp.
ESTABLISHED = "01"
# Control groups of processes that a login, cron or a boot script leaves behind. In other groups a manager starts and
# ends the process: SLURM, a user's systemd, a container.
LEFT_BEHIND = re.compile(
    r"(?:init\.scope|user\.slice/user-\d+\.slice/session-\w+\.scope"
    r"|system\.slice(?:/(?:system-sshd?\.slice/)?(?:sshd?|cron|crond|atd|rc-local)(?:@[^/]*)?\.service)?)?\Z"
)
# The last of several spellings wins, as in llama.cpp.
OPTIONS: dict[str, dict[str, tuple[str, ...]]] = {
    "head": {"port": ("--port",), "host": ("--host",), "model": ("-m", "--model"), "rpc": ("--rpc",)},
    "worker": {"port": ("-p", "--port"), "host": ("-H", "--host")},
}
DEFAULTS: dict[str, dict[str, str]] = {
    "head": {"port": "8080", "host": "127.0.0.1"},
    "worker": {"port": "50052", "host": "127.0.0.1"},
}


class Process(NamedTuple):
    """A server process. unit: its service unit; group: its control group below that of systemd."""

    pid: int
    kind: str
    program: str
    unit: str | None
    group: str
    uid: int


def arguments(kind: str, argv: Sequence[str]) -> Settings:
    """{host, port, model, rpc} of a command line; None for a value that is neither given nor a default."""
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
    """The text of a file; empty for one that cannot be read or is too large to be a configuration."""
    if not os.path.isfile(path):
        return ""
    # Links are followed: nginx's sites are such. A FIFO or a device may have taken the place of a file since.
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY
    with contextlib.suppress(OSError), open(os.open(path, flags), "rb") as stream:
        if stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
            data = stream.read(MOST_TEXT + 1)
            return "" if b"\0" in data or len(data) > MOST_TEXT else data.decode("utf-8", "replace")
    return ""


def address(text: str) -> str:
    """An address of /proc/net/tcp, words of 32 bits in the byte order of the machine; IPv4 also if a socket of IPv6 has
    it."""
    data = b"".join(struct.pack("=I", int(text[at : at + 8], 16)) for at in range(0, len(text), 8))
    found = ipaddress.ip_address(data)
    return str(getattr(found, "ipv4_mapped", None) or found)


def clients_of(ports: Collection[int], proc: str = "/proc") -> list[dict[str, object]]:
    """Returns [{port, address}] of the established connections from other hosts, sorted."""
    seen: set[tuple[int, str]] = set()
    for table in ("tcp", "tcp6"):
        with contextlib.suppress(OSError), open(os.path.join(proc, "net", table), encoding="ascii") as stream:
            for line in stream.readlines()[1:]:
                (own, port), (other, _port), state = *(end.split(":") for end in line.split()[1:3]), line.split()[3]
                # A connection within this node has the same address at both ends.
                if state == ESTABLISHED and int(port, 16) in ports and own != other:
                    seen.add((int(port, 16), address(other)))
    return [{"port": port, "address": client} for port, client in sorted(seen)]


def processes(proc: str = "/proc") -> list[Process]:
    """All server processes of llama.cpp, by process id."""
    found = []
    root = group_of("1", proc)
    for pid in sorted(filter(str.isdigit, os.listdir(proc)), key=int):
        try:
            program = os.readlink(os.path.join(proc, pid, "exe")).replace(" (deleted)", "")
            user = os.stat(os.path.join(proc, pid)).st_uid
        except OSError:
            continue  # it has ended, or is a kernel thread
        kind = KINDS.get(os.path.basename(program))
        if kind:
            group = group_of(pid, proc)
            parts = "/".join(below_root(group, root))
            found.append(Process(int(pid), kind, program, unit_of_group(group, root), parts, user))
    return found


def unit_files(unit_dir: str = paths.UNITS) -> dict[str, str]:
    """{name: kind} of the service units in unit_dir, by their files and drop-ins, that start a server and are not
    managed by the collection."""
    names = {}
    for path in sorted(
        glob.glob(os.path.join(unit_dir, "*.service")) + glob.glob(os.path.join(unit_dir, "*.service.d", "*.conf"))
    ):
        text = read_text(path)
        found = EXEC_START.search(re.sub(r"\\\n", " ", text))
        if found and not MANAGED.search(text):
            folder, name = os.path.split(path)
            names[name if folder == unit_dir else os.path.basename(folder)[: -len(".d")]] = KINDS[found.group(1)]
    return names


def shown_unit(shown: dict[str, str], kind: str, serves: Settings | None = None) -> Unit:
    """The record of a unit, from the output of `systemctl show`."""
    return {
        "name": shown["Id"],
        "kind": kind,
        "path": shown.get("FragmentPath", ""),
        "enabled": shown.get("UnitFileState", ""),
        "active": shown.get("ActiveState") in ACTIVE,
        "pid": number(shown, "MainPID") or None,
        "serves": serves,
    }


def find(
    unit_dir: str = paths.UNITS, proc: str = "/proc", show: Show = systemctl_show
) -> tuple[list[Unit], list[Process]]:
    """(unmanaged units, processes that other users or programs own).

    Errors: Refusal for a server of root's that no unit starts: it could not be started again.
    """
    running = processes(proc)
    named = unit_files(unit_dir)
    inside: dict[str, list[Process]] = {}
    for process in running:
        inside.setdefault(process.unit or "", []).append(process)
    # A template is not a unit: its instances are found by their processes.
    asked = sorted(name for name in {*named, *inside} if name and not name.endswith("@.service"))
    units, owned = [], set()
    for shown in parse_show(show(asked, PROPERTIES)) if asked else []:
        name, path = shown["Id"], shown.get("FragmentPath", "")
        # The file of a managed unit may be gone while it runs.
        if MANAGED.search(read_text(path)) or (unit_kind(name)[0] and not path):
            owned.add(name)
            continue
        served = inside.get(name, [])
        main = [process for process in served if process.pid == number(shown, "MainPID")]
        if name not in named and re.sub(r"@.*", "@.service", name) not in named:
            # A wrapper may have become the server. Beside the main process, any user's may run (JupyterHub, CI).
            if not main or not path.startswith(unit_dir + "/"):
                continue
            served = main
        server = next(iter(main or served), None)
        owned.add(name)
        units.append(shown_unit(shown, server.kind if server else named[name], server and describe(server, proc)))
    others = [process for process in running if process.unit not in owned]
    loose = [one for one in others if one.uid in _files.owners() and LEFT_BEHIND.match(one.group)]
    if loose:
        raise Refusal(
            "%s: started by no unit, adopt.yml could not start it again: end it and what starts it, or give it a unit, "
            "then run again" % ", ".join("process %d (%s)" % (one.pid, printable(one.program)) for one in loose)
        )
    return units, others


def look(units: Sequence[Unit], others: Iterable[Process], moved: Sequence[str]) -> dict[str, Any]:
    """Returns the result of step look of module adoption."""
    lines = [
        f"{unit['name']} ({unit['enabled'] or 'no state'}): {words(unit['kind'], unit['serves'])}" for unit in units
    ]
    if units:
        lines += [f"{path}: a directory, moved aside" for path in moved if is_directory(path)]
        lines += [f"{path}: not changed" for path in beside(units)]
        lines += [
            "process %d (%s): not changed, it belongs to %s: end it if its port or memory is needed"
            % (one.pid, printable(one.program), printable(owner_of(one)))
            for one in others
        ]
    heads = [unit["serves"]["port"] for unit in units if unit["kind"] == "head" and unit["serves"]]
    roots = [unit["pid"] for unit in units if unit["pid"]]
    return {
        "units": [unit["name"] for unit in units],
        "clients": clients_of([port for port in heads if port]),
        "pids": sorted({pid for root in roots for pid in process_tree(root)}),
        "lines": lines,
    }


def is_directory(path: str) -> bool:
    return os.path.isdir(path) and not os.path.islink(path)


def owner_of(process: Process) -> str:
    """The unit or scope that a process belongs to, else its user."""
    first = next((part for part in process.group.split("/") if part and not part.endswith(".slice")), "")
    return "user id %d" % process.uid if LEFT_BEHIND.match(process.group) else first


def beside(units: Iterable[Unit], places: Iterable[str] = BESIDE) -> list[str]:
    """Files that mention a deployment and are neither managed nor of these units, sorted."""
    known = {unit["path"] for unit in units}
    texts = {path: read_text(path) for place in places for path in glob.glob(place) if path not in known}
    return sorted(path for path, text in texts.items() if MENTIONS.search(text) and not MANAGED.search(text))


def url(settings: Settings) -> str:
    """The URL of a head on its own node."""
    host = "127.0.0.1" if settings["host"] in ("0.0.0.0", "localhost", None) else settings["host"]
    return "http://%s:%d" % (host, settings["port"])


def describe(process: Process, proc: str = "/proc") -> Settings:
    """{program, host, port, model, rpc} of a process; never its whole command line."""
    argv: list[str] = []
    with contextlib.suppress(OSError):
        data = Path(proc, str(process.pid), "cmdline").read_bytes()
        argv = data.decode("utf-8", "replace").split("\0")
    return dict(arguments(process.kind, argv), program=process.program)


def words(kind: str, serves: Settings | None) -> str:
    """describe() as one line; what a terminal would act on is a question mark."""
    if serves is None:
        return f"a {kind} that does not run"
    parts = [f"{serves['program']} at {serves['host']}:{serves['port']}"]
    parts += [f"model {serves['model']}"] if serves["model"] else []
    parts += [f"over {', '.join(serves['rpc'])}"] if serves["rpc"] else []
    return printable(", ".join(parts), None)
