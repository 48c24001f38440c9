# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Moving very large files: several connections, every byte written once at its final place, hashed on the way,
resumable.

A target grows as NAME.partial, allocated in full before the first byte, so that the disk cannot run out half-way;
beside it a journal records which bytes are there. Workers fetch ranges, one hasher per span follows the unbroken run of
bytes from the span's start (reading back from the page cache), a flusher sends data to disk every few seconds, so that
little is left to flush at the end. run() returns when every byte is there and every known digest agrees; nothing has
been published by then: that is the caller's last step.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import threading
import time
from collections.abc import Sequence
from typing import Callable, NamedTuple

from .._text import Refusal
from .errors import Stopped, Transient
from .http import Client, worthwhile
from .request import Progress, Stopping
from .sources import Body
from .target import BLOCK, Piece, Span, Target, disk_failure

_LARGEST_CHUNK = 32 << 20  # bytes asked for at once: a lost connection or an expired URL costs little
_SMALLEST_CHUNK = 4 << 20
_READ = 64 << 10  # bytes received at once, so that a slow connection shows progress too
_FLUSH_EVERY = 5.0  # seconds
_MAX_FAILURES = 10  # in a row that gained next to nothing: about four minutes
_FIRST_BACKOFF = 0.5  # seconds, doubled with each failure
_MAX_BACKOFF = 60.0
_RATE_OVER = 10.0  # seconds
_TICK = 1.0  # seconds between reports


_Missing = tuple[Piece, int, int]  # bytes [start, end) of the target to fetch from a piece's source


class SpanJob(NamedTuple):
    """One span of one target to fetch and hash. missing: still to be asked for, in order."""

    target: Target
    number: int
    span: Span
    missing: list[_Missing]


def _missing(target: Target, span: Span) -> list[_Missing]:
    return [
        (piece, start, end)
        for piece in target.pieces
        for start, end in target.ranges.gaps(max(span.start, piece.offset), min(span.end, piece.offset + piece.size))
    ]


