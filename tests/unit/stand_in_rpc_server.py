# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A stand-in for ggml-rpc-server: --port PORT; it answers the handshake of b11434, one client at a time."""

import socket
import struct
import sys

listener = socket.create_server(("127.0.0.1", int(sys.argv[sys.argv.index("--port") + 1])), reuse_port=False)
print("stand-in for ggml-rpc-server listens", flush=True)
while True:
    stream, _peer = listener.accept()
    while stream.recv(33):
        stream.sendall(struct.pack("<Q", 28) + bytes([7, 0, 0]) + bytes(25))
    stream.close()
