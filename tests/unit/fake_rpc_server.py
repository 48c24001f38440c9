# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A fake ggml-rpc-server of b11434 that only stores tensors: --port PORT. In FAULT: cut (files lack a byte), old
(another protocol), N (it ends at tensor N)."""

import os
import socket
import struct
import sys
from pathlib import Path

MASK = (1 << 64) - 1


def fnv1a64(data):
    value = 0xCBF29CE484222325
    for byte in data:
        value = (value ^ byte) * 0x100000001B3 & MASK
    return "%016x" % value


def serve(stream, cache, fault):
    stored = 0

    def answer(data):
        stream.sendall(struct.pack("<Q", len(data)) + data)

    def take(count):
        data = b""
        while len(data) < count:
            data += stream.recv(count - len(data)) or sys.exit()
        return data

    while True:
        command, size = struct.unpack("<BQ", take(9))
        data = take(size)
        if command == 14:
            answer(bytes([6 if fault == "old" else 7, 0, 0]) + bytes(25))
        elif command == 0:
            answer(struct.pack("<QQ", 4096, struct.unpack("<IQ", data)[1]))
        elif command == 3:
            answer(struct.pack("<Q", 8192))
        elif command == 1:
            answer(struct.pack("<Q", 32))
        elif command == 6:
            # As rpc_tensor, the cache flag and the offset have it.
            assert struct.unpack_from("<IQ", data, 8) == (24, 4096) and data[296:305] == b"\1" + bytes(8)
            stored += 1
            if fault == str(stored):
                sys.exit()
            body = data[305:]
            (cache / fnv1a64(body)).write_bytes(body[: -1 if fault == "cut" else None])


if __name__ == "__main__":
    port = int(sys.argv[sys.argv.index("--port") + 1])
    folder = Path(os.environ["LLAMA_CACHE"]) / "rpc"
    folder.mkdir(parents=True, exist_ok=True)
    with socket.create_server(("127.0.0.1", port)) as listener:
        serve(listener.accept()[0], folder, os.environ.get("FAULT"))
