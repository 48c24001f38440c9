# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Moving very large files: several connections, every byte written once at its final place, hashed on the way, resumable.

A target grows as NAME.partial, allocated in full before the first byte, so that the disk cannot run out half-way; beside
it a journal says which bytes are there. Workers fetch ranges, one hasher per span follows the unbroken run of bytes from
the span's start (reading back what is still in the page cache), a flusher sends data to disk every few seconds, so that
little is left to flush at the end. run() returns when every byte is there and every known digest agrees; nothing has
been published by then: that is the caller's last step.
"""

import contextlib
import ctypes
import errno
import hashlib
import os
import threading
import time
from collections import namedtuple

from ._bytes import human
from ._http import Client, FetchError, Transient, worthwhile
from ._journal import Journal, Ranges, is_ours, open_regular

BLOCK = 1 << 20  # bytes per write; what a kill can lose per connection, besides the socket's buffer
_READ = 64 << 10  # bytes received at once, so that a slow connection shows progress too
_LARGEST_CHUNK = 32 << 20  # bytes asked for at once: a lost connection or an expired URL costs little
_SMALLEST_CHUNK = 4 << 20
_FLUSH_EVERY = 5.0  # seconds
_MARGIN = 64 << 20  # bytes of disk left to others
_MAX_FAILURES = 10  # in a row without a byte gained: about four minutes
_FIRST_BACKOFF = 0.5  # seconds, doubled with each failure
_MAX_BACKOFF = 60.0
_RATE_OVER = 10.0  # seconds
_TICK = 1.0  # seconds between reports
_KEEP_SIZE, _PUNCH_HOLE = 1, 2  # modes of fallocate
_HELD_UP = 5.0  # seconds that a chunk is given before an idle connection takes the rest of it, doubled each time
_MAX_TAKEN = 5  # times

Piece = namedtuple("Piece", "source offset size")
"""``size`` bytes of a resolved source (an object of _http) that belong at ``offset`` of the target."""

Span = namedtuple("Span", "start end sha256 name")
"""Bytes [start, end) of the target that are hashed together; sha256 is the needed hex digest or None; name is for errors."""


class Target(object):
    """One file to make. identity: JSON-able; a half-fetched file is resumed only under the same identity."""

    def __init__(self, path, pieces, spans, identity):
        self.path, self.pieces, self.spans, self.identity = path, pieces, spans, identity
        self.size = pieces[-1].offset + pieces[-1].size
        self.partial = path + ".partial"
        self.journal = Journal(self.partial + ".journal")
        self.ranges = Ranges()
        self.flushed = Ranges()  # of these, what is on disk for certain
        self.lost = False  # a flush has failed: this run records nothing more
        self.digests = [None] * len(spans)  # hex, once hashed
        self.fd = None

    def load(self):
        """Learn from an earlier run's journal which bytes are there."""
        status = os.lstat(self.partial) if os.path.lexists(self.partial) else None
        there = status.st_size if status and is_ours(status) else 0
        self.ranges = self.journal.load(self.identity)
        self.flushed = Ranges(self.journal.flushed)
        for ranges in (self.ranges, self.flushed):
            ranges.remove(there, max(there, self.size))

    def open(self):
        """Open the partial file, flush what it holds, begin a journal over it. Bytes without a record are not kept."""
        if not self.ranges.total():
            self.discard()
        fresh = os.O_CREAT | os.O_EXCL if not self.ranges.total() else 0
        self.fd = open_regular(self.partial, os.O_RDWR | fresh, 0o600)
        if not fresh and not is_ours(os.fstat(self.fd)):
            raise FetchError("%s: was exchanged, the file of an earlier run is needed: look at who writes its directory, then run again" % self.partial)
        # Until it is proved nobody else reads it: what is copied into it may turn out to be another file.
        os.fchmod(self.fd, 0o600)
        self.flush()
        self.journal.start(self.identity, self.ranges)

    def flush(self, lock=None):
        """Have on disk what has been written; lock: guards ranges and journal. -> records of the journal that this covers; raises FetchError.

        The kernel reports a loss once, a second call would say that all is well: after a failure what came since the last flush is forgotten.
        """
        lock = lock or threading.Lock()
        with lock:
            ranges, count = Ranges(self.ranges), self.journal.count
        try:
            os.fdatasync(self.fd)
        except OSError as error:
            with lock:
                self.lost, self.ranges = True, self.flushed
                self.journal.delete()
                with contextlib.suppress(OSError):
                    self.journal.start(self.identity, self.ranges)
            raise disk_failure(self.partial, error) from None
        self.flushed = ranges
        return count

    def allocate(self):
        """Reserve the disk for all of it, before the first byte comes."""
        try:
            _allocate(self.fd, self.size)
        except OSError as error:
            raise disk_failure(self.partial, error) from None

    def forget(self, start, end):
        """Give back what was written there and is not what was needed."""
        if not self.ranges.total():
            self.discard()
            return
        with contextlib.suppress(OSError):
            _fallocate(self.fd, _KEEP_SIZE | _PUNCH_HOLE, start, end - start)

    def publish(self):
        """Have the partial file under the target's name, readable as a new file is. Raises FetchError where another file is under one of these names."""
        umask = os.umask(0o077)
        os.umask(umask)
        os.fchmod(self.fd, 0o644 & ~umask)
        self._require_name(self.partial)
        os.rename(self.partial, self.path)
        self._require_name(self.path)

    def _require_name(self, path):
        if not os.path.samestat(os.lstat(path), os.fstat(self.fd)):
            raise FetchError("%s: was exchanged, the file that was proved is needed: look at who writes its directory, then run again" % path)

    def close(self):
        self.journal.close()
        if self.fd is not None:
            os.close(self.fd)
            self.fd = None

    def discard(self):
        """Remove what an earlier run left."""
        self.close()
        self.journal.delete()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.partial)

    def missing_disk(self):
        """Bytes of disk that this target still has to take; what a partial file holds is used or given back."""
        there = os.lstat(self.partial).st_blocks * 512 if os.path.lexists(self.partial) else 0
        return max(0, self.size - there)


