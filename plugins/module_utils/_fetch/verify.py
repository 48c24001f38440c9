# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Facts of a model file, and whether all of it is there. Private to the collection."""

from __future__ import annotations

import os
from typing import Any, Callable

from .._model.describe import check_shards, describe, shard_names, size_problem
from .._model.gguf import Header, read_path
from .._text import Refusal, exact
from .existing import own_file
from .manifest import Entry, hash_pieces, manifest_path, read_manifest
from .request import Request

_FACTS = (
    *("architecture", "name", "license", "quantization", "parameters", "block_count"),
    *("context_length", "tensors", "shards", "expected_size"),
)


def _answer(
    path: str, headers: list[Header], size: int | None, digest: str | None, problem: str | None
) -> dict[str, Any]:
    facts = describe(headers) if headers else dict.fromkeys(_FACTS)
    return dict(facts, path=path, size=size, sha256=digest, complete=problem is None, problem=problem)


def verify_path(path: str, sha256: str | None = None, checksum: bool = False) -> dict[str, Any]:
    """Verify a local model; any of its shards stands for all of them.

    sha256: needed hex digest, only for a model of one file; checksum: hash even without one. -> {path (first shard),
    architecture, name, license, quantization, parameters, block_count, context_length, tensors, shards, size,
    expected_size, sha256, complete, problem: None or the sentence}. Facts are None where the header cannot be read.
    """
    folder, base = os.path.split(path)
    paths = [os.path.join(folder, name) for name in shard_names(base)]
    headers: list[Header] = []
    sizes: list[int] = []
    digest: str | None = None
    try:
        for name in paths:
            headers.append(read_path(name))
            sizes.append(os.path.getsize(name))
            problem = size_problem(headers[-1], sizes[-1], name)
            if problem:
                raise Refusal(problem)
        check_shards(headers, paths)
        if len(paths) > 1 and (sha256 or checksum):
            raise Refusal(f"{paths[0]}: a model of {len(paths)} shards has no single sha256: verify it without")
        if sha256 or checksum:
            (digest,) = hash_pieces(path, sizes)
        if sha256 and digest != sha256.lower():
            raise Refusal(f"{path}: sha256 is {digest}, {sha256.lower()} needed: fetch it again")
    except OSError as error:
        problem = f"{error.filename or path}: {error.strerror}: fetch it, or correct the path"
        return _answer(paths[0], [], None, None, problem)
    except Refusal as error:
        read = len(headers) == len(sizes) == len(paths)
        return _answer(paths[0], headers if read else [], sum(sizes) if read else None, digest, str(error))
    return _answer(paths[0], headers, sum(sizes), digest, None)


def recorded(path: str) -> list[Entry]:
    """The files of the model ``path`` as they were published; [] without a record."""
    manifest = read_manifest(manifest_path(path))
    return manifest.files if manifest else []


def verify_recorded(path: str, advance: Callable[[int], None], check: bool = False) -> dict[str, Any]:
    """Hash the model that was published as ``path`` and compare it with its record -> {hashed: whether every byte was
    compared, problem: None or the sentence, changed}.

    A file that differs gets the current time, unless ``check``, so that its record does not count.
    """
    entries = recorded(path)
    try:
        request = Request(path)
        request.require_own_folder()
        if not entries:
            raise Refusal(f"{path}: no record is beside it: run site.yml --tags model")
        for entry in entries:
            at = os.path.join(request.folder(), entry.name)
            own_file(at)
            problem = _difference(at, entry, advance)
            if problem:
                if not check:
                    os.utime(at)
                return {"hashed": True, "problem": problem, "changed": not check}
    except Refusal as error:
        return {"hashed": False, "problem": str(error), "changed": False}
    except OSError as error:
        problem = f"{error.filename or path}: {error.strerror}: run site.yml --tags model"
        return {"hashed": False, "problem": problem, "changed": False}
    hashed = all(piece.sha256 for entry in entries for piece in entry.pieces)
    return {"hashed": hashed, "problem": None, "changed": False}


def _difference(path: str, entry: Entry, advance: Callable[[int], None]) -> str | None:
    """The sentence for the first bytes of a file that differ from its record, or None."""
    size = os.path.getsize(path)
    if size != entry.size:
        return f"{path}: {exact(size)} present, {exact(entry.size)} recorded: run site.yml --tags model"
    start = 0
    for piece, digest in zip(entry.pieces, hash_pieces(path, [one.size for one in entry.pieces], advance)):
        if piece.sha256 not in (None, digest):
            have = f"bytes {start} to {start + piece.size - 1} have sha256 {digest}, {piece.sha256} recorded"
            return f"{path}: {have}: run site.yml --tags model"
        start += piece.size
    return None
