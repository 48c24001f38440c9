# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""For the tests: what is done on a lab's node enters its control groups and namespaces (nsenter), with its environment
and capabilities.

docker exec does the same by way of four programs and takes ten times as long; each task of a playbook calls it on each
node. Without root here, or if a node does not run, docker exec is used. Between nsenter and the limit
of its capabilities the node's own setpriv is trusted: for labs that tests made themselves.
"""

from __future__ import annotations

import importlib
import os
import subprocess
from pathlib import Path

from ansible.plugins.callback import CallbackBase

DOCUMENTATION = r"""
name: entered
type: aggregate
short_description: Enter the nodes of a lab
version_added: 1.0.0
author: The Fermi Sea (@thefermisea)
description:
  - For tests only.
"""

CONNECTION = "ansible_collections.community.docker.plugins.connection.docker"
FORMAT = "{{.Name}} {{.Id}} {{.State.Pid}}"
# The shell joins the control groups, then becomes the command after `--`.
JOIN = 'while [ "$1" != -- ]; do echo 0 >"$1"; shift; done; shift; exec "$@"'
GROUPS = Path("/sys/fs/cgroup")
SCOPE = "/init.scope"
# How Ansible starts a module that comes by its input, and what runs it in a fifth of the time: tests/lab/modules.
STARTS = "/bin/sh -c '/usr/bin/python3 && sleep 0'"
CLIENT = "/var/cache/ansible-modules/client.py"
NAMESPACES = ("--mount", "--uts", "--ipc", "--net", "--pid")


def runs(known: str, process: int) -> bool:
    """Whether a process is one of this container."""
    try:
        with open("/proc/%d/cgroup" % process, encoding="ascii") as stream:
            return process > 0 and known in stream.read()
    except OSError:
        return False


def groups(process: int) -> list[str]:
    """The files by which its control groups are joined, of either version of them."""
    found = []
    with open("/proc/%d/cgroup" % process, encoding="ascii") as stream:
        for line in stream:
            _number, controllers, path = line.rstrip("\n").split(":", 2)
            # In version 1 docker exec joins the container's own, in version 2 only those without children.
            path = path[: -len(SCOPE)] if controllers and path.endswith(SCOPE) else path
            joined = GROUPS / controllers.rpartition("=")[2] / path.lstrip("/") / "cgroup.procs"
            found += [str(joined)] if joined.exists() else []
    return found


def entering(process: int) -> list[str]:
    """The words before a command that is to run as docker exec has it."""
    with open("/proc/%d/environ" % process, encoding="utf-8", errors="surrogateescape") as stream:
        environment = list(filter(None, stream.read().split("\0")))
    with open("/proc/%d/status" % process, encoding="utf-8") as stream:
        bounds = next(int(line.split()[1], 16) for line in stream if line.startswith("CapBnd:"))
    allowed = ["+cap_%d" % number for number in range(64) if bounds >> number & 1]
    enter = ["nsenter", "--target", str(process), *NAMESPACES, "--"]
    limit = ["setpriv", "--bounding-set", ",".join(["-all", *allowed]), "--inh-caps", "-all"]
    return ["sh", "-c", JOIN, "sh", *groups(process), "--", *enter, *limit, "env", "-i", *environment]


class Nodes:
    """Containers whose init was looked up: {name: (id, process)}."""

    def __init__(self) -> None:
        self.known: dict[str, tuple[str, int]] = {}

    def look_up(self, *containers: str) -> None:
        command = ["docker", "container", "inspect", "--format", FORMAT, *containers]
        found = subprocess.run(command, capture_output=True, text=True, check=False).stdout
        for name, known, process in map(str.split, found.splitlines()):
            self.known[name.lstrip("/")] = known, int(process)

    def words(self, name: str) -> list[str] | None:
        """-> the words before a command; None if docker exec is needed"""
        if os.geteuid():
            return None
        # It was made or started since.
        if name not in self.known or not runs(*self.known[name]):
            self.look_up(name)
        try:
            return entering(self.known[name][1]) if name in self.known and runs(*self.known[name]) else None
        except OSError:
            return None

    def has(self, name: str, path: str) -> bool:
        """Whether a node whose words are known has a file."""
        return os.path.exists("/proc/%d/root%s" % (self.known[name][1], path))


class CallbackModule(CallbackBase):
    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "entered"
    CALLBACK_NEEDS_ENABLED = True

    def v2_playbook_on_start(self, playbook: object) -> None:
        listed = ["docker", "container", "ls", "--quiet", "--filter", "label=llama-cluster.lab"]
        found = subprocess.run(listed, capture_output=True, text=True, check=False).stdout.split()
        # Here, because each task is a process of its own.
        nodes = Nodes()
        if found:
            nodes.look_up(*found)
        plugin = importlib.import_module(CONNECTION).Connection
        executed = plugin._build_exec_cmd

        def build(self, command):
            name = self.get_option("remote_addr")
            words = nodes.words(name) if self.remote_user in (None, "root") else None
            if words is None:
                return executed(self, command)
            if command[-1] == STARTS and nodes.has(name, CLIENT):
                return [*words, "/usr/bin/python3", "-I", "-S", CLIENT]
            return [*words, *command]

        plugin._build_exec_cmd = build
