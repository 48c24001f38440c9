# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files that exist before a fetch: a published model, or a file under the wanted name. Private to the collection."""

from __future__ import annotations

import os
from typing import Any

from .._files import is_trusted
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
    manifest_path,
    result,
    untouched,
    write_manifest,
)
from .request import Advance, Request, Watch
from .target import Target


def own_file(path: str) -> os.stat_result:
    """lstat of a model file. Raises Refusal for a link and for a file of another user; OSError."""
    seen = os.lstat(path)
    if not is_trusted(seen):
        raise Refusal(f"{path}: a regular file of root's with one name is needed: chown root it, or remove it")
    return seen


def unchanged(request: Request, watch: Watch, check: bool = False, hashing: bool = True) -> dict[str, Any] | None:
    """The result for a model that was published for this request and is untouched since, or None.

    A file with another time or inode is hashed, and the record renewed unless ``check``; without ``hashing`` the
    answer is None then. A published file that is damaged goes to request.damaged, and is fetched again: None. Raises
    Refusal if another file has its name, or others may write the folder.
    """
    request.require_own_folder()
    if request.damaged:
        return None
    folder = request.folder()
    # Shards keep their names, and a folder as dest leaves the name to the source: there the request decides.
    found = [
        (path, manifest)
        for path, manifest in find_manifests(folder, request.identity())
        if request.into_folder or path == request.dest or shard_name(os.path.basename(path))
    ]
    if not found:
        return None
    path, manifest = found[0]
    try:
        seen = [own_file(os.path.join(folder, entry.name)) for entry in manifest.files]
    except FileNotFoundError:
        return None
    files: list[Entry] = []
    for entry, status in zip(manifest.files, seen):
        at = os.path.join(folder, entry.name)
        if untouched(entry, status) and not request.full:
            files.append(entry)
        elif hashing or status.st_size != entry.size:
            try:
                if status.st_size != entry.size:
                    sizes = f"{exact(status.st_size)}, {exact(entry.size)} were published"
                    raise Refusal(f"{at}: has {sizes}: remove it and run again")
                pieces = compared(at, entry.pieces, watch.meter(at, entry.size))
                files.append(file_entry(entry.name, status, pieces)._replace(found=entry.found))
            except Refusal:
                if not _is_published(entry, status):
                    raise
                request.damaged.add(at)
    if len(files) < len(seen):
        return None
    touched = files != manifest.files or request.full
    manifest = manifest._replace(files=files)
    if touched and not check:
        write_manifest(manifest_path(path), manifest)
    outcome = "hashed again" if touched else "untouched since it was published"
    return result(manifest, folder, False, f"{path} is there, {outcome}")


def _is_published(entry: Entry, status: os.stat_result) -> bool:
    """Whether a file is the one that was fetched and recorded, whatever its bytes are now."""
    return status.st_ino == entry.inode and not entry.found


def compared(path: str, pieces: list[Part], advance: Advance) -> list[Part]:
    """The pieces of a file with all digests, after hashing it. Raises Refusal if one differs."""
    digests = hash_pieces(path, [piece.size for piece in pieces], advance)
    for piece, digest in zip(pieces, digests):
        if piece.sha256 not in (None, digest):
            text = f"{path}: sha256 is {digest}, {piece.sha256} needed"
            raise Refusal(f"{text}: damaged or replaced, remove it and run again")
    return [piece._replace(sha256=digest) for piece, digest in zip(pieces, digests)]


def existing_entry(
    request: Request, target: Target, header: Header | None, manifest: Manifest | None, watch: Watch
) -> Entry | None:
    """The manifest entry of the file under the target's name; None without one, or for a damaged published one.

    manifest: of the model that the target belongs to. The file must be the wanted one: by digest if one is known, else
    by exact size and the source's own header (models of one family and quant have the same size). Raises Refusal.
    """
    if not os.path.lexists(target.path) or target.path in request.damaged:
        return None
    name = os.path.basename(target.path)
    records = [entry for entry in (manifest.files if manifest else []) if entry.name == name]
    # A file that was verified by a digest is of this source too when the digest is no longer given.
    same = manifest is not None and request.identity() in (manifest.request, dict(manifest.request, sha256=[]))
    status = own_file(target.path)
    try:
        return _compared_entry(target, header, records, same, watch, status)
    except Refusal:
        if not same or not any(_is_published(entry, status) for entry in records):
            raise
    request.damaged.add(target.path)
    return None


def _compared_entry(
    target: Target, header: Header | None, records: list[Entry], same: bool, watch: Watch, status: os.stat_result
) -> Entry:
    """records: of this file in the manifest beside it; same: whether that is of the same request."""
    path, source = target.path, target.pieces[0].source.name
    otherwise = "remove it or choose another dest"
    if status.st_size != target.size:
        sizes = f"is there with {exact(status.st_size)}, {source} has {exact(target.size)}"
        raise Refusal(f"{path}: {sizes}: {otherwise}")
    wanted = [Part(span.end - span.start, span.sha256) for span in target.spans]
    recorded = [entry for entry in records if untouched(entry, status) and covers(entry.pieces, wanted)]
    if any(piece.sha256 for piece in wanted):
        if recorded:
            return recorded[0]
        try:
            wanted = compared(path, wanted, watch.meter(path, target.size))
        except Refusal:
            raise Refusal(f"{path}: is there, but its sha256 is not that of {source}: {otherwise}") from None
    else:
        with open(path, "rb") as stream:
            if header and read_header(reading(stream.fileno()), path) != header:
                raise Refusal(f"{path}: is there, but its header is not that of {source}: {otherwise}")
        if records and not same:
            # Two trainings of one model have one size and one header.
            raise Refusal(
                f"{path}: is there from another source, and without a sha256 it may differ from {source}: give its "
                f"sha256, {otherwise}"
            )
        # Without a digest the record, which may be of another source, does not replace the look at the header.
        if recorded:
            return recorded[0]
    # found: this collection has not fetched the file, so it never removes it.
    return file_entry(os.path.basename(path), status, wanted)._replace(found=True)
