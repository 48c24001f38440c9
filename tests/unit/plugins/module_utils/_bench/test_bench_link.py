# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Recorded answers of iperf3, and its start by stubs of systemd."""

import json
import os
import shlex
import socket
import sys
from pathlib import Path

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._bench import link
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._text import Refusal

FIXTURES = Path(__file__).parents[3] / "fixtures/link"
# Logs its arguments and runs its command: a server in the background, a client in its place.
STUB_SYSTEMD_RUN = """#!%s
import json, os, subprocess, sys

words = sys.argv[1:]
open(os.environ["CALLS"], "a").write(json.dumps(words) + "\\n")
options = [word for word in words if word.startswith("--") and words.index(word) < words.index(os.environ["IPERF3"])]
command = words[words.index(os.environ["IPERF3"]):]
if "--wait" in options:
    sys.exit(subprocess.call(command))
subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
"""
STUB_SYSTEMCTL = """#!/bin/sh
echo "[\\"systemctl\\", \\"$1\\", \\"$2\\"]" >>"$CALLS"
"""
# A server listens for one connection; a client connects and prints the recorded answer.
STUB_IPERF3 = """#!%s
import os, socket, sys

words = dict(zip(sys.argv[1:], sys.argv[2:]))
port = int(words["--port"])
if "--server" in sys.argv:
    if os.environ.get("DEAF"):
        sys.exit(1)
    server = socket.create_server((words["--bind"], port))
    server.settimeout(30)
    server.accept()
else:
    socket.create_connection((words["--client"], port), 5)
    print(open(os.environ["SAID"]).read())
"""


def said(name):
    return (FIXTURES / name).read_text()


def test_received_data_counts_either_way():
    assert link.parse(said("iperf3_3.12_loopback.json")) == {
        "gbit_per_second": 20.716,
        "retransmits": 0,
    }
    assert link.parse(said("iperf3_3.12_loopback_reverse.json")) == {
        "gbit_per_second": 10.034,
        "retransmits": 12,
    }


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (said("iperf3_3.12_refused.json"), "iperf3: unable to connect to server: Connection refused"),
        ("", "no readable answer of iperf3: no output"),
        ("[]", "no readable answer of iperf3"),
        ('{"start": {"version": "iperf 3.12"}, "end": {}}', "no readable answer of iperf3"),
        ("Segmentation \x1b[31mfault", r"no readable answer of iperf3: Segmentation \?\[31mfault"),
    ],
)
def test_other_answer_is_refused(text, words):
    with pytest.raises(Refusal, match=words):
        link.parse(text)


@pytest.fixture(name="calls")
def fixture_calls(tmp_path, monkeypatch):
    """() -> commands of systemd so far"""
    stubs = {"systemd-run": STUB_SYSTEMD_RUN % sys.executable, "systemctl": STUB_SYSTEMCTL}
    stubs["iperf3"] = STUB_IPERF3 % sys.executable
    (tmp_path / "bin").mkdir()
    for name, text in stubs.items():
        (tmp_path / "bin" / name).write_text(text)
        (tmp_path / "bin" / name).chmod(0o755)
    monkeypatch.setenv("PATH", "%s:%s" % (tmp_path / "bin", os.environ["PATH"]))
    monkeypatch.setenv("IPERF3", str(tmp_path / "bin/iperf3"))
    monkeypatch.setenv("SAID", str(FIXTURES / "iperf3_3.12_loopback.json"))
    monkeypatch.setenv("CALLS", str(tmp_path / "calls"))
    return lambda: [json.loads(line) for line in (tmp_path / "calls").read_text().splitlines()]


@pytest.fixture(name="port")
def fixture_port():
    with socket.create_server(("127.0.0.1", 0)) as free:
        return free.getsockname()[1]


def test_server_listens_only_for_its_peer(calls, port):
    link.serve("127.0.0.1", port, "127.0.0.9", 10)
    assert link.measure("127.0.0.1", "127.0.0.1", port, 10, True)["gbit_per_second"] == 20.716
    stopped, server, client = calls()
    assert stopped == ["systemctl", "stop", "llama-link.service"]
    for words in (server, client):
        assert {"--collect", "--property=DynamicUser=yes", "--property=RuntimeMaxSec=40"} <= set(words)
    assert {"--unit=llama-link.service", "--property=IPAddressDeny=any", "--property=IPAddressAllow=127.0.0.9"} <= set(
        server
    )
    assert shlex.join(server).endswith("iperf3 --server --one-off --bind 127.0.0.1 --port %d" % port)
    assert {"--wait", "--pipe"} <= set(client)
    assert shlex.join(client).endswith(
        "iperf3 --client 127.0.0.1 --port %d --bind 127.0.0.1 --parallel 8 --time 10 --interval 0 --json "
        "--connect-timeout 5000 --reverse" % port
    )


def test_taken_port_is_refused(calls, port):
    with socket.create_server(("127.0.0.1", port)), pytest.raises(Refusal) as refused:
        link.serve("127.0.0.1", port, "127.0.0.9", 10)
    assert "acceptance_link_port: %d of 127.0.0.1 is in use on " % port in str(refused.value)
    assert len(calls()) == 1


def test_silent_server_is_named_and_stopped(calls, port, monkeypatch):
    monkeypatch.setenv("DEAF", "yes")
    monkeypatch.setattr(link, "LISTENS", 0.2)
    with pytest.raises(Refusal, match="iperf3 does not listen at 127.0.0.1 port %d" % port):
        link.serve("127.0.0.1", port, "127.0.0.9", 10)
    assert calls()[-1] == ["systemctl", "stop", "llama-link.service"]


def test_failed_client_names_both_ends(calls, port, monkeypatch):
    monkeypatch.setenv("SAID", str(FIXTURES / "iperf3_3.12_refused.json"))
    with socket.create_server(("127.0.0.1", port)), pytest.raises(Refusal) as refused:
        link.measure("127.0.0.1", "127.0.0.1", port, 10, False)
    assert str(refused.value) == (
        "llama_fabric_address: no measurement between 127.0.0.1 and 127.0.0.1 port %d (iperf3: unable to connect to "
        "server: Connection refused), an answer of iperf3 is needed: this run opens firewalld, any other firewall "
        "has to let 127.0.0.1 in there" % port
    )


def test_missing_iperf3_names_its_package(monkeypatch, tmp_path):
    monkeypatch.setattr(link.shutil, "which", lambda name, path: None)
    for ask in (lambda: link.serve("127.0.0.1", 1, "127.0.0.9", 1), lambda: link.measure("a", "b", 1, 1, False)):
        with pytest.raises(Refusal, match="iperf3: not found on .* install the package iperf3 there"):
            ask()
