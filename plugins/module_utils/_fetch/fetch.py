# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Getting one model onto this node: resolve, check the header, reserve, transfer, verify, publish.

No file has the model's name before it is complete: a complete size and header do not prove that (a preallocated file
passes both), a digest does. After any interruption the next run continues from its journal.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator, Sequence
from typing import Any

from .._files import sync_folder
from .._model.describe import size_problem
from .._model.gguf import read_header, reading
from .._text import Refusal, duration, human
from .adopt import Loose, adopt, bytes_to_read, extra_disk, find_pieces
from .existing import existing_entry, unchanged
from .http import Client
from .journal import CLOSED
from .manifest import Entry, Manifest, Part, file_entry, manifest_path, read_manifest, result, write_manifest
from .request import SENT, Plan, Request, Watch
from .resolve import resolve
from .target import MARGIN, Target, check_disk, disk_failure, free_disk
from .transfer import Transfer


def acquire(request: Request, check: bool = False, watch: Watch | None = None) -> dict[str, Any]:
    """Fetch the model to its place. check: find out everything, change nothing.

    -> the dictionary of result(); raises Refusal, Stopped.
    """
    watch = watch or Watch()
    try:
        done = unchanged(request, watch, check)
        if done:
            return done
        with contextlib.closing(Client()) as client:
            plan = resolve(request, client, check)
        if check:
            return _perform(request, plan, watch, check)
        if not os.path.isdir(request.folder()):
            raise Refusal(f"dest: {request.folder()} is not a directory: create it first")
        with lock(plan.path):
            return unchanged(request, watch) or _perform(request, plan, watch)
    except OSError as error:
        raise disk_failure(error.filename or request.dest, error) from None


