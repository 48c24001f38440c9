# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""site.yml says what is wrong with an inventory before the role's arguments are validated and before any login."""

import json

import pytest
from ansible_collections.thefermisea.llama_cluster.tests.unit.playbooks.simulation import COLLECTIONS, ROOT, run_playbook

# Nobody listens there: a login would be an error of its own.
HOSTS = {name: {"ansible_host": "127.9.9.%d" % number, "llama_fabric_address": "127.9.9.%d" % number} for number, name in enumerate(("node1", "node2"), 1)}
SERVICE = {"model": "m", "quant": "Q8_0", "head": "node1", "port": 8000}
INTENT = {"llama_services": {"chat": SERVICE}, "llama_models": {"m": {"quants": {"Q8_0": {"urls": ["file:///m.gguf"]}}}}}


def site(tmp_path, **intent):
    inventory = {"llama_nodes": {"hosts": HOSTS, "vars": dict(INTENT, **intent)}}
    (tmp_path / "hosts.json").write_text(json.dumps(inventory))
    return run_playbook(ROOT / "playbooks/site.yml", "-i", str(tmp_path / "hosts.json"), home=tmp_path, ANSIBLE_COLLECTIONS_PATH=COLLECTIONS)


@pytest.mark.parametrize(
    "intent, sentence",
    [
        (
            {"llama_services": [SERVICE]},
            "llama_services: a list of 1 seen, a map of name to service is needed: write NAME: with its keys below, without a dash",
        ),
        (
            {"llama_services": {"chat": dict(SERVICE, quant="{{ nobody }}")}},
            "llama_services: nobody is not defined for node1, node2, a value is needed: define it",
        ),
        (
            {"llama_api_keys": "{{ vault_keys }}"},
            "llama_api_keys: vault_keys is not defined for node1, node2, a value is needed: run with --ask-vault-pass or -e",
        ),
    ],
)
def test_one_sentence_comes_first(tmp_path, intent, sentence):
    status, output = site(tmp_path, **intent)
    assert status != 0
    assert sentence in " ".join(output.split())
    assert "Validating arguments" not in output and "ssh" not in output
    assert len(output.splitlines()) < 60


def test_a_mistyped_variable_is_a_warning(tmp_path):
    _status, output = site(tmp_path, llama_cpp_accelerater="cuda", llama_services={})
    assert "[WARNING]: llama_cpp_accelerater: nothing reads this variable, did you mean llama_cpp_accelerator?" in " ".join(output.split())
