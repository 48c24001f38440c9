# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One request on its way: a slot, a server, its answer, and another server where that one ends. Private to the
collection."""

from __future__ import annotations

import asyncio
import collections
import contextlib
from collections import Counter

from .._text import duration
from . import answers, paths, replicas, routing, upstream
from .affinity import Conversation
from .answers import Answer, Unanswered
from .body import Read
from .client import Connection
from .config import Config, Keys
from .events import Cost, Events, only_comments
from .log import Entry
from .paths import Target
from .probes import Prober
from .replicas import Endpoint, Fleet, Pool, Waiter
from .request import Head
from .routing import Route
from .upstream import Broken, Exhausted, Unreachable

# An answer whose length is told is read whole before any of it is passed on, up to so many bytes.
WHOLE = 64 << 20
# Servers that may end under one request, in a service: it may be the request that ends them, or a bad moment.
LOST = 3
# Connections that are tried at all.
TRIES = 8
# Seconds after which to ask again, where nothing better is known.
SOON, FULL, GONE = 10, 5, 5
WORDS_LOADING = b"Loading model"
# The type of the error of a prompt that is longer than a slot.
WORDS_CONTEXT = b"exceed_context_size_error"
# As much of an answer as such words are looked for in.
BEGINNING = 4096


class Cut(Unanswered):
    """The answer ended in the middle, and the client has seen its beginning."""


class Silent(Unanswered):
    """Nothing came, or of a stream no event, for as long as the service may be silent."""


class Stranger(Unanswered):
    """The server does not know the gateway's key; the client's own is a good one."""


class Loading(Unanswered):
    """The server is there again, but not yet its model."""


class Silence:
    """Ends a connection where nothing has come for so many seconds."""

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
    """body: as it came; read: what was read of it."""

    def __init__(
        self,
        fleet: Fleet,
        prober: Prober,
        config: Config,
        keys: Keys,
        connection: Connection,
        entry: Entry,
        head: Head,
        target: Target,
        body: bytes,
        read: Read,
    ) -> None:
        self._loop = asyncio.get_event_loop()
        self._fleet, self._prober, self._config, self._keys = fleet, prober, config, keys
        self._connection, self._entry = connection, entry
        self._head, self._target, self._body, self._read = head, target, body, read
        self._slot = paths.takes_slot(head.method, target.path)
        self._instead: str | None = None  # the service that should have answered

    async def run(self, route: Route) -> Answer | None:
        """None where a server's answer was passed on. Errors: Cut."""
        first = self._route(route)
        # By service.
        lost: Counter[str] = collections.Counter()
        tries: Counter[str] = collections.Counter()
        patient = False
        while True:
            name = route.service.name
            spent = lost[name] >= LOST or tries[name] >= TRIES
            granted = replicas.DOWN if spent else await self._slot_of(route, patient)
            if isinstance(granted, str):
                fallback = routing.to_fallback(self._config, route) if granted != replicas.FULL else None
                if fallback is not None and self._instead is None:
                    self._instead = name
                    route = self._route(fallback)
                elif patient or granted == replicas.FULL:
                    return self._refused(granted, route if granted == replicas.FULL else first)
                else:
                    # Nobody else answers: once more, and now it waits for who is expected back.
                    patient, self._instead = True, None
                    route = self._route(first)
                continue
            tries[name] += 1
            try:
                await self._ask(granted, route)
                return None
            except Silent:
                words = "%s: nothing came in %s: ask for less at once" % (
                    route.service.name,
                    duration(route.service.timeout),
                )
                return answers.error(503, "timeout", words, retry_after=SOON)
            except Exhausted:
                words = "the gateway has no descriptor left: ask again later"
                return answers.error(503, "busy", words, retry_after=FULL)
            except Stranger:
                words = f"{name}: its server does not know the gateway's key: run site.yml, which exchanges both"
                return answers.error(503, "service_key", words, retry_after=SOON)
            except Unreachable:
                self._failed(granted, replicas.DOWN)
            except Loading:
                self._failed(granted, replicas.LOADING)
            except Broken:
                lost[name] += 1
                self._failed(granted, replicas.DOWN)
            finally:
                self._give_back(granted, route)

    def _route(self, route: Route) -> Route:
        self._entry.set(service=route.service.name, model=route.model, fallback=self._instead)
        return route

    def _failed(self, endpoint: Endpoint, seen: str) -> None:
        self._prober.saw(endpoint, seen)
        self._prober.now(endpoint)

    # -- a slot

    async def _slot_of(self, route: Route, patient: bool) -> Endpoint | str:
        pool = self._fleet.pools.get(route.service.name)
        if pool is None:
            return replicas.DOWN
        if not self._slot:
            return pool.visit()
        talk = self._read.talk.of(route.model)
        granted = pool.take(route.model, talk, self._loop.time() if patient else None)
        return await self._wait(pool, route, talk, patient) if granted == replicas.WAIT else granted

    async def _wait(self, pool: Pool, route: Route, talk: Conversation, patient: bool) -> Endpoint | str:
        turn: asyncio.Future[Endpoint | str] = self._loop.create_future()
        waiter = Waiter(route.model, talk, turn.set_result, patient)
        pool.wait(waiter)
        began = self._loop.time()
        try:
            await asyncio.wait([turn], timeout=route.service.timeout)
        except asyncio.CancelledError:
            # The client left: the place in the queue is free again, and the slot, if it came just now.
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

    def _give_back(self, endpoint: Endpoint, route: Route) -> None:
        pool = self._fleet.pools.get(route.service.name)
        if self._slot:
            # Where its service is gone from the configuration, nobody waits.
            (pool or Pool(route.service)).release(endpoint, route.model)

    def _refused(self, why: str, route: Route) -> Answer:
        pool = self._fleet.pools.get(route.service.name)
        name = route.service.name
        if why == replicas.FULL:
            waiting = len(pool.queue) if pool else 0
            words = "%s: all slots are busy and %d requests wait: ask again later" % (name, waiting)
            return answers.error(429, "queue_full", words, retry_after=FULL)
        if why == replicas.LOADING:
            left = pool.seconds_left(self._loop.time()) if pool else None
            about = f"about {duration(round(left))} left" if left else "longer than last time"
            if left is None and not (pool and any(one.load for one in pool.endpoints)):
                about = "how long is not known"
            words = f"{name}: loading its model, {about}: ask again then"
            return answers.error(503, "loading", words, retry_after=left or SOON)
        if why == replicas.STOPPED:
            words = f"{name}: the operator has stopped it: ask there"
            return answers.error(503, "no_endpoint", words, retry_after=60)
        words = f"{name}: none of its servers answers: ask again later"
        return answers.error(503, "no_endpoint", words, retry_after=GONE)

    # -- a server

    def _sent(self, endpoint: Endpoint, route: Route) -> tuple[bytes, bytes]:
        body = self._body
        if route.rewrite is not None and route.rewrite != self._read.asked:
            body = self._read.named(body, route.rewrite)
        key = self._keys.services.get(route.service.name)
        method, target = self._head.method, self._target.sent
        return upstream.head_of(method, target, endpoint.where, self._head.passed(), key, len(body)), body

    def _headers(self, endpoint: Endpoint, route: Route) -> list[tuple[str, str]]:
        told = [("X-Llama-Service", route.service.name), ("X-Llama-Node", endpoint.where.node)]
        if self._instead is not None:
            told.append(("X-Llama-Fallback", self._instead))
        if route.note is not None:
            told.append(("X-Llama-Task", route.note))
        return told

    async def _ask(self, endpoint: Endpoint, route: Route) -> None:
        """Errors: Unreachable, Exhausted, Loading, Silent, Broken before the client has seen anything, Cut after."""
        self._entry.tried(endpoint.where.node)
        endpoint.in_flight += 1
        server: upstream.Upstream | None = None
        silence: Silence | None = None
        self._cost = Cost()
        try:
            server = await upstream.connect(endpoint.where)
            if self._connection.left:
                # A cancellation that comes together with the connection is lost before Python 3.12.
                raise asyncio.CancelledError()
            silence = Silence(self._loop, route.service.timeout, server)
            # One that answers before it has read all may have closed: then its answer is there.
            with contextlib.suppress(Broken):
                await server.send(*self._sent(endpoint, route))
            head = await server.head(self._head.method)
            silence.heard()
            if head.status == 401:
                raise Stranger()
            told = head.sent(self._headers(endpoint, route))
            if head.length is not None and head.length <= WHOLE:
                await self._whole(server, silence, head, told)
            elif head.length is None and "event-stream" in head.type:
                await self._stream(server, silence, head, told)
            else:
                await self._relay(server, silence, head, told)
        except Broken as error:
            if self._connection.started:
                raise Cut(str(error)) from None
            if silence and silence.over:
                raise Silent() from None
            raise
        finally:
            endpoint.in_flight -= 1
            if self._slot:
                self._entry.set(**self._cost.found())
            if silence is not None:
                silence.stop()
            if server is not None:
                server.abort()

    async def _whole(self, server: upstream.Upstream, silence: Silence, head: upstream.Head, told: bytes) -> None:
        framing, pieces = head.framing, []
        while not framing.done:
            data = await server.piece()
            if not data:
                raise Broken("half an answer")
            silence.heard()
            pieces.append(data[: framing.feed(data)])
        body = b"".join(pieces)
        if head.status == 503 and WORDS_LOADING in body and self._target.path != "/health":
            raise Loading()
        self._judge(head, body)
        self._cost.feed(body)
        await self._connection.answer(told, body, self._entry, head.status)

    def _judge(self, head: upstream.Head, beginning: bytes) -> None:
        """Why a server has refused the request, by the first bytes of its answer."""
        if head.status == 400 and WORDS_CONTEXT in beginning[:BEGINNING]:
            self._entry.set(refused="context")

    async def _relay(self, server: upstream.Upstream, silence: Silence, head: upstream.Head, told: bytes) -> None:
        """The head goes with the first byte of the body: until then another server may answer."""
        if self._connection.pinged:
            raise Cut("another server answers in another form")
        framing = head.framing
        bare = not head.chunked and head.length is None
        while not framing.done:
            data = await server.piece()
            if not data and not bare:
                raise Broken("half an answer")
            silence.heard()
            count = framing.feed(data)
            self._cost.feed(framing.content)
            if bare:
                # Its end is the end of the connection; to the client it is told in chunks.
                data, ends = upstream.chunk(data) or upstream.LAST, not data
            else:
                data, ends = data[:count], framing.done
            if not self._connection.started:
                self._judge(head, data)
                await self._connection.write(told + data, self._entry, head.status)
            else:
                await self._connection.write(data, self._entry)
            if ends:
                return

    async def _stream(self, server: upstream.Upstream, silence: Silence, head: upstream.Head, told: bytes) -> None:
        """Events, in chunks of our own. Until the first one another server may answer; comments, which only say that
        the server is there, are passed on before."""
        framing, events, held = head.framing, Events(), b""
        ends = False
        while not ends:
            data = await server.piece()
            if not data and head.chunked:
                raise Broken("half an answer")
            framing.feed(data)
            ends = framing.done or not data
            held += framing.content
            self._cost.feed(framing.content)
            alive = events.feed(framing.content)
            if alive:
                silence.heard()
            begin = b"" if self._connection.started or self._connection.pinged else told
            sent = begin + upstream.chunk(held)
            if alive or ends or self._connection.started:
                status = None
                if not self._connection.started:
                    self._judge(head, held)
                    status = head.status
                await self._connection.write(sent + (upstream.LAST if ends else b""), self._entry, status)
            elif only_comments(held):
                await self._connection.ping(sent, self._entry)
            elif len(held) > BEGINNING:
                raise Broken("a stream without an event")
            else:
                continue
            held = b""
