# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""plan.yml as it is run: the inventory's plan, any model's plan, and what it refuses."""

import json

import pytest
from ansible_collections.thefermisea.llama_cluster.tests.unit import model_files
from ansible_collections.thefermisea.llama_cluster.tests.unit.playbooks.simulation import COLLECTIONS, ROOT, run_playbook

SERVICE = {"model": "big", "quant": "Q4", "head": "node1", "workers": "node2", "port": 8000, "rpc_port": 50052, "ctx_size": 8192}
INVENTORY = {
    "llama_nodes": {
        "hosts": {name: {"llama_fabric_address": "10.0.0.%d" % index} for index, name in enumerate(("node1", "node2"), 1)},
        "vars": {
            "llama_services": {"chat": dict(SERVICE, force_split=True)},
            "llama_models": {"big": {"quants": {"Q4": {"urls": ["file:///nowhere/big.gguf"], "file": "big.gguf"}}}},
        },
    }
}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A model that is all header, its size that of the real one."""
    path = tmp_path_factory.mktemp("model") / "big.gguf"
    model_files.qwen3_32b().write(path)
    return path


@pytest.fixture
def plan(tmp_path):
    (tmp_path / "hosts.json").write_text(json.dumps(INVENTORY))
    (tmp_path / "nobody.json").write_text("{}")

    def run(*settings, inventory="hosts"):
        arguments = ("-i", str(tmp_path / (inventory + ".json")), "-e", " ".join(settings))
        return run_playbook(ROOT / "playbooks/plan.yml", *arguments, home=tmp_path, ANSIBLE_COLLECTIONS_PATH=COLLECTIONS)

    return run


def test_the_inventory_with_other_settings_and_headers_of_16_mib(plan, model, tmp_path):
    with open(model, "rb") as stream:
        (tmp_path / "big.gguf").write_bytes(stream.read(16 << 20))
    settings = ("headers=%s" % tmp_path, "devices=2x24000", "service=chat", "ctx_size=16384", "cache_type=q8_0", "tensor_split=auto")
    status, output = plan(*settings)
    assert status == 0, output
    assert "chat: big Q4, 16384 tokens of q8_0 KV cache" in output
    assert " main memory of the head: 418 MiB of weights and " in output


def test_any_model_on_cards_that_need_not_exist(plan, model):
    status, output = plan("url=file://%s" % model, "devices=2x24000", "ctx_size=32768", "cache_type=q4_0", inventory="nobody")
    assert status == 0, output
    assert "plan: qwen3, 32768 tokens of q4_0 KV cache" in output
    status, output = plan("url=file://%s" % model, "devices=2000", inventory="nobody")
    assert status != 0
    assert "it does not fit 1 devices: choose a smaller model, or more devices" in output


@pytest.mark.parametrize(
    "inventory,settings,refusal",
    [
        ("nobody", "ctx_size=4096", "plan: no url and no host in group llama_nodes, one of them is needed: run with -e url=... -e devices=3x32510"),
        ("hosts", "ctx_size=4096 quant=Q8", "plan: quant, ctx_size seen without a service, the one to plan it for is needed: run with -e service=NAME"),
        ("hosts", "url=file:///m.gguf", "plan: no devices and no llama_devices of llama_nodes, cards are needed: run with -e devices=3x32510"),
        ("hosts", "devices=24000", "node2: no llama_devices and 1 cards given, the memory of its cards is needed: add llama_devices to the inventory"),
    ],
)
def test_refusals(plan, inventory, settings, refusal):
    status, output = plan(settings, inventory=inventory)
    assert status != 0
    assert refusal in output
