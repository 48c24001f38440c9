# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

import contextlib
import os
import socket
import sys

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._node.notify import notify, say


@pytest.mark.parametrize("abstract", [False, True])
def test_systemd_is_notified(tmp_path, monkeypatch, abstract):
    name = "@llama-cluster-notify-%d" % os.getpid() if abstract else str(tmp_path / "notify")
    monkeypatch.setenv("NOTIFY_SOCKET", name)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind("\0" + name[1:] if abstract else name)
        systemd.settimeout(5)
        notify("STATUS=waits")
        assert systemd.recv(100) == b"STATUS=waits"
    notify("no listener")


def test_a_line_that_cannot_be_written_is_lost(monkeypatch):
    with open("/dev/full", "w") as full:
        monkeypatch.setattr(sys, "stdout", full)
        say("x")
        say("x" * 100000)
        monkeypatch.undo()
        with contextlib.suppress(OSError):
            full.close()


def test_without_systemd_nothing_is_sent(monkeypatch):
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    notify("READY=1")
