# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""logs.yml over nodes with a journal each, one of them dead."""

import json
import sys
import time

import pytest
from ansible_collections.thefermisea.llama_cluster.tests.unit.playbooks.simulation import (
    COLLECTIONS,
    ROOT,
    done,
    refused,
    run_playbook,
)

# Each node has a Python that finds a journal of its own; ssh of the dead one times out.
JOURNALCTL = """#!/bin/sh
for word in "$@"; do
  case $word in
    --field=*) echo llama-head-chat.service; echo llama-gateway.service; exit ;;
  esac
done
tac "$JOURNAL"
"""
SSH = "#!/bin/sh\necho 'ssh: connect to host 127.9.0.1 port 22: Connection timed out' >&2\nexit 255\n"
HEAD = {"_SYSTEMD_UNIT": "llama-head-chat.service", "_COMM": "llama-server"}
REQUEST = {"service": "chat", "model": "m", "key": "team", "key_seen": "known", "status": 200}
REQUEST.update({"ttfb": 0.2, "seconds": 2, "client": "10.9.9.9"})


@pytest.fixture(name="logs")
def fixture_logs(tmp_path):
    """logs(*arguments) -> (status, what it prints)"""
    now = int(time.time()) - 60
    written = {
        "node1": [
            (1, "one {{ 1 / 0 }} line", dict(HEAD, _COMM="backoff")),
            (3, "slot print_timing: 1", HEAD),
            (4, "slot print_timing: 2", HEAD),
        ],
        "front": [(2, json.dumps(REQUEST), {"_SYSTEMD_UNIT": "llama-gateway.service"})],
    }
    (tmp_path / "bin").mkdir()
    for path, text in ((tmp_path / "bin/journalctl", JOURNALCTL), (tmp_path / "ssh", SSH)):
        path.write_text(text)
        path.chmod(0o755)
    hosts = {}
    for host, lines in written.items():
        (tmp_path / host).write_text(
            "".join(
                json.dumps(dict(fields, MESSAGE=text, __REALTIME_TIMESTAMP=str((now + at) * 1000000 + 7))) + "\n"
                for at, text, fields in lines
            )
        )
        interpreter = tmp_path / ("python-" + host)
        interpreter.write_text(
            '#!/bin/sh\nJOURNAL="%s" PATH="%s:$PATH" exec "%s" "$@"\n'
            % (tmp_path / host, tmp_path / "bin", sys.executable)
        )
        interpreter.chmod(0o755)
        hosts[host] = {"ansible_connection": "local", "ansible_python_interpreter": str(interpreter)}
    hosts["node2"] = {"ansible_host": "127.9.0.1", "ansible_ssh_executable": str(tmp_path / "ssh")}
    service = {"model": "m", "quant": "F16", "head": "node1", "port": 8000}
    inventory = {
        "all": {"vars": {"ansible_become": False, "ansible_ssh_retries": 0, "llama_services": {"chat": service}}},
        "llama_nodes": {"hosts": {name: hosts[name] for name in ("node1", "node2")}},
        "llama_gateway": {"hosts": {"front": hosts["front"]}},
    }
    (tmp_path / "hosts.json").write_text(json.dumps(inventory))
    source = ("-i", str(tmp_path / "hosts.json"))

    def run(*arguments):
        return run_playbook(
            ROOT / "playbooks/logs.yml", *source, *arguments, home=tmp_path, ANSIBLE_COLLECTIONS_PATH=COLLECTIONS
        )

    return run


def test_lines_of_hosts_are_merged(logs):
    output = refused(logs())
    assert "node2: " in output
    places = [
        output.find(text)
        for text in (
            "node1 llama-head-chat one {{ 1 / 0 }} line",
            "front llama-gateway chat: 200, model m, key team, first byte 0.20 s, 2.00 s",
            "node1 llama-head-chat (2 lines)",
            "node2: could not be asked, its lines are missing",
        )
    ]
    assert -1 not in places and places == sorted(places), output
    assert "10.9.9.9" not in output


def test_all_lines_and_limit(logs):
    output = logs("-e", "all=true", "-e", "lines=1", "-e", "since=1h")[1]
    assert "slot print_timing: 2" in output and "slot print_timing: 1" not in output
    assert "node1: older lines are left out" in output and "front: older" not in output


def test_older_lines_are_not_shown(logs):
    assert "no managed unit logged anything in this time" in logs("-e", "since=1s")[1]


@pytest.mark.parametrize(
    "given, sentence",
    [
        ("since=10x", "logs: since 10x seen, a number of s, m, h or d is needed: write -e since=10m"),
        ("since=0m", "logs: since 0m seen, a number"),
        ("since=yesterday", "logs: since yesterday seen, a number"),
        ("lines=0", "logs: lines 0 seen, 1 to 9999 is needed: write -e lines=1000"),
        ("lines=many", "logs: lines many seen, 1 to 9999"),
        ("all=ture", "logs: all ture seen, true or false is needed: write -e all=true"),
        ("service=chta", "logs: service chta seen, one of chat is needed, did you mean chat?"),
        ("service=none", "logs: service none seen, one of chat is needed: correct -e service=, or leave"),
    ],
)
def test_wrong_option_contacts_no_host(logs, given, sentence):
    output = refused(logs("-e", given))
    assert sentence in output
    assert "could not be asked" not in output and "Connection timed out" not in output


def test_wrong_option_is_refused_on_gateway(logs):
    """Only a gateway, which is no node."""
    assert "logs: since 10 seen, a number of s, m, h or d is needed" in refused(
        logs("--limit", "front", "-e", "since=10")
    )
    assert "front llama-gateway chat: 200" in done(logs("--limit", "front", "-e", "service=chat"))
