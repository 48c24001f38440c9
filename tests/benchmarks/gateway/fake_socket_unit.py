"""llama-gateway.socket and llama-gateway.service without systemd: fake_socket_unit.py SOCKET FOLDER.

Holds the socket and starts the engine on it, again 100 ms after it has ended. FOLDER/engine.pid is its main process.
"""

import os
import pathlib
import socket
import sys
import time

PROGRAM = "ansible_collections.thefermisea.llama_cluster.plugins.module_utils.programs.gateway"
FIRST = 3  # the descriptor at which systemd's begin


def main():
    path, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    os.chmod(path, 0o666)
    listener.listen(4096)
    while True:
        pid = os.fork()
        if pid == 0:
            os.dup2(listener.fileno(), FIRST)
            os.set_inheritable(FIRST, True)
            os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS="1")
            os.execv(sys.executable, [sys.executable, "-m", PROGRAM])
        (folder / "engine.pid").write_text(str(pid))
        os.waitpid(pid, 0)
        time.sleep(0.1)


if __name__ == "__main__":
    main()
