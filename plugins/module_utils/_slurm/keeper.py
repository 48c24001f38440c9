# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Decisions of the keeper of jobs: one job of each wanted service. No clock, no I/O. Private to the collection.

A job is known by its comment. So a keeper that was killed after a submission, before it has recorded it, finds it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from .._node.backoff import delay
from . import reasons
from .actions import Action, Cancel, Drain, Say, Submit, Taken
from .ask import COMPLETING, Ended, Queued
from .hostlist import nodes
from .reasons import Why
from .state import COMPLETING as ENDING
from .state import NONE, PENDING, RUNNING, Config, Known, Service, State

# Seconds before the end of a job's time at which the next one is submitted.
SUCCESSOR = 150
# Seconds for SLURM to say why a job ended, to show a job whose submission was not answered, and to show which job took
# the nodes of a preempted one.
ACCOUNTING, SETTLE, TAKER = 60, 30, 20
# How a job was asked to end.
DRAIN, CANCEL, KILL = "drain", "cancel", "kill"
# Seconds beside the grace time after which a job that drains is cancelled, and between two tries.
PATIENCE, RETRY = 60, 60
# Seconds for which a job serves before its end says nothing of the next one: a shorter one may end for the same cause.
PROVEN = 60
# Seconds before a submission that SLURM has refused is tried again, at least.
REFUSED = 30
# Begins SLURM's reason of a pending job that a user or an administrator holds: it may never start.
HELD = "JobHeld"
NO_BLAME = (reasons.CANCELLED, reasons.PREEMPTED, reasons.REPLACED)
DUPLICATE = Why(reasons.REPLACED, "another job of its service exists")
CHANGED = Why(reasons.REPLACED, "replaced: its configuration has changed")
UNWANTED = Why(reasons.DRAINED, "its service is not wanted any more")


class Seen(NamedTuple):
    """jobs: of the user; others: pending and running ones of all users; runs: {job: its runs by sacct}, without those
    that were not asked for or not answered; ready: jobs whose head is ready; served: {job: since when its head has
    served, or did}; lines: {job: the last lines of its head}; hold, resume: {service: {by, at}}, of persons."""

    jobs: list[Queued]
    others: list[Queued] = []
    runs: Mapping[int, list[Ended]] = {}
    ready: frozenset[int] = frozenset()
    served: Mapping[int, float] = {}
    lines: Mapping[int, list[str]] = {}
    hold: Mapping[str, dict[str, Any]] = {}
    resume: Mapping[str, dict[str, Any]] = {}


def looked(state: Mapping[str, Known], jobs: Iterable[Queued], now: float) -> State:
    """The state with the runs that have ended since, for which SLURM's reason is needed."""
    alive = {job.job_id: job for job in jobs if job.alive}
    found = dict(state)
    for service, before in state.items():
        known = before
        if before.next_job is not None and before.next_job not in alive:
            found[service] = known = _over(before, before.next_job, now)._replace(next_job=None)
        job = alive.get(known.job_id) if known.job_id is not None else None
        requeued = job is not None and known.state in (RUNNING, ENDING) and _another_run(job, known)
        if known.job_id is not None and (job is None or requeued):
            found[service] = _over(known, known.job_id, now, requeued)._replace(
                job_id=known.job_id if requeued else None,
                state=PENDING if requeued else NONE,
                serves=False,
                served=None,
            )
    return found


def _over(known: Known, job_id: int, now: float, requeued: bool = False) -> Known:
    """With a run that has ended."""
    current = job_id == known.job_id
    run = {
        "job_id": job_id,
        "since": now,
        "started": known.started if current else None,
        "served": known.served if current else None,
        "requeued": requeued,
        "digest": known.digest,
    }
    return known._replace(open=[*known.open, run][-10:])


def _another_run(job: Queued, known: Known) -> bool:
    """Whether a job was requeued since, and maybe runs again. One that still ends has the start of its next run."""
    later = known.started is not None and job.start is not None and job.start > known.started
    return job.waits or (later and job.state != COMPLETING)


def unexplained(state: Mapping[str, Known]) -> list[int]:
    """The jobs whose end is still to be explained."""
    return sorted({int(run["job_id"]) for known in state.values() for run in known.open})


