# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Mistakes of an inventory and of the variables of a playbook are reported before any login and before the arguments
of roles are validated."""

import json

import pytest
from ansible_collections.thefermisea.llama_cluster.tests.unit.playbooks.simulation import (
    COLLECTIONS,
    ROOT,
    refused,
    run_playbook,
)

# No ssh server listens there: a login would be an error of its own.
HOSTS = {
    name: {"ansible_host": "127.9.9.%d" % number, "llama_fabric_address": "10.9.9.%d" % number}
    for number, name in enumerate(("node1", "node2"), 1)
}
SERVICE = {"model": "m", "quant": "Q8_0", "head": "node1", "port": 8000}
INTENT = {
    "llama_services": {"chat": SERVICE},
    "llama_models": {"m": {"quants": {"Q8_0": {"urls": ["file:///m.gguf"]}}}},
}


def run(tmp_path, playbook, *arguments, **intent):
    inventory = {"llama_nodes": {"hosts": HOSTS, "vars": dict(INTENT, **intent)}}
    (tmp_path / "hosts.json").write_text(json.dumps(inventory))
    arguments = ("-i", str(tmp_path / "hosts.json"), *arguments)
    # A check that finds nothing is a task that is skipped.
    settings = {"ANSIBLE_COLLECTIONS_PATH": COLLECTIONS, "ANSIBLE_DISPLAY_SKIPPED_HOSTS": "true"}
    return run_playbook(ROOT / ("playbooks/%s.yml" % playbook), *arguments, home=tmp_path, **settings)


def test_one_sentence_comes_first(tmp_path):
    services = {"chat": dict(SERVICE, quant="{{ nowhere }}")}
    output = refused(run(tmp_path, "site", llama_services=services))
    sentence = "llama_services: nowhere is not defined for node1, node2, a value is needed: define it"
    assert sentence in " ".join(output.split())
    assert "Validating arguments" not in output and "ssh" not in output


def test_a_mistyped_variable_is_a_warning(tmp_path):
    _status, output = run(tmp_path, "site", llama_modells_dir="/srv", llama_services={})
    assert "warning" in output.lower()
    assert "llama_modells_dir: nothing reads this variable, did you mean llama_models_dir?" in " ".join(output.split())


@pytest.mark.parametrize(
    "playbook, reported, sentence",
    [
        ("switch_model", [], "switch_model: no service given, one of chat is needed: add -e service=NAME"),
        (
            "switch_model",
            ["service=chta"],
            "switch_model: service chta seen, one of chat is needed, did you mean chat?",
        ),
        (
            "switch_model",
            ["service=chat"],
            "switch_model: no quant given, one of Q8_0 of m is needed: add -e quant=QUANT",
        ),
        (
            "switch_model",
            ["service=chat", "quant=Q8"],
            "switch_model: quant Q8 seen, one of Q8_0 of m is needed, did you mean Q8_0?",
        ),
        (
            "switch_model",
            ["service=chat", "quant=Q8_0", "retire=now"],
            "switch_model: retire now seen, one of never, after and first is needed: correct -e retire=",
        ),
        ("maintenance", [], "maintenance: no node given, one of node1, node2 is needed: run with -e node=NODE"),
        (
            "maintenance",
            ["node=node1", "state=back"],
            "maintenance: state back seen, hold or return is needed: run with -e state=return",
        ),
        ("drill", ["service=chta"], "drill: service chta seen, one of chat is needed, did you mean chat?"),
    ],
)
def test_operator_values_are_checked_one_by_one(tmp_path, playbook, reported, sentence):
    output = refused(run(tmp_path, playbook, *(word for one in reported for word in ("-e", one))))
    assert sentence in " ".join(output.split())
    assert "ssh" not in output


@pytest.mark.parametrize("playbook", ["switch_model", "drill"])
@pytest.mark.parametrize(
    "intent, sentence",
    [
        ({"llama_services": [SERVICE]}, "llama_services: a list of 1 seen, a map of name to service is needed"),
        (
            {"llama_services": "{{ nowhere }}"},
            "llama_services: nowhere is not defined for node1, node2, a value is needed",
        ),
    ],
)
def test_intent_is_sound_before_service_is_looked_for(tmp_path, playbook, intent, sentence):
    output = refused(run(tmp_path, playbook, "-e", "service=chat", "-e", "quant=Q8_0", **intent))
    assert sentence in " ".join(output.split())
    assert "ssh" not in output


def test_the_intent_is_checked_once(tmp_path):
    _status, output = run(tmp_path, "site")
    assert [
        output.count(task + "] *")
        for task in ("Check the inventory's intent", "Report variables without use or value", "Log in")
    ] == [1, 1, 1]
