# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The choice of drills."""

import json
import sys

import yaml
from ansible_collections.thefermisea.llama_cluster.tests.unit.playbooks.simulation import (
    COLLECTIONS,
    ROOT,
    done,
    refused,
    run_playbook,
)

CATALOG = yaml.safe_load((ROOT / "roles/drill/vars/main.yml").read_text())["__drill_catalog"]
DRILLS = [name for name, drill in CATALOG.items() if drill["kind"] != "job"]
SERVICES = {
    "chat": {"model": "m", "quant": "Q4", "head": "node1", "workers": "node2", "port": 8000, "rpc_port": 50052},
    "quick": {"model": "m", "quant": "Q4", "head": "node2", "workers": "node1", "port": 8001, "rpc_port": 50053},
}


def choose(tmp_path, names, head):
    local = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
    hosts = {"llama_nodes": {"hosts": {"node1": {}, "node2": {}}, "vars": dict(local, llama_services=SERVICES)}}
    (tmp_path / "hosts.json").write_text(json.dumps(hosts))
    variables = {
        "drill_service": "chat",
        "drill_head": head,
        "drill_names": list(names),
        "drill_cluster": "mine",
    }
    asked = {"name": "thefermisea.llama_cluster.drill", "tasks_from": "choose"}
    tasks = [{"ansible.builtin.include_role": asked}]
    (tmp_path / "variables.json").write_text(json.dumps(variables))
    play = {"hosts": "node1", "gather_facts": False, "tasks": tasks}
    (tmp_path / "play.yml").write_text(json.dumps([play]))
    return run_playbook(
        *(tmp_path / "play.yml", "-i", str(tmp_path / "hosts.json"), "-e", "@%s" % (tmp_path / "variables.json")),
        home=tmp_path,
        ANSIBLE_COLLECTIONS_PATH=COLLECTIONS,
        ANSIBLE_STDOUT_CALLBACK="thefermisea.llama_cluster.brief",
    )


def test_only_drills_that_apply_are_chosen(tmp_path):
    head = {"unit": "llama-head-chat.service", "label": "chat on node1", "workers": [], "shares": []}
    output = done(choose(tmp_path, ["all"], head))
    assert "drills of chat on mine: head node1, no workers" in output
    assert output.count("not run, chat has no workers") == len(DRILLS) - 6
    assert output.count("not run, no host in group llama_gateway") == 3
    assert "model_damaged: the head comes back" in output
    output = done(choose(tmp_path, ["all"], dict(head, serves="embeddings")))
    assert "head_kill: not run, chat serves embeddings, nothing is generated" in output
    assert "head_kill_idle: kill -9 of the head while it is idle" in output
    assert output.count("not run, chat has no workers") == len(DRILLS) - 6


def test_named_drill_that_does_not_apply_is_refused(tmp_path):
    head = {"unit": "llama-head-chat.service", "workers": [], "shares": []}
    output = refused(choose(tmp_path, ["workers_both", "head_kill"], head))
    assert "drills: workers_both: chat has no workers: leave them out of -e drills=" in output
