# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""rpc_seed SERVER CACHE: fills a worker's tensor cache with the tensors that come on its standard input.

Runs as the user of workers in a unit without a network. The input is one line of JSON, {request, tensors: [[name,
size]]}, then the bytes of the tensors that the answer names. The output is lines of JSON: {missing: [name]}, {stored:
name} after each, {whole: true}, or {refused: sentence}.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Iterator
from typing import Any, BinaryIO, Callable

from .._seed.cache import SCRATCH, Record, Tensor, check_room, clean, present, read, remove_scratch, take, write
from .._seed.server import Server
from .._text import Refusal

MOST = 16 << 20  # bytes of the first line
PIECE = 1 << 20


def pieces(source: BinaryIO, size: int, digest: Any) -> Iterator[bytes]:
    """The next bytes of the input, hashed."""
    while size:
        piece = source.read(min(size, PIECE))
        if not piece:
            raise Refusal("rpc_cache: the input ended within a tensor: run again, it continues")
        digest.update(piece)
        size -= len(piece)
        yield piece


def seed(source: BinaryIO, answer: Callable[[dict[str, Any]], None], program: str, folder: str) -> None:
    """Have the asked tensors in the cache, and no others. Errors: Refusal, OSError."""
    asked = json.loads(source.readline(MOST))
    request, sizes = asked["request"], dict(asked["tensors"])
    record = read(folder)
    same = isinstance(record.request, dict) and record.request.get("model") == request["model"]
    kept = {name: one for name, one in present(folder, record).items() if same and sizes.get(name) == one.size}
    clean(folder, {one.hash for one in kept.values()})
    missing = [name for name in sizes if name not in kept]
    check_room(folder, sum(sizes[name] for name in missing))
    answer({"missing": missing})
    if missing:
        with Server(program, os.path.join(folder, SCRATCH), max(sizes[name] for name in missing)) as server:
            for name in missing:
                digest = hashlib.sha256()
                server.store(sizes[name], pieces(source, sizes[name], digest))
                kept[name] = Tensor(take(folder, sizes[name], digest.hexdigest()), sizes[name])
                write(folder, Record(request, kept, False))
                answer({"stored": name})
        remove_scratch(folder)
    write(folder, Record(request, kept, True))
    answer({"whole": True})


def main(arguments: list[str]) -> int | str:
    if len(arguments) != 2:
        return "usage: rpc_seed SERVER CACHE"

    def answer(line: dict[str, Any]) -> None:
        sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()

    try:
        seed(sys.stdin.buffer, answer, *arguments)
    except Refusal as refusal:
        answer({"refused": str(refusal)})
    except OSError as error:
        answer({"refused": f"rpc_cache: {arguments[1]}: {error.strerror or error}: look at the disk, then run again"})
    else:
        return 0
    return 1


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