def _allocate(fd, size):
    """Reserve the blocks of ``size`` bytes; where the file system cannot (NFS before 4.2), only set the length."""
    try:
        _fallocate(fd, 0, 0, size)
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.ENOSYS):
            raise
        os.ftruncate(fd, size)


def _fallocate(fd, mode, start, size):
    """Linux' call; an OSError where it fails or is none.

    Not os.posix_fallocate: where the file system has no such call, the C library writes to every block instead.
    """
    call = getattr(ctypes.CDLL(None, use_errno=True), "fallocate", None)
    if call is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    call.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_longlong, ctypes.c_longlong)
    if call(fd, mode, start, size):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def free_disk(folder):
    """Bytes an ordinary process may still take in the file system of ``folder``."""
    status = os.statvfs(folder)
    return status.f_bavail * status.f_frsize


class DiskTooSmall(FetchError):
    """A model does not fit the disk. disk: {folder, free, missing}, bytes."""

    def __init__(self, message, folder, free, missing):
        FetchError.__init__(self, message)
        self.disk = {"folder": folder, "free": free, "missing": missing}


def check_disk(folder, name, size, missing):
    """Raise DiskTooSmall when ``missing`` bytes of a model of ``size`` bytes do not fit. A folder to come counts as its parent."""
    while not os.path.isdir(folder):
        folder = os.path.dirname(folder)
    free = free_disk(folder)
    if missing + _MARGIN > free:
        needs = "%s needs %s" % (name, human(size)) if missing == size else "%s needs %s more of its %s" % (name, human(missing), human(size))
        message = "%s has %s free, %s and %s to spare: free space or set dest elsewhere" % (folder, human(free), needs, human(_MARGIN))
        raise DiskTooSmall(message, folder, free, missing + _MARGIN)


def disk_failure(path, error):
    """An OSError from writing to ``path`` as the sentence for the operator."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        free = human(free_disk(os.path.dirname(path)))
        return FetchError("%s: the disk is full (%s free): free space and run again, what was fetched is kept" % (path, free))
    return FetchError("%s: cannot be written: %s" % (path, error.strerror))


class Stopped(Exception):
    """The run was asked to stop; it can be resumed."""


class _Segment(object):
    """The part of a piece that lies in one span, with its bytes still to be asked for."""

    def __init__(self, target, piece, start, end):
        self.target, self.piece = target, piece
        self.gaps = target.ranges.gaps(start, end)

    def take(self, size):
        """(start, end) of the next at most ``size`` bytes, or None."""
        if not self.gaps:
            return None
        start, end = self.gaps[0]
        cut = min(end, start + size) if self.piece.source.ranges else end
        self.gaps[0:1] = [(cut, end)] if cut < end else []
        return start, cut


class _Chunk(object):
    """Bytes that one connection fetches: [start, end) of a segment's target, those before ``position`` are written or being written."""

    def __init__(self, segment, start, end, taken=0):
        self.segment, self.start, self.end, self.taken = segment, start, end, taken
        self.position, self.begun, self.client = start, time.monotonic(), None


