# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Moving very large files: several connections, every byte written once at its final place, hashed on the way,
resumable.

A target grows as NAME.partial, allocated in full before the first byte, so that the disk cannot run out half-way;
beside it a journal says which bytes are there. Workers fetch ranges, one hasher per span follows the unbroken run of
bytes from the span's start (reading back what is still in the page cache), a flusher sends data to disk every few
seconds, so that little is left to flush at the end. run() returns when every byte is there and every known digest
agrees; nothing has been published by then: that is the caller's last step.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import threading
import time
from collections.abc import Sequence
from typing import Callable

from .._text import Refusal
from .errors import Stopped, Transient
from .http import Client, worthwhile
from .lanes import Chunk, Lane, fill, held_up
from .request import Progress, Stopping
from .target import BLOCK, Target, disk_failure

_LARGEST_CHUNK = 32 << 20  # bytes asked for at once: a lost connection or an expired URL costs little
_SMALLEST_CHUNK = 4 << 20
_FLUSH_EVERY = 5.0  # seconds
_MAX_FAILURES = 10  # in a row without a byte gained: about four minutes
_FIRST_BACKOFF = 0.5  # seconds, doubled with each failure
_MAX_BACKOFF = 60.0
_RATE_OVER = 10.0  # seconds
_TICK = 1.0  # seconds between reports


