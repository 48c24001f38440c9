# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The gateway's engine: connections, watched files and timers. Private to the collection."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import time
import traceback
from typing import NamedTuple

from .._node.notify import notify, say
from .._text import Refusal
from . import answers, config, handlers, metrics, request
from .answers import Answer, Answered
from .client import Connection
from .forward import Cut, Forward
from .log import Entry
from .probes import Prober
from .replicas import Endpoint, Fleet
from .watched import Watched, drained, merged

# Seconds between two looks at files, for the first probes, and between two attempts to accept without descriptors.
FILES, FIRST, AGAIN = 0.25, 2.0, 0.5
# Connections that are accepted at once.
AT_ONCE = 64
# Bytes of a body that is parsed by itself, and of all bodies together.
LARGE, HELD = 256 << 10, 512 << 20


class Files(NamedTuple):
    """configuration: the folder of gateway.json and keys.json."""

    configuration: str
    draining: str | None = None
    registry: str | None = None


class Engine(handlers.State):
    """Errors of the constructor: Refusal."""

    def __init__(self, loop: asyncio.AbstractEventLoop, listener: socket.socket, files: Files) -> None:
        self._loop, self._listener, self._files = loop, listener, files
        self._own, self.keys = config.load(files.configuration)
        self.config = self._own
        self.fleet = Fleet()
        self.counts = metrics.Counts()
        self.prober = Prober(self.fleet, self._key, self._log_state)
        self._draining = Watched(files.draining, {"endpoints": []})
        self._registry = Watched(files.registry, None)
        self._connections: set[Connection] = set()
        self._reading = asyncio.Lock()
        self._ending = False
        self._over: asyncio.Future[None] = loop.create_future()

    # -- timers

    async def run(self) -> None:
        """Runs until end() is called and all running requests are answered."""
        self._draining.look()
        self._registry.look()
        await self.prober.first(self._configure(), FIRST)
        self.prober.follow()
        self._accept_on()
        self._notify()
        rounds = asyncio.ensure_future(self._rounds())
        await self._over
        rounds.cancel()
        await asyncio.gather(rounds, return_exceptions=True)
        await self.prober.stop()

    async def _rounds(self) -> None:
        pings = float(os.environ.get("WATCHDOG_USEC") or 0) / 3e6
        pinged = 0.0
        while True:
            await asyncio.sleep(FILES)
            registry = self._registry.look()
            if self._draining.look() or registry:
                self._configure()
                self.prober.follow()
            # While this one ends, the next engine notifies for the unit.
            if not self._ending and pings and time.monotonic() - pinged >= pings:
                pinged = time.monotonic()
                notify("WATCHDOG=1")

    def _configure(self) -> list[Endpoint]:
        """Applies the configuration and returns new endpoints."""
        self.config, drains = merged(self._own, self._registry.value or {"endpoints": []})
        new = self.fleet.configure(self.config, time.monotonic(), time.time())
        for endpoint in self.fleet.drain([*drains, *drained(self._draining.value)]):
            self.prober.now(endpoint)
        return new

    def reload(self) -> None:
        """Reads the configuration again (SIGHUP). A broken file changes nothing."""
        try:
            self._own, self.keys = config.load(self._files.configuration)
        except Refusal as refusal:
            say(f"gateway: {refusal}; the earlier configuration stays")
            return
        self._configure()
        self.prober.follow()
        say("gateway: configuration read again")
        self._notify()

    def _notify(self) -> None:
        words = f"{len(self.fleet.pools)} services, {len(self.fleet.endpoints())} endpoints"
        notify("READY=1\nSTATUS=" + words)

    def _key(self, service: str) -> str | None:
        return self.keys.services.get(service)

    def _log_state(self, endpoint: Endpoint) -> None:
        where = endpoint.where
        say("gateway: %s on %s (%s:%d): %s" % (endpoint.service, where.node, where.address, where.port, endpoint.state))

    # -- connections

    def _accept_on(self) -> None:
        """Not by create_unix_server: since Python 3.13 it removes the socket at its end, which is systemd's."""
        if not self._ending:
            self._loop.add_reader(self._listener.fileno(), self._accept)

    def _accept(self) -> None:
        for _one in range(AT_ONCE):
            try:
                accepted, _address = self._listener.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                say(f"gateway: no connection can be accepted ({error.strerror})")
                self._loop.remove_reader(self._listener.fileno())
                self._loop.call_later(AGAIN, self._accept_on)
                return
            accepted.setblocking(False)
            connection = Connection(self._loop, self._serve)
            self._connections.add(connection)
            opened = self._loop.connect_accepted_socket(lambda one=connection: one, accepted)  # type: ignore[misc]
            asyncio.ensure_future(opened)

    def end(self) -> None:
        """Accepts no new request. Running requests are answered."""
        if self._ending:
            return
        self._ending = True
        self._loop.remove_reader(self._listener.fileno())
        self._listener.close()
        self._left()

    def _left(self) -> None:
        if self._ending and not self._connections and not self._over.done():
            self._over.set_result(None)

    async def _serve(self, connection: Connection) -> None:
        entry = Entry()
        try:
            await self._answer(connection, entry)
            connection.close()
        except asyncio.CancelledError:
            # The client has left, or its request did not come. Its work has ended already.
            entry.set(status=entry.fields["status"] or (408 if connection.late else 499), left=True)
            connection.abort()
        except Cut as error:
            entry.set(broken=str(error))
            connection.abort()
        except (OSError, EOFError):
            entry.set(status=entry.fields["status"] or 499, left=True)
            connection.abort()
        except Exception:
            say("gateway: internal error: " + traceback.format_exc().strip().replace("\n", " | "))
            if not connection.started:
                with contextlib.suppress(OSError):
                    await connection.reply(
                        answers.error(500, "internal_error", "internal error of the gateway: see its journal"), entry
                    )
            connection.close()
        finally:
            self._connections.discard(connection)
            # A connection without a request, such as a health check, is not logged.
            if entry.fields["path"] is not None or entry.fields["status"] not in (None, 499):
                entry.write()
                # Pages of the gateway are not counted.
                pages = (*handlers.OPEN, handlers.ROOT, handlers.METRICS)
                if entry.fields["service"] or entry.fields["path"] not in pages:
                    self.counts.ended(entry.fields)
            self._left()

    async def _answer(self, connection: Connection, entry: Entry) -> None:
        try:
            head, body = await connection.read(lambda head: self._refused(connection, head, entry))
        except Answered as answered:
            await connection.reply(answered.answer, entry)
            await connection.linger()
            return
        entry.set(bytes_in=len(body))
        if len(body) < LARGE:
            answer = handlers.judge(self, head, body)
        else:
            # One at a time: parsing takes many times its bytes, and all requests wait.
            async with self._reading:
                answer = handlers.judge(self, head, body)
                await asyncio.sleep(0)
        if not isinstance(answer, Answer):
            note = answer.route.note
            refused = await Forward(self, self.prober, connection, entry, answer).run()
            if refused is None:
                return
            answer = refused
            if note is not None:
                answer = answer._replace(headers=(*answer.headers, ("X-Llama-Task", note)))
        await connection.reply(answer, entry, head.method)

    def _refused(self, connection: Connection, head: request.Head, entry: Entry) -> Answer | None:
        """Judges the head only: a body without a key takes neither memory nor time."""
        name = self.keys.name(head.key)
        entry.set(method=head.method, path=head.shown, client=head.get("x-real-ip"))
        entry.set(key=name, key_seen="known" if name else "dummy" if head.key else "none")
        found = handlers.refused(self, head, name is not None)
        if found is None and head.length and sum(one.held for one in self._connections) + head.length > HELD:
            words = "the bodies of all requests: %d MB are held, as much as is allowed: ask again later" % (HELD >> 20)
            return answers.error(503, "busy", words, retry_after=5)
        connection.held = head.length
        return found
