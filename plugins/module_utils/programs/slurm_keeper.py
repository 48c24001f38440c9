# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""slurm_keeper CONFIG: keeps one job of each wanted service in SLURM's queue.

CONFIG: jobs.json, see _slurm/state, which is read again when it changes. It runs as the user whose jobs they are. What
it does is written into state.json before it is done; jobs are found again by their comments.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pwd
import signal
import sys
import time
from collections.abc import Iterable
from functools import partial
from typing import Any

from .. import _files
from .._node.disposable import Disposable
from .._node.notify import notify, say
from .._registry import files, writer
from .._slurm import actions, ask, keeper, logs, reasons, state
from .._slurm.ask import Queued
from .._slurm.state import Config, Known, State
from .._text import Refusal, printable

# Seconds between two looks at the user's jobs, at all jobs, at all jobs if services give way to some, and at requests
# and the configuration.
LOOK, EVERYBODY, YIELDS, TICK = 5.0, 30.0, 10.0, 0.5
# Seconds between two removals of old logs.
REMOVAL = 3600.0
# Seconds for the shares, and for the end of a submission of a keeper that was killed.
SHARES, LOCKED = 3.0, 2 * ask.SECONDS
LOCK = "lock"


class Program:
    def __init__(self, path: str, config: Config, lock: int) -> None:
        self._path, self.config, self._lock = path, config, lock
        self._read_at = _mtime(path)
        self.state: State = state.known_of(state.read(config.directory))
        self._away: float | None = None
        self._others: list[Queued] = []
        self._others_at = 0.0
        self._child = Disposable(SHARES)
        # The waiting records as they were written last, and when; None: not known.
        self._records: dict[str, bytes | None] = {}
        self._written = 0.0
        self._began = time.time()
        self._complaints: dict[str, str] = {}
        self._removal = 0.0
        self.due = 0.0

    def complain(self, about: str, text: str) -> None:
        """Prints a fault once, and its end."""
        if text != self._complaints.get(about, ""):
            say(f"{about}: {text or 'recovered'}")
        self._complaints[about] = text

    def tick(self, now: float) -> None:
        """A round if it is time, the configuration changed or a person has requested something."""
        changed = _mtime(self._path) != self._read_at
        if changed:
            self._configure()
        if changed or now >= self.due or any(self._requests(kind) for kind in state.REQUESTS):
            self.round(now)
            self.due = now + LOOK

    def _configure(self) -> None:
        self._read_at = _mtime(self._path)
        try:
            config = state.configuration(self._path)
            if (config.user, config.directory) != (self.config.user, self.config.directory):
                raise Refusal("jobs.json: another user or directory seen: restart llama-slurm-keeper.service")
            if config.registry_dir != self.config.registry_dir:
                self.end()
                self._records = {}
            self.config = config
            self.complain(self._path, "")
        except (OSError, Refusal) as error:
            self.complain(self._path, str(error))

    def _requests(self, kind: str) -> dict[str, dict[str, Any]]:
        try:
            return state.requests(self.config.directory, kind)
        except OSError:
            return {}

    def round(self, now: float) -> None:
        try:
            jobs = ask.jobs(self.config.user)
            looked = keeper.looked(self.state, jobs, now)
            others = self._everybody(now, fresh=bool(keeper.unexplained(looked)))
        except Refusal as refusal:
            if self._away is None:
                self._away = now
            self.complain("SLURM", f"{refusal}; no job is submitted or ended meanwhile")
            self._save(now, durable=False)
        else:
            self._away = None
            self.complain("SLURM", "")
            self._turn(jobs, looked, others, now)
            self._remove_logs(jobs, now)
        self._register(now)

    def _remove_logs(self, jobs: list[Queued], now: float) -> None:
        if now < self._removal:
            return
        self._removal = now + REMOVAL
        alive = [job.job_id for job in jobs if job.alive]
        most = logs.KEPT * len(self.config.services)
        for folder in sorted({service.log_dir for service in self.config.services.values()}):
            self.complain(f"logs in {folder}", self._child.run(partial(logs.remove_old, folder, most, alive)).error)

    def _turn(self, jobs: list[Queued], looked: State, others: list[Queued], now: float) -> None:
        ids = keeper.unexplained(looked)
        seen = self._observed(looked, jobs, ids)
        seen = seen._replace(
            others=others,
            runs=self._runs(ids),
            hold=self._requests("hold"),
            resume=self._requests("resume"),
        )
        self.state, steps = keeper.decide(self.config, looked, seen, now)
        self._unregister(looked)
        # On disk before anything is done.
        self._save(now, durable=bool(steps))
        for action in steps:
            self._do(action, now)
        if steps:
            self._save(now, durable=True)

    def _unregister(self, looked: State) -> None:
        """A server that was killed with all of its job has left its endpoint's file."""
        for name, known in looked.items():
            service, after = self.config.services.get(name), self.state.get(name)
            for run in known.open:
                if service and not run["requeued"] and not (after and run in after.open):
                    # Not what is wanted there, which is nothing.
                    self._records[files.file_name(int(run["job_id"]), service.suffix)] = b""

    def _everybody(self, now: float, fresh: bool) -> list[Queued]:
        """Pending and running jobs of all users. Errors: Refusal, if services give way to some of them."""
        if fresh or now >= self._others_at:
            try:
                self._others = ask.everybody()
                self._others_at = now + (YIELDS if self.config.partitions_yield else EVERYBODY)
                self.complain("all jobs", "")
            except Refusal as refusal:
                if self.config.partitions_yield:
                    raise
                self.complain("all jobs", str(refusal))
        return self._others

    def _runs(self, ids: list[int]) -> dict[int, list[ask.Ended]]:
        found: dict[int, list[ask.Ended]] = {}
        try:
            for one in ask.runs(ids):
                found.setdefault(one.job_id, []).append(one)
            self.complain("accounting", "")
        except Refusal as refusal:
            self.complain("accounting", str(refusal))
        return found

    def _observed(self, looked: State, jobs: list[Queued], ids: list[int]) -> keeper.Seen:
        """Looks at the shares for running jobs and ended ones. A share that hangs shows nothing."""
        asked = []
        started = {job.job_id: job.start for job in jobs if job.alive and not job.waits}
        for name, service in self.config.services.items():
            open_ones = {int(run["job_id"]) for run in looked[name].open} if name in looked else set()
            own = {job.job_id for job in jobs if job.service == name and job.job_id in started} | open_ones
            registry = os.path.join(self.config.registry_dir, "%d-%s.json") if self.config.registry_dir else ""
            for job_id in sorted(own):
                file = registry % (job_id, service.suffix) if registry else ""
                folder = os.path.join(service.log_dir, str(job_id))
                asked.append((job_id, file, folder, started.get(job_id), job_id in ids))
        outcome = self._child.run(lambda: [look(*one) for one in asked]) if asked else None
        if outcome:
            self.complain("shares", outcome.error)
        rows = (outcome.value if outcome else None) or []
        return keeper.Seen(
            jobs,
            ready=frozenset(row["job_id"] for row in rows if row["ready"]),
            served={row["job_id"]: row["served"] for row in rows if row["served"]},
            lines={row["job_id"]: row["lines"] for row in rows},
        )

    def _do(self, action: actions.Action, now: float) -> None:
        if isinstance(action, actions.Say):
            say(action.text)
        elif isinstance(action, actions.Taken):
            state.withdraw(self.config.directory, action.service, action.kind)
        elif isinstance(action, actions.Submit):
            self._submit(action, now)
        else:
            try:
                if isinstance(action, actions.Drain):
                    ask.drain(action.job_id)
                else:
                    ask.cancel(action.job_id, action.pending)
            except Refusal as refusal:
                # A refused one has ended meanwhile.
                say(f"{action.service}: {refusal}")
                if refusal.code == ask.AWAY:
                    self._update(action.service, keeper.failed(self.state[action.service], action.job_id))

    def _submit(self, action: actions.Submit, now: float) -> None:
        known = self.state[action.service]
        try:
            # With the lock in it, another keeper waits for its end.
            job_id = ask.submit(action.script, keep=(self._lock,))
        except Refusal as refusal:
            say(f"{action.service}: {refusal}")
            if refusal.code == ask.REFUSED:
                self._update(action.service, keeper.refused(known, f"not submitted: {refusal}", now))
            return
        say(f"{action.service}: job {job_id} submitted")
        self._update(action.service, keeper.submitted(known, job_id))

    def _update(self, service: str, known: Known) -> None:
        self.state = {**self.state, service: known}

    def _save(self, now: float, durable: bool) -> None:
        try:
            state.write(self.config.directory, state.public(self.state, now, self._away), durable)
        except OSError as error:
            # Without its record it must not act: a restart would do the same again.
            raise Refusal(
                f"{self.config.directory}: {error.strerror} seen, a disk that can be written is needed: make room there"
            ) from None

    def _register(self, now: float) -> None:
        """Has the registry say why a service has no head, and which job wants its nodes."""
        if not self.config.registry_dir:
            return
        wanted: dict[str, bytes | None] = {}
        for name, service in self.config.services.items():
            wanted[files.file_name(0, service.suffix)] = self._record(name, now)
        own = set(wanted)
        wanted = {**dict.fromkeys(self._records), **wanted}
        again = now - self._written >= files.HEARTBEAT
        changes = [
            (name, data)
            for name, data in wanted.items()
            if name not in self._records or data != self._records[name] or (data and again)
        ]
        if not changes:
            return
        folder = self.config.registry_dir
        error = self._child.run(lambda: _register_all(folder, changes)).error
        self.complain(folder, error)
        if not error:
            self._records = {name: data for name, data in wanted.items() if name in own}
            self._written = now

    def _record(self, name: str, now: float) -> bytes | None:
        """The waiting record of a service; None if it needs none."""
        known = self.state.get(name)
        if known is None or not known.wanted:
            return None
        # A job is in the registry itself once its server listens.
        served = known.served and known.state in (state.RUNNING, state.COMPLETING)
        why = state.ahead(known, now) if served else state.sentence(known, now, self._away)
        if not why:
            return None
        record = writer.full(self.config.services[name].record, 0, files.WAITING, self._began)
        return files.encode({**record, "why": printable(why, 190), "retry_after": state.retry_after(known, now)})

    def end(self) -> None:
        """Removes its waiting records; on a share that hangs they end by their time to live."""
        changes: list[tuple[str, bytes | None]] = [
            (name, None) for name, data in self._records.items() if data is not None
        ]
        if changes:
            self._child.run(lambda: _register_all(self.config.registry_dir, changes))


