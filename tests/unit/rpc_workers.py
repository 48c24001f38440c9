# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Workers as a head meets them: ports that answer the handshake as a build does."""

import socket
import struct
import threading
import time


class Worker:
    """A port that answers the handshake as a build does. sizes: (question it wants, answer it gives); None lets it
    wait."""

    def __init__(self, sizes, version=(7, 0, 0)):
        self.listener = socket.socket()
        self.listener.bind(("127.0.0.1", 0))
        self.listener.listen(1)
        self.endpoint = "127.0.0.1:%d" % self.listener.getsockname()[1]
        self.sizes, self.version = sizes, version
        self.asked = 0
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self):
        while True:
            try:
                stream, _peer = self.listener.accept()
            except OSError:
                return
            with stream:
                command, size = struct.unpack("<BQ", stream.recv(9))
                self.asked += 1
                assert command == 14
                if self.sizes is None:
                    stream.recv(1000)
                    time.sleep(1)
                elif size == self.sizes[0]:
                    if size:
                        stream.recv(size)
                    stream.sendall(struct.pack("<Q", self.sizes[1]) + bytes(self.version) + b"\0" * (self.sizes[1] - 3))

    def close(self):
        self.listener.close()
