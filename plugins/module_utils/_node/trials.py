# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A service that serves another quant for a while, on the node of its head. Private to the collection.

A record in paths.STATE has the files of the head as they were and as the switch left them, and a timer of systemd the
moment at which they are put back, whoever is there by then. The trial is over as soon as those files are others: what
somebody has configured since is not undone.
"""

from __future__ import annotations

import calendar
import contextlib
import json
import os
import re
import time
from typing import Any, Callable

from .. import _files
from .._text import Refusal, printable
from . import paths
from .managed import is_managed_unit
from .snapshot import Snapshots, is_entry, is_path
from .units import DIGEST_VARIABLE, Unit, installed_name, systemctl, unit_info

Record = dict[str, Any]
Systemctl = Callable[..., None]
FORMAT = "%Y-%m-%dT%H:%M:%SZ"
# What a record tells: state is running, reverted or failed; at: when it ended; reason: why it failed, or what is odd.
TOLD = ("service", "quant", "was", "until", "state", "at", "reason")
CHANGE = ("before", "after")
# Seconds after the end of a trial, or after a boot, in which a model that is not there may still come.
MOUNTED = 3600
RECORD = re.compile(re.escape(os.path.basename(paths.TRIALS)).replace(r"\*", "(.+)") + r"\Z")
SERVICE = """\
# Written by llama_cluster, removed with the trial.
[Unit]
Description=End of the trial of llama.cpp's service {service}
Documentation=https://github.com/thefermisea/ansible-llama-cluster

[Service]
Type=simple
ExecStart={program} trial {service}
Environment={variable}={digest}
SyslogIdentifier=llama-trial
# It puts files back that are there already, if need be: it may begin again.
Restart=on-failure
RestartSec=60
LimitCORE=0
# All that it does to the head, systemd does for it.
CapabilityBoundingSet=CAP_CHOWN CAP_DAC_OVERRIDE CAP_FOWNER
NoNewPrivileges=yes
ProtectSystem=strict
ReadWritePaths={units} {configuration} {state} -{stamps}
ProtectHome=yes
PrivateTmp=yes
PrivateDevices=yes
PrivateNetwork=yes
ProtectKernelTunables=yes
ProtectKernelModules=yes
ProtectKernelLogs=yes
ProtectControlGroups=yes
ProtectClock=yes
ProtectHostname=yes
LockPersonality=yes
MemoryDenyWriteExecute=yes
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
RestrictAddressFamilies=AF_UNIX
SystemCallArchitectures=native
SystemCallFilter=@system-service
DevicePolicy=closed
UMask=0022
KeyringMode=private
"""
TIMER = """\
# Written by llama_cluster, removed with the trial.
[Unit]
Description=Trial of llama.cpp's service {service}
Documentation=https://github.com/thefermisea/ansible-llama-cluster

[Timer]
# Wall-clock time: a node that was off then makes up for it when it boots. What the power cut off in the middle the
# program finishes: it is asked a minute after each boot.
OnCalendar={calendar} UTC
Persistent=true
OnActiveSec=60
AccuracySec=1s

[Install]
WantedBy=timers.target