def _register_all(folder: str, changes: Iterable[tuple[str, bytes | None]]) -> None:
    """It may hang. Errors: OSError."""
    for name, data in changes:
        if data is None:
            writer.remove(folder, name)
        else:
            writer.write(folder, name, data)


def look(job_id: int, registry: str, folder: str, started: int | None, lines: bool) -> dict[str, Any]:
    """{job_id, ready, served: since when, or None, lines}. It may hang.

    registry: the job's file there; folder: of its logs. The head's task leaves a file served-RESTARTS in it once its
    server has served."""
    served: list[float] = []
    last: list[str] = []
    with contextlib.suppress(OSError), logs.JobFolder(folder) as own, os.scandir(own) as entries:
        for entry, _number in zip(entries, range(1000)):
            if entry.name.startswith("served-") and _files.is_trusted(entry.stat(follow_symlinks=False)):
                served.append(entry.stat(follow_symlinks=False).st_mtime)
        last = logs.last_lines(folder, reasons.LAST_LINES) if lines else []
    since = max((at for at in served if started is None or at >= started), default=None)
    ready = _ready(registry) if registry else started is not None and since is not None
    return {"job_id": job_id, "ready": ready, "served": since, "lines": last}


def _ready(path: str) -> bool:
    try:
        record = json.loads(_files.read_trusted(path, files.MOST_BYTES))
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(record, dict) and record.get("state") == files.READY


