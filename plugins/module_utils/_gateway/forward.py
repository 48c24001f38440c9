# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Forwards one request: a slot, a server, its answer, and another server if the first one ends. Private to the
collection."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter

from .._text import duration
from . import answers, paths, replicas, routing, upstream
from .answers import Answer, Answered, Unanswered
from .client import Connection
from .events import Cost, Events, only_comments
from .handlers import Passed, State
from .http_body import LAST, chunk
from .log import Entry
from .probes import Prober
from .replicas import Endpoint, Pool, Waiter
from .routing import Route
from .upstream import Broken, Exhausted, Unreachable

# Bytes up to which an answer with a length is read completely before it is passed on.
WHOLE = 64 << 20
# Servers of a service that may end under one request: the request may be what ends them.
LOST = 3
# Connections that are tried.
TRIES = 8
# Seconds of Retry-After if nothing better is known.
SOON, FULL, GONE = 10, 5, 5
WORDS_LOADING = b"Loading model"
# The type of the error of a prompt that is longer than a slot.
WORDS_CONTEXT = b"exceed_context_size_error"
# Bytes of an answer that are searched for these words.
BEGINNING = 4096


class Cut(Unanswered):
    """The answer broke off after the client has seen its beginning."""


class Loading(Unanswered):
    """The server is running, but loads its model."""


class Silence:
    """Ends a connection after so many seconds without data."""

    def __init__(self, loop: asyncio.AbstractEventLoop, seconds: float, server: upstream.Upstream) -> None:
        self._loop, self._seconds, self._server = loop, seconds, server
        self._last = loop.time()
        self.over = False
        self._timer = loop.call_later(seconds, self._look)

    def heard(self) -> None:
        self._last = self._loop.time()

    def _look(self) -> None:
        left = self._last + self._seconds - self._loop.time()
        if left > 0:
            self._timer = self._loop.call_later(left, self._look)
        else:
            self.over = True
            self._server.abort()

    def stop(self) -> None:
        self._timer.cancel()


