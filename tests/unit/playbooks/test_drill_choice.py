# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What drill.yml says before it breaks anything."""

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

DRILLS = yaml.safe_load((ROOT / "roles/drill/vars/main.yml").read_text())["__drill_catalog"]
SERVICES = {
    "chat": {"model": "m", "quant": "Q4", "head": "node1", "workers": "node2", "port": 8000, "rpc_port": 50052},
    "quick": {"model": "m", "quant": "Q4", "head": "node2", "workers": "node1", "port": 8001, "rpc_port": 50053},
}
WORKED = {"unit": "llama-head-chat.service", "workers": ["node2"], "shares": [{"unit": "llama-rpc-chat.service"}]}


def choose(tmp_path, kept, names=("fabric_partition",), head=None):
    local = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
    hosts = {"llama_nodes": {"hosts": {"node1": {}, "node2": {}}, "vars": dict(local, llama_services=SERVICES)}}
    (tmp_path / "hosts.json").write_text(json.dumps(hosts))
    (tmp_path / "drill-chat.json").write_text(json.dumps({"drills": kept}))
    variables = {
        "drill_service": "chat",
        "drill_head": head or WORKED,
        "drill_names": list(names),
        "drill_report_dir": str(tmp_path),
        "drill_cluster": "mine",
        "__drill_served_dir": str(tmp_path / "served"),
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


PARTITION = {"drill": "fabric_partition", "result": "recovered", "phases": {"total": 64.5, "held": 13.1}}


def test_for_how_long_services_will_be_gone(tmp_path):
    output = done(choose(tmp_path, [PARTITION]))
    assert "gone in each drill: chat, about 1 min 17 s at most, as in the last drills" in output
    assert "gone as long in fabric_partition: quick, of which node2 has a part" in output


def test_the_watchdogs_word_of_the_last_load_counts_where_nothing_was_drilled(tmp_path):
    assert "gone in each drill: chat, not known yet" in done(choose(tmp_path, []))
    (tmp_path / "served").mkdir()
    (tmp_path / "served/llama-head-chat.service").write_text("4711 63.5\n")
    assert "and the last load took 1 min 03 s" in done(choose(tmp_path, []))


def test_a_word_that_cannot_be_read_is_no_missing_one(tmp_path):
    (tmp_path / "served/llama-head-chat.service").mkdir(parents=True)
    assert "is a directory" in refused(choose(tmp_path, []))


def test_without_workers_the_head_alone_is_broken(tmp_path):
    """Of a replica what is kept has the name of its node, too."""
    killed = {"drill": "head_kill", "result": "recovered", "phases": {"total": 3.0}}
    (tmp_path / "drill-chat.node1.json").write_text(json.dumps({"drills": [killed]}))
    head = {"unit": "llama-head-chat.service", "label": "chat on node1", "workers": [], "shares": []}
    output = done(choose(tmp_path, [], ["head_kill"], head))
    assert "drills of chat on mine: head node1, no workers" in output
    assert "gone in each drill: chat, about 3.0 s at most, as in the last drills" in output
    output = done(choose(tmp_path, [], ["all"], head))
    assert output.count("not run, chat has no workers") == len(DRILLS) - 6
    assert output.count("not run, no host in group llama_gateway") == 3
    assert "model_damaged: the head comes back" in output
    # In the middle of what answer?
    output = done(choose(tmp_path, [], ["all"], dict(head, args=["--embeddings"])))
    assert "head_kill: not run, chat serves embeddings, nothing is generated" in output
    assert "head_kill_idle: kill -9 of the head while nobody asks" in output
    assert output.count("not run, chat has no workers") == len(DRILLS) - 6