def held_up(chunks, now, usual):
    """The chunk that holds the transfer up longest, None when none does. usual: bytes per second that a connection has got so far.

    That is one whose connection is four times slower than usual, had its time to begin, and needs longer than that for the rest.
    """
    found, longest = None, 0.0
    for chunk in chunks:
        went, left = now - chunk.begun, chunk.end - chunk.position
        patience = _HELD_UP * 2**chunk.taken
        if not chunk.segment.piece.source.ranges or chunk.taken == _MAX_TAKEN or not left or went < patience:
            continue
        rate = (chunk.position - chunk.start) / went
        needs = left / rate if rate else float("inf")
        if rate < usual / 4 and needs > max(patience, longest):
            found, longest = chunk, needs
    return found


class _Lane(object):
    """One span of one target: its segments in order, and its digest in the making."""

    def __init__(self, target, number):
        self.target, self.number, self.span = target, number, target.spans[number]
        self.segments = []
        for piece in target.pieces:
            start, end = max(self.span.start, piece.offset), min(self.span.end, piece.offset + piece.size)
            if not piece.source.ranges and self.span.start <= piece.offset < self.span.end:
                # A source without ranges comes in one go from its first byte: what an earlier run has of it is of no use.
                end = piece.offset + piece.size
                if target.ranges.gaps(start, end):
                    target.ranges.remove(start, end)
            elif not piece.source.ranges:
                continue
            if start < end:
                self.segments.append(_Segment(target, piece, start, end))

    def waiting(self):
        return sum(end - start for segment in self.segments for start, end in segment.gaps)

    def take(self, size):
        for segment in self.segments:
            chunk = segment.take(size)
            if chunk:
                return segment, chunk
        return None


def _fill(body, buffer):
    """Receive a bufferful, less when a second has passed or the body ends. -> (bytes received, the Transient that ended it or None)"""
    filled, deadline = 0, time.monotonic() + 1.0
    try:
        while filled < len(buffer) and body.length and time.monotonic() < deadline:
            filled += body.readinto(buffer[filled : filled + _READ])
    except Transient as failure:
        return filled, failure
    return filled, None


