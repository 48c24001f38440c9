# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Processes of a task."""

import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._slurm import process

WORDS = ["/x/llama-server", "--load-mode", "mlock"]


def test_server_keeps_signals_pending():
    text = "print(flush=True); input()"
    one = process.start([sys.executable, "-S", "-c", text], {}, stdin=subprocess.PIPE, output=subprocess.PIPE)
    # Python that still starts may swallow a SIGINT.
    one.stdout.readline()
    for number in process.KEPT:
        one.send_signal(number)
    status = Path(f"/proc/{one.pid}/status").read_text()
    assert one.poll() is None
    one.send_signal(signal.SIGINT)
    assert one.wait(5) in (1, -signal.SIGINT)
    one.stdin.close()
    one.stdout.close()
    # SIGPIPE, number 13.
    assert int(status.partition("SigIgn:\t")[2].split()[0], 16) >> 12 & 1


def test_environment_of_a_server(monkeypatch):
    monkeypatch.setenv("SLURM_JWT", "secret")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    monkeypatch.setenv("GGML_VK_VISIBLE_DEVICES", "2")
    monkeypatch.delenv("ROCR_VISIBLE_DEVICES", raising=False)
    chosen = process.environment_of({"HOME": "/h"})
    cards = {"CUDA_VISIBLE_DEVICES": "1", "GGML_VK_VISIBLE_DEVICES": "2"}
    assert chosen == {"PATH": process.PATH, **cards, "HOME": "/h"}
    assert process.environment_of({"CUDA_VISIBLE_DEVICES": "GPU-7"})["CUDA_VISIBLE_DEVICES"] == "GPU-7"


@pytest.mark.parametrize(
    ("status", "code", "words"),
    [(0, 0, "exit code 0"), (3, 3, "exit code 3"), (-6, 134, "SIGABRT"), (-99, 227, "signal 99")],
)
def test_ends_of_processes(status, code, words):
    assert (process.exit_code(status), process.how_it_ended(status)) == (code, words)


@pytest.mark.parametrize(
    ("most", "words", "named"),
    [(8 << 20, WORDS, True), (8 << 20, WORDS[:1], False), (resource.RLIM_INFINITY, WORDS, False)],
)
def test_limit_of_locked_memory_is_named(monkeypatch, most, words, named):
    monkeypatch.setattr(process.resource, "getrlimit", lambda _kind: (most, most))
    assert ("8192 KiB allowed, no limit is needed" in process.too_little_locked(words)) is named


def test_limits_are_as_high_as_they_may_be():
    words = "from %s import set_limits; import resource; set_limits()" % process.__name__
    words += "; print([resource.getrlimit(kind) for kind in (resource.RLIMIT_NOFILE, resource.RLIMIT_CORE)])"
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    path = os.pathsep.join(sys.path)
    shown = subprocess.check_output([sys.executable, "-c", words], env={"PYTHONPATH": path}, text=True)
    assert shown == "[(%d, %d), (0, 0)]\n" % (min(limit, process.FILES), limit)