@contextlib.contextmanager
def lock(path: str) -> Iterator[None]:
    """One run at a time per model. Raises Refusal if another one is at it."""
    fd = os.open(path + ".lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Its last holder may have removed it between our open and flock.
        if not os.path.exists(path + ".lock") or os.stat(path + ".lock").st_ino != os.fstat(fd).st_ino:
            raise BlockingIOError
        try:
            yield
        finally:
            os.unlink(path + ".lock")
    except BlockingIOError:
        raise Refusal(f"{path}: another run is fetching it: wait for that one") from None
    finally:
        os.close(fd)


def awaited(request: Request) -> list[dict[str, Any]]:
    """Files of a bundle that the controller has to send: [{name, path, size, there: bytes that are sent already}].

    Raises DiskTooSmall.
    """
    wanted: list[dict[str, Any]] = []
    for name, path, size in request.bundled_files():
        if not os.path.exists(path) or path in request.damaged:
            there = os.path.getsize(path + SENT) if os.path.exists(path + SENT) else 0
            wanted.append({"name": name, "path": path + SENT, "size": size, "there": there})
    if wanted:
        size = sum(one["size"] for one in wanted)
        missing = max(0, size - sum(one["there"] for one in wanted))
        check_disk(request.folder(), wanted[0]["name"], size, missing)
    return wanted


def _perform(request: Request, plan: Plan, watch: Watch, check: bool = False) -> dict[str, Any]:
    started = time.monotonic()
    manifest = read_manifest(manifest_path(plan.path))
    entries: dict[str, Entry] = {}
    missing: list[Target] = []
    for target, header in zip(plan.targets, plan.headers):
        entry = existing_entry(request, target, header, manifest, watch)
        if entry:
            entries[target.path] = entry
        else:
            target.load()
            missing.append(target)
    news = any(entry not in (manifest.files if manifest else []) for entry in entries.values())
    changed = news or bool(missing)
    if check and request.bundle:
        awaited(request)
        return _planned(request, plan, entries, missing, changed)
    pieces = find_pieces(request.adopt or [one.path + SENT for one in missing if request.bundle], missing)
    if request.bundle and len(pieces) < len(missing):
        _remove_damaged(request)
        raise Refusal(f"{plan.path}: was damaged and is removed: run again, and the bundle's is sent")
    _reserve(request, missing, pieces, check)
    if check:
        return _planned(request, plan, entries, missing, changed)
    resumed, moved = sum(target.ranges.total() for target in missing), 0
    adopted = sum(loose.piece.size for loose in pieces)
    try:
        adopt(pieces, watch.meter(plan.path, bytes_to_read(pieces)))
        for target in missing:
            if target.fd == CLOSED:
                target.open()
            target.allocate()
        if missing:
            transfer = Transfer(missing, request.connections, watch.progress, watch.stopping)
            transfer.run()
            moved = transfer.moved
        _publish(request, plan, entries, missing)
    finally:
        for target in missing:
            target.close()
    seconds = time.monotonic() - started
    took = " received" if request.bundle else " adopted"
    counts = [human(n) + what for n, what in ((moved, " fetched"), (resumed, " resumed"), (adopted, took)) if n]
    verified = "verified" if plan.verified == "sha256" else "has the source's size and header"
    outcome = f"{', '.join(counts)} in {duration(seconds)}" if missing else f"is there and {verified}"
    if request.damaged:
        outcome += ", in the place of a damaged file"
    done = result(_manifest(request, plan, entries), request.folder(), changed, f"{plan.path}: {outcome}")
    return dict(done, transferred=moved, resumed=resumed, adopted=adopted, seconds=round(seconds, 1))


def _planned(
    request: Request, plan: Plan, entries: dict[str, Entry], missing: Sequence[Target], changed: bool
) -> dict[str, Any]:
    """The result of check mode."""
    for target in missing:
        parts = [Part(span.end - span.start, span.sha256) for span in target.spans]
        entries[target.path] = Entry(os.path.basename(target.path), target.size, parts)
    verb = "sent from the bundle" if request.bundle else "fetched"
    outcome = f"would be {verb}" if missing else "is there"
    if request.damaged:
        outcome += " again, because what is there is damaged"
    message = f"{plan.path} ({human(plan.size)}) {outcome}"
    return result(_manifest(request, plan, entries), request.folder(), changed, message)


def _reserve(request: Request, missing: Sequence[Target], pieces: Sequence[Loose], check: bool) -> None:
    """Raise DiskTooSmall if the disk does not suffice.

    A damaged file keeps its name until the good one takes it, unless the disk does not hold both.
    """
    if not missing:
        return
    folder, name = os.path.split(missing[0].path)
    needed = sum(target.missing_disk() for target in missing) - sum(loose.piece.size for loose in pieces)
    needed = max(0, needed) + extra_disk(pieces)
    freed = sum(os.stat(path).st_blocks * 512 for path in request.damaged)
    if freed and 0 < needed + MARGIN - free_disk(folder) <= freed:
        if not check:
            _remove_damaged(request)
        return
    check_disk(folder, name, sum(target.size for target in missing), needed)


def _remove_damaged(request: Request) -> None:
    for path in request.damaged:
        os.unlink(path)


def _publish(request: Request, plan: Plan, entries: dict[str, Entry], targets: Sequence[Target]) -> None:
    """Give the files their names. The manifest comes first: a model without one would have to be hashed again."""
    for target in targets:
        # Header and exact size of what is on disk now, as llama.cpp will read it.
        header = read_header(reading(target.fd), target.partial)
        problem = size_problem(header, os.fstat(target.fd).st_size, target.partial)
        if problem:
            target.discard()
            raise Refusal(problem)
    for target in targets:
        target.flush()
        os.fsync(target.fd)
        pieces = [Part(span.end - span.start, digest) for span, digest in zip(target.spans, target.digests)]
        entries[target.path] = file_entry(os.path.basename(target.path), os.fstat(target.fd), pieces)
    write_manifest(manifest_path(plan.path), _manifest(request, plan, entries))
    # The first shard last: it is the one that gets loaded.
    for target in reversed(targets):
        target.publish()
    sync_folder(os.path.dirname(plan.path))
    for target in targets:
        target.journal.delete()


def _manifest(request: Request, plan: Plan, entries: dict[str, Entry]) -> Manifest:
    files = [entries[target.path] for target in plan.targets]
    return Manifest(request.identity(), plan.commit, plan.verified, plan.facts, files)