class Transfer(object):
    """Fetch and hash targets that have been loaded, opened and allocated.

    connections: 1 to 16. progress(state): called about every second with {done, total, moved: bytes; rate: bytes/s;
    phase: fetch or verify}. stopping(): called as often; a true value (the reason) stops the run with Stopped.
    """

    def __init__(self, targets, connections=8, progress=None, stopping=None, timeout=30.0):
        self.targets, self.connections = targets, connections
        self.progress, self.stopping = progress or (lambda state: None), stopping or (lambda: None)
        self.timeout = timeout
        self.lanes = [_Lane(target, number) for target in targets for number in range(len(target.spans))]
        # Spans that are fetched side by side are hashed side by side, one core each.
        self.abreast = min(4, max(2, os.cpu_count() or 2), len(self.lanes))
        self.total = sum(target.size for target in targets)
        self.resumed = sum(target.ranges.total() for target in targets)
        self.moved = 0  # bytes received and written by this run
        self._unfinished = 0  # of those, bytes of a piece without ranges, which count only once it is whole
        self._turn = 0
        # An adopted piece has been hashed already.
        self._hash_queue = [lane for lane in self.lanes if lane.target.digests[lane.number] is None]
        self._not_before = 0.0  # a server has asked everybody to wait
        self._clients = []
        self._failure = None
        self._running = []  # chunks
        self._got = [0, 0.0]  # bytes of finished chunks, and the seconds that their connections took
        lock = threading.RLock()
        self._state = threading.Condition(lock)
        self._idle = threading.Condition(lock)  # of workers without a chunk: nobody wakes them for every block
        self._samples = []

    def run(self):
        """Raises FetchError (the first failure of any thread) or Stopped; the partial files keep what came."""
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

    def _finish(self, threads, flusher):
        for thread in threads:
            thread.join()
        with self._state:
            self._hash_queue = None  # tells the flusher that nothing more will come
            self._state.notify_all()
        flusher.join()

    def _keep(self):
        """After a failure: leave records that a next run can trust."""
        for target in self.targets:
            if not target.ranges.total():
                target.discard()
                continue
            # On a full disk the journal written so far stays as it is.
            with contextlib.suppress(OSError, FetchError):
                target.flush()
                target.journal.start(target.identity, target.ranges)

    def _guard(self, body):
        try:
            body()
        except Stopped:
            pass
        except Exception as error:
            self._fail(error)

    def _fail(self, error):
        with self._state:
            if self._failure is None:
                self._failure = error
            self._state.notify_all()
            self._idle.notify_all()
            clients = list(self._clients)
        for client in clients:
            client.abort()

    def _check(self):
        if self._failure is not None:
            raise Stopped()

    def _report(self, phase):
        now = time.monotonic()
        with self._state:
            moved = self.moved
            done = sum(target.ranges.total() for target in self.targets) + self._unfinished
        self._samples = [sample for sample in self._samples if now - sample[0] <= _RATE_OVER] + [(now, moved)]
        since, before = self._samples[0]
        rate = (moved - before) / (now - since) if now > since else 0.0
        self.progress({"phase": phase, "done": done, "total": self.total, "moved": moved, "rate": rate})

    # Workers

    def _work(self):
        client = Client(self.timeout)
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

    def _take(self, client):
        """The next chunk, from the lanes abreast in turn, smaller towards the end so that all connections finish together; None when all is fetched."""
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

    def _next(self):
        waiting = [lane for lane in self.lanes if any(segment.gaps for segment in lane.segments)]
        if not waiting:
            return None
        left = sum(lane.waiting() for lane in waiting)
        size = min(max(left // (2 * self.connections), _SMALLEST_CHUNK), _LARGEST_CHUNK)
        self._turn += 1
        segment, (start, end) = waiting[: self.abreast][self._turn % min(self.abreast, len(waiting))].take(size)
        return _Chunk(segment, start, end)

    def _take_over(self):
        """The rest of a chunk that holds all others up; its connection is closed."""
        slow = held_up(self._running, time.monotonic(), self._got[0] / self._got[1]) if self._got[1] else None
        if slow is None:
            return None
        rest = _Chunk(slow.segment, slow.position, slow.end, slow.taken + 1)
        slow.end = slow.position
        self._running.remove(slow)
        slow.client.abort()
        return rest

    def _done(self, chunk):
        with self._state:
            if chunk in self._running:
                self._running.remove(chunk)
                self._got[0] += chunk.end - chunk.start
                self._got[1] += time.monotonic() - chunk.begun
            if not self._running:
                self._idle.notify_all()

    def _claim(self, chunk, filled):
        """-> (where the bytes just received belong, how many of them): another connection may have taken the chunk over meanwhile."""
        with self._state:
            position = chunk.position
            chunk.position += min(filled, chunk.end - position)
            return position, chunk.position - position

    def _fetch(self, client, buffer, chunk):
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
                        filled, failure = _fill(body, buffer)
                        position, filled = self._claim(chunk, filled)
                        if filled:
                            self._write(target, buffer[:filled], position, whole)
                finally:
                    body.close()
            if failure is not None and chunk.position < chunk.end:
                gained = not whole and worthwhile(chunk.position - before, time.monotonic() - begun + _FIRST_BACKOFF)
                failures = 1 if gained else failures + 1
                if failures >= _MAX_FAILURES:
                    raise FetchError("%s, %d times in a row: check the source and run again, what was fetched is kept" % (failure, failures))
                if whole:
                    self._forget(chunk.position - chunk.start)
                    chunk.position = chunk.start
                self._back_off(failures, failure.wait)
        if whole:
            self._forget(chunk.end - chunk.start)
            self._mark(target, chunk.start, chunk.end)

    def _write(self, target, view, position, whole):
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

    def _mark(self, target, start, end):
        with self._state:
            if target.lost:
                raise Stopped()
            target.ranges.add(start, end)
            try:
                target.journal.add(start, end)
            except OSError as error:
                raise disk_failure(target.journal.path, error) from None
            self._state.notify_all()

    def _forget(self, count):
        with self._state:
            self._unfinished -= count

    def _back_off(self, failures, wait):
        """Wait before the next attempt. A wait the server asked for holds for every connection."""
        if wait is None:
            wait = min(_FIRST_BACKOFF * 2 ** (failures - 1), _MAX_BACKOFF)
            deadline = time.monotonic() + wait
        else:
            with self._state:
                deadline = self._not_before = max(self._not_before, time.monotonic() + wait)
        self._sleep_until(deadline)

    def _pause(self):
        self._sleep_until(self._not_before)
        self._check()

    def _sleep_until(self, deadline):
        with self._state:
            while self._failure is None and time.monotonic() < deadline:
                self._state.wait(deadline - time.monotonic())

    # Hashers and flusher

    def _hash(self):
        while True:
            with self._state:
                self._check()
                if not self._hash_queue:
                    return
                lane = self._hash_queue.pop(0)
            self._hash_lane(lane)

    def _hash_lane(self, lane):
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
                    raise FetchError("%s: became shorter while it was written: run again" % target.partial)
                digest.update(data)
                position += len(data)
        found = digest.hexdigest()
        if span.sha256 and found != span.sha256:
            with self._state:
                target.ranges.remove(span.start, span.end)  # nobody knows which bytes are wrong
            raise FetchError("%s: sha256 is %s, %s needed: source or transfer is damaged, the next run fetches it again" % (span.name, found, span.sha256))
        target.digests[lane.number] = found

    def _flush(self):
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