class Transfer:
    """Fetch and hash targets that have been loaded, opened and allocated.

    connections: 1 to 16. progress(state): called about every second with {done, total, moved: bytes; rate: bytes/s;
    phase: fetch or verify}. stopping(): called as often; a true value (the reason) stops the run with Stopped.
    """

    def __init__(self, targets: Sequence[Target], connections: int, progress: Progress, stopping: Stopping) -> None:
        self.targets, self.connections, self.progress, self.stopping = targets, connections, progress, stopping
        self.jobs = [
            SpanJob(target, number, span, _missing(target, span))
            for target in targets
            for number, span in enumerate(target.spans)
        ]
        # Spans that are fetched side by side are hashed side by side, one core each.
        self.abreast = min(4, max(2, os.cpu_count() or 2), len(self.jobs))
        self.total = sum(target.size for target in targets)
        self.moved = 0  # bytes received and written by this run
        self._turn = 0
        # An adopted piece has been hashed already.
        self._hash_queue: list[SpanJob] | None = [job for job in self.jobs if job.target.digests[job.number] is None]
        self._not_before = 0.0  # a server has asked all clients to wait
        self._clients: list[Client] = []
        self._failure: BaseException | None = None
        self._state = threading.Condition(threading.RLock())
        self._samples: list[tuple[float, int]] = []

    def run(self) -> None:
        """Raises Refusal (the first failure of any thread) or Stopped; the partial files keep the received bytes."""
        workers = [self._start(self._work) for _number in range(self.connections)]
        threads = workers + [self._start(self._hash) for _number in range(self.abreast)]
        flusher = self._start(self._flush)
        try:
            while any(thread.is_alive() for thread in threads):
                self._report("fetch" if any(thread.is_alive() for thread in workers) else "verify")
                reason = self.stopping()
                if reason:
                    self._fail(Stopped(reason))
                deadline = time.monotonic() + _TICK
                for thread in threads:
                    thread.join(max(0.0, deadline - time.monotonic()))
        except BaseException as error:
            self._fail(error)
            raise
        finally:
            for thread in threads:
                thread.join()
            with self._state:
                self._hash_queue = None  # ends the flusher
                self._state.notify_all()
            flusher.join()
        if self._failure is not None:
            self._keep()
            raise self._failure
        self._report("verify")

    def _start(self, body: Callable[[], None]) -> threading.Thread:
        thread = threading.Thread(target=self._guard, args=(body,), daemon=True)
        thread.start()
        return thread

    def _keep(self) -> None:
        """After a failure: leave records that a next run can trust."""
        for target in self.targets:
            if not target.ranges.total():
                target.discard()
                continue
            # On a full disk the journal written so far stays as it is.
            with contextlib.suppress(OSError, Refusal):
                target.flush()
                target.journal.start(target.identity, target.ranges)

    def _guard(self, body: Callable[[], None]) -> None:
        try:
            body()
        except Stopped:
            pass
        except Exception as error:
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        with self._state:
            if self._failure is None:
                self._failure = error
            self._state.notify_all()
            for client in self._clients:
                client.abort()

    def _check(self) -> None:
        if self._failure is not None:
            raise Stopped()

    def _report(self, phase: str) -> None:
        now = time.monotonic()
        with self._state:
            moved = self.moved
            done = sum(target.ranges.total() for target in self.targets)
        self._samples = [sample for sample in self._samples if now - sample[0] <= _RATE_OVER] + [(now, moved)]
        since, before = self._samples[0]
        rate = (moved - before) / (now - since) if now > since else 0.0
        self.progress({"phase": phase, "done": done, "total": self.total, "moved": moved, "rate": rate})

    # Workers

    def _work(self) -> None:
        buffer = memoryview(bytearray(BLOCK))
        with contextlib.closing(Client()) as client:
            with self._state:
                self._clients.append(client)
            while chunk := self._take():
                self._fetch(client, buffer, *chunk)

    def _take(self) -> tuple[Target, Piece, int, int] | None:
        """The next chunk, from the spans abreast in turn, smaller towards the end so that all connections finish
        together; None when everything has been asked for."""
        with self._state:
            self._check()
            waiting = [job for job in self.jobs if job.missing]
            if not waiting:
                return None
            left = sum(end - start for job in waiting for _piece, start, end in job.missing)
            size = min(max(left // (2 * self.connections), _SMALLEST_CHUNK), _LARGEST_CHUNK)
            self._turn += 1
            job = waiting[self._turn % min(self.abreast, len(waiting))]
            piece, start, end = job.missing.pop(0)
            if start + size < end:
                job.missing.insert(0, (piece, start + size, end))
            return job.target, piece, start, min(end, start + size)

    def _fetch(self, client: Client, buffer: memoryview, target: Target, piece: Piece, start: int, end: int) -> None:
        position, failures = start, 0
        while position < end:
            self._sleep_until(self._not_before)
            self._check()
            before, failure, begun = position, None, time.monotonic()
            try:
                body = piece.source.open(client, position - piece.offset, end - position)
            except Transient as error:
                failure = error
            else:
                with contextlib.closing(body):
                    while body.length and failure is None:
                        self._check()
                        count, failure = fill(body, buffer)
                        if count:
                            target.write(buffer[:count], position)
                            self._mark(target, position, position + count)
                        position += count
            if failure is not None and position < end:
                gained = worthwhile(position - before, time.monotonic() - begun)
                failures = 1 if gained else failures + 1
                if failures >= _MAX_FAILURES:
                    step = "check the source and run again, what was fetched is kept"
                    raise Refusal(f"{failure}, {failures} times in a row: {step}")
                self._back_off(failures, failure.wait)

    def _mark(self, target: Target, start: int, end: int) -> None:
        with self._state:
            if target.lost:
                raise Stopped()
            self.moved += end - start
            target.ranges.add(start, end)
            try:
                target.journal.add(start, end)
            except OSError as error:
                raise disk_failure(target.journal.path, error) from None
            self._state.notify_all()

    def _back_off(self, failures: int, wait: float | None) -> None:
        """Wait before the next attempt. A wait the server asked for holds for every connection."""
        deadline = time.monotonic() + min(_FIRST_BACKOFF * 2 ** (failures - 1), _MAX_BACKOFF)
        if wait is not None:
            with self._state:
                deadline = self._not_before = max(self._not_before, time.monotonic() + wait)
        self._sleep_until(deadline)

    def _sleep_until(self, deadline: float) -> None:
        with self._state:
            while self._failure is None and time.monotonic() < deadline:
                self._state.wait(deadline - time.monotonic())

    # Hashers and flusher

    def _hash(self) -> None:
        while True:
            with self._state:
                self._check()
                if not self._hash_queue:
                    return
                job = self._hash_queue.pop(0)
            self._hash_span(job)

    def _hash_span(self, job: SpanJob) -> None:
        target, span = job.target, job.span
        digest = hashlib.sha256()
        position = span.start
        while position < span.end:
            with self._state:
                while self._failure is None and target.ranges.frontier(position) == position:
                    self._state.wait()
                self._check()
                frontier = min(target.ranges.frontier(position), span.end)
            while position < frontier:
                self._check()
                data = os.pread(target.fd, min(BLOCK, frontier - position), position)
                if not data:
                    raise Refusal(f"{target.partial}: became shorter while it was written: run again")
                digest.update(data)
                position += len(data)
        found = digest.hexdigest()
        if span.sha256 and found != span.sha256:
            with self._state:
                target.ranges.remove(span.start, span.end)  # any of these bytes may be wrong
            step = "source or transfer is damaged, the next run fetches it again"
            raise Refusal(f"{span.name}: sha256 is {found}, {span.sha256} needed: {step}")
        target.digests[job.number] = found

    def _flush(self) -> None:
        while True:
            deadline = time.monotonic() + _FLUSH_EVERY
            with self._state:
                while self._failure is None and self._hash_queue is not None and time.monotonic() < deadline:
                    self._state.wait(deadline - time.monotonic())
                if self._failure is not None or self._hash_queue is None:
                    return
            for target in self.targets:
                count = target.flush(self._state)
                try:
                    with self._state:
                        target.journal.durable(count)
                except OSError as error:
                    raise disk_failure(target.partial, error) from None


def fill(body: Body, buffer: memoryview) -> tuple[int, Transient | None]:
    """Receive a bufferful, less when a second has passed or the body ends. -> (bytes received, the Transient that ended
    it or None)"""
    filled, deadline = 0, time.monotonic() + 1.0
    try:
        while filled < len(buffer) and body.length and time.monotonic() < deadline:
            filled += body.readinto(buffer[filled : filled + _READ])
    except Transient as failure:
        return filled, failure
    return filled, None
