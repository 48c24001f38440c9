# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Keeps a playbook_server.py for each set of Ansible's settings, which Ansible reads while it loads.

ansible-test runs each test in a process of its own: this one is started before (tests/unit/conftest.py), and what it
keeps serves all of them. Reads a request a line, and answers with a line: the request's output, and the exit status.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

MODULES = Path(__file__).resolve().parents[2] / "lab/modules/server.py"


def start(environment: dict[str, str]) -> subprocess.Popen[str]:
    program = [sys.executable, str(Path(__file__).with_name("playbook_server.py"))]
    return subprocess.Popen(program, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def start_modules(name: str) -> subprocess.Popen[bytes]:
    """The server of modules, which its clients find by a name."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind("\0llama-lab-modules-%d%s" % (os.geteuid(), name))
        listener.listen(64)
        return subprocess.Popen(
            [sys.executable, MODULES, str(listener.fileno())],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=[listener.fileno()],
        )


def main() -> None:
    name = "-%d" % os.getpid()
    modules = start_modules(name)
    servers: dict[tuple[tuple[str, str], ...], subprocess.Popen[str]] = {}
    for line in sys.stdin:
        request = json.loads(line)
        environment = request["environment"]
        environment["MODULE_SERVER"] = name
        key = tuple(sorted((name, environment[name]) for name in request.pop("settings")))
        if key not in servers:
            servers[key] = start(environment)
        server = servers[key]
        server.stdin.write(json.dumps(request) + "\n")
        server.stdin.flush()
        print(request["output"], server.stdout.readline().strip() or "none", flush=True)
    for server in servers.values():
        server.communicate()
    modules.terminate()
    modules.wait()


if __name__ == "__main__":
    main()
