"""Runs on a lab's node in the place of `python3` that Ansible gives a module by its input: has server.py run it, which
is started by the first of them, and ends as it does. Without a server Python itself runs it.
"""

import _socket
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
# In the node's network namespace, without a file.
NAME = "\0llama-lab-modules-%d%s" % (os.geteuid(), os.environ.get("MODULE_SERVER", ""))
PYTHON = sys.executable


def start():
    """Starts the server, unless another client does just now."""
    listener = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    try:
        listener.bind(NAME)
    except OSError:
        return
    listener.listen(64)
    if os.fork():
        listener.close()
        return
    os.setsid()
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nothing, descriptor)
    os.set_inheritable(listener.fileno(), True)
    os.execv(PYTHON, [PYTHON, HERE + "/server.py", str(listener.fileno())])


def connected():
    connection = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    try:
        connection.connect(NAME)
    except OSError:
        start()
        connection.connect(NAME)
    return connection


def main():
    try:
        connection = connected()
        words = [os.getcwd(), *("%s=%s" % pair for pair in os.environ.items())]
        asked = "\0".join(words).encode("utf-8", "surrogateescape")
        files = b"".join(number.to_bytes(4, sys.byteorder) for number in (0, 1, 2))
        connection.sendmsg([len(asked).to_bytes(4, "big")], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, files)])
        connection.sendall(asked)
    except OSError:
        os.execv(PYTHON, [PYTHON])
    # The exit status, or minus the signal that has ended it; nothing if the server has ended.
    answer = connection.recv(16)
    status = int(answer) if answer else 1
    if status < 0:
        os.kill(os.getpid(), -status)
    os._exit(status)


if __name__ == "__main__":
    main()
