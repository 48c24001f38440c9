# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The cluster's systemd units and their processes. Private to the collection."""

from __future__ import annotations

import fnmatch
import json
import os
import re
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Callable, NamedTuple

from .. import _files
from .._text import Refusal
from . import paths
from .command import said
from .systemd_escape import systemd_words

Properties = dict[str, str]
Show = Callable[..., str]
# The name of the primary service's unit has no service in it.
UNIT_NAME = re.compile(r"^llama-(rpc|head|router)(?:-(.+))?\.service\Z")
# The names that all units of services have, as globs.
SERVICES = (
    "llama-rpc-*.service",
    "llama-head-*.service",
    "llama-router-*.service",
    "llama-rpc.service",
    "llama-head.service",
)
OF_SERVICE = re.compile(r"^SyslogIdentifier=llama-(?:rpc|head|router)-(\S+)$", re.MULTILINE)
# Kinds of units that clients talk to.
ANSWERING = ("head", "router")
DIGEST_VARIABLE = "LLAMA_CLUSTER_DIGEST"
# Managed units of this type record no digest.
ONESHOT = re.compile(r"^Type=oneshot$", re.MULTILINE)
DIGEST = re.compile(r'^[ \t]*Environment=.*?\b%s=([^\s"\']*)' % DIGEST_VARIABLE, re.MULTILINE)
EXEC = re.compile(r"\{ path=(.*?) ; argv\[\]=(.*?) ; ")
# A head or worker that tune.yml measures with other settings: its kind and service.
VARIANT = "llama-tune-%s-%s.service"
OF_VARIANT = re.compile(r"^llama-tune-(?:head|rpc)-(.+)\.service\Z")
# Drop-ins of operators (systemctl edit, set-property), not of distributions.
DROP_IN = re.compile(r"/(?:etc|run)/systemd/")
COMMAND = re.compile("^ExecStart=(.*)$", re.MULTILINE)
# Status of a head that waits for its next start (backoff.py).
IN_A_ROW = re.compile(r"waits .*: (\d+) runs in a row ended")
PROPERTIES = (
    "Id",
    "LoadState",
    "ActiveState",
    "SubState",
    "UnitFileState",
    "MainPID",
    "NRestarts",
    "Result",
    "StatusText",
    "ActiveEnterTimestamp",
    "FragmentPath",
    "ExecStart",
    "DropInPaths",
)


class Unit(NamedTuple):
    """A unit as llama_unit_info returns it."""

    name: str
    kind: str | None = None
    service: str | None = None
    installed: bool = False
    managed: bool = False
    enabled: bool = False
    active_state: str | None = None
    sub_state: str | None = None
    result: str | None = None
    main_pid: int | None = None
    since: str | None = None
    restarts: int = 0
    failed_in_a_row: int = 0
    exec_path: str | None = None
    arguments: Sequence[str] = ()
    url: str | None = None
    endpoint: str | None = None
    rpc_endpoints: Sequence[str] = ()
    wanted_digest: str | None = None
    running_digest: str | None = None
    stale: bool = False
    drop_ins: Sequence[str] = ()


def units_of(units: Iterable[Mapping[str, Any]]) -> list[Unit]:
    """Results of llama_unit_info as records."""
    return [Unit(**unit) for unit in units]


def systemctl_show(names: Iterable[str], properties: Sequence[str] = PROPERTIES) -> str:
    """Text of `systemctl show` for names and globs; Refusal when systemd does not answer."""
    command = ["systemctl", "show", "--all", "--no-pager", "--property=" + ",".join(properties), "--"] + list(names)
    # systemd 239 prints times in the local zone only: ask for UTC by the environment.
    environment = dict(os.environ, TZ="UTC", LC_ALL="C")
    try:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment)
    except OSError as error:
        raise Refusal(
            "systemctl cannot be run (%s): units are looked up on nodes with systemd only"
            % os.strerror(error.errno or 0)
        ) from None
    # Decoded here, because a stream of text would end a line at \r too, which a service may put into its status.
    output, errors = (stream.decode("utf-8", "replace") for stream in process.communicate())
    if process.returncode:
        reason = errors.strip().splitlines()[0] if errors.strip() else "exit status %d" % process.returncode
        raise Refusal(f"systemctl show answered {reason!r}: is systemd running on this node?")
    return output


