# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The replicas of the services: their states, the slots that requests get, and the queues. Without I/O. Private to the
collection.

`now` is a monotonic time, `wall` is the time of day.
"""

from __future__ import annotations

import collections
from collections.abc import Iterable
from typing import Any, Callable, NamedTuple

from .affinity import Conversation, Memory
from .config import Address, Config, Service, Waiting

DOWN, LOADING, READY, DRAINING, STOPPED = "down", "loading", "ready", "draining", "stopped"
# Only of a service: it has no server before SLURM starts its job.
WAITING = "waiting"
# Instead of an endpoint: the request waits, or its queue is full.
WAIT, FULL = "wait", "full"
# Why an endpoint drains: it restarts now, so requests wait; or it is held for hours.
CHANGE, MAINTENANCE = "change", "maintenance"
# A service has the first of these states that one of its endpoints has.
ORDER = (READY, DRAINING, LOADING, DOWN)
# Without a word from the keeper of the jobs: there is no job, or it gives up its GPUs.
NO_WORD, ENDING = Waiting("", "no job of SLURM serves it", 60), Waiting("", "its job gives up its GPUs", 60)
# (service, address, port)
Place = tuple[str, str, int]


class Endpoint:
    """One replica. seen: state by its last probe or request; drain: CHANGE, MAINTENANCE or None."""

    def __init__(self, service: str, where: Address, now: float, wall: float) -> None:
        self.service, self.where = service, where
        self.slots = where.slots
        self.seen = DOWN
        self.drain: str | None = None
        self.since, self.moment = wall, now
        self.memory = Memory()
        self.taken: dict[str, int] = {}  # slots by model
        self.in_flight = 0
        self.load: float | None = None  # seconds of its last load
        self.slot_ctx_size: int | None = None
        self.build: str | None = None
        self.lost: float | None = None  # when it was seen to be no longer ready
        self._known = False  # whether its state was ever seen
        self._watched = False  # whether its load was seen from the beginning
        self._released = False  # no longer drained, but not probed since

    @property
    def place(self) -> Place:
        return self.service, self.where.address, self.where.port

    @property
    def state(self) -> str:
        return DRAINING if self.drain or self._released else self.seen

    @property
    def ready(self) -> bool:
        return self.seen == READY and not self.drain and not self._released

    @property
    def waits(self) -> bool:
        """Whether it will soon be back by itself, or is being probed for the first time."""
        return self.drain == CHANGE or (not self.drain and (self._released or not self._known))

    def free(self, model: str) -> int:
        return max(0, self.slots - self.taken.get(model, 0))

    def drained(self, reason: str | None) -> None:
        """reason: given by a playbook. Without it the next probe decides."""
        if self.drain and not reason:
            self._released = True
        elif reason:
            self._released = False
        self.drain = reason

    def observe(self, seen: str, now: float, wall: float) -> bool:
        """Records the state that a probe or a request has seen. True if it is new."""
        before, first = self.state, not self._known
        if seen != LOADING:
            self._released = False
        if seen != self.seen or first:
            if seen == READY and self.seen == LOADING and self._watched:
                self.load = now - self.moment
            if seen != READY:
                # A new process has no cache.
                self.memory.clear()
            if READY in (self.seen, seen):
                self.lost = now if seen != READY else None
            self._watched = seen == LOADING and self._known
            self.seen, self.moment, self._known = seen, now, True
        if before != self.state:
            self.since = wall
        return first or before != self.state

    def expected(self, now: float, patience: float) -> bool:
        """Whether it will be ready again within so many seconds: by its last load, otherwise because it was ready less
        than that ago."""
        if self.drain or self.ready:
            return False
        if self.load is not None and self.seen == LOADING:
            return abs(self.moment + self.load - now) <= patience
        return self.lost is not None and now - self.lost < patience and (self.load or 0) <= patience

    def seconds_left(self, now: float) -> float | None:
        """Seconds until it is loaded, by its last load; None if unknown or passed."""
        if self.seen != LOADING or self.load is None:
            return None
        return max(0.0, self.load - (now - self.moment)) or None


class Waiter:
    """A request in a queue. granted: called once, with the endpoint or the reason why it gets no endpoint; patient:
    whether it also waits for a service that is expected back."""

    def __init__(
        self, model: str, talk: Conversation, granted: Callable[[Endpoint | str], None], patient: bool = False
    ) -> None:
        self.model, self.talk, self.granted, self.patient = model, talk, granted, patient


class Pool:
    """The replicas of one service, and its queue."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.endpoints: list[Endpoint] = []
        self.queue: collections.deque[Waiter] = collections.deque()

    @property
    def state(self) -> str:
        if not self.service.started:
            return STOPPED
        states = {endpoint.state for endpoint in self.endpoints}
        found = next((state for state in ORDER if state in states), DOWN)
        return WAITING if found == DOWN and self._for_a_job() else found

    @property
    def waiting(self) -> Waiting | None:
        """Why it waits; while it serves, the word on jobs to come."""
        if self.service.waiting is not None or self.judge() != WAITING:
            return self.service.waiting
        return ENDING if self.endpoints else NO_WORD

    def _for_a_job(self) -> bool:
        """Whether another job must start before it serves again, seen that no server is ready or loads."""
        ends = all(endpoint.drain for endpoint in self.endpoints)
        return self.service.waiting is not None or (self.service.by_slurm and ends)

    def judge(self) -> str:
        """READY or WAIT if a request may be taken or queued; otherwise LOADING, DOWN, WAITING or STOPPED."""
        if not self.service.started:
            return STOPPED
        if any(endpoint.ready for endpoint in self.endpoints):
            return READY
        if any(endpoint.waits for endpoint in self.endpoints):
            return WAIT
        if any(endpoint.seen == LOADING and not endpoint.drain for endpoint in self.endpoints):
            return LOADING
        return WAITING if self._for_a_job() else DOWN

    def expected(self, now: float) -> bool:
        return any(endpoint.expected(now, self.service.patience) for endpoint in self.endpoints)

    def choose(self, model: str, talk: Conversation) -> Endpoint | None:
        """The replica that has read most of the conversation. Without one that has read more than the shared system
        prompt: the replica with most free slots."""
        best: Endpoint | None = None
        most = (-1, -1, -1)
        for endpoint in self.endpoints:
            free = endpoint.free(model)
            if endpoint.ready and free:
                known = endpoint.memory.known(talk)
                own = known if known > talk.shared else 0
                if (own, free, known) > most:
                    best, most = endpoint, (own, free, known)
        return best

    def take(self, model: str, talk: Conversation, patient: float | None = None) -> Endpoint | str:
        """A slot, or WAIT, FULL, LOADING, DOWN, WAITING, STOPPED. patient: now, if the request waits for a service that
        is expected back."""
        judged = self.judge()
        if judged in (LOADING, DOWN) and patient is not None and self.expected(patient):
            judged = WAIT
        if judged not in (READY, WAIT):
            return judged
        # No request overtakes another.
        if judged == READY and not any(waiter.model == model for waiter in self.queue):
            chosen = self.choose(model, talk)
            if chosen:
                return self._occupy(chosen, model, talk)
        return WAIT if len(self.queue) < self.service.queue else FULL

    def visit(self) -> Endpoint | str:
        """A server for a request that needs no slot. A draining server counts while it responds."""
        answering = [one for one in self.endpoints if one.seen == READY] if self.service.started else []
        if answering:
            return max(answering, key=lambda one: (one.ready, -one.in_flight))
        judged = self.judge()
        return LOADING if judged in (READY, WAIT) else judged

    @staticmethod
    def _occupy(endpoint: Endpoint, model: str, talk: Conversation) -> Endpoint:
        endpoint.taken[model] = endpoint.taken.get(model, 0) + 1
        endpoint.memory.add(talk)
        return endpoint

    def wait(self, waiter: Waiter) -> None:
        self.queue.append(waiter)

    def leave(self, waiter: Waiter) -> None:
        if waiter in self.queue:
            self.queue.remove(waiter)

    def release(self, endpoint: Endpoint, model: str) -> None:
        endpoint.taken[model] = max(0, endpoint.taken.get(model, 0) - 1)
        self.pump()

    def pump(self, now: float | None = None) -> None:
        """Gives free slots to waiting requests, first come first served, or ends their wait. now: ends the wait of
        patient requests if the service is no longer expected back."""
        if not self.queue:
            return
        judged = self.judge()
        if judged in (LOADING, DOWN, WAITING, STOPPED):
            waiting, self.queue = self.queue, collections.deque()
            over = judged in (WAITING, STOPPED) or (now is not None and not self.expected(now))
            for waiter in waiting:
                # A request keeps waiting while its server loads again.
                if over if waiter.patient else judged != LOADING:
                    waiter.granted(judged)
                else:
                    self.queue.append(waiter)
            return
        nothing_for: set[str] = set()
        for waiter in list(self.queue) if judged == READY else ():
            if waiter.model not in nothing_for:
                chosen = self.choose(waiter.model, waiter.talk)
                if chosen:
                    self.queue.remove(waiter)
                    waiter.granted(self._occupy(chosen, waiter.model, waiter.talk))
                else:
                    nothing_for.add(waiter.model)

    def seconds_left(self, now: float) -> float | None:
        return min(filter(None, (one.seconds_left(now) for one in self.endpoints)), default=None)

    def reported(self) -> dict[str, Any]:
        """The context of a slot and the build, as reported by its servers."""
        known = [one for one in self.endpoints if one.slot_ctx_size or one.build]
        return {"slot_ctx_size": known[0].slot_ctx_size, "build": known[0].build} if known else {}