# Ours, for whoever removes it; systemd reads no section of this kind.
[X-LlamaCluster]
Environment={variable}={digest}
"""


def instant(text: str) -> int:
    """Seconds since 1970 of what a record says. Errors: ValueError."""
    return calendar.timegm(time.strptime(text, FORMAT))


class Trials:
    """The trials of this node. root: where / is, other than in tests."""

    def __init__(
        self,
        root: str = "/",
        run: Systemctl = systemctl,
        look: Callable[..., list[Unit]] = unit_info,
        clock: Callable[[], float] = time.time,
        uptime: Callable[[], float] = time.monotonic,
    ) -> None:
        self.root = root
        self.run = run
        self.look = look
        self.clock = clock
        self.uptime = uptime  # since the boot, as Linux counts
        self.files = Snapshots(self._path(paths.ROLLBACK), root=root)

    def told(self) -> list[Record]:
        """Of each trial that runs or has ended by itself: TOLD. Errors: Refusal."""
        folder = self._path(os.path.dirname(paths.TRIALS))
        names = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
        services = [found.group(1) for found in map(RECORD.match, names) if found]
        records = [record for record in map(self.read, services) if record]
        return [{key: record[key] for key in TOLD} for record in records]

    def read(self, service: str) -> Record | None:
        """The record, None where there is none. Errors: Refusal."""
        path = self._record(service)
        try:
            record = json.loads(_files.read(path).decode("utf-8"))
            if not all(isinstance(record[key], str) for key in TOLD + ("model",)) or record["service"] != service:
                raise ValueError(f"{', '.join(TOLD + ('model',))} are needed as text")
            instant(record["until"])
            for one, change in record["files"].items():
                if not is_path(one) or not all(change[key] is None or is_entry(change[key]) for key in CHANGE):
                    raise ValueError(f"{ascii(one)[:80]} is no file of a head")
        except FileNotFoundError:
            return None
        except OSError as error:
            raise Refusal(f"{path} cannot be read ({error.strerror}): run with become") from None
        except (AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
            raise Refusal(f"{path} is no record of a trial ({printable(error)}): remove it") from None
        return record

    def start(
        self, service: str, quant: str, was: str, model: str, seconds: int, check: bool = False
    ) -> tuple[bool, Record]:
        """After the switch, while its snapshot is open: has the head's files of before put back after that time. model:
        the file that served. One that runs already keeps its end and what it goes back to. -> whether it began or its
        files are others, its record. Errors: Refusal."""
        old = self.read(service)
        if old and (old["state"], old["quant"]) != ("running", quant):
            old = None
        record: Record = dict.fromkeys(TOLD, "")
        record.update(service=service, quant=quant, was=was, state="running", model=model, files={})
        record["until"] = time.strftime(FORMAT, time.gmtime(self.clock() + seconds))
        record = dict(old or record)
        if check:
            return old is None, record
        before = self.files.opened()
        if before is None:
            raise Refusal(
                "llama_services.%s: no open snapshot seen, the one of the switch is needed for a trial: run "
                "switch_model.yml again" % service
            )
        before.update({path: change["before"] for path, change in record["files"].items()})
        changes = {
            path: dict(zip(CHANGE, (before.get(path), self.files.entry(path)))) for path in self._head_files(service)
        }
        record["files"] = {path: change for path, change in changes.items() if change["before"] != change["after"]}
        if not record["files"]:
            raise Refusal(
                "llama_services.%s: the configuration of before seen, another one is needed for a trial: run "
                "switch_model.yml without -e trial" % service
            )
        try:
            if record != old:
                self._store(record)
            self._arm(record)
        except BaseException:
            # Half a trial would be none, and look like one.
            if old is None:
                self.end(service)
            raise
        return record != old, record

    def end(self, service: str, check: bool = False) -> Record | None:
        """Forgets a trial, whose files stay as they are -> its record as of when nothing could revert it any more, None
        without one. Errors: Refusal."""
        if check or not self.read(service):
            return self.read(service)
        units = [name for name in _units(service) if is_managed_unit(self._path(paths.UNITS, name))]
        if units:
            # Waits for a revert that is under way.
            self.run("stop", *units)
        record = self.read(service)
        self._disarm(service)
        os.unlink(self._record(service))
        return record

    def settle(self, check: bool = False) -> list[str]:
        """After a rollback: forgets the trials whose heads are those of before -> their services. One that was put back
        to an earlier moment of itself goes on."""
        records = [self.read(told["service"]) for told in self.told() if told["state"] == "running"]
        over = []
        for record in [one for one in records if one]:
            files = {path: dict(change, after=self.files.entry(path)) for path, change in record["files"].items()}
            head = files.get(self._head_files(record["service"])[0], {})
            if head and head["after"] == head["before"]:
                over.append(record["service"])
                self.end(record["service"], check)
            elif files != record["files"] and not check:
                self._store(dict(record, files=files))
        return over

    def revert(self, service: str) -> Record | None:
        """Puts the head's files back and has it restart with them, unless somebody has configured it since or the old
        model is gone -> the record of what was done; None without a trial that runs. Errors: Refusal, OSError."""
        record = self.read(service)
        if record is None or record["state"] != "running":
            self._disarm(service)
            return None
        odd = [path for path, change in record["files"].items() if self.files.entry(path) not in change.values()]
        unit = installed_name("head", service, self._path(paths.UNITS))
        if odd:
            record.update(state="failed", reason=f"/{odd[0]} was changed since")
        elif not os.path.isfile(self._path(record["model"])):
            # A disk may be mounted long after a boot.
            if min(self.clock() - instant(record["until"]), self.uptime()) < MOUNTED:
                raise Refusal(f"{record['model']} is not there, it is needed to go back: mount its disk")
            record.update(state="failed", reason=f"{record['model']} is gone")
        else:
            for path, change in sorted(record["files"].items()):
                self.files.put(path, change["before"])
            self.run("daemon-reload")
            record.update(state="reverted", reason=self._restart(unit))
        record.update(at=time.strftime(FORMAT, time.gmtime(self.clock())), files={})
        self._store(record)
        self._disarm(service)
        return record

    def _restart(self, name: str) -> str:
        """Its workers stay: they are those of before. What is stopped stays so. -> what is odd"""
        found = {unit.name: unit for unit in self.look([name])}.get(name)
        if found is None or found.active_state in (None, "inactive", "deactivating"):
            # While the node boots, it starts after this.
            return f"{name} did not run then"
        if found.stale or found.active_state != "active":
            # Not waited for: it waits for its workers, and loads.
            self.run("restart", "--no-block", name)
        return ""

    def _arm(self, record: Record) -> None:
        service, timer = _units(record["service"])
        words = {"service": record["service"], "variable": DIGEST_VARIABLE, "digest": "trial-" + record["until"]}
        words.update(program=paths.PROGRAM, units=paths.UNITS, configuration=paths.CONFIGURATION, state=paths.STATE)
        words.update(stamps=paths.TIMER_STAMPS, calendar=record["until"].replace("T", " ").replace("Z", ""))
        changed = False
        for name, text in ((service, SERVICE.format(**words)), (timer, TIMER.format(**words))):
            path = self._path(paths.UNITS, name)
            if os.path.lexists(path) and not is_managed_unit(path):
                raise Refusal(f"{path}: a unit of somebody else seen, a free name is needed: rename or remove it")
            if _files.text_of(path) != text:
                _files.write_atomically(path, text.encode("utf-8"), 0o644)
                changed = True
        if changed:
            self.run("daemon-reload")
        self.run("enable", "--now", timer)

    def _disarm(self, service: str) -> None:
        """The units go, but not whoever runs this."""
        names = [name for name in _units(service) if is_managed_unit(self._path(paths.UNITS, name))]
        timer = _units(service)[1]
        if timer in names:
            self.run("disable", "--now", timer)
        for name in names:
            os.unlink(self._path(paths.UNITS, name))
        with contextlib.suppress(OSError):
            os.unlink(self._path(paths.TIMER_STAMPS, "stamp-" + timer))
        if names:
            self.run("daemon-reload")

    def _store(self, record: Record) -> None:
        _files.write_atomically(self._record(record["service"]), json.dumps(record, sort_keys=True).encode("utf-8"))

    def _head_files(self, service: str) -> list[str]:
        """What a switch writes for a head, relative to the root: its unit first, its plan, its chat template, and what
        the watchdog is told."""
        unit = installed_name("head", service, self._path(paths.UNITS))
        own = ((paths.UNITS + "/*", unit), (paths.WATCHED_FILES, "head-" + service))
        return [
            path.replace("*", name)[1:] for path, name in own + ((paths.PLANS, service), (paths.TEMPLATES, service))
        ]

    def _record(self, service: str) -> str:
        return self._path(paths.TRIALS.replace("*", service))

    def _path(self, path: str, *names: str) -> str:
        return os.path.join(self.root, path.lstrip("/"), *names)


def _units(service: str) -> tuple[str, str]:
    """The names of its units: what puts back, and its timer."""
    return f"llama-trial-{service}.service", f"llama-trial-{service}.timer"