def systemctl(*words: str) -> None:
    """Runs systemctl. Errors: Refusal."""
    status, output = said(["systemctl", *words], errors=True)
    if status:
        problem = " ".join(output.split()) or status
        raise Refusal(f"systemctl {' '.join(words)}: failed ({problem}): see journalctl -xe on the node")


def parse_show(text: str) -> list[Properties]:
    """Blocks of `systemctl show` output -> list of {property: value}; a unit named twice is listed once.

    Only \\n ends a line: systemd escapes it in values, but no other separator of str.splitlines().
    """
    units = {}
    for block in text.split("\n\n"):
        properties = dict(line.split("=", 1) for line in block.split("\n") if "=" in line)
        if properties.get("Id"):
            units[properties["Id"]] = properties
    return [units[name] for name in sorted(units)]


def number(properties: Properties, name: str) -> int:
    """A property as a number; 0 for other text."""
    value = properties.get(name) or ""
    return int(value) if re.match(r"^[0-9]+\Z", value) else 0


def main_pid(name: str) -> int:
    """The number of a unit's main process; 0 without one. Errors: Refusal."""
    shown = parse_show(systemctl_show([name], ("Id", "MainPID")))
    return number(shown[0], "MainPID") if shown else 0


def parse_since(value: str | None) -> str | None:
    """'Thu 2026-10-01 08:00:00 UTC' -> '2026-10-01T08:00:00Z'; None when the unit was never active since boot."""
    found = re.match(r"^\w+ (\d{4}-\d\d-\d\d) (\d\d:\d\d:\d\d) UTC\Z", value or "")
    return "%sT%sZ" % found.groups() if found else None


def file_digest(text: str) -> str | None:
    """The digest a unit file asks for, None when it has none; the last assignment wins as in systemd."""
    found = DIGEST.findall(text)
    return found[-1] or None if found else None


def running_digest(name: str, folder: str = paths.DIGESTS) -> str | None:
    """The digest that a unit was last started with, from root's record; None without one. Errors: Refusal."""
    try:
        return _files.read(os.path.join(folder, name)).decode("ascii", "replace").strip() or None
    except FileNotFoundError:
        return None
    except (OSError, Refusal) as error:
        raise Refusal(f"the digest of {name} cannot be read ({error}): run with become, or restart the unit") from None


def unit_kind(name: str) -> tuple[str | None, str | None]:
    """'llama-rpc-reasoning.service' -> ('rpc', 'reasoning'), 'llama-rpc.service' -> ('rpc', None): its file names the
    service; (None, None) for other names."""
    found = UNIT_NAME.match(name)
    return (found.group(1), found.group(2)) if found else (None, None)


def unit_name(kind: str, service: str, primary: bool = False) -> str:
    """The other way round. The primary service has the short names, which systemctl and journalctl know in full only
    for a unit itself, not for an alias."""
    return f"llama-{kind}.service" if primary else f"llama-{kind}-{service}.service"


def service_of(name: str, unit_dir: str = paths.UNITS) -> str | None:
    """The service of a unit of this node, or of its variant; None for unmanaged names, and for a short name without a
    managed file."""
    variant = OF_VARIANT.match(name)
    if variant:
        return variant.group(1)
    kind, service = unit_kind(name)
    if kind is None or service is not None:
        return service
    text = _files.text_of(os.path.join(unit_dir, name)) or ""
    return _service_in(text) if file_digest(text) else None


def installed_name(kind: str, service: str, unit_dir: str = paths.UNITS) -> str:
    """The name that the unit of a service has on this node."""
    short = unit_name(kind, service, primary=True)
    return short if service_of(short, unit_dir) == service else unit_name(kind, service)


def _service_in(text: str) -> str | None:
    found = OF_SERVICE.findall(text)
    return found[-1] if found else None


def failed_in_a_row(properties: Properties) -> int:
    """How many runs of a unit ended before they served while it waits for its next start; 0 if it does not wait."""
    found = IN_A_ROW.match(properties.get("StatusText") or "")
    return int(found.group(1)) if found and properties.get("ActiveState") == "activating" else 0


