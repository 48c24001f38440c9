# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Seeding a worker's tensor cache from the node that has the model: root reads the tensors over the fabric, a unit
without a network, of the user of workers, writes them."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from typing import Any, BinaryIO, Callable, NamedTuple, cast
from urllib.parse import quote

from .._fetch.http import Client, attempts
from .._fetch.sources import Source, copy_range, make_source, read_range
from .._model.describe import check_shards
from .._model.gguf import Header, read_header
from .._node import paths
from .._node.command import environment
from .._text import Refusal, human, printable
from .cache import is_seeded

# A head sends smaller ones whatever a worker has: HASH_THRESHOLD of ggml-rpc.cpp.
SMALLEST = 10 << 20
MOST = 1 << 20  # bytes of an answer
EVERY = 1.0  # seconds between lines of progress
ENDS = 30.0  # seconds until the program has ended
# Its unit ends after this time and that of its tensors at this rate: another process of its user could hold the run.
LONGEST, SLOWEST = 900, 2 << 20  # seconds, and bytes a second
_BLOCK = re.compile(r"^blk\.(\d{1,6})\.")
# Like a worker's unit, but with neither network nor cards, and the first to go if memory lacks.
CONFINED = (
    "CacheDirectoryMode=0700",
    "UMask=0077",
    "Nice=10",
    "OOMScoreAdjust=1000",
    "LimitCORE=0",
    "TasksMax=256",
    "NoNewPrivileges=yes",
    "CapabilityBoundingSet=",
    "ProtectSystem=strict",
    "ProtectHome=yes",
    "PrivateTmp=yes",
    "PrivateDevices=yes",
    "PrivateNetwork=yes",
    "ProtectKernelTunables=yes",
    "ProtectControlGroups=yes",
    "LockPersonality=yes",
    "RestrictNamespaces=yes",
    "RestrictSUIDSGID=yes",
    "RestrictAddressFamilies=AF_UNIX AF_INET",
    "SystemCallArchitectures=native",
    "SystemCallFilter=@system-service",
)


class Wanted(NamedTuple):
    """The share of a worker. files: of the model, as gguf_fetch returns them; layers: its first one, and the one after
    its last; output: whether it has the output layer too; program: ggml-rpc-server; user: of workers."""

    service: str
    files: Sequence[Mapping[str, Any]]
    layers: tuple[int, int]
    output: bool
    program: str
    user: str

    def folder(self) -> str:
        return f"{paths.TENSORS}/rpc-{self.service}"

    def request(self) -> dict[str, Any]:
        """The request that the cache's record has."""
        files = [[os.path.basename(one["path"]), one["size"], one["pieces"]] for one in self.files]
        model = hashlib.sha256(json.dumps(files, sort_keys=True).encode()).hexdigest()
        return {"model": model, "layers": list(self.layers), "output": self.output}


class Piece(NamedTuple):
    """A tensor in a file of the model."""

    name: str
    file: int
    offset: int
    size: int


def share(headers: Sequence[Header], layers: Sequence[int], output: bool) -> list[Piece]:
    """The tensors that a head sends to a worker with these layers, but for the small ones."""
    names = {tensor.name for header in headers for tensor in header.tensors}
    last = "output.weight" if "output.weight" in names else "token_embd.weight"
    found = []
    for number, header in enumerate(headers):
        for tensor in header.tensors:
            block = _BLOCK.match(tensor.name)
            own = layers[0] <= int(block.group(1)) < layers[1] if block else output and tensor.name == last
            if own and tensor.nbytes > SMALLEST:
                found.append(Piece(tensor.name, number, header.data_offset + tensor.offset, tensor.nbytes))
    return found


