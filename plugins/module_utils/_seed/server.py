# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A ggml-rpc-server of this process, which stores tensors in a cache under the names that its build gives them.

The hash and the form of the files stay llama.cpp's own. See rpc_server::set_tensor and struct rpc_tensor of
ggml-rpc.cpp.
"""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterable
from typing import Any

from .._llama.handshake import HELLO, NEW, receive
from .._text import Refusal

# The major version of the protocol whose messages are these.
PROTOCOL = 7
ALLOC_BUFFER, GET_ALIGNMENT, BUFFER_GET_BASE, SET_TENSOR = 0, 1, 3, 6
# id, type, buffer, dimensions, strides, operation and parameters, flags, sources, view, offset, data, name, uses.
TENSOR = struct.Struct("<QIQ4I4II64xi80xQQQ64xi")
I8 = 24  # a type of one byte
# Dimensions are numbers of 32 bits.
ROW = 1 << 20
LISTENS = 60.0  # seconds until the server listens; one that compiles kernels first is slow
ANSWERS = 600.0  # seconds for a tensor to be hashed and written


class Server:
    """program: ggml-rpc-server; cache: its LLAMA_CACHE; largest: bytes of the largest tensor. Errors: Refusal."""

    def __init__(self, program: str, cache: str, largest: int) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.address = free.getsockname()
        command = [program, "--host", "127.0.0.1", "--port", str(self.address[1]), "--device", "CPU", "--cache"]
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=sys.stderr,
            env=dict(os.environ, LLAMA_CACHE=cache, GGML_NO_BACKTRACE="1"),
        )
        try:
            self.stream = self._connect()
            self.stream.sendall(struct.pack("<BQ", HELLO, NEW[0]) + bytes(NEW[0]))
            version = self._answer(NEW[1])[:3]
            if version[0] != PROTOCOL:
                raise Refusal(
                    "rpc_cache: RPC protocol %d.%d.%d seen, %d is needed for seeded: write rpc_cache: true"
                    % (*version, PROTOCOL)
                )
            room = -(-largest // ROW) * ROW
            self.buffer, size = struct.unpack("<QQ", self._ask(ALLOC_BUFFER, struct.pack("<IQ", 0, room), 16))
            if size < room:
                raise Refusal("rpc_cache: no memory for a tensor of %d bytes: write rpc_cache: true" % largest)
            (self.base,) = struct.unpack("<Q", self._ask(BUFFER_GET_BASE, struct.pack("<Q", self.buffer), 8))
        except BaseException:
            self.close()
            raise

    def _connect(self) -> socket.socket:
        deadline = time.monotonic() + LISTENS
        while True:
            try:
                stream = socket.create_connection(self.address, timeout=5)
                stream.settimeout(ANSWERS)
                return stream
            except OSError:
                if self.process.poll() is not None or time.monotonic() > deadline:
                    raise Refusal(
                        "rpc_cache: ggml-rpc-server does not start, it is needed to name tensors: write rpc_cache: true"
                    ) from None
                time.sleep(0.05)

    def _answer(self, size: int) -> bytes:
        (found,) = struct.unpack("<Q", receive(self.stream, 8))
        if found != size:
            raise Refusal("rpc_cache: an answer of %d bytes, %d are needed: write rpc_cache: true" % (found, size))
        return receive(self.stream, size)

    def _ask(self, command: int, question: bytes, size: int) -> bytes:
        self.stream.sendall(struct.pack("<BQ", command, len(question)) + question)
        return self._answer(size)

    def store(self, size: int, pieces: Iterable[bytes]) -> None:
        """Returns when the tensor of that many bytes is in the cache. Errors: Refusal, OSError."""
        rows = -(-size // ROW)
        shape = (ROW, rows, 1, 1, 1, ROW, ROW, ROW)
        tensor = TENSOR.pack(1, I8, self.buffer, *shape, 0, 0, 0, 0, self.base, 0)
        # Its cache flag, and the offset.
        head = tensor + struct.pack("<BQ", 1, 0)
        self.stream.sendall(struct.pack("<BQ", SET_TENSOR, len(head) + size) + head)
        for piece in pieces:
            self.stream.sendall(piece)
        # Answered after the tensor, which gets no answer.
        self._ask(GET_ALIGNMENT, struct.pack("<I", 0), 8)

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_error: Any) -> None:
        self.close()

    def close(self) -> None:
        if hasattr(self, "stream"):
            self.stream.close()
        self.process.kill()
        self.process.wait()
