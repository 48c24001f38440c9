# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The record beside a published model: its request, its files, and how they were verified.

NAME.gguf.manifest.json holds {version, request, commit, verified, gguf, files: [{name, size, mtime_ns, inode, pieces:
[{size, sha256}]}]}; sha256 is null where the bytes have not been hashed. A model counts as untouched while size, mtime
and inode of its files are as recorded: one lstat() instead of reading 77 GB. All are root's, or of the user who
runs this. A file with found: true was there before it was asked for.
"""

from __future__ import annotations

import glob
import json
import os
import re
from collections.abc import Sequence
from typing import Any, Callable, NamedTuple

from .._files import is_trusted, read_trusted, sha256_stream, write_atomically

VERSION = 1
SUFFIX = ".manifest.json"
MOST = 8 << 20  # bytes of a record; one of a thousand shards has half a megabyte
_SHA256 = re.compile(r"^[0-9a-f]{64}\Z")


class Part(NamedTuple):
    """A stretch of a file that is hashed by itself."""

    size: int
    sha256: str | None  # None if it has not been hashed


class Entry(NamedTuple):
    """A file of a model: as it was published, or as a plan has it, without time and inode."""

    name: str
    size: int
    pieces: list[Part]
    mtime_ns: int | None = None
    inode: int | None = None
    found: bool = False  # it was there before it was asked for

    def as_dict(self) -> dict[str, Any]:
        facts = dict(self._asdict(), pieces=[dict(piece._asdict()) for piece in self.pieces])
        return {key: value for key, value in facts.items() if value is not None and value is not False}


class Manifest(NamedTuple):
    """The record of a model."""

    request: dict[str, Any]
    commit: str | None
    verified: str
    gguf: dict[str, Any]
    files: list[Entry]

    def as_dict(self) -> dict[str, Any]:
        return dict(self._asdict(), version=VERSION, files=[entry.as_dict() for entry in self.files])


def manifest_path(path: str) -> str:
    """The record of the model whose (first) file is ``path``."""
    return path + SUFFIX


def is_file_name(name: Any) -> bool:
    """Whether a name from outside names a file in its directory that is not hidden."""
    return (
        isinstance(name, str)
        and name.isprintable()
        and "/" not in name
        and 0 < len(name.encode("utf-8")) <= 220
        and name[0] != "."
    )


def is_model_name(name: Any) -> bool:
    return is_file_name(name) and name.endswith(".gguf")


def is_digest(value: Any) -> bool:
    return isinstance(value, str) and _SHA256.match(value) is not None


def is_integer(value: Any) -> bool:
    """JSON's true is Python's 1."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_size(value: Any) -> bool:
    return is_integer(value) and 0 <= value < 1 << 60


def are_files(files: Any, hashed: bool = True) -> bool:
    """Whether [{name, size, pieces: [{size, sha256}]}] of a record can be used; without ``hashed`` a digest may be
    null."""
    try:
        return bool(files) and all(
            is_model_name(one["name"])
            and is_size(one["size"])
            and all(is_size(piece["size"]) for piece in one["pieces"])
            and sum(piece["size"] for piece in one["pieces"]) == one["size"]
            and all(is_digest(piece["sha256"]) or piece["sha256"] is None and not hashed for piece in one["pieces"])
            for one in files
        )
    except (LookupError, TypeError):
        return False


def read_manifest(path: str) -> Manifest | None:
    """The record at ``path`` (of the manifest), or None if there is no valid one."""
    try:
        manifest = json.loads(read_trusted(path, MOST).decode("utf-8"))
        if manifest["version"] != VERSION or not are_files(manifest["files"], hashed=False):
            return None
        if not all(is_integer(one[key]) for one in manifest["files"] for key in ("mtime_ns", "inode")):
            return None
        files = [
            Entry(
                one["name"],
                one["size"],
                [Part(piece["size"], piece["sha256"]) for piece in one["pieces"]],
                one["mtime_ns"],
                one["inode"],
                one.get("found") is True,
            )
            for one in manifest["files"]
        ]
        return Manifest(manifest["request"], manifest["commit"], manifest["verified"], manifest["gguf"], files)
    except (OSError, LookupError, TypeError, ValueError, RecursionError):
        return None


def find_manifests(folder: str, request: dict[str, Any]) -> list[tuple[str, Manifest]]:
    """[(model path, record)] of the models in ``folder`` that were published for this very request."""
    paths = sorted(glob.glob(os.path.join(glob.escape(folder), "*" + SUFFIX)))
    found = [(path[: -len(SUFFIX)], read_manifest(path)) for path in paths]
    return [(path, manifest) for path, manifest in found if manifest is not None and manifest.request == request]


def write_manifest(path: str, manifest: Manifest) -> None:
    """Write the record, atomically and on disk."""
    write_atomically(
        path, (json.dumps(manifest.as_dict(), indent=1, sort_keys=True) + "\n").encode("utf-8"), 0o644, anywhere=True
    )


def file_entry(name: str, status: os.stat_result, pieces: list[Part]) -> Entry:
    """The record of one file; pieces: in order."""
    return Entry(name, status.st_size, pieces, status.st_mtime_ns, status.st_ino)


def covers(pieces: Sequence[Part], wanted: Sequence[Part]) -> bool:
    """Whether recorded pieces match the wanted ones: the same stretches, with every digest that is wanted."""
    return [piece.size for piece in pieces] == [piece.size for piece in wanted] and all(
        need.sha256 in (None, piece.sha256) for piece, need in zip(pieces, wanted)
    )


def untouched(entry: Entry, status: os.stat_result) -> bool:
    """Whether a file, by lstat, is still the one that was recorded. The time of another user's file proves nothing: its
    owner sets it."""
    recorded = (entry.size, entry.mtime_ns, entry.inode)
    return is_trusted(status) and (status.st_size, status.st_mtime_ns, status.st_ino) == recorded


def hash_pieces(path: str, sizes: Sequence[int], advance: Callable[[int], None] | None = None) -> list[str]:
    """Hex sha256 of each run of ``sizes`` bytes of a file, in order. advance(bytes) is called as it goes. Raises
    OSError."""
    with open(path, "rb", buffering=0) as stream:
        digests = [sha256_stream(stream, size, advance) for size in sizes]
        if stream.tell() < sum(sizes):
            raise OSError(0, "shorter than it was", path)
    return digests


def result(manifest: Manifest, folder: str, changed: bool, message: str) -> dict[str, Any]:
    """The result of the module gguf_fetch, from the record of a model."""
    records = [entry.as_dict() for entry in manifest.files]
    files = [
        {"path": os.path.join(folder, one["name"]), "size": one["size"], "pieces": one["pieces"]} for one in records
    ]
    pieces = [piece for entry in files for piece in entry["pieces"]]
    return {
        "changed": changed,
        "msg": message,
        "dest": files[0]["path"],
        "files": files,
        "size": sum(entry.size for entry in manifest.files),
        "sha256": pieces[0]["sha256"] if len(pieces) == 1 else None,
        "verified": manifest.verified,
        "commit": manifest.commit,
        "gguf": manifest.gguf,
        "transferred": 0,
        "resumed": 0,
        "adopted": 0,
        "seconds": 0.0,
    }
