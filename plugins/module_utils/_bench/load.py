# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Many requests at a time from one thread, in a closed loop or at a fixed rate. Private to the collection."""

from __future__ import annotations

import gc
import selectors
import time
from collections.abc import Sequence
from typing import Any

from .exchange import Exchange, Target

# The most requests at a time, also of a fixed rate that the server does not keep up with.
MOST = 512
REFUSED = "not sent: %d requests are under way, the rate is more than the server answers" % MOST


def closed_loop(to: Target, requests: Sequence[bytes], concurrency: int, timeout: float) -> list[Exchange]:
    """Sends all of them, `concurrency` at a time: the next one when one has ended. timeout: seconds for each."""
    return _Load(to, timeout).run(requests, concurrency, None)


def fixed_rate(to: Target, requests: Sequence[bytes], rate: float, timeout: float) -> list[Exchange]:
    """Sends `rate` requests a second, whether others have been answered or not."""
    return _Load(to, timeout).run(requests, MOST, rate)


class _Load:
    def __init__(self, to: Target, timeout: float) -> None:
        self._to, self._timeout = to, timeout
        self._selector = selectors.DefaultSelector()
        self._open: list[Exchange] = []

    def run(self, requests: Sequence[bytes], most: int, rate: float | None) -> list[Exchange]:
        done: list[Exchange] = []
        waiting = list(reversed(requests))
        started = time.monotonic()
        sent = 0
        # A collection of what the controller has loaded takes milliseconds, which would be a server's.
        collects = gc.isenabled()
        gc.disable()
        try:
            while waiting or self._open:
                now = time.monotonic()
                while waiting and len(self._open) < most and (rate is None or started + sent / rate <= now):
                    self._begin(Exchange(self._to, waiting.pop(), self._timeout), done)
                    sent += 1
                pause = 1.0
                if rate is not None and waiting and len(self._open) < most:
                    pause = max(0.0, started + sent / rate - time.monotonic())
                self._turn(min(pause, 1.0), done)
        finally:
            for one in self._open:
                one.give_up("broken off")
            self._selector.close()
            if collects:
                gc.enable()
        return done

    def _begin(self, exchange: Exchange, done: list[Exchange]) -> None:
        if exchange.ended is not None:
            done.append(exchange)
            return
        self._open.append(exchange)
        self._selector.register(exchange.socket, exchange.interest, exchange)

    def _turn(self, pause: float, done: list[Exchange]) -> None:
        for key, _events in self._selector.select(pause):
            exchange: Any = key.data
            was, interest = key.fileobj, exchange.interest
            exchange.go_on()
            if exchange.ended is not None:
                self._end(exchange, was, done)
            elif exchange.socket is not was or exchange.interest != interest:
                self._selector.unregister(was)
                self._selector.register(exchange.socket, exchange.interest, exchange)
        now = time.monotonic()
        for exchange in [one for one in self._open if one.deadline <= now]:
            was = exchange.socket
            self._selector.unregister(was)
            exchange.expire(now)
            self._open.remove(exchange)
            done.append(exchange)

    def _end(self, exchange: Exchange, was: Any, done: list[Exchange]) -> None:
        # Closed already: the selector finds it by what it was registered as.
        self._selector.unregister(was)
        self._open.remove(exchange)
        done.append(exchange)