def seed(wanted: Wanted, url: str, say: Callable[[str], None]) -> str:
    """Have the worker's cache filled from the files below the URL. say(line): progress. -> what was done, in a
    sentence. Errors: Refusal."""
    with contextlib.closing(Client()) as client, tempfile.TemporaryFile() as log:
        if not wanted.files:
            raise Refusal("rpc_cache: no model seen on the node of its head, one is needed: run site.yml --tags model")
        sources = [make_source(url.rstrip("/") + "/" + quote(os.path.basename(one["path"]))) for one in wanted.files]
        for source in sources:
            attempts(lambda source=source: source.resolve(client))  # type: ignore[misc]
        tensors = share(_headers(sources, client), wanted.layers, wanted.output)
        total = sum(one.size for one in tensors)
        unit = _Unit(command(wanted, total), log)
        try:
            unit.send(json.dumps({"request": wanted.request(), "tensors": [[one.name, one.size] for one in tensors]}))
            missing = unit.answer("missing", list)
            todo = [one for one in tensors if one.name in missing]
            _send(todo, sources, client, unit, say)
            unit.answer("whole")
        except BrokenPipeError:
            # It has said why.
            unit.answer("stored")
            raise
        finally:
            unit.close()
    sent = sum(one.size for one in todo)
    return f"{wanted.folder()}: {human(sent)} copied, {len(tensors)} tensors of {human(total)} are there"


def command(wanted: Wanted, total: int) -> list[str]:
    """The words of its unit. total: bytes of its tensors."""
    unit = ["systemd-run", "--quiet", "--collect", "--wait", "--pipe", f"--unit=llama-seed-{wanted.service}"]
    own = (f"User={wanted.user}", f"CacheDirectory={os.path.relpath(wanted.folder(), '/var/cache')}")
    unit += ["--property=" + one for one in (*own, f"RuntimeMaxSec={LONGEST + total // SLOWEST}", *CONFINED)]
    return [*unit, paths.PROGRAM, "rpc_seed", wanted.program, wanted.folder()]


def is_done(wanted: Wanted) -> bool:
    """Whether nothing is missing in the worker's cache, without a connection to any node."""
    return bool(wanted.files) and is_seeded(wanted.folder(), wanted.request())


def _headers(sources: Sequence[Source], client: Client) -> list[Header]:
    def header(source: Source) -> Header:
        return read_header(lambda offset, length: read_range(source, client, offset, length), source.public)

    headers = [header(source) for source in sources]
    check_shards(headers, [source.name for source in sources])
    return headers


def _send(
    todo: Sequence[Piece], sources: Sequence[Source], client: Client, unit: _Unit, say: Callable[[str], None]
) -> None:
    total, done, shown = sum(one.size for one in todo) >> 20, 0, 0.0

    def write(data: memoryview) -> None:
        nonlocal done, shown
        unit.input.write(data)
        done += len(data)
        if time.monotonic() - shown >= EVERY:
            shown = time.monotonic()
            say("[%d/%d] MiB" % (done >> 20, total))

    for one in todo:
        copy_range(sources[one.file], client, one.offset, one.size, write)
        unit.input.flush()
        unit.answer("stored")


class _Unit:
    """The program in its unit. log: of its errors."""

    def __init__(self, words: Sequence[str], log: BinaryIO) -> None:
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(words, stdin=pipe, stdout=pipe, stderr=log, env=environment())
        self.input, self.output = cast(BinaryIO, self.process.stdin), cast(BinaryIO, self.process.stdout)
        self.log = log

    def send(self, line: str) -> None:
        self.input.write(line.encode("ascii") + b"\n")
        self.input.flush()

    def answer(self, key: str, kind: type = object) -> Any:
        """A field of its next answer. Errors: Refusal with its sentence."""
        line = self.output.readline(MOST)
        try:
            found = json.loads(line)
            if "refused" in found:
                raise Refusal(printable(found["refused"], 500))
            if not isinstance(found[key], kind):
                raise TypeError(key)
            return found[key]
        except (LookupError, TypeError, ValueError, RecursionError):
            self.log.seek(0)
            said = " ".join(self.log.read(MOST).decode("utf-8", "replace").split())
            reason = printable(said[-300:], None) or "no reason given"
            raise Refusal(f"rpc_cache: the seeding ended ({reason}): run again, it continues") from None

    def close(self) -> None:
        """The end of its input ends the program."""
        with contextlib.suppress(OSError):
            self.input.close()
        try:
            self.process.wait(ENDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
