# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Getting one model onto this node: resolve, check the header, reserve, transfer, verify, publish.

Nothing stands under the model's name before it is whole: a complete size and header do not prove that (a preallocated
file passes both), a digest does. Whatever interrupts a run, the next one goes on from its journal.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Sequence
from typing import Any

from .._files import sync_folder
from .._model.describe import size_problem
from .._model.gguf import read_header, reading
from .._text import Refusal, duration, human
from .errors import DiskTooSmall
from .http import Client
from .journal import CLOSED
from .lock import lock
from .manifest import Entry, Manifest, Part, file_entry, manifest_path, read_manifest, result, write_manifest
from .pieces import Loose, adopt, extra_disk, loose_pieces, open_same
from .present import alike, existing_entry, unchanged
from .request import Plan, Request, Watch
from .resolve import resolve
from .sources import FileSource
from .target import MARGIN, Piece, Target, check_disk, disk_failure, free_disk
from .transfer import Transfer


def acquire(request: Request, check: bool = False, watch: Watch | None = None) -> dict[str, Any]:
    """Have the model at its place. check: find out everything, change nothing.

    -> the dictionary of result(); raises Refusal, Stopped.
    """
    try:
        return request.in_folder(lambda: _acquire(request, check, watch or Watch()))
    except OSError as error:
        raise disk_failure(error.filename or request.dest, error) from None


def _acquire(request: Request, check: bool, watch: Watch) -> dict[str, Any]:
    started = time.monotonic()
    done = unchanged(request, watch, check)
    if done:
        return done
    client = Client()
    try:
        plan = resolve(request, client, check)
    finally:
        client.close()
    if check:
        return _foretell(request, plan, watch)
    if not os.path.isdir(request.folder()):
        raise Refusal(f"dest: {request.folder()} is not a directory: create it first")
    with lock(plan.path):
        return unchanged(request, watch) or _perform(request, plan, started, watch)


def _missing(
    request: Request, plan: Plan, watch: Watch, check: bool = False
) -> tuple[dict[str, Entry], list[Target], bool]:
    """-> ({target path: manifest entry} of files that are there and good, [targets to fetch], whether anything is to be
    recorded)"""
    entries: dict[str, Entry] = {}
    missing: list[Target] = []
    news = False
    manifest = read_manifest(manifest_path(plan.path))
    for target, header in zip(plan.targets, plan.headers):
        found = existing_entry(request, target, header, manifest, watch, check)
        if found:
            entries[target.path] = found[0]
            news = news or not found[1]
        else:
            target.load()
            missing.append(target)
    return entries, missing, news or bool(missing)


def _reserve(request: Request, missing: Sequence[Target], pieces: Sequence[Loose], check: bool = False) -> None:
    """See that the disk suffices. pieces: those of loose_pieces().

    A damaged file keeps its name until the good one takes it, unless the disk does not hold both.
    """
    if not missing:
        return
    needed = sum(target.missing_disk() for target in missing)
    needed -= sum(loose.piece.size for loose in pieces if loose.ours)
    size = sum(target.size for target in missing)
    first, kept = missing[0].path, _kept(pieces)
    needed = max(0, needed) + extra_disk(pieces)
    folder = os.path.dirname(first)
    freed = sum(os.lstat(path).st_blocks * 512 for path in request.damaged)
    if request.damaged and needed + MARGIN > free_disk(folder) and needed + MARGIN <= free_disk(folder) + freed:
        if check:
            return
        for path in request.damaged:
            os.unlink(path)
    try:
        check_disk(folder, os.path.basename(first), size, needed)
    except DiskTooSmall as error:
        if not kept:
            raise
        text = "%s; %s would be used without a copy if only root could write it: chown root, chmod go-w" % (
            error,
            ", ".join(kept),
        )
        raise DiskTooSmall(text, error.disk["folder"], error.disk["free"], error.disk["missing"]) from None


def _kept(pieces: Sequence[Loose]) -> list[str]:
    """Paths of pieces that are copied and stay: they are not root's alone."""
    return [loose.path for loose in pieces if not loose.ours]


