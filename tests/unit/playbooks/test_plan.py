# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""plan.yml as it is run: the inventory's plan, any model's plan, and what it refuses."""

import json
import re

import pytest
from ansible_collections.thefermisea.llama_cluster.tests.unit import companion_files, gguf_files, model_files
from ansible_collections.thefermisea.llama_cluster.tests.unit.playbooks.simulation import (
    COLLECTIONS,
    ROOT,
    done,
    refused,
    run_playbook,
)

SERVICE = {
    "model": "big",
    "quant": "Q4",
    "head": "node1",
    "workers": "node2",
    "port": 8000,
    "rpc_port": 50052,
    "ctx_size": 8192,
}
FIVE_NODES = ROOT / "tests/unit/fixtures/five_nodes"
INVENTORY = {
    "llama_nodes": {
        "hosts": {
            name: {"llama_fabric_address": "10.0.0.%d" % index} for index, name in enumerate(("node1", "node2"), 1)
        },
        "vars": {
            "llama_services": {"chat": dict(SERVICE, force_split=True)},
            "llama_models": {"big": {"quants": {"Q4": {"urls": ["file:///nowhere/big.gguf"], "file": "big.gguf"}}}},
        },
    }
}

HEADER = {
    "architecture": "qwen2",
    "block_count": 28,
    "context_length": 32768,
    "embedding_length": 3584,
    "feed_forward_length": 18944,
    "head_count": 28,
    "head_count_kv": 4,
    "vocab_size": 152064,
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
    (tmp_path / "empty.json").write_text("{}")
    (tmp_path / "typo.json").write_text(json.dumps({"llama_node": INVENTORY["llama_nodes"]}))

    def run(*settings, inventory="hosts", limit=None):
        where = FIVE_NODES if inventory == "five_nodes" else tmp_path / ("%s.json" % inventory)
        arguments = (
            *(("-i", str(where)) if inventory else ()),
            "-e",
            " ".join(settings),
            *(("--limit", limit) if limit else ()),
        )
        return run_playbook(
            ROOT / "playbooks/plan.yml", *arguments, home=tmp_path, ANSIBLE_COLLECTIONS_PATH=COLLECTIONS
        )

    return run


def test_inventory_with_other_settings_and_given_headers(plan, model, tmp_path):
    with open(model, "rb") as stream:
        (tmp_path / "big.gguf").write_bytes(stream.read(16 << 20))
    settings = (
        "headers=%s" % tmp_path,
        "devices=2x24GB",
        "service=chat",
        "slot_ctx_size=16384",
        "cache=q8_0",
        "tensor_split=auto",
        "parallel=3",
        "ubatch_size=256",
        # The playbook uses no such name.
        *("%s=1" % name for name in ("context", "sum", "split", "slots", "other", "changes", "kept", "same")),
    )
    output = done(plan(*settings))
    assert "chat: big Q4, 16384 tokens a slot (3 slots) of q8_0 KV cache" in output
    assert " main memory of the head: 418 MiB of weights and " in output


def test_services_of_one_node(plan, tmp_path):
    quant = {"urls": ["file:///nowhere/m.gguf"], "size": 8 * 10**9}
    service = {"model": "m", "quant": "Q8", "head": "node1", "slot_ctx_size": 4096}
    given = {
        "llama_builds": {"default": {"accelerator": "cuda"}},
        "llama_devices": [{"memory_mib": 24000}, {"memory_mib": 16000}, {"main": True, "memory_mib": 64000}],
        "llama_models": {"m": {"header": HEADER, "quants": {"Q8": quant}}},
        "llama_services": {
            "embed": dict(service, cards=[]),
            "coder": dict(service, cards=1),
            "night": dict(service, cards=[1], state="stopped"),
        },
    }
    inventory = {"llama_nodes": {"hosts": {"node1": {}}, "vars": given}}
    (tmp_path / "own.json").write_text(json.dumps(inventory))
    output = done(plan("x=1", inventory="own"))
    assert [output.count("node1 %s 0-27 (28)" % device) for device in ("GPU0", "GPU1", "main")] == [1, 1, 1]
    assert "night: stopped, not counted; it fits beside what runs" in output
    assert "ports, by the services' names: coder 18" in output and ", embed 18411, night 18" in output


def test_files_beside_model_are_planned_by_their_headers(plan, model, tmp_path):
    with open(model, "rb") as stream:
        (tmp_path / "big.gguf").write_bytes(stream.read(16 << 20))
    (tmp_path / "sees.gguf").write_bytes(gguf_files.header_bytes(*companion_files.projector(image=512)))
    adapter = companion_files.adapter("qwen3", blocks=64, width=5120)
    (tmp_path / "tone.gguf").write_bytes(gguf_files.header_bytes(*adapter))
    nowhere = {name: {"urls": ["file:///nowhere/%s.gguf" % name]} for name in ("big", "sees", "tone")}
    known = {"quants": {"Q4": nowhere["big"]}, "mmproj": nowhere["sees"], "loras": {"tone": nowhere["tone"]}}
    given = {
        "llama_devices": [{"memory_mib": 40000}],
        "llama_models": {"big": known},
        "llama_services": {
            "chat": {"model": "big", "quant": "Q4", "head": "node1", "slot_ctx_size": 4096, "lora": {"tone": 0.5}}
        },
    }
    (tmp_path / "own.json").write_text(json.dumps({"llama_nodes": {"hosts": {"node1": {}}, "vars": given}}))
    output = done(plan("headers=%s" % tmp_path, inventory="own"))
    assert "with its projector, " in output and "with its adapter tone, 20 MiB" in output


def test_any_model_on_cards_that_need_not_exist(plan, model):
    output = done(
        plan(
            "url=file://%s" % model,
            "devices=12GiB+12GB",
            "slot_ctx_size=32768",
            "cache=q4_0",
            "ctx=8192",
            inventory="empty",
        )
    )
    assert "[WARNING]: ctx: nothing reads this variable, did you mean ctx_size?" in output
    assert "plan: qwen3, 32768 tokens a slot of q4_0 KV cache" in output
    assert "node1 GPU0 0-" in output and "node1 GPU1 " in output
    assert "what the GPUs cannot hold is left over for node1 main" in done(
        plan("url=file://%s" % model, "devices=main:256GB,16GB", "slot_ctx_size=4096", inventory="empty")
    )
    assert (
        "it does not fit 1 device: give node1 last, without a GPU the head node2 holds no layers beside workers, or "
        "use 2 cards of 16384 MiB"
    ) in refused(plan("url=file://%s" % model, "devices=16GB,main:256GB", "slot_ctx_size=4096", inventory="empty"))
    output = refused(plan("url=file://%s" % model, "devices=4GB", inventory="empty"))
    assert "it does not fit 1 device: use 12 cards of 4096 MiB" in output and "Could not match" not in output
    output = done(plan("url=file://%s" % model, "slot_ctx_size=8192", inventory="five_nodes"))
    assert "head rtx2 (24576 + 24576 MiB), workers a6000 (49140 MiB) and rtx1 (24576 + 24576 MiB)" in output, (
        "only nodes with cards"
    )


def test_a_mixture_with_experts_in_main_memory(plan, tmp_path):
    """For a URL, and for a service whose node has main memory in llama_devices; without that it is refused."""
    path = tmp_path / "mixture.Q4_K_M.gguf"
    model_files.qwen3_30b().write(path)
    asked = ("url=file://%s" % path, "slot_ctx_size=16384")
    status, output = plan(*asked, "devices=12GB+main:64GB", inventory="empty")
    assert status == 0, output
    assert re.search(
        r"experts of \d+ of 48 layers in main memory: \d+ MiB of weights on the GPUs, \d+ MiB there", output
    )
    service = {"model": "mixture", "quant": "Q4_K_M", "head": "node1", "port": 8000, "slot_ctx_size": 16384}
    hosts = {"node1": {"llama_devices": [{"memory_mib": 12288}, {"main": True, "memory_mib": 64000}]}}
    own = {
        "llama_services": {"chat": dict(service, cpu_moe="auto")},
        "llama_models": {"mixture": {"quants": {"Q4_K_M": {"urls": ["file://%s" % path]}}}},
    }
    missing = "llama_services.chat.cpu_moe: auto seen, the main memory of node1 is needed for it: add {main: true, "
    for cards, fits, words in ((2, True, "layers in main memory: "), (1, False, missing)):
        hosts["node1"]["llama_devices"] = hosts["node1"]["llama_devices"][:cards]
        (tmp_path / "mixture.json").write_text(json.dumps({"llama_nodes": {"hosts": hosts, "vars": own}}))
        status, output = plan("preflight_margin_mib=1024", inventory="mixture")
        assert (status == 0, words in output) == (fits, True), output


@pytest.mark.parametrize(
    "inventory,settings,refusal",
    [
        ("empty", "ctx_size=4096", "group llama_nodes: no host in "),
        ("typo", "", "whose groups are llama_node, at least one is needed, did you mean llama_node?"),
        (
            None,
            "ctx_size=4096",
            "plan: neither a url nor an inventory given, one of them is needed: run with -e url=... -e devices=3x24GB, "
            "or with -i ",
        ),
        (
            None,
            "url=file:///m.gguf",
            "devices: none given, and no inventory with nodes in group llama_nodes, one of them is needed: run with -e "
            "devices=48GB",
        ),
        (
            "hosts",
            "slot_ctx_size=4096 quant=Q8",
            "plan: quant, slot_ctx_size seen without a service, the one to plan it for is needed: run with -e "
            "service=NAME",
        ),
        (
            "hosts",
            "url=file:///m.gguf",
            "llama_devices: missing for node1, node2, the memory of each card is needed to plan without asking nodes: ",
        ),
        (
            "hosts",
            "url=file:///m.gguf devices=24GB ctx_size=4096",
            "plan: ctx_size seen with a url, the tokens of each slot are needed: run with -e slot",
        ),
        (
            "hosts",
            "url=file:///m.gguf devices=24GB service=chat quant=Q8 tensor_split=auto headers=/tmp",
            "plan: headers, quant, service, tensor_split seen with a url, a plan of the inventory is needed for that: "
            "leave it out, or run without url",
        ),
        (
            "hosts",
            "url=file:///m.gguf devices=24GB nodes=node1",
            "plan: nodes seen beside devices, one of them is needed: leave the other out",
        ),
        (
            "hosts",
            "devices=2x24GB nodes=node1",
            "plan: nodes seen without a url, the model to plan on them is needed: add -e url=..., or leave nodes out",
        ),
        (
            "hosts",
            "devices=24000",
            "devices: 1 nodes seen, 2 are needed, one for each of node1, node2: give such as 2x24GB",
        ),
        ("hosts", "devices=5x24TB", "devices: 5x24TB seen, COUNTxSIZE such as 3x24GB is needed: "),
        ("hosts", "devices=2x24GB service=chta", "service: chta seen, one of chat is needed: run with -e service=chat"),
    ],
)
def test_refusals(plan, inventory, settings, refusal):
    output = refused(plan(settings, inventory=inventory))
    assert output.count("fatal: [") + output.count("[ERROR]: Task failed") <= 2, "asserted once"
    assert refusal in output
    assert "Traceback" not in output and "template error" not in output and "32510" not in output


def test_file_url_is_not_planned_without_error(plan):
    output = done(plan(json.dumps({"devices": "2x24GB", "llama_builds": {"default": {"accelerator": "cuda"}}})))
    assert "note: " not in output
    assert (
        "chat: not planned, its file is on the disk of its node, which plan.yml does not contact: site.yml plans it"
        in output
    )


def test_file_urls_of_router_are_not_planned(plan):
    turns = {"turns": {"kind": "router", "head": "node1", "models": {"big": "Q4"}, "slot_ctx_size": 8192}}
    assert "turns: not planned, big Q4: its file is on the disk of its node, which plan.yml does not contact" in done(
        plan(json.dumps({"devices": "2x24GB", "llama_services": turns}))
    )


def test_service_that_is_not_planned_makes_it_red(plan):
    """After everything that was planned is printed."""
    output = refused(plan(inventory="five_nodes", limit="rtx1"))
    assert "small: qwen2.5-14b Q4_K_M, 8192 tokens a slot of f16 KV cache" in output
    sentence = (
        "llama_services.big: not planned, a6000 and rtx2 are not part of this run, a plan needs all nodes of a "
        "service: run without --limit"
    )
    assert sentence in output


def test_limit_that_leaves_out_this_machine_is_refused(plan, model):
    """Which plans any model: no plan would look like a success."""
    assert (
        "big.gguf was not planned, localhost is not part of this run and is needed for it: run without --limit"
        in refused(plan("url=file://%s" % model, "devices=24GB", limit="node1"))
    )


def test_five_nodes_as_people_own_them(plan):
    """Two of them have no card, so their build cannot be for CUDA: refusals of site.yml follow the plan."""
    output = refused(plan(inventory="five_nodes"))
    assert "big: llama-3.3-70b Q6_K, 8192 tokens a slot (2 slots) of f16 KV cache" in output
    assert " --tensor-split 17,17,17,17,13 main memory of the head: 823 MiB of weights" in output
    assert "small shares cards with big, all of them fit" in output
    assert "big: at most 16 tokens/s, one request at a time" in output
    assert "no gateway, clients come to each service: big http://127.9.0.5:8000/v1, small http://" in output
    assert "mem1 main" not in output
    sentence = (
        "llama_builds.default.accelerator: cuda seen for mem1, mem2, which have only main memory, auto is needed "
        "there, which compiles a build for nodes without a card too: write it"
    )
    assert sentence in output
    assert "accelerator" not in done(
        plan('{"llama_builds": {"default": {"accelerator": "auto"}}}', inventory="five_nodes")
    )


def test_refusals_of_site_follow_the_plan(plan):
    """A key of the example, and a launcher that this version does not deploy."""
    keys = {"llama_builds": {"default": {"accelerator": "auto"}}}
    keys = json.dumps(dict(keys, llama_api_keys={"big": ["put-a-key-of-your-own-here"]}))
    output = refused(plan(keys, inventory="five_nodes"))
    assert "small: qwen2.5-14b Q4_K_M" in output
    assert "llama_api_keys.big: put-a-key-of-your-own-here seen, a key of your own is needed" in output


def test_builds_that_cards_cannot_use_are_refused(plan, tmp_path):
    service = {"model": "m", "quant": "Q8", "slot_ctx_size": 4096}
    given = {
        "llama_builds": {"default": {"accelerator": "cuda"}, "other": {"accelerator": "vulkan"}},
        "llama_models": {
            "m": {"header": HEADER, "quants": {"Q8": {"urls": ["file:///nowhere/m.gguf"], "size": 8 * 10**9}}}
        },
        "llama_services": {
            "chat": dict(service, head="amd"),
            "one": dict(service, head="both"),
            "two": dict(service, head="both", build="other", cards=[1]),
        },
    }
    radeon = {"name": "AMD Radeon RX 7900 XTX", "memory_mib": 24560}
    hosts = {"amd": {"llama_devices": [radeon]}, "both": {"llama_devices": [radeon, radeon]}}
    (tmp_path / "own.json").write_text(json.dumps({"llama_nodes": {"hosts": hosts, "vars": given}}))
    output = refused(plan("x=1", inventory="own"))
    assert "chat: m Q8, 4096 tokens a slot" in output, "planned before"
    assert "llama_builds.default.accelerator: cuda seen for cards of AMD or Intel on amd, vulkan or auto is" in output
    assert "both: builds for cuda and vulkan seen, one kind is needed, since a card is planned for one of" in output