def submitted(known: Known, job_id: int) -> Known:
    """After a submission that was answered."""
    known = known._replace(submitting=None)
    if known.job_id is not None:
        return known._replace(next_job=job_id)
    return known._replace(job_id=job_id, state=PENDING, served=None)


def failed(known: Known, job_id: int) -> Known:
    """After a request to end a job that did not reach SLURM."""
    asked = {key: {**one, "how": ""} if key == str(job_id) else one for key, one in known.asked.items()}
    return known._replace(asked=asked)


def refused(known: Known, words: str, now: float) -> Known:
    """After a submission that SLURM has refused."""
    failures = known.failures + 1
    last = {"job_id": None, "code": "refused", "words": words, "at": now}
    wait = max(REFUSED, delay(failures))
    return known._replace(submitting=None, failures=failures, last=last, next_submit=now + wait)


def decide(config: Config, state: Mapping[str, Known], seen: Seen, now: float) -> tuple[State, list[Action]]:
    """-> the state after the actions, which is to be written before they are done, and the actions.

    state: of looked()."""
    found: State = {}
    actions: list[Action] = []
    yields = _busy(config, seen)
    queued = {job.service for job in seen.jobs if job.alive and job.service}
    for name in sorted({*config.services, *state, *queued}):
        turn = _Turn(name, config.services.get(name), state.get(name, Known()), seen, now)
        turn.take(yields)
        if turn.service or turn.mine or turn.known.open:
            found[name] = turn.known
        actions += turn.actions
    return found, actions


def _busy(config: Config, seen: Seen) -> str:
    """The first partition with jobs to which services give way."""
    own = {job.job_id for job in seen.jobs}
    others = [job for job in seen.others if job.job_id not in own and not (job.waits and job.reason.startswith(HELD))]
    # A pending job may name several.
    found = {name for job in others for name in job.partition.split(",")}
    return next((name for name in config.partitions_yield if name in found), "")