def _foretell(request: Request, plan: Plan, watch: Watch) -> dict[str, Any]:
    """What a run would do, for check mode."""
    entries, missing, news = _missing(request, plan, watch, check=True)
    with loose_pieces(request.adopt, missing) as pieces:
        _reserve(request, missing, pieces, check=True)
        kept = _kept(pieces)
    names = [name for target in missing for name in alike(target)]
    for target in missing:
        parts = [Part(span.end - span.start, span.sha256) for span in target.spans]
        entries[target.path] = Entry(os.path.basename(target.path), target.size, parts)
    outcome = "would be fetched" if missing else "is there"
    if request.damaged:
        outcome += " again, because what is there is damaged"
    foretold = result(
        _manifest(request, plan, entries),
        os.path.dirname(plan.path),
        news,
        f"{plan.path} ({human(plan.size)}) {outcome}",
    )
    return dict(foretold, alike=names, kept=kept)


@contextlib.contextmanager
def _copied_on_node(plan: Plan, missing: Sequence[Target], watch: Watch) -> Iterator[int]:
    """Have targets that lie beside under another name copied from there, instead of fetched. -> bytes of them

    That file stays what it is: somebody may use it by its name.
    """
    headers = dict(zip([target.path for target in plan.targets], plan.headers))
    copied = 0
    with contextlib.ExitStack() as stack:
        for target in missing:
            proved = all(span.sha256 for span in target.spans) and not target.ranges.total()
            for name in alike(target) if proved else ():
                path = os.path.join(os.path.dirname(target.path), name)
                fd = open_same(path, target, headers[target.path], watch.meter(target.path, target.size))
                if fd is not None:
                    stack.callback(os.close, fd)
                    # Not by its name, which may lead elsewhere by now.
                    source = FileSource("/proc/self/fd/%d" % fd)
                    source.resolve(None)
                    target.pieces = [Piece(source, 0, target.size)]
                    copied += target.size
                    break
        yield copied


def _perform(request: Request, plan: Plan, started: float, watch: Watch) -> dict[str, Any]:
    entries, missing, news = _missing(request, plan, watch)
    resumed = sum(target.ranges.total() for target in missing)
    moved = copied = 0
    try:
        with loose_pieces(request.adopt, missing) as pieces:
            _reserve(request, missing, pieces)
            adopted, kept = sum(loose.piece.size for loose in pieces), _kept(pieces)
            adopt(pieces, watch.meter(plan.path, adopted))
        for target in missing:
            if target.fd == CLOSED:
                target.open()
            target.allocate()
        if missing:
            with _copied_on_node(plan, missing, watch) as copied:
                transfer = Transfer(missing, request.connections, watch.progress, watch.stopping)
                transfer.run()
            moved = transfer.moved - copied
            _verify(missing)
        _publish(request, plan, entries, missing)
    finally:
        for target in missing:
            target.close()
    seconds = time.monotonic() - started
    counts = ((moved, " fetched"), (copied, " copied on the node"), (resumed, " resumed"), (adopted, " adopted"))
    parts = [human(count) + what for count, what in counts if count]
    outcome = f"{', '.join(parts)} in {duration(seconds)}" if missing else there(plan.verified)
    if request.damaged:
        outcome += ", in the place of a damaged file"
    if kept:
        outcome += f"; copied and still there, because not only root may write it: {', '.join(kept)}"
    done = result(_manifest(request, plan, entries), os.path.dirname(plan.path), news, f"{plan.path}: {outcome}")
    return dict(done, transferred=moved, resumed=resumed, adopted=adopted, kept=kept, seconds=round(seconds, 1))


def there(verified: str) -> str:
    """What to say of a file that was there: size and header prove nothing."""
    return "is there and proved" if verified == "sha256" else "is there, with the source's size and header"


def _verify(targets: Sequence[Target]) -> None:
    """Header and exact size of what is on disk now, as llama.cpp will read it."""
    for target in targets:
        header = read_header(reading(target.fd), target.partial)
        problem = size_problem(header, os.fstat(target.fd).st_size, target.partial)
        if problem:
            target.discard()
            raise Refusal(problem)


def _publish(request: Request, plan: Plan, entries: dict[str, Entry], targets: Sequence[Target]) -> None:
    """Give the files their names. The manifest comes first: a model without one would have to be hashed again."""
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
