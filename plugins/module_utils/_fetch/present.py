# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is there already: a published model that is untouched, a file under the wanted name, one beside it. Private to
the collection."""

from __future__ import annotations

import os
import stat
from typing import Any

from .._files import is_ours
from .._model.describe import shard_name
from .._model.gguf import Header, read_header, reading
from .._text import Refusal, exact
from .manifest import (
    Entry,
    Manifest,
    Part,
    covers,
    file_entry,
    find_manifests,
    hash_pieces,
    is_model_name,
    manifest_path,
    result,
    untouched,
    write_manifest,
)
from .pieces import proving, writer
from .request import Advance, Request, Watch
from .target import Target


def unchanged(request: Request, watch: Watch, check: bool = False, hashing: bool = True) -> dict[str, Any] | None:
    """The result for a model that was published for this request and is untouched since; None when there is none.

    A file with another time, inode or owner is hashed, and the record renewed unless ``check``; without ``hashing``
    None says that it would have to be. A file of ours that is damaged goes to request.damaged, and is fetched again:
    None. Raises Refusal when another file is there.
    """
    if request.damaged:
        return None
    folder = request.folder()
    # Shards keep their names, and a folder as dest leaves the name to the source: there the request alone decides.
    found = [
        (path, manifest)
        for path, manifest in find_manifests(folder, request.identity())
        if request.into_folder or path == request.dest or shard_name(os.path.basename(path))
    ]
    if not found:
        return None
    path, manifest = found[0]
    entries = [(entry, os.path.join(folder, entry.name)) for entry in manifest.files]
    try:
        touched = [entry for entry, at in entries if not untouched(entry, os.lstat(at)) or request.full]
    except FileNotFoundError:
        return None
    if touched and not hashing:
        # What is seen without hashing.
        request.damaged.update(
            at for entry, at in entries if is_published(entry, at) and os.lstat(at).st_size != entry.size
        )
        return None
    files: list[Entry] = []
    for entry, at in entries:
        if entry not in touched:
            files.append(entry)
            continue
        published = is_published(entry, at)
        # A file that the caller gives away is proved by each run, and not given to and fro.
        with proving(at, check or request.owner is not None) as fd:
            status = os.fstat(fd)
            try:
                if status.st_size != entry.size:
                    raise Refusal(
                        "%s: has %s, %s were published: remove it and run again"
                        % (at, exact(status.st_size), exact(entry.size))
                    )
                pieces = _compared(at, entry.pieces, watch.meter(at, status.st_size), fd)
            except Refusal:
                if not published:
                    raise
                request.damaged.add(at)
                continue
        files.append(file_entry(entry.name, status, pieces)._replace(found=entry.found))
    if request.damaged:
        return None
    manifest = manifest._replace(files=files)
    if touched and not check:
        write_manifest(manifest_path(path), manifest)
    return result(
        manifest,
        folder,
        False,
        f"{path} is there, {'hashed again' if touched else 'untouched since it was published'}",
    )


def is_published(entry: Entry, path: str) -> bool:
    """Whether a file is the very one that was fetched and recorded, whatever its bytes are now."""
    status = os.lstat(path)
    return is_ours(status) and status.st_ino == entry.inode and not entry.found


def _compared(path: str, pieces: list[Part], advance: Advance, fd: int) -> list[Part]:
    """The pieces of a file, once it was hashed, with the digests that nobody knew."""
    digests = hash_pieces(path, [piece.size for piece in pieces], advance, fd)
    for piece, digest in zip(pieces, digests):
        if piece.sha256 not in (None, digest):
            raise Refusal(
                f"{path}: sha256 is {digest}, {piece.sha256} needed: damaged or replaced, remove it and run again"
            )
    return [piece._replace(sha256=digest) for piece, digest in zip(pieces, digests)]


def existing_entry(
    request: Request,
    target: Target,
    header: Header | None,
    manifest: Manifest | None,
    watch: Watch,
    check: bool = False,
) -> tuple[Entry, bool] | None:
    """-> (manifest entry of the file that already stands under the target's name, whether a manifest has it); None when
    there is none, or a damaged one of ours. manifest: of the model that the target belongs to.

    It must be what was asked for: by digest where one is known, else by exact size and the source's own header (models
    of one family and quant have the same size). Raises Refusal.
    """
    if not os.path.lexists(target.path) or target.path in request.damaged:
        return None
    name = os.path.basename(target.path)
    records = [entry for entry in (manifest.files if manifest else []) if entry.name == name]
    # What was proved by a digest is of this source too once the digest is no longer named.
    same = manifest is not None and request.identity() in (manifest.request, dict(manifest.request, sha256=[]))
    published = same and any(is_published(entry, target.path) for entry in records)
    with proving(target.path, check) as fd:
        try:
            return _existing_entry(target, header, records, same, watch, fd)
        except Refusal:
            if not published:
                raise
    request.damaged.add(target.path)
    return None


def _existing_entry(
    target: Target,
    header: Header | None,
    records: list[Entry],
    same: bool,
    watch: Watch,
    fd: int,
) -> tuple[Entry, bool]:
    """records: of this file in the manifest beside it; same: whether that is of the same request."""
    status = os.fstat(fd)
    size = status.st_size
    source = target.pieces[0].source.name
    if size != target.size:
        raise Refusal(
            "%s: is there with %s, %s%s has %s: remove it or choose another dest"
            % (target.path, exact(size), writer(fd), source, exact(target.size))
        )
    wanted = [Part(span.end - span.start, span.sha256) for span in target.spans]
    recorded = [entry for entry in records if untouched(entry, status) and covers(entry.pieces, wanted)]
    if any(piece.sha256 for piece in wanted):
        if recorded:
            return recorded[0], True
        try:
            wanted = _compared(target.path, wanted, watch.meter(target.path, size), fd)
        except Refusal:
            raise Refusal(
                f"{target.path}: is there, but its sha256 is not that of {source}: remove it or choose another dest"
            ) from None
    elif header and read_header(reading(fd), target.path) != header:
        raise Refusal(
            f"{target.path}: is there, but its header is not that of {source}: remove it or choose another dest"
        )
    elif records and not same:
        # Two trainings of one model have one size and one header.
        raise Refusal(
            "%s: is there from another source, and without a sha256 it may differ from %s: give its sha256, remove the "
            "file, or choose another dest" % (target.path, source)
        )
    # Without a digest the record, which may be of another source, does not replace the look at the header.
    if recorded:
        return recorded[0], True
    # Whoever put it there did not ask us: it is used, and not ours to remove.
    return file_entry(os.path.basename(target.path), status, wanted)._replace(found=True), False


def alike(target: Target) -> list[str]:
    """Models beside a target that have its size: one of them may be it, under another name. Models of one family have
    one size, too."""
    folder = os.path.dirname(target.path)
    names = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
    # The directory may be somebody else's, and a name goes to the operator's screen.
    return [
        name
        for name in names
        if is_model_name(name) and name != os.path.basename(target.path) and _file_size(folder, name) == target.size
    ]


def _file_size(folder: str, name: str) -> int | None:
    """Bytes of a regular file, None of anything else."""
    try:
        status = os.lstat(os.path.join(folder, name))
    except FileNotFoundError:
        return None
    return status.st_size if stat.S_ISREG(status.st_mode) else None