class Drained(NamedTuple):
    """An endpoint that gets no new requests. node: its name in the inventory, or ADDRESS:PORT."""

    service: str
    node: str
    reason: str


class Fleet:
    """All services of a configuration."""

    def __init__(self) -> None:
        self.pools: dict[str, Pool] = {}

    def endpoints(self) -> list[Endpoint]:
        return [endpoint for pool in self.pools.values() for endpoint in pool.endpoints]

    def configure(self, config: Config, now: float, wall: float) -> list[Endpoint]:
        """Takes a new configuration and returns new endpoints. Known endpoints keep their state."""
        before = {endpoint.place: endpoint for endpoint in self.endpoints()}
        new, pools = [], {}
        for service in config.services.values():
            pool = self.pools.get(service.name) or Pool(service)
            pool.service, pool.endpoints = service, []
            for where in service.endpoints:
                endpoint = before.get((service.name, where.address, where.port))
                if endpoint is None:
                    endpoint = Endpoint(service.name, where, now, wall)
                    new.append(endpoint)
                elif endpoint.where != where:
                    endpoint.where, endpoint.slots = where, where.slots
                pool.endpoints.append(endpoint)
            pools[service.name] = pool
        gone = [pool for name, pool in self.pools.items() if name not in pools]
        self.pools = pools
        for pool in gone:
            pool.endpoints = []
        for pool in [*gone, *pools.values()]:
            pool.pump(now)
        return new

    def drain(self, drained: Iterable[Drained]) -> list[Endpoint]:
        """Drains exactly these endpoints and returns the released ones, which have to be probed."""
        reasons = {(one.service, one.node): one.reason for one in drained}
        released = []
        for pool in self.pools.values():
            for endpoint in pool.endpoints:
                where = endpoint.where
                reason = reasons.get((pool.service.name, where.node)) or reasons.get(
                    (pool.service.name, "%s:%d" % (where.address, where.port))
                )
                if endpoint.drain and not reason:
                    released.append(endpoint)
                endpoint.drained(reason)
            pool.pump()
        return released

    def observe(self, endpoint: Endpoint, seen: str, now: float, wall: float) -> bool:
        """Records the state of an endpoint. True if it has changed."""
        changed = endpoint.observe(seen, now, wall)
        pool = self.pools.get(endpoint.service)
        if pool:
            pool.pump(now)
        return changed

    def status(self, now: float) -> dict[str, Any]:
        """The services of status.json."""
        return {name: _status(pool, now) for name, pool in self.pools.items()}


def _status(pool: Pool, now: float) -> dict[str, Any]:
    seen, waiting = pool.reported(), pool.waiting
    return {
        "state": pool.state,
        "why": waiting.why if waiting else None,
        "kind": pool.service.kind,
        "tier": pool.service.tier,
        "fallback": pool.service.fallback,
        "queue": len(pool.queue),
        "models": [
            dict(model.entry, slot_ctx_size=seen.get("slot_ctx_size") or model.entry.get("slot_ctx_size"))
            for model in pool.service.models
        ],
        "endpoints": [
            {
                "node": one.where.node,
                "address": one.where.address,
                "port": one.where.port,
                "state": one.state if pool.service.started else STOPPED,
                "slots": one.slots,
                "free": max(0, one.slots - max(one.taken.values(), default=0)) if one.ready else 0,
                "in_flight": one.in_flight,
                "since": round(one.since, 3),
                "slot_ctx_size": one.slot_ctx_size,
                "build": one.build,
                "seconds_left": None if one.seconds_left(now) is None else round(one.seconds_left(now) or 0, 1),
            }
            for one in pool.endpoints
        ],
    }
