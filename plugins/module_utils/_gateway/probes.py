# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Probes of the replicas. Requests are rare, since each is a line in a head's journal; connections are not. Private to
the collection."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from typing import Any, Callable

from .._node.notify import say
from . import replicas, upstream
from .replicas import Endpoint, Fleet, Place
from .upstream import Broken, Exhausted, Unreachable

# Seconds between two connections, for a connection, and between two requests to a ready server.
ROUND, CONNECT, LOOK = 1.0, 1.0, 30.0
# Seconds for an answer: a ready server may be slow under load; other servers are asked again soon.
ANSWER, SOON = 10.0, 2.0


class Prober:
    """Runs a task for each endpoint. key: returns the key of a service; changed: called after a change of state."""

    def __init__(self, fleet: Fleet, key: Callable[[str], str | None], changed: Callable[[Endpoint], None]) -> None:
        self._fleet, self._key, self._changed = fleet, key, changed
        self._tasks: dict[Place, tuple[asyncio.Future[None], asyncio.Event]] = {}
        self._looked: dict[Place, float] = {}

    def follow(self) -> None:
        """Starts and ends tasks, so that each endpoint of the fleet has one."""
        # Stopped services are not probed: another program at that port would get the key.
        started = [pool for pool in self._fleet.pools.values() if pool.service.started]
        there = {endpoint.place: endpoint for pool in started for endpoint in pool.endpoints}
        for place in [place for place in self._tasks if place not in there]:
            self._tasks.pop(place)[0].cancel()
            self._looked.pop(place, None)
        for place, endpoint in there.items():
            if place not in self._tasks:
                event = asyncio.Event()
                self._tasks[place] = (asyncio.ensure_future(self._watch(endpoint, event)), event)

    async def stop(self) -> None:
        tasks = [task for task, _event in self._tasks.values()]
        self._tasks.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def now(self, endpoint: Endpoint) -> None:
        """Probes the endpoint at once, by a request."""
        self._looked.pop(endpoint.place, None)
        if endpoint.place in self._tasks:
            self._tasks[endpoint.place][1].set()

    async def _watch(self, endpoint: Endpoint, event: asyncio.Event) -> None:
        # Before Python 3.12 a cancellation is lost if the awaited event comes at the same time.
        while self._tasks.get(endpoint.place, (None, None))[1] is event:
            event.clear()
            try:
                await self.look(endpoint)
            except Exception as error:
                # No other task probes this endpoint.
                say(f"gateway: internal error in the probe of {endpoint.service}: {error!r}")
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(event.wait(), ROUND)

    async def first(self, endpoints: list[Endpoint], seconds: float) -> None:
        """Probes each endpoint once."""
        if endpoints:
            looks = [asyncio.ensure_future(self.look(one)) for one in endpoints]
            _done, late = await asyncio.wait(looks, timeout=seconds)
            for task in late:
                task.cancel()

    async def look(self, endpoint: Endpoint) -> None:
        asked = time.monotonic()
        closely = endpoint.seen != replicas.READY or asked - self._looked.get(endpoint.place, -LOOK) >= LOOK
        try:
            if not closely:
                (await upstream.connect(endpoint.where, CONNECT)).abort()
                return
            seen = await self._health(endpoint)
        except Exhausted:
            return
        except (Unreachable, Broken):
            seen = replicas.DOWN
        fresh = seen == replicas.READY and endpoint.seen != replicas.READY
        self.saw(endpoint, seen)
        if seen == replicas.READY and closely:
            self._looked[endpoint.place] = asked
            with contextlib.suppress(Unreachable, Broken, Exhausted):
                await self._details(endpoint, fresh)

    def saw(self, endpoint: Endpoint, seen: str) -> None:
        if self._fleet.observe(endpoint, seen, time.monotonic(), time.time()):
            self._changed(endpoint)

    async def _health(self, endpoint: Endpoint) -> str:
        seconds = ANSWER if endpoint.seen == replicas.READY else SOON
        status, _body = await self._get(endpoint, "/health", seconds)
        return {200: replicas.READY, 503: replicas.LOADING}.get(status, replicas.DOWN)

    async def _get(self, endpoint: Endpoint, path: str, seconds: float = SOON) -> tuple[int, bytes]:
        return await upstream.get(endpoint.where, path, self._key(endpoint.service), seconds)

    async def _details(self, endpoint: Endpoint, fresh: bool) -> None:
        """Reads slots and their context, and the build of a new process. A router has no slots."""
        pool = self._fleet.pools.get(endpoint.service)
        if pool is None or pool.service.kind == "router":
            return
        props = _json(await self._get(endpoint, "/props"))
        if isinstance(props, dict) and props.get("is_sleeping"):
            return  # /slots would wake it
        slots = _json(await self._get(endpoint, "/slots"))
        if isinstance(slots, list) and slots and all(isinstance(slot, dict) for slot in slots):
            # A server that reports too many would get every conversation.
            endpoint.slots = min(len(slots), endpoint.where.most)
            context = slots[0].get("n_ctx")
            endpoint.slot_ctx_size = int(context) if isinstance(context, float) and 0 <= context < 1 << 31 else None
            pool.pump()
        if fresh or endpoint.build is None:
            build = props.get("build_info") if isinstance(props, dict) else None
            endpoint.build = build.partition("-")[0] if isinstance(build, str) else None


def _json(answer: tuple[int, bytes]) -> Any:
    status, body = answer
    try:
        # An integer of many digits takes Python hours.
        return json.loads(body.decode("utf-8"), parse_int=float) if status == 200 else None
    except (ValueError, RecursionError):
        return None
