# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Trials: services that serve another quant for a limited time, on the node of their head. Private to the collection.

A record in paths.STATE has the files of the head before and after the switch. A systemd timer restores them when the
time is over, unless one of them has changed since the switch.
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
from .snapshot import Snapshots
from .units import DIGEST_VARIABLE, Unit, installed_name, systemctl, unit_info

Record = dict[str, Any]
Systemctl = Callable[..., None]
FORMAT = "%Y-%m-%dT%H:%M:%SZ"
# Reported of a trial. state: running, reverted or failed; at: time of its end; reason: why it failed, or a remark.
REPORTED = ("service", "quant", "was", "until", "state", "at", "reason")
CHANGE = ("before", "after")
# Seconds after which an open snapshot is taken for that of a run that died.
SWITCH_TAKES = 3600
RECORD = re.compile(re.escape(os.path.basename(paths.TRIALS)).replace(r"\*", "(.+)") + r"\Z")
SERVICE = """\
# Written by llama_cluster, removed with the trial.
[Unit]
Description=End of the trial of llama.cpp's service {service}
Documentation=https://github.com/thefermisea/ansible-llama-cluster
After=local-fs.target remote-fs.target

[Service]
Type=simple
ExecStart={program} trial {service}
Environment={variable}={digest}
SyslogIdentifier=llama-trial
# It may run again: files that are restored already are written once more. While a switch runs it ends with a failure.
Restart=on-failure
RestartSec=15
LimitCORE=0
# systemd restarts the head for it.
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
# Wall-clock time: a node that was off at that time runs it after its next boot. OnActiveSec finishes a restoration that
# a power cut interrupted; before its time the program does nothing.
OnCalendar={calendar} UTC
Persistent=true
OnActiveSec=60
AccuracySec=1s

[Install]
WantedBy=timers.target

# The mark by which the collection knows its units; systemd ignores sections of this kind.
[X-LlamaCluster]
Environment={variable}={digest}
"""


def instant(text: str) -> int:
    """A time of a record in seconds since 1970. Errors: ValueError."""
    return calendar.timegm(time.strptime(text, FORMAT))


class Trials:
    """The trials of this node. root: directory that stands for /, in tests."""

    def __init__(
        self,
        root: str = "/",
        run: Systemctl = systemctl,
        look: Callable[..., list[Unit]] = unit_info,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.root = root
        self.run = run
        self.look = look
        self.clock = clock
        self.files = Snapshots(self._path(paths.ROLLBACK), root=root)

    def report(self) -> list[Record]:
        """REPORTED of each trial that runs or has ended by its timer. Errors: Refusal."""
        folder = self._path(os.path.dirname(paths.TRIALS))
        names = _files.names_in(folder)
        records = [self.read(found.group(1)) for found in map(RECORD.match, names) if found]
        return [{key: record[key] for key in REPORTED} for record in records if record]

    def read(self, service: str) -> Record | None:
        """The record, None without one. Errors: Refusal."""
        path = self._record(service)
        try:
            record = json.loads(_files.read(path).decode("utf-8"))
            instant(record["until"])
            if (
                record["service"] != service
                or not set(REPORTED) <= set(record)
                or not isinstance(record["files"], dict)
            ):
                raise ValueError(f"{', '.join(REPORTED)} and files are needed")
        except FileNotFoundError:
            return None
        except OSError as error:
            raise Refusal(f"{path} cannot be read ({error.strerror}): run with become") from None
        except (LookupError, RecursionError, TypeError, ValueError) as error:
            raise Refusal(f"{path} is no record of a trial ({printable(error)}): remove it") from None
        return record

    def start(
        self, service: str, quant: str, was: str, model: str, seconds: int, check: bool = False
    ) -> tuple[bool, Record]:
        """Starts a trial after a switch, while the switch's snapshot is open. model: the previous model file. A trial
        of the same quant that runs keeps its end and its earlier files.

        Returns whether the record is new or changed, and the record. Errors: Refusal.
        """
        old = self.read(service)
        if old and (old["state"], old["quant"]) != ("running", quant):
            old = None
        record: Record = dict.fromkeys(REPORTED, "")
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
        # The record last: a timer without a record does nothing.
        self._arm(record)
        if record != old:
            self._store(record)
        return record != old, record

    def end(self, service: str, check: bool = False) -> Record | None:
        """Ends a trial, keeps the files -> its last record, None without one. Errors: Refusal."""
        if check or not self.read(service):
            return self.read(service)
        units = [name for name in _units(service) if is_managed_unit(self._path(paths.UNITS, name))]
        if units:
            # Waits for a restoration that runs.
            self.run("stop", *units)
        record = self.read(service)
        self._disarm(service)
        os.unlink(self._record(service))
        return record

    def settle(self, check: bool = False) -> list[str]:
        """Ends the trials whose head a rollback has restored -> their services. Errors: Refusal."""
        over = []
        for record in [self.read(one["service"]) for one in self.report() if one["state"] == "running"]:
            head = self._head_files(record["service"])[0] if record else ""
            if record and head in record["files"] and self.files.entry(head) == record["files"][head]["before"]:
                over.append(record["service"])
                self.end(record["service"], check)
        return over

    def revert(self, service: str) -> Record | None:
        """Restores the head's files and restarts it, unless a file has changed since or the old model is gone -> the
        record of the end; None if no trial runs or its time is not over. Errors: Refusal, OSError."""
        record = self.read(service)
        if record is None or record["state"] != "running":
            self._disarm(service)
            return None
        if self.clock() < instant(record["until"]):
            return None
        opened = self._path(paths.OPEN_SNAPSHOT)
        if os.path.exists(opened) and self.clock() - os.stat(opened).st_mtime < SWITCH_TAKES:
            raise Refusal("a switch is under way: the trial ends after it")
        odd = [path for path, change in record["files"].items() if self.files.entry(path) not in change.values()]
        if odd:
            record.update(state="failed", reason=f"/{odd[0]} was changed since")
        elif not os.path.isfile(self._path(record["model"])):
            record.update(state="failed", reason=f"{record['model']} is gone")
        else:
            for path, change in sorted(record["files"].items()):
                self.files.put(path, change["before"])
            self.run("daemon-reload")
            unit = installed_name("head", service, self._path(paths.UNITS))
            record.update(state="reverted", reason=self._restart(unit))
        record.update(at=time.strftime(FORMAT, time.gmtime(self.clock())), files={})
        self._store(record)
        self._disarm(service)
        return record

    def _restart(self, name: str) -> str:
        """Restarts a head, not its workers; a stopped one stays stopped. -> a remark"""
        found = {unit.name: unit for unit in self.look([name])}.get(name)
        if found is None or found.active_state in (None, "inactive", "deactivating"):
            # While the node boots, it starts after this.
            return f"{name} did not run then"
        if found.stale or found.active_state != "active":
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
                raise Refusal(f"{path}: an unmanaged unit seen, a free name is needed: rename or remove it")
            if _files.text_of(path) != text:
                _files.write_atomically(path, text.encode("utf-8"), 0o644)
                changed = True
        if changed:
            self.run("daemon-reload")
        self.run("enable", "--now", timer)

    def _disarm(self, service: str) -> None:
        """Removes timer and service without stopping the service, which may be the caller."""
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
        """Paths relative to the root of a head's unit (first), watchdog file, plan and chat template."""
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
    """The names of a trial's service and timer."""
    return f"llama-trial-{service}.service", f"llama-trial-{service}.timer"
