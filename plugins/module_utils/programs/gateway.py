# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""gateway: decides which server answers a client's request, and passes it on. nginx connects to its unix socket.

The main process only starts a worker and waits for it. When it ends, systemd starts the next one at once. Meanwhile
requests wait in the socket, which is systemd's. The old worker answers its running requests, then ends too.
"""

from __future__ import annotations

import argparse
import asyncio
import ctypes
import os
import signal
import socket
import sys
from typing import Any

from .._gateway.engine import Engine, Files
from .._node import paths
from .._node.notify import say
from .._text import Refusal

# The first descriptor that systemd hands over.
FIRST = 3
PR_SET_PDEATHSIG = 1
# EX_CONFIG of sysexits.h: systemd does not start the unit again at once.
UNUSABLE = 78
HANDLED = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGABRT}


def options(arguments: list[str]) -> Any:
    parser = argparse.ArgumentParser(prog="gateway")
    parser.add_argument("--config", default=paths.GATEWAY, help="folder of gateway.json and keys.json")
    parser.add_argument("--draining", default=paths.GATEWAY_DRAINING)
    parser.add_argument("--registry", default=paths.REGISTRY_COPY)
    return parser.parse_args(arguments)


def listener() -> socket.socket:
    """systemd's socket. Errors: Refusal."""
    if os.environ.get("LISTEN_PID") != str(os.getpid()) or os.environ.get("LISTEN_FDS") != "1":
        raise Refusal("systemd has passed no socket: start llama-gateway.socket")
    return socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, fileno=FIRST)


def work(found: socket.socket, files: Files, parent: int) -> int:
    """Runs the worker."""
    # The kernel signals the worker when the main process dies.
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:
        return 0
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    found.setblocking(False)
    try:
        engine = Engine(loop, found, files)
    except Refusal as refusal:
        say(f"gateway: {refusal}")
        return UNUSABLE
    loop.add_signal_handler(signal.SIGTERM, engine.end)
    loop.add_signal_handler(signal.SIGINT, engine.end)
    loop.add_signal_handler(signal.SIGHUP, engine.reload)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, HANDLED)
    loop.run_until_complete(engine.run())
    return 0


def watch(worker: int) -> int:
    """Waits in the main process for the end of the worker or a signal."""

    def ends(_number: int, _frame: Any) -> None:
        # The worker answers its running requests.
        os.kill(worker, signal.SIGTERM)
        os._exit(0)

    def stuck(_number: int, _frame: Any) -> None:
        # systemd's watchdog: a hanging process handles no other signal.
        os.kill(worker, signal.SIGKILL)
        os._exit(1)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, ends)
    signal.signal(signal.SIGABRT, stuck)
    signal.signal(signal.SIGHUP, lambda _number, _frame: os.kill(worker, signal.SIGHUP))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, HANDLED)
    _pid, status = os.waitpid(worker, 0)
    if os.WIFEXITED(status) and os.WEXITSTATUS(status) == UNUSABLE:
        return UNUSABLE
    say(f"gateway: its worker has ended ({status})")
    return 1


def main(arguments: list[str] | None = None) -> int:
    chosen = options(sys.argv[1:] if arguments is None else arguments)
    files = Files(chosen.config, chosen.draining, chosen.registry)
    try:
        found = listener()
    except Refusal as refusal:
        say(f"gateway: {refusal}")
        return UNUSABLE
    parent = os.getpid()
    # Until the handlers are set.
    signal.pthread_sigmask(signal.SIG_BLOCK, HANDLED)
    worker = os.fork()
    if worker:
        found.close()
    else:
        status = 1
        try:
            status = work(found, files, parent)
        finally:
            sys.stdout.flush()
            os._exit(status)
    return watch(worker)


if __name__ == "__main__":
    raise SystemExit(main())