class Transfer:
    """Fetch and hash targets that have been loaded, opened and allocated.

    connections: 1 to 16. progress(state): called about every second with {done, total, moved: bytes; rate: bytes/s;
    phase: fetch or verify}. stopping(): called as often; a true value (the reason) stops the run with Stopped.
    """

    def __init__(
        self,
        targets: Sequence[Target],
        connections: int,
        progress: Progress | None = None,
        stopping: Stopping | None = None,
    ) -> None:
        self.targets, self.connections = targets, connections
        self.progress: Progress = progress or (lambda state: None)
        self.stopping: Stopping = stopping or (lambda: None)
        self.lanes = [Lane(target, number) for target in targets for number in range(len(target.spans))]
        # Spans that are fetched side by side are hashed side by side, one core each.
        self.abreast = min(4, max(2, os.cpu_count() or 2), len(self.lanes))
        self.total = sum(target.size for target in targets)
        self.resumed = sum(target.ranges.total() for target in targets)
        self.moved = 0  # bytes received and written by this run
        self._unfinished = 0  # of those, bytes of a piece without ranges, which count only once it is whole
        self._turn = 0
        # An adopted piece has been hashed already.
        self._hash_queue: list[Lane] | None = [lane for lane in self.lanes if lane.target.digests[lane.number] is None]
        self._not_before = 0.0  # a server has asked everybody to wait
        self._clients: list[Client] = []
        self._failure: BaseException | None = None
        self._running: list[Chunk] = []
        self._got, self._got_over = 0, 0.0  # bytes of finished chunks, and the seconds that their connections took
        lock = threading.RLock()
        self._state = threading.Condition(lock)
        self._idle = threading.Condition(lock)  # of workers without a chunk: nobody wakes them for every block
        self._samples: list[tuple[float, int]] = []

    def run(self) -> None:
        """Raises Refusal (the first failure of any thread) or Stopped; the partial files keep what came."""
        workers = [threading.Thread(target=self._guard, args=(self._work,)) for _number in range(self.connections)]
        hashers = [threading.Thread(target=self._guard, args=(self._hash,)) for _number in range(self.abreast)]
        flusher = threading.Thread(target=self._guard, args=(self._flush,))
        threads = workers + hashers
        for thread in threads + [flusher]:
            thread.daemon = True
            thread.start()
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
            self._finish(threads, flusher)
        if self._failure is not None:
            self._keep()
            raise self._failure
        self._report("verify")

    def _finish(self, threads: Sequence[threading.Thread], flusher: threading.Thread) -> None:
        for thread in threads:
            thread.join()
        with self._state:
            self._hash_queue = None  # tells the flusher that nothing more will come
            self._state.notify_all()
        flusher.join()

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
            self._idle.notify_all()
            clients = list(self._clients)
        for client in clients:
            client.abort()

    def _check(self) -> None:
        if self._failure is not None:
            raise Stopped()

    def _report(self, phase: str) -> None:
        now = time.monotonic()
        with self._state:
            moved = self.moved
            done = sum(target.ranges.total() for target in self.targets) + self._unfinished
        self._samples = [sample for sample in self._samples if now - sample[0] <= _RATE_OVER] + [(now, moved)]
        since, before = self._samples[0]
        rate = (moved - before) / (now - since) if now > since else 0.0
        self.progress({"phase": phase, "done": done, "total": self.total, "moved": moved, "rate": rate})

    # Workers

    def _work(self) -> None:
        client = Client()
        with self._state:
            self._clients.append(client)
        buffer = memoryview(bytearray(BLOCK))
        try:
            while True:
                chunk = self._take(client)
                if chunk is None:
                    return
                self._fetch(client, buffer, chunk)
                self._done(chunk)
        finally:
            client.close()

    def _take(self, client: Client) -> Chunk | None:
        """The next chunk, from the lanes abreast in turn, smaller towards the end so that all connections finish
        together; None when all is fetched."""
        with self._state:
            while True:
                self._check()
                chunk = self._next() or self._take_over()
                if chunk:
                    chunk.client = client
                    self._running.append(chunk)
                    return chunk
                if not any(other.segment.piece.source.ranges for other in self._running):
                    return None
                self._idle.wait(_TICK)

    def _next(self) -> Chunk | None:
        waiting = [lane for lane in self.lanes if any(segment.gaps for segment in lane.segments)]
        if not waiting:
            return None
        left = sum(lane.waiting() for lane in waiting)
        size = min(max(left // (2 * self.connections), _SMALLEST_CHUNK), _LARGEST_CHUNK)
        self._turn += 1
        taken = waiting[: self.abreast][self._turn % min(self.abreast, len(waiting))].take(size)
        return Chunk(taken[0], *taken[1]) if taken else None

    def _take_over(self) -> Chunk | None:
        """The rest of a chunk that holds all others up; its connection is closed."""
        slow = held_up(self._running, time.monotonic(), self._got / self._got_over) if self._got_over else None
        if slow is None:
            return None
        rest = Chunk(slow.segment, slow.position, slow.end, slow.taken + 1)
        slow.end = slow.position
        self._running.remove(slow)
        if slow.client:
            slow.client.abort()
        return rest

    def _done(self, chunk: Chunk) -> None:
        with self._state:
            if chunk in self._running:
                self._running.remove(chunk)
                self._got += chunk.end - chunk.start
                self._got_over += time.monotonic() - chunk.begun
            if not self._running:
                self._idle.notify_all()

    def _claim(self, chunk: Chunk, filled: int) -> tuple[int, int]:
        """-> (where the bytes just received belong, how many of them): another connection may have taken the chunk over
        meanwhile."""
        with self._state:
            position = chunk.position
            chunk.position += min(filled, chunk.end - position)
            return position, chunk.position - position

    def _fetch(self, client: Client, buffer: memoryview, chunk: Chunk) -> None:
        target, piece = chunk.segment.target, chunk.segment.piece
        whole = not piece.source.ranges
        failures = 0
        while chunk.position < chunk.end:
            self._pause()
            before, failure, begun = chunk.position, None, time.monotonic()
            try:
                body = piece.source.open(client, chunk.position - piece.offset, chunk.end - chunk.position)
            except Transient as error:
                failure = error
            else:
                try:
                    while body.length and failure is None and chunk.position < chunk.end:
                        self._check()
                        filled, failure = fill(body, buffer)
                        position, filled = self._claim(chunk, filled)
                        if filled:
                            self._write(target, buffer[:filled], position, whole)
                finally:
                    body.close()
            if failure is not None and chunk.position < chunk.end:
                gained = not whole and worthwhile(chunk.position - before, time.monotonic() - begun + _FIRST_BACKOFF)
                failures = 1 if gained else failures + 1
                if failures >= _MAX_FAILURES:
                    raise Refusal(
                        "%s, %d times in a row: check the source and run again, what was fetched is kept"
                        % (failure, failures)
                    )
                if whole:
                    self._forget(chunk.position - chunk.start)
                    chunk.position = chunk.start
                self._back_off(failures, failure.wait)
        if whole:
            self._forget(chunk.end - chunk.start)
            self._mark(target, chunk.start, chunk.end)

    def _write(self, target: Target, view: memoryview, position: int, whole: bool) -> None:
        end = position + len(view)
        try:
            start = position
            while start < end:
                start += os.pwrite(target.fd, view[start - position :], start)
        except OSError as error:
            raise disk_failure(target.partial, error) from None
        with self._state:
            self.moved += len(view)
            if whole:
                self._unfinished += len(view)
        if not whole:
            self._mark(target, position, end)

    def _mark(self, target: Target, start: int, end: int) -> None:
        with self._state:
            if target.lost:
                raise Stopped()
            target.ranges.add(start, end)
            try:
                target.journal.add(start, end)
            except OSError as error:
                raise disk_failure(target.journal.path, error) from None
            self._state.notify_all()

    def _forget(self, count: int) -> None:
        with self._state:
            self._unfinished -= count

    def _back_off(self, failures: int, wait: float | None) -> None:
        """Wait before the next attempt. A wait the server asked for holds for every connection."""
        if wait is None:
            wait = min(_FIRST_BACKOFF * 2 ** (failures - 1), _MAX_BACKOFF)
            deadline = time.monotonic() + wait
        else:
            with self._state:
                deadline = self._not_before = max(self._not_before, time.monotonic() + wait)
        self._sleep_until(deadline)

    def _pause(self) -> None:
        self._sleep_until(self._not_before)
        self._check()

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
                lane = self._hash_queue.pop(0)
            self._hash_lane(lane)

    def _hash_lane(self, lane: Lane) -> None:
        target, span = lane.target, lane.span
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
                # By the descriptor: the name may lead elsewhere by now.
                data = os.pread(target.fd, min(BLOCK, frontier - position), position)
                if not data:
                    raise Refusal(f"{target.partial}: became shorter while it was written: run again")
                digest.update(data)
                position += len(data)
        found = digest.hexdigest()
        if span.sha256 and found != span.sha256:
            with self._state:
                target.ranges.remove(span.start, span.end)  # nobody knows which bytes are wrong
            raise Refusal(
                "%s: sha256 is %s, %s needed: source or transfer is damaged, the next run fetches it again"
                % (span.name, found, span.sha256)
            )
        target.digests[lane.number] = found

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