def where(kind: str | None, arguments: Sequence[str]) -> dict[str, Any]:
    """Endpoint of a head, router or worker, and the workers of a head, from its unit's command line."""
    found = {name: value for name, value in zip(arguments, arguments[1:]) if name in ("--host", "--port", "--rpc")}
    listens = f"{found['--host']}:{found['--port']}" if {"--host", "--port"} <= set(found) else None
    return {
        "url": "http://" + listens if listens and kind in ANSWERING else None,
        "endpoint": listens if kind == "rpc" else None,
        "rpc_endpoints": found["--rpc"].split(",") if kind == "head" and found.get("--rpc") else [],
    }


def _command(text: str) -> list[str] | None:
    """The words of the command in a managed unit file, None without one in our form."""
    found = COMMAND.findall(text)
    return systemd_words(found[0]) if len(found) == 1 else None


def describe(
    properties: Properties,
    unit_dir: str = paths.UNITS,
    proc: str = "/proc",
    digests: str = paths.DIGESTS,
) -> Unit:
    """One unit's `systemctl show` properties."""
    name = properties["Id"]
    kind, service = unit_kind(name)
    # The file, not what systemd has loaded: between writing a unit and daemon-reload only the file tells what is
    # wanted.
    text = None
    for path in (os.path.join(unit_dir, name), properties.get("FragmentPath")):
        if path and os.path.isfile(path):
            with open(path, encoding="utf-8", errors="replace") as stream:
                text = stream.read()
            break
    wanted = file_digest(text) if text is not None else None
    own_file = os.path.join(unit_dir, name)
    own = wanted is not None and os.path.isfile(own_file) and not os.path.islink(own_file)
    if service is None and own and text is not None:
        service = _service_in(text)
    pid = number(properties, "MainPID")
    alive = bool(pid) and os.path.isdir(os.path.join(proc, str(pid)))
    running = running_digest(name, digests) if alive else None
    started = EXEC.search(properties.get("ExecStart", ""))
    # systemd shows the words without their quotes: what has a space comes apart, as in chat_template_kwargs.
    arguments = (_command(text) if text is not None and own else None) or (started.group(2).split() if started else [])
    return Unit(
        name=name,
        kind=kind,
        service=service,
        installed=text is not None,
        # A name is no proof. Without a file the digest of its start counts.
        managed=own if text is not None else running is not None,
        enabled=properties.get("UnitFileState") == "enabled",
        active_state=properties.get("ActiveState"),
        sub_state=properties.get("SubState"),
        result=properties.get("Result") or None,
        main_pid=pid or None,
        since=parse_since(properties.get("ActiveEnterTimestamp")),
        restarts=number(properties, "NRestarts"),
        failed_in_a_row=failed_in_a_row(properties),
        exec_path=started.group(1) if started else None,
        arguments=arguments,
        wanted_digest=wanted,
        running_digest=running,
        stale=alive and (running is None or running != wanted) and not ONESHOT.search(text or ""),
        drop_ins=tuple(filter(DROP_IN.match, (properties.get("DropInPaths") or "").split())),
        **where(kind, arguments),
    )


def unit_info(
    patterns: Sequence[str],
    unit_dir: str = paths.UNITS,
    proc: str = "/proc",
    show: Show = systemctl_show,
    digests: str = paths.DIGESTS,
) -> list[Unit]:
    """Units that match patterns (names or globs), installed or only loaded, sorted by name.

    A unit file that systemd has never loaded and a process whose unit file is gone are both listed.
    Nothing matching is an empty list. Errors: Refusal.
    """
    files = _files.names_in(unit_dir)
    # An alias is a link: systemd resolves it to the unit it stands for.
    names = [name for name in files if any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)]
    asked = sorted(set(names) | set(patterns))
    loaded = parse_show(show(asked)) if asked else []
    wanted = [
        unit
        for unit in loaded
        if unit.get("LoadState") != "not-found" or unit.get("ActiveState") not in ("inactive", None)
    ]
    return [describe(unit, unit_dir, proc, digests) for unit in wanted]


def held_since(path: str = paths.HELD) -> str | None:
    """Start of the node's hold for maintenance, in words for a damaged file; None without a hold. Errors: Refusal."""
    try:
        with open(path, encoding="utf-8") as stream:
            return str(json.load(stream)["since"])
    except FileNotFoundError:
        return None
    except OSError as error:
        raise Refusal(f"{path} cannot be read ({error.strerror}): run with become") from None
    except (ValueError, KeyError, TypeError, RecursionError):
        return "an unknown time"
