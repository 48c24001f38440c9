# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""For the card test: what is done on a node enters the namespaces of its systemd, whose process id on this machine is a
variable."""

from __future__ import annotations

import subprocess
from pathlib import Path

from ansible.errors import AnsibleConnectionFailure
from ansible.plugins.connection import ConnectionBase

DOCUMENTATION = r"""
name: entered_node
short_description: Enter a node of the card test
version_added: 0.1.0
author: The Fermi Sea (@thefermisea)
description:
  - For tests only.
options:
  process:
    description: The node's systemd, as this machine counts processes.
    type: int
    required: true
    vars: [{name: card_process}]
"""

NAMESPACES = ("--mount", "--uts", "--ipc", "--net", "--pid", "--cgroup", "--root")
PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class Connection(ConnectionBase):
    transport = "entered_node"
    has_pipelining = True

    def _connect(self):
        self._connected = True
        return self

    def close(self):
        self._connected = False

    def _entered(self, *words):
        enter = ["nsenter", "--target", str(self.get_option("process")), *NAMESPACES, "--"]
        return [*enter, "env", "-i", "--chdir=/", PATH, "LANG=C.UTF-8", "HOME=/root", *words]

    def exec_command(self, cmd, in_data=None, sudoable=True):
        super().exec_command(cmd, in_data=in_data, sudoable=sudoable)
        done = subprocess.run(
            self._entered("/bin/sh", "-c", cmd), input=in_data or b"", capture_output=True, check=False
        )
        return done.returncode, done.stdout, done.stderr

    def put_file(self, in_path, out_path):
        super().put_file(in_path, out_path)
        with Path(in_path).open("rb") as stream:
            words = self._entered("dd", "of=" + out_path, "bs=1M", "status=none")
            done = subprocess.run(words, stdin=stream, capture_output=True, check=False)
        if done.returncode:
            raise AnsibleConnectionFailure("%s cannot be written: %s" % (out_path, done.stderr.decode()))

    def fetch_file(self, in_path, out_path):
        super().fetch_file(in_path, out_path)
        with Path(out_path).open("wb") as stream:
            words = self._entered("dd", "if=" + in_path, "bs=1M", "status=none")
            done = subprocess.run(words, stdout=stream, stderr=subprocess.PIPE, check=False)
        if done.returncode:
            raise AnsibleConnectionFailure("%s cannot be read: %s" % (in_path, done.stderr.decode()))
