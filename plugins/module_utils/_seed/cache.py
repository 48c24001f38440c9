# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The directory of a tensor cache: rpc/ with one file for each tensor, named after its hash, and the record of what was
seeded. Both are of the user of workers; the record is only believed about files that lie there."""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
import time
from collections.abc import Container, Mapping
from typing import Any, NamedTuple

from .._files import FILE, sha256_stream, sync_folder, text_of, write_atomically
from .._text import Refusal, human

RECORD = "seed.json"
# Bytes of the record; a longer one is not read, since root reads it too.
MOST = 1 << 20
# Where llama.cpp writes a tensor that is not verified yet, as its LLAMA_CACHE.
SCRATCH = "seed"
TENSORS = "rpc"
_HASH = re.compile(r"^[0-9a-f]{16}\Z")
# A worker that starts with less than 5 % free empties its cache.
_FULLEST = 0.94
# Seconds. A worker that ends deletes the files of its last minute, because they may be cut short; these are verified.
_AGE = 86400


class Tensor(NamedTuple):
    """A tensor that lies in the cache."""

    hash: str
    size: int


class Record(NamedTuple):
    """The request that a cache was seeded for, and its tensors. whole: whether nothing was missing."""

    request: Any
    tensors: dict[str, Tensor]
    whole: bool


def read(folder: str) -> Record:
    """The record of a cache; an empty one if it cannot be read."""
    try:
        text = text_of(os.path.join(folder, RECORD)) or ""
        found = json.loads(text if len(text) <= MOST else "")
        tensors = {name: Tensor(*one) for name, one in found["tensors"].items() if _HASH.match(one[0])}
        return Record(found["request"], tensors, found["whole"] is True)
    except (LookupError, TypeError, ValueError, AttributeError, RecursionError):
        return Record(None, {}, False)


def write(folder: str, record: Record) -> None:
    path = os.path.join(folder, RECORD)
    write_atomically(path, json.dumps(record._asdict()).encode("ascii"), durable=record.whole)
    _age(path)


def present(folder: str, record: Record) -> dict[str, Tensor]:
    """The tensors of the record that lie in the cache."""
    return {name: one for name, one in record.tensors.items() if _size(folder, one.hash) == one.size}


def is_seeded(folder: str, request: Mapping[str, Any]) -> bool:
    """Whether a cache has all that the request names."""
    record = read(folder)
    return record.whole and record.request == request and len(present(folder, record)) == len(record.tensors)


def _age(path: str) -> None:
    old = time.time() - _AGE
    os.utime(path, (old, old), follow_symlinks=False)


def _size(folder: str, name: str) -> int | None:
    try:
        seen = os.lstat(os.path.join(folder, TENSORS, name))
    except OSError:
        return None
    return seen.st_size if stat.S_ISREG(seen.st_mode) else None


def remove_scratch(folder: str) -> None:
    shutil.rmtree(os.path.join(folder, SCRATCH), ignore_errors=True)


def clean(folder: str, kept: Container[str]) -> None:
    """Delete what an interrupted run left, and all tensors but the kept hashes."""
    remove_scratch(folder)
    tensors = os.path.join(folder, TENSORS)
    os.makedirs(tensors, 0o700, exist_ok=True)
    for name in os.listdir(tensors):
        if name not in kept:
            os.unlink(os.path.join(tensors, name))


def check_room(folder: str, needed: int) -> None:
    """Refusal if a file system with that many bytes more would be so full that workers empty their caches."""
    seen = os.statvfs(folder)
    free = seen.f_bavail * seen.f_frsize
    most = int(_FULLEST * (seen.f_blocks - seen.f_bfree + seen.f_bavail)) * seen.f_frsize
    room = min(free, most - (seen.f_blocks - seen.f_bfree) * seen.f_frsize)
    if needed > room:
        raise Refusal(
            f"rpc_cache: {human(max(0, room))} of room in {folder}, {human(needed)} are needed with 6 % of the file "
            "system left free: free space there, or write rpc_cache: true"
        )


def take(folder: str, size: int, sha256: str) -> str:
    """Move the one tensor that llama.cpp has written into the cache, if it is what was sent. -> its hash."""
    scratch = os.path.join(folder, SCRATCH, TENSORS)
    names = os.listdir(scratch)
    if len(names) != 1 or not _HASH.match(names[0]):
        raise Refusal(
            "rpc_cache: %d files seen after ggml-rpc-server stored a tensor, one is needed: this build cannot be "
            "seeded, write rpc_cache: true" % len(names)
        )
    path = os.path.join(scratch, names[0])
    descriptor = os.open(path, FILE)
    with open(descriptor, "rb", buffering=0) as stream:
        found = os.fstat(descriptor).st_size
        if found != size or sha256_stream(stream) != sha256:
            raise Refusal(f"rpc_cache: {path}: not the {human(size)} that were sent: look at the disk, then run again")
        os.fsync(descriptor)
    _age(path)
    os.rename(path, os.path.join(folder, TENSORS, names[0]))
    sync_folder(os.path.join(folder, TENSORS))
    return names[0]