class Forward:
    def __init__(self, state: State, prober: Prober, connection: Connection, entry: Entry, passed: Passed) -> None:
        self._loop = asyncio.get_event_loop()
        self._fleet, self._config, self._keys, self._prober = state.fleet, state.config, state.keys, prober
        self._connection, self._entry, self._passed = connection, entry, passed
        self._slot = paths.takes_slot(passed.head.method, passed.target.path)
        self._instead: str | None = None  # the service that should have answered

    async def run(self) -> Answer | None:
        """The gateway's own answer, or None if a server's answer was passed on. Errors: Cut."""
        route = first = self._named(self._passed.route)
        # Counted by service.
        lost: Counter[str] = Counter()
        tries: Counter[str] = Counter()
        patient = False
        while True:
            name = route.service.name
            spent = lost[name] >= LOST or tries[name] >= TRIES
            granted = replicas.DOWN if spent else await self._slot_of(route, patient)
            if isinstance(granted, str):
                fallback = routing.to_fallback(self._config, route) if granted != replicas.FULL else None
                if fallback is not None and self._instead is None:
                    self._instead = name
                    route = self._named(fallback)
                elif patient or granted == replicas.FULL:
                    return self._refused(granted, route if granted == replicas.FULL else first)
                else:
                    # No other service answers: try again, and wait for a service that is expected back.
                    patient, self._instead = True, None
                    route = self._named(first)
                continue
            tries[name] += 1
            try:
                await self._ask(granted, route)
                return None
            except Answered as answered:
                return answered.answer
            except Exhausted:
                words = "the gateway has no descriptor left: ask again later"
                return answers.error(503, "busy", words, retry_after=FULL)
            except (Unreachable, Loading, Broken) as error:
                lost[name] += isinstance(error, Broken)
                self._prober.saw(granted, replicas.LOADING if isinstance(error, Loading) else replicas.DOWN)
                self._prober.now(granted)
            finally:
                if self._slot:
                    # Without its service in the configuration, no request waits.
                    pool = self._fleet.pools.get(name) or Pool(route.service)
                    pool.release(granted, route.model)

    def _named(self, route: Route) -> Route:
        self._entry.set(service=route.service.name, model=route.model, fallback=self._instead)
        return route

    # -- a slot

    async def _slot_of(self, route: Route, patient: bool) -> Endpoint | str:
        pool = self._fleet.pools.get(route.service.name)
        if pool is None:
            return replicas.DOWN
        if not self._slot:
            return pool.visit()
        talk = self._passed.read.talk.of(route.model)
        granted = pool.take(route.model, talk, self._loop.time() if patient else None)
        if granted != replicas.WAIT:
            return granted
        turn: asyncio.Future[Endpoint | str] = self._loop.create_future()
        waiter = Waiter(route.model, talk, turn.set_result, patient)
        pool.wait(waiter)
        began = self._loop.time()
        try:
            await asyncio.wait([turn], timeout=route.service.timeout)
        except asyncio.CancelledError:
            # The client left: free its place in the queue, and its slot if it has just been granted.
            pool.leave(waiter)
            if turn.done() and isinstance(turn.result(), Endpoint):
                pool.release(turn.result(), route.model)  # type: ignore[arg-type]
            raise
        finally:
            self._entry.queued(self._loop.time() - began)
        if turn.done():
            return turn.result()
        pool.leave(waiter)
        return replicas.FULL

    def _refused(self, why: str, route: Route) -> Answer:
        name = route.service.name
        pool = self._fleet.pools.get(name) or Pool(route.service)
        if why == replicas.FULL:
            words = f"{name}: all slots are busy and {len(pool.queue)} requests wait: ask again later"
            return answers.error(429, "queue_full", words, retry_after=FULL)
        if why == replicas.LOADING:
            left = pool.seconds_left(self._loop.time())
            about = f"about {duration(round(left))} left" if left else "longer than last time"
            if left is None and not any(one.load for one in pool.endpoints):
                about = "how long is not known"
            words = f"{name}: loading its model, {about}: ask again then"
            return answers.error(503, "loading", words, retry_after=left or SOON)
        if why == replicas.WAITING:
            waiting = pool.waiting or replicas.NO_WORD
            return answers.error(503, "waiting_for_gpus", f"{name}: {waiting.why}", retry_after=waiting.retry_after)
        stopped = why == replicas.STOPPED
        words = "the operator has stopped it: ask there" if stopped else "none of its servers answers: ask again later"
        return answers.error(503, "no_endpoint", f"{name}: {words}", retry_after=60 if stopped else GONE)

    # -- a server

    def _sent(self, endpoint: Endpoint, route: Route) -> tuple[bytes, bytes]:
        head, target, body, read, _route = self._passed
        if route.rewrite is not None and route.rewrite != read.asked:
            body = read.named(body, route.rewrite)
        key = self._keys.services.get(route.service.name)
        return upstream.head_of(head.method, target.sent, endpoint.where, head.passed(), key, len(body)), body

    def _headers(self, endpoint: Endpoint, route: Route) -> list[tuple[str, str]]:
        named = {"Service": route.service.name, "Node": endpoint.where.node, "Fallback": self._instead}
        named["Task"] = route.note
        return [("X-Llama-" + name, value) for name, value in named.items() if value is not None]

    async def _ask(self, endpoint: Endpoint, route: Route) -> None:
        """Errors: Unreachable, Exhausted, Loading, Answered, Broken before the client has seen anything, Cut after."""
        self._entry.tried(endpoint.where.node)
        endpoint.in_flight += 1
        server: upstream.Upstream | None = None
        silence: Silence | None = None
        self._cost = Cost()
        name, timeout = route.service.name, route.service.timeout
        try:
            server = await upstream.connect(endpoint.where)
            if self._connection.left:
                # A cancellation that comes together with the connection is lost before Python 3.12.
                raise asyncio.CancelledError()
            silence = Silence(self._loop, timeout, server)
            # A server may answer and close before it has read the request.
            with contextlib.suppress(Broken):
                await server.send(*self._sent(endpoint, route))
            head = await server.head(self._passed.head.method)
            silence.heard()
            if head.status == 401:
                # The client's own key is valid.
                words = f"{name}: its server does not know the gateway's key: run site.yml, which exchanges both"
                raise Answered(answers.error(503, "service_key", words, retry_after=SOON))
            begin = head.sent(self._headers(endpoint, route))
            if head.length is not None and head.length <= WHOLE:
                await self._complete(server, silence, head, begin)
            else:
                await self._relay(server, silence, head, begin)
        except Broken as error:
            if self._connection.started:
                raise Cut(str(error)) from None
            if silence and silence.over:
                words = f"{name}: nothing came in {duration(timeout)}: ask for less at once"
                raise Answered(answers.error(503, "timeout", words, retry_after=SOON)) from None
            raise
        finally:
            endpoint.in_flight -= 1
            if self._slot:
                self._entry.set(**self._cost.found())
            if silence is not None:
                silence.stop()
            if server is not None:
                server.abort()

    async def _complete(self, server: upstream.Upstream, silence: Silence, head: upstream.Head, begin: bytes) -> None:
        reader, pieces, ends = head.body, [], head.length == 0
        while not ends:
            piece, ends = await server.piece(head, reader)
            silence.heard()
            pieces.append(piece)
        body = b"".join(pieces)
        if head.status == 503 and WORDS_LOADING in body and self._passed.target.path != "/health":
            raise Loading()
        self._judge(head, body)
        self._cost.feed(body)
        await self._connection.answer(begin, body, self._entry, head.status)

    def _judge(self, head: upstream.Head, beginning: bytes) -> None:
        """Records why a server has refused the request, by the first bytes of its answer."""
        if head.status == 400 and WORDS_CONTEXT in beginning[:BEGINNING]:
            self._entry.set(refused="context")

    async def _relay(self, server: upstream.Upstream, silence: Silence, head: upstream.Head, begin: bytes) -> None:
        """Passes the head on with the first byte of the body, or the first event of a stream: until then another server
        may answer. Comments of a stream are passed on before."""
        events = Events() if head.length is None and "event-stream" in head.type else None
        connection, reader, held, ends = self._connection, head.body, b"", False
        if connection.pinged and events is None:
            raise Cut("another server answers in another form")
        while not ends:
            content, ends = await server.piece(head, reader)
            held += content
            self._cost.feed(content)
            alive = bool(content) if events is None else events.feed(content)
            if alive:
                silence.heard()
            sent = chunk(held) if head.length is None else held
            if not connection.started and not connection.pinged:
                sent = begin + sent
            if alive or ends or connection.started:
                status = None
                if not connection.started:
                    self._judge(head, held)
                    status = head.status
                last = LAST if ends and head.length is None else b""
                await connection.write(sent + last, self._entry, status)
            elif only_comments(held):
                await connection.ping(sent, self._entry)
            elif len(held) > BEGINNING:
                raise Broken("a stream without an event")
            else:
                continue
            held = b""