def _mtime(path: str) -> int:
    try:
        return os.stat(path).st_mtime_ns
    except OSError:
        return 0


def locked(directory: str, until: float) -> int:
    """A descriptor with the lock of the only keeper. Errors: Refusal, OSError."""
    lock = os.open(os.path.join(directory, LOCK), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return lock
        except BlockingIOError:
            if time.monotonic() >= until:
                os.close(lock)
                raise Refusal(
                    f"{directory}: another keeper runs, one is allowed: see systemctl status llama-slurm-keeper"
                ) from None
        time.sleep(TICK)


def main(arguments: list[str]) -> int | str:
    if len(arguments) != 1:
        return "usage: slurm_keeper CONFIG"
    try:
        config = state.configuration(arguments[0])
        user = pwd.getpwuid(os.geteuid()).pw_name
        if user != config.user:
            raise Refusal(f"slurm_keeper: user {user} seen, {config.user} is needed: start its unit")
        program = Program(arguments[0], config, locked(config.directory, time.monotonic() + LOCKED))
        ended: list[int] = []
        signal.signal(signal.SIGTERM, lambda number, _frame: ended.append(number))
        while not ended:
            program.tick(time.time())
            notify("READY=1")
            time.sleep(TICK)
        program.end()
    except (OSError, Refusal, KeyError) as error:
        return f"slurm_keeper: {arguments[0]}: {error}"
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
