# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Two units that role drill breaks at the same moment; run for real, on processes of the test's."""

import json
import os
import re
import subprocess
import sys
import threading
import time

from ansible_collections.thefermisea.llama_cluster.tests.unit.playbooks.simulation import COLLECTIONS, run_playbook

WORKERS = {"node2": "10.0.0.2", "node3": "10.0.0.3"}
# The head's clock is slow, so that they break eight seconds from now instead of ten: a busy machine starts both before.
DATE = """#!/bin/sh
if [ "$1" != +%%s ]; then
    now=$(/bin/date "$@")
    echo "$ADDRESS $now" >>%(folder)s/looks
    echo "$now"
    exit
fi
expr $(/bin/date +%%s) - 2 | tee %(folder)s/clock
"""
SYSTEMCTL = """#!/bin/sh
cat "%(folder)s/pid-$ADDRESS"
"""


class Victim(threading.Thread):
    """The process of a unit; `died` is when it was killed."""

    def __init__(self):
        super().__init__(daemon=True)
        self.process, self.died = subprocess.Popen(["sleep", "100"]), None
        self.start()

    def run(self):
        if self.process.wait() == -9:
            self.died = time.time()


def test_both_are_broken_at_the_same_moment(tmp_path):
    for name, text in (("date", DATE), ("systemctl", SYSTEMCTL)):
        (tmp_path / ("stub_" + name)).write_text(text % {"folder": tmp_path})
        (tmp_path / ("stub_" + name)).chmod(0o755)
        (tmp_path / name).symlink_to("stub_" + name)
    victims = {node: Victim() for node in WORKERS}
    for node, victim in victims.items():
        (tmp_path / ("pid-" + WORKERS[node])).write_text("%d\n" % victim.process.pid)
    hosts = {node: {"llama_fabric_address": address} for node, address in dict(WORKERS, node1="10.0.0.1").items()}
    settings = {
        "ansible_connection": "local",
        "ansible_python_interpreter": sys.executable,
        "ansible_async_dir": str(tmp_path / "async"),
    }
    (tmp_path / "hosts.json").write_text(json.dumps({"llama_nodes": {"hosts": hosts, "vars": settings}}))
    head = {"workers": list(WORKERS), "rpc_endpoints": ["10.0.0.2:50052"], "model_path": "/opt/models/m.gguf"}
    head["shares"] = [{"node": node, "unit": "llama-rpc-chat.service"} for node in WORKERS]
    # Without a watch: there is no head.
    variables = {
        "drill_service": "chat",
        "drill_head": head,
        "__drill": {"where": "workers", "action": "kill", "kind": "firewall"},
    }
    asked = {"name": "thefermisea.llama_cluster.drill", "tasks_from": "break"}
    tasks = [
        {"ansible.builtin.include_role": asked},
        {"ansible.builtin.debug": {"msg": "broken at {{ __drill_broken_at }}"}},
    ]
    play = {"hosts": "node1", "gather_facts": False, "tasks": tasks, "vars": variables}
    play["environment"] = {"PATH": "%s:%s" % (tmp_path, os.environ["PATH"])}
    (tmp_path / "play.yml").write_text(json.dumps([play]))
    status, output = run_playbook(
        tmp_path / "play.yml", "-i", str(tmp_path / "hosts.json"), home=tmp_path, ANSIBLE_COLLECTIONS_PATH=COLLECTIONS
    )
    for victim in victims.values():
        victim.process.kill()
    assert status == 0, output
    moment = int((tmp_path / "clock").read_text()) + 10
    died = [victim.died for victim in victims.values()]
    assert all(moment <= one < moment + 3 for one in died), (moment, died)
    looks = [line.split() for line in (tmp_path / "looks").read_text().splitlines()]
    assert {address for address, seen in looks if float(seen) < moment} == set(WORKERS.values()), "both wait for it"
    stamps = [float(seen) for _address, seen in looks if float(seen) >= moment]
    assert float(re.search(r"broken at ([0-9.]+)", output).group(1)) == min(stamps)