class _Turn:
    """One service."""

    def __init__(self, name: str, service: Service | None, known: Known, seen: Seen, now: float) -> None:
        self.name, self.service, self.known, self.seen, self.now = name, service, known, seen, now
        self.actions: list[Action] = []
        self.mine = sorted((job for job in seen.jobs if job.alive and job.service == name), key=lambda job: job.job_id)

    def take(self, yields: str) -> None:
        wanted = self.service is not None and self.service.wanted
        self.known = self.known._replace(wanted=wanted, yields=yields if wanted else "")
        self._requests()
        for run in self.known.open:
            self._explain(run)
        unwanted = self._unwanted()
        kept = self._end(unwanted)
        self._settle()
        if not unwanted and not self.known.open and self.known.submitting is None:
            self._submit(kept)
        self._current()

    def _requests(self) -> None:
        """Takes the requests of persons."""
        hold = self.seen.hold.get(self.name)
        if hold:
            self.actions.append(Taken(self.name, "hold"))
            if not self.known.held:
                self._hold(str(hold["by"]), float(hold["at"]))
        # A job that ends may turn out to be cancelled, which would hold the service after the request.
        ends = bool(self.known.open) or any(job.state == COMPLETING for job in self.mine)
        if self.name in self.seen.resume and not ends:
            self.actions.append(Taken(self.name, "resume"))
            if self.known.held:
                self.actions.append(Say(f"{self.name}: resumed by {self.seen.resume[self.name]['by']}"))
            self.known = self.known._replace(held=None, failures=0, next_submit=None)

    def _hold(self, by: str, at: float) -> None:
        """Jobs that are there end; one that a person submits later stays."""
        why = Why(reasons.DRAINED, f"held by {by}")
        asked = {str(job.job_id): self._asked(why) for job in self.mine}
        self.known = self.known._replace(held={"by": by, "at": at}, asked={**asked, **self.known.asked})
        text = f"{self.name}: held by {by}: no job is submitted before 'llama-jobs resume {self.name}' or site.yml"
        self.actions.append(Say(text))

    def _asked(self, why: Why, how: str = "") -> dict[str, Any]:
        return {"code": why.code, "words": why.words, "how": how, "at": self.now}

    def _explain(self, run: Mapping[str, Any]) -> None:
        """Why a run has ended, and what follows."""
        job_id, waited = int(run["job_id"]), self.now - run["since"]
        # sacct may be late, and have no more than the run before.
        began = run.get("started") or 0
        runs = [one for one in self.seen.runs.get(job_id, []) if not began or (one.start or 0) >= began]
        runs = [one for one in runs if one.over or not run["requeued"]]
        last = runs[-1] if runs and runs[-1].over else None
        if last is None and waited < ACCOUNTING:
            return
        # The controller forgets a job some minutes after its end.
        dead = next((job for job in self.seen.jobs if job.job_id == job_id and not job.alive), None)
        if dead:
            last = (last or Ended(job_id, dead.state, nodes=dead.nodes))._replace(reason=dead.reason)
        taker = reasons.preempting(last, map(_as_run, self.seen.others)) if last else None
        given_up = last is not None and last.state in ("REQUEUED", "PREEMPTED") and last.step_code != reasons.AGAIN
        if given_up and not taker and waited < TAKER:
            return
        asked = self.known.asked.get(str(job_id))
        if last:
            intended = Why(str(asked["code"]), str(asked["words"])) if asked else None
            why = reasons.why(last, taker, intended)
        else:
            why = Why(reasons.UNKNOWN, "it ended, and SLURM does not say why")
        self._ended(run, why, asked=asked is not None)

    def _ended(self, run: Mapping[str, Any], why: Why, asked: bool) -> None:
        job_id, digest = int(run["job_id"]), run.get("digest") or ""
        self.known = self.known._replace(
            open=[one for one in self.known.open if one != run],
            last={"job_id": job_id, "code": why.code, "words": why.words, "at": self.now, "digest": digest},
        )
        self.actions.append(Say(f"{self.name}: job {job_id}: {why.words}"))
        if why.code == reasons.CRASHED:
            # Into the journal only: a log may have a part of a request.
            self.actions += [Say(f"  {line}") for line in self.seen.lines.get(job_id, [])]
        if run["requeued"]:
            return
        served = run.get("served") or self.seen.served.get(job_id)
        # The next job has another script.
        replaced = self.service is not None and digest not in ("", self.service.digest)
        if replaced or (served is not None and run["since"] - served >= PROVEN):
            self.known = self.known._replace(failures=0)
        elif not asked and why.code not in NO_BLAME:
            self.known = self.known._replace(failures=self.known.failures + 1)
        wait = delay(self.known.failures)
        self.known = self.known._replace(next_submit=self.now + wait if wait else None)
        if why.code == reasons.CANCELLED and not asked:
            self._hold(why.by or "scancel", self.now)

    def _unwanted(self) -> Why | None:
        """Why the service is to have no job; None if it is to have one."""
        if not self.known.wanted:
            return UNWANTED
        if self.known.held:
            return Why(reasons.DRAINED, f"held by {self.known.held['by']}")
        if self.known.yields:
            return Why(reasons.DRAINED, f"gave way to jobs of partition {self.known.yields}")
        return None

    def _end(self, unwanted: Why | None) -> list[Queued]:
        """Ends the jobs that are not to be -> those that stay, the current one first."""
        running = [job for job in self.mine if not job.waits]
        # Two can run if their names differ: the right one stays.
        running.sort(key=lambda job: (self._right(job), job.job_id), reverse=True)
        waiting = sorted((job for job in self.mine if job.waits), key=lambda job: (not self._right(job), job.job_id))
        kept: list[Queued] = []
        for job in running + waiting:
            if unwanted:
                # A person may submit a job of a service that is held.
                manual = bool(self.known.held) and self.known.wanted and str(job.job_id) not in self.known.asked
                why = None if manual else unwanted
            elif not self._right(job):
                why = CHANGED
            elif not kept or (len(kept) == 1 and job.waits and self._near_end(kept[0])):
                why = None
            else:
                why = DUPLICATE
            if why is None:
                kept.append(job)
            else:
                self._ask(job, why)
        gone = {str(job.job_id) for job in self.mine} | {str(run["job_id"]) for run in self.known.open}
        self.known = self.known._replace(asked={key: one for key, one in self.known.asked.items() if key in gone})
        return kept

    def _right(self, job: Queued) -> bool:
        return self.service is not None and job.digest == self.service.digest

    def _near_end(self, job: Queued) -> bool:
        return job.ends is not None and job.ends - self.now < SUCCESSOR

    def _ask(self, job: Queued, why: Why) -> None:
        """Asks a job to end: at once if it waits, after the requests that run if it serves."""
        if job.state == COMPLETING:
            return
        before = self.known.asked.get(str(job.job_id))
        how = str(before.get("how")) if before else ""
        waited = self.now - float(before["at"]) if before else 0.0
        if job.waits:
            action: Action = Cancel(self.name, job.job_id, pending=True)
            next_how, patience = CANCEL, RETRY if how == CANCEL else 0
        elif how in (DRAIN, KILL):
            action = Cancel(self.name, job.job_id, pending=False)
            grace = self.known.grace or (self.service.grace if self.service else 0)
            next_how, patience = KILL, RETRY if how == KILL else grace + PATIENCE
        else:
            # A job that was to be cancelled may have started before.
            action, next_how, patience = Drain(self.name, job.job_id), DRAIN, 0
        if waited < patience:
            return
        if not how:
            self.actions.append(Say(f"{self.name}: job {job.job_id} is to end: {why.words}"))
        self.actions.append(action)
        asked = {**(before or self._asked(why)), "how": next_how, "at": self.now}
        self.known = self.known._replace(asked={**self.known.asked, str(job.job_id): asked})

    def _settle(self) -> None:
        """Whether a submission without an answer has made a job."""
        since = self.known.submitting
        if since is not None:
            found = any(job.waits or job.job_id != self.known.job_id for job in self.mine)
            if found or self.now - since > SETTLE:
                self.known = self.known._replace(submitting=None)

    def _submit(self, kept: list[Queued]) -> None:
        current = kept[0] if kept else None
        # A job that ends still has its nodes.
        others = [job for job in self.mine if job not in kept]
        needed = not others if current is None else len(kept) == 1 and self._near_end(current)
        if current is not None and current.state == COMPLETING:
            needed = False
        if self.service and needed and self.now >= (self.known.next_submit or 0.0):
            self.known = self.known._replace(submitting=self.now)
            self.actions.append(Submit(self.name, self.service.script))

    def _current(self) -> None:
        """The fields of the job that is shown: the one that runs, else the one that waits."""
        jobs = sorted(self.mine, key=lambda job: (job.waits, job.state == COMPLETING, job.job_id))
        job = jobs[0] if jobs else None
        if job is None:
            # A job that was just submitted is not in the queue yet.
            just = self.known.job_id is not None
            self.known = self.known._replace(
                state=PENDING if just else NONE, digest="", nodes="", reason="", started=None, ends=None, expected=None
            )
            self.known = self.known._replace(serves=False, served=None, window=None, next_job=None)
            return
        ready = job.job_id in self.seen.ready
        same = job.job_id == self.known.job_id
        before = self.known.served if same else None
        began = self.known.started if same and job.state == COMPLETING else None
        later = [one.job_id for one in jobs[1:] if one.waits and str(one.job_id) not in self.known.asked]
        self.known = self.known._replace(
            job_id=job.job_id,
            state=PENDING if job.waits else ENDING if job.state == COMPLETING else RUNNING,
            digest=job.digest,
            nodes="" if job.waits else job.nodes,
            reason=job.reason if job.waits else "",
            started=None if job.waits else began or job.start,
            ends=job.ends,
            expected=job.start if job.waits else None,
            serves=ready and not job.waits,
            served=None if job.waits else before or self.seen.served.get(job.job_id, self.now if ready else None),
            grace=self.service.grace if self.service and self._right(job) else self.known.grace,
            window=self._window(),
            next_job=later[0] if later else None,
        )

    def _window(self) -> dict[str, Any] | None:
        """The next pending job, of no service, that SLURM plans for one of the service's nodes."""
        wanted = set(self.service.nodes) if self.service else set()
        own = {job.job_id for job in self.seen.jobs if job.service}
        found: list[tuple[int, str, str]] = []
        for job in self.seen.others:
            if job.waits and job.start and job.start > self.now and job.job_id not in own:
                taken = sorted(wanted.intersection(nodes(job.planned)))
                found += [(job.start, job.partition, taken[0])] if taken else []
        if not found:
            return None
        at, partition, node = min(found)
        return {"partition": partition, "node": node, "at": at}


def _as_run(job: Queued) -> Ended:
    return Ended(
        job_id=job.job_id,
        state=job.state,
        submitted=job.submitted,
        start=None if job.waits else job.start,
        nodes=job.nodes,
        qos=job.qos,
        partition=job.partition,
        user=job.user,
    )
