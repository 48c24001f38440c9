# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Publishing a model that the controller sent from a bundle: proved on arrival, then renamed, never copied.

The action plugin of gguf_fetch appends to NAME.gguf.sent beside the model. Here every byte of it is hashed; what has
the digests of bundle.json gets its name, what has not is removed. Nobody else is contacted, and the record beside the
model is that of a model fetched for the same request, so a later run with or without the bundle finds it unchanged.

bundled: an entry of bundle.json (module_utils/_fetch/bundle.py): {files: [{name, size, pieces: [{size, sha256}]}],
commit, gguf}.
"""

from __future__ import annotations

import contextlib
import os
import time
from typing import Any

from .._files import is_ours, sync_folder
from .._text import Refusal, duration, exact, human
from .lock import lock
from .manifest import (
    Entry,
    Manifest,
    are_files,
    covers,
    file_entry,
    hash_pieces,
    manifest_path,
    read_manifest,
    result,
    untouched,
    write_manifest,
)
from .pieces import proving
from .present import unchanged
from .request import Request, Watch
from .target import check_disk, disk_failure

SUFFIX = ".sent"


def _places(request: Request, bundled: dict[str, Any]) -> list[tuple[str, Entry]]:
    """[(path, file of the bundle)]; the first is the one that is loaded."""
    if not are_files(bundled["files"]):
        raise Refusal(
            "bundle: its record has files that are not NAME.gguf with size and sha256: make the bundle again with "
            "playbooks/bundle.yml"
        )
    files = [Entry.of(one) for one in bundled["files"]]
    if len(files) == 1 and not request.into_folder:
        return [(request.dest, files[0])]
    return [(os.path.join(request.folder(), one.name), one) for one in files]


def _sent(path: str, check: bool) -> int:
    """Bytes that an earlier run has sent. What others have put there is removed, unless ``check``: the controller
    writes to what has that name."""
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return 0
    if is_ours(status):
        return status.st_size
    if not check:
        try:
            os.unlink(path)
        except OSError as error:
            raise disk_failure(path, error) from None
    return 0


def awaited(request: Request, bundled: dict[str, Any], check: bool = False) -> list[dict[str, Any]]:
    """What the controller has to send: [{name, path, size, there: bytes that an earlier run has sent}].

    Raises Refusal when the disk is too small for it.
    """
    wanted: list[dict[str, Any]] = []
    for path, one in _places(request, bundled):
        if not os.path.exists(path) or path in request.damaged:
            there = _sent(path + SUFFIX, check)
            wanted.append({"name": one.name, "path": path + SUFFIX, "size": one.size, "there": there})
    if wanted:
        size = sum(one["size"] for one in wanted)
        check_disk(
            request.folder(), bundled["files"][0]["name"], size, max(0, size - sum(one["there"] for one in wanted))
        )
    return wanted


def receive(
    request: Request,
    bundled: dict[str, Any],
    check: bool = False,
    watch: Watch | None = None,
) -> dict[str, Any]:
    """Have the model at its place, from what was sent. check: find out everything, change nothing.

    -> the dictionary of manifest.result(); raises Refusal, Stopped.
    """
    try:
        return request.in_folder(lambda: _receive(request, bundled, check, watch or Watch()))
    except OSError as error:
        raise disk_failure(error.filename or request.dest, error) from None


def _receive(request: Request, bundled: dict[str, Any], check: bool, watch: Watch) -> dict[str, Any]:
    done = unchanged(request, watch, check)
    if done:
        return done
    if check:
        return _foretell(request, bundled, watch)
    if not os.path.isdir(request.folder()):
        raise Refusal(f"dest: {request.folder()} is not a directory: create it first")
    with lock(_places(request, bundled)[0][0]):
        return _perform(request, bundled, watch)


def _foretell(request: Request, bundled: dict[str, Any], watch: Watch) -> dict[str, Any]:
    entries, news = _there(request, bundled, watch, check=True)
    missing = awaited(request, bundled, check=True)
    first = _places(request, bundled)[0][0]
    outcome = "would be sent from the bundle" if missing else "is there"
    message = f"{first} ({human(sum((one.size for _path, one in _places(request, bundled))))}) {outcome}"
    for path, one in _places(request, bundled):
        entries.setdefault(path, one)
    return result(_manifest(request, bundled, entries), request.folder(), news or bool(missing), message)


def _perform(request: Request, bundled: dict[str, Any], watch: Watch) -> dict[str, Any]:
    started = time.monotonic()
    entries, news = _there(request, bundled, watch)
    missing = [(path, one) for path, one in _places(request, bundled) if path not in entries]
    for path, _one in missing:
        if path in request.damaged and not os.path.lexists(path + SUFFIX):
            # Only hashing has found it, after the controller had been told what to send.
            os.unlink(path)
            raise Refusal(f"{path}: was damaged and is removed: run again, and the bundle's is sent")
    for path, one in missing:
        entries[path] = _arrived(path, one, watch)
    first = _places(request, bundled)[0][0]
    # The record comes first: a model without one would have to be hashed again. The first shard gets its name last: it
    # is the one that is loaded.
    write_manifest(manifest_path(first), _manifest(request, bundled, entries))
    for path, _one in reversed(missing):
        os.rename(path + SUFFIX, path)
        if os.lstat(path).st_ino != entries[path].inode:
            raise Refusal(
                "%s: was exchanged, the file that was proved is needed: look at who writes its directory, then run "
                "again" % path
            )
    sync_folder(request.folder())
    size, seconds = sum(one.size for _path, one in missing), time.monotonic() - started
    outcome = f"{human(size)} received and proved in {duration(seconds)}" if missing else "is there and proved"
    done = result(_manifest(request, bundled, entries), request.folder(), news or bool(missing), f"{first}: {outcome}")
    return dict(done, transferred=size, seconds=round(seconds, 1))


def _there(
    request: Request,
    bundled: dict[str, Any],
    watch: Watch,
    check: bool = False,
) -> tuple[dict[str, Entry], bool]:
    """-> ({path: record of a file that stands under its name and is the bundle's}, whether one of them had no record).

    Raises Refusal for one that is another file.
    """
    entries: dict[str, Entry] = {}
    news = False
    for path, one in _places(request, bundled):
        if not os.path.lexists(path) or path in request.damaged:
            continue
        with proving(path, check) as fd:
            status = os.fstat(fd)
            if status.st_size != one.size:
                text = "%s: is there with %s, the bundle's has %s: remove it or choose another dest"
                raise Refusal(text % (path, exact(status.st_size), exact(one.size)))
            manifest = read_manifest(manifest_path(path))
            known = [entry for entry in (manifest.files if manifest else []) if entry.name == os.path.basename(path)]
            known = [entry for entry in known if untouched(entry, status) and covers(entry.pieces, one.pieces)]
            if not known and _differs(path, one, fd, watch):
                raise Refusal(
                    f"{path}: is there, but its sha256 is not that of the bundle's: remove it or choose another dest"
                )
        entries[path] = known[0] if known else file_entry(os.path.basename(path), status, one.pieces)
        news = news or not known
    return entries, news


def _differs(path: str, one: Entry, fd: int, watch: Watch) -> tuple[str, str | None] | None:
    """(found, needed) of the first piece whose sha256 is not the bundle's, or None."""
    found = hash_pieces(path, [piece.size for piece in one.pieces], watch.meter(path, one.size), fd)
    for digest, piece in zip(found, one.pieces):
        if digest != piece.sha256:
            return digest, piece.sha256
    return None


def _arrived(path: str, one: Entry, watch: Watch) -> Entry:
    """The record of a file that was sent, once it is proved. It is removed where it is not what the bundle says."""
    with proving(path + SUFFIX) as fd:
        return _proved(path, one, fd, watch)


def _proved(path: str, one: Entry, fd: int, watch: Watch) -> Entry:
    sent = path + SUFFIX
    size = os.fstat(fd).st_size
    if size != one.size:
        raise Refusal(f"{sent}: has {exact(size)}, {exact(one.size)} are to be sent: run again, it goes on")
    wrong = _differs(sent, one, fd, watch)
    if wrong:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(sent)
        text = (
            "bundle: %s arrived with sha256 %s, %s is needed by bundle.json: run sha256sum -c SHA256SUMS in the "
            "bundle and copy it again"
        )
        raise Refusal(text % ((one.name,) + wrong))
    try:
        os.fsync(fd)
    except OSError:
        # A second fsync would say that all is well. Nobody knows which bytes are lost.
        os.unlink(sent)
        raise
    return file_entry(os.path.basename(path), os.fstat(fd), one.pieces)


def _manifest(request: Request, bundled: dict[str, Any], entries: dict[str, Entry]) -> Manifest:
    files = [entries[path] for path, _one in _places(request, bundled)]
    return Manifest(request.identity(), bundled["commit"], "sha256", bundled["gguf"], files)
