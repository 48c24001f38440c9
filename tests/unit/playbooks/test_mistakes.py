# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The mistakes of a first inventory, and what the real command prints of each: one sentence, nothing else of Ansible,
and no node is asked.

Mistakes that are found in one look share a run, in which each is one line. Tested elsewhere: a wrong sudo password and
an old Python (test_reach), an old ansible-core (tests/gates/versions.sh), YAML that cannot be read and a variable of
one host that a connection needs (docs, by symptom).
"""

import copy
import json
import re

import pytest
from ansible_collections.thefermisea.llama_cluster.tests.unit.playbooks.simulation import (
    COLLECTIONS,
    ROOT,
    playbook_lines,
)

SSH = "#!/bin/sh\necho called >>%s\necho 'ssh: connect to host 127.9.0.1 port 22: Connection timed out' >&2\nexit 255\n"
LINES = 15
LLAMA = {
    "architecture": "llama",
    "block_count": 80,
    "context_length": 131072,
    "embedding_length": 8192,
    "feed_forward_length": 28672,
}
LLAMA.update({"head_count": 64, "head_count_kv": 8, "vocab_size": 128256})
QWEN = dict(LLAMA, block_count=48, embedding_length=5120, feed_forward_length=13824, head_count=40)
BIG = {
    "header": LLAMA,
    "parameters": 70553706560,
    "quants": {"Q6_K": {"urls": ["file:///nowhere/a.gguf"], "bits_per_weight": 6.56}},
}
SMALL = {
    "header": QWEN,
    "parameters": 14770033664,
    "quants": {"Q4_K_M": {"urls": ["file:///nowhere/q.gguf"], "bits_per_weight": 4.87}},
}
# Five nodes, a service over three of them and one on a single node.
GOOD = {
    "llama_builds": {"default": {"version": "b11434", "accelerator": "cuda"}},
    "llama_devices": [{"name": "NVIDIA GeForce RTX 3090", "memory_mib": 24124}] * 2,
    "llama_models": {"big-70b": BIG, "small-14b": SMALL},
    "llama_services": {
        "big": {
            "primary": True,
            "model": "big-70b",
            "quant": "Q6_K",
            "head": "llama_head",
            "workers": "llama_rpc",
            "port": 8000,
            "rpc_port": 50052,
        },
        "small": {"model": "small-14b", "quant": "Q4_K_M", "head": "rtx2", "port": 8001},
    },
}
GROUPS = {"llama_head": ["a6000"], "llama_rpc": ["rtx1", "rtx2"], "llama_cpu": ["mem1", "mem2"]}


def service(**keys):
    """A service of one node with these keys, on a port of its own."""
    return dict({"model": "small-14b", "quant": "Q4_K_M", "head": "mem1", "port": 8100}, **keys)


@pytest.fixture(name="run")
def fixture_run(tmp_path):
    """run(PLAYBOOK, *arguments, variables, services, inventory=function that changes it) -> the lines but the last one,
    that nothing was changed."""
    stub = tmp_path / "stub_ssh"
    stub.write_text(SSH % (tmp_path / "calls"))
    stub.chmod(0o755)

    def playbook(name, *arguments, variables=None, services=None, inventory=None, reaches=False):
        given = dict(copy.deepcopy(GOOD), **(variables or {}))
        if services:
            given["llama_services"].update(services)
        settings = {"ansible_user": "ops", "ansible_ssh_executable": str(stub), "ansible_ssh_retries": 0}
        addresses = {
            host: number for number, host in enumerate((host for hosts in GROUPS.values() for host in hosts), 1)
        }
        children = {
            group: {
                "hosts": {
                    host: {
                        "ansible_host": "127.9.0.%d" % addresses[host],
                        "llama_fabric_address": "10.9.0.%d" % addresses[host],
                    }
                    for host in hosts
                }
            }
            for group, hosts in GROUPS.items()
        }
        hosts = {"all": {"vars": dict(given, **settings)}, "llama_nodes": {"children": children}, "llama_empty": {}}
        (inventory or (lambda groups: None))(hosts)
        (tmp_path / "hosts.json").write_text(json.dumps(hosts))
        environment = {
            "ANSIBLE_COLLECTIONS_PATH": COLLECTIONS,
            "ANSIBLE_STDOUT_CALLBACK": "thefermisea.llama_cluster.brief",
        }
        environment["ANSIBLE_CONFIG"] = str(ROOT / "ansible.cfg")
        source = ("-i", str(tmp_path / "hosts.json"))
        status, lines = playbook_lines(
            ROOT / "playbooks" / (name + ".yml"), *source, *arguments, home=tmp_path, **environment
        )
        assert status != 0
        assert (tmp_path / "calls").exists() == reaches
        lines = [line.replace(str(tmp_path), "PATH") for line in lines]
        assert lines[-1].startswith("stopped: ") and lines[-1].endswith(", nothing was changed"), lines
        mistakes = int(re.search(r"\d+", lines[-1]).group())
        assert len(lines) - (mistakes - 1) <= LINES, lines  # of each one
        return lines[:-1]

    return playbook


# Mistakes of single entries, all in one run: (number, services, models, variables, sentence).
ENTRIES = [
    (1, {"s1": service(ctx_szie=4096)}, "llama_services.s1.ctx_szie: unknown key, did you mean ctx_size?"),
    (2, {"s2": service(port="eighty")}, "llama_services.s2.port: 'eighty' seen, a whole number is needed: write only "
                                        "digits"),
    (3, {"s3": service(port="8103")}, "llama_services.s3.port: '8103' seen, a whole number is needed: remove the "
                                      "quotes"),
    (4, {"s4": service(head="llama_heads")},
     "llama_services.s4.head: llama_heads is neither a host nor a group of this inventory, did you mean llama_head?"),
    (5, {"s5": service(workers="llama_rpc:rtx9", rpc_port=50105)},
     "llama_services.s5.workers: rtx9 is neither a host nor a group of this inventory, did you mean rtx2?"),
    (8, {"s8": service(workers="llama_rpc", rpc_port=50108, tensor_split=[24, 24])},
     "llama_services.s8.tensor_split: a list of 2 seen, auto or a map of node to layers is needed: write auto, or "
     "NODE: LAYERS for each node"),
    (9, {"s9": service(model="small-14")}, "llama_services.s9.model: small-14 is not in llama_models, did you mean "
                                           "small-14b?"),
    (10, {"s10": service(quant="Q4KM")}, "llama_services.s10.quant: small-14b has no Q4KM, one of Q4_K_M is needed, "
                                         "did you mean Q4_K_M?"),
    (11, {"s11": service(workers="llama_empty", rpc_port=50111)},
     "llama_services.s11.workers: llama_empty matches no host, at least one is needed: add hosts to the group or drop "
     "the key"),
    (25, {"my service": service()},
     "llama_services.my service: the name becomes part of unit names, lower-case letters, digits and dashes are "
     "needed: rename it"),
    (26, {"s26": service(kind="single")},
     "llama_services.s26.kind: 'single' seen, server or router is needed: drop the key for a llama-server, with or "
     "without workers"),
    (27, {"s27": service(workers="mem2", rpc_port=50127)},
     "llama_services.s27.workers: mem2 has no llama_fabric_address, the IPv4 address of its fabric interface is "
     "needed: add it in hosts.yml"),
    (28, {"s28": service(slot_ctx_size="16k")}, "llama_services.s28.slot_ctx_size: '16k' seen, a whole number is "
                                                "needed: write 16384"),
    (30, {"s30": service(workers="llama_rpc")},
     "llama_services.s30.rpc_port: missing, a port for its RPC workers is needed: add it, such as 50052"),
    (32, {"s32": service(memory_max="100 GB")},
     "llama_services.s32.memory_max: '100 GB' seen, a size such as 100G is needed: write digits and one of K, M, G, T"),
    (40, {"s40": service(head="rtx1", workers="llama_rpc", rpc_port=50140)},
     "llama_services.s40.workers: rtx1 is its head too, a head uses its own card without RPC: take it out of the "
     "group, or exclude it as in llama_rpc:!rtx1"),
    (41, {"s41": service(head="llama_rpc", workers="llama_cpu", rpc_port=50059)},
     "llama_services.s41.head: llama_rpc matches rtx1, rtx2, exactly one host is needed beside workers: name one of "
     "them, or drop workers for a replica on each"),
]  # fmt: skip
MODELS = [
    (14, {"m14": {"quants": {"Q": {"urls": ["htps://x.example/m.gguf"]}}}},
     "llama_models.m14.quants.Q.urls: 'htps://x.example/m.gguf' seen, an http, https or file URL is needed: correct "
     "it"),
    (23, {"m23": {"quants": {"Q": {"urls": ["https://x.example/m.gguf", "https://x.example/n.gguf"],
                                   "sha256": ["0" * 64]}}}},
     "llama_models.m23.quants.Q.sha256: 1 seen, one for each of its 2 files is needed: add or remove digests"),
    (24, {"m24": {"repo": "a/b", "quants": {"Q": {"files": "model.gguf"}}}},
     "llama_models.m24.quants.Q.files: 'model.gguf' seen, a list is needed: write [model.gguf]"),
]  # fmt: skip
EVERYWHERE = [
    (32, {"llama_builds": {"default": {"accelerator": "rocm"}}},
     "llama_builds.default.accelerator: 'rocm' seen, one of auto, cpu, cuda, vulkan is needed: choose one of them"),
]  # fmt: skip


def test_what_a_look_at_one_entry_finds(run):
    def change(hosts):
        del hosts["llama_nodes"]["children"]["llama_cpu"]["hosts"]["mem2"]["llama_fabric_address"]

    services = {name: value for _number, entries, _sentence in ENTRIES for name, value in entries.items()}
    variables = {name: value for _number, entries, _sentence in EVERYWHERE for name, value in entries.items()}
    variables["llama_models"] = dict(
        GOOD["llama_models"],
        **{name: value for _number, entries, _sentence in MODELS for name, value in entries.items()},
    )
    lines = run("site", services=services, variables=variables, inventory=change)
    sentences = [sentence for _number, _entries, sentence in ENTRIES + MODELS + EVERYWHERE]
    assert sorted(lines) == sorted(sentences)


def test_what_a_look_at_all_services_finds(run):  # 6, 29 and 39
    services = {"small": dict(GOOD["llama_services"]["small"], head="a6000", port=8000, primary=True)}
    lines = run("site", services=services, variables={"llama_api_keys": {"bigg": ["k"], "big": "k"}})
    assert lines == [
        "llama_services.small.port: 8000 on a6000 is taken by llama_services.big.port, a port of its own is needed: "
        "choose another",
        "llama_services.small.primary: true seen for big too, only one service may have the units llama-rpc and "
        "llama-head, false is needed: remove the key",
        "llama_api_keys.bigg: no service of that name, one of big, small is needed, did you mean big?",
        "llama_api_keys.big: no list seen, a list of at least one key is needed: write [KEY]",
    ]


def rename(hosts):
    hosts["llama_node"] = hosts.pop("llama_nodes")


def forget(name):
    def change(hosts):
        del hosts["all"]["vars"][name]

    return change


@pytest.mark.parametrize(
    "playbook,arguments,options,sentence",
    [
        ("site", "", {"inventory": rename},  # 12
         "group llama_nodes: no host in PATH/hosts.json, whose groups are llama_cpu, llama_empty, llama_head, "
         "llama_node, llama_rpc, at least one is needed, did you mean llama_node?"),
        ("site", "", {"variables": {"llama_api_keys": "{{ vault_llama_api_keys }}"}},  # 13
         "llama_api_keys: vault_llama_api_keys is not defined for all 5 nodes, a value is needed: put it into "
         "group_vars/all/vault.yml, or run with -e @vault.yml"),
        ("site", "", {"inventory": forget("llama_services")},  # 31
         "llama_services: nothing seen, at least one service is needed: write it in PATH/group_vars/all/services.yml, "
         "since group_vars/services.yml would be for a group services"),
        # 33
        ("switch_model", "", {}, "switch_model: no service given, one of big, small is needed: add -e service=NAME"),
        ("switch_model", "-e service=fast -e quant=Q4_K_M",
         {"services": {"fast": {"kind": "router", "head": "mem1", "models": {"small-14b": "Q4_K_M"}}}},
         "switch_model: service fast seen, which is a router, a service of one model is needed: change "
         "llama_services.fast.models and run upgrade.yml, which goes back where it does not answer"),
        ("maintenance", "-e node=rtx7", {},  # 34
         "maintenance: node rtx7 seen, one of a6000, rtx1, rtx2, mem1, mem2 is needed, did you mean rtx2?"),
        ("plan", "-e devices=5y24GB", {},  # 35
         "devices: 5y24GB seen, COUNTxSIZE such as 3x24GB is needed: give a size for each node, with + between the "
         "cards of one node, as in 2x24GB+24GB,48GB for two nodes of two cards and one node of one"),
        ("plan", "", {"variables": {"llama_devices": [{"name": "NVIDIA GeForce RTX 3090"}]}},  # 36
         "llama_devices: card 1 without memory_mib seen for all 5 nodes, its memory in MiB is needed: add it, as in "
         "[{name: NVIDIA GeForce RTX 3090, memory_mib: 24124}]"),
        ("plan", "", {"inventory": forget("llama_devices")},  # 37
         "llama_devices: missing for a6000, rtx1, rtx2, mem1, mem2, the memory of each card is needed to plan without "
         "asking nodes: add it to the inventory, such as [{name: RTX 3090, memory_mib: 24576}], for a node without a "
         "GPU [{main: true, memory_mib: 256000}], or run with -e devices=5x24GB"),
        ("site", "", {"variables": {"llama_services": [{"big": {}}]}},  # 38
         "llama_services: a list of 1 seen, a map of name to service is needed: write NAME: with its keys below, "
         "without a dash"),
        ("plan", "-e ctx_size=4096", {},  # 43
         "plan: ctx_size seen without a service, the one to plan it for is needed: run with -e service=NAME"),
        ("bundle", "-e bundle_dir=media", {},  # 43
         "bundle_dir: media seen, the absolute path of a directory on this machine is needed: run with -e "
         "bundle_dir=/media/disk/llama-bundle"),
    ],
)  # fmt: skip
def test_one_sentence(run, playbook, arguments, options, sentence):
    assert run(playbook, *arguments.split(), **options) == [sentence]


def test_monitoring_host_is_checked_like_node(run):
    def change(hosts):
        own = {"monitoring_listen": "0.0.0.0", "monitoring_webhooks": ["hooks.example/secret"]}
        hosts["llama_monitoring"] = {"hosts": {"front": dict(own, ansible_host="127.9.0.9")}}
        hosts["all"]["vars"]["monitoring_sampler_port"] = 8001

    assert run("site", inventory=change) == [
        "monitoring_listen: 0.0.0.0 seen, one private address of front is needed, since Prometheus has no password: "
        "write 127.0.0.1, or one of a private network",
        "monitoring_webhooks: no URL seen in place 1, http:// or https:// and a host are needed: correct it",
        "monitoring_sampler_port: 8001 on rtx2 is taken by llama_services.small.port, a port of its own is needed: "
        "choose another",
    ]


def test_types_of_monitoring_variables_are_checked(run):
    def change(hosts):
        hosts["llama_monitoring"] = {"hosts": {"front": {"ansible_host": "127.9.0.9", "monitoring_export": "file"}}}

    (line,) = run("site", inventory=change)
    assert "monitoring_export" in line and "auto, textfile, http" in line.replace("'", "")


def test_a_mistyped_drill(run):  # 43
    (line,) = run("drill", "-e", "drills=worker_kil", "--check")
    assert line.startswith("drills: worker_kil seen, names among worker_kill_generating, ")


def test_drill_reaches_only_nodes_of_its_service(run):
    lines = run("drill", "-e", "drills=worker_kill_idle", "--check", reaches=True)
    assert sorted(line.partition(": no answer from ")[0] for line in lines) == ["a6000", "rtx1", "rtx2"]


def test_nodes_that_do_not_answer(run):  # 20
    lines = run("site", reaches=True)
    # In whatever order they answer.
    assert sorted(lines) == sorted(
        "%s: no answer from 127.9.0.%d over ssh (ssh: connect to host 127.9.0.1 port 22: Connection timed out), a "
        "login is needed: try `ssh ops@127.9.0.%d` on this machine" % (node, number, number)
        for number, node in enumerate(("a6000", "rtx1", "rtx2", "mem1", "mem2"), 1)
    )


def test_a_model_that_does_not_fit(run):  # 44
    lines = run(
        "plan",
        variables={"llama_devices": [{"memory_mib": 12288}], "llama_services": {"big": GOOD["llama_services"]["big"]}},
    )
    assert (
        lines[-1].startswith("llama_services.big.quant: big-70b Q6_K with ")
        and " MiB are needed on GPU0 of rtx1 and 12288 MiB are there" in lines[-1]
    )
    assert lines[-1].endswith(": use 10 cards of 12288 MiB")


def test_an_inventory_that_is_not_there(tmp_path):  # 17
    environment = {
        "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
        "ANSIBLE_STDOUT_CALLBACK": "thefermisea.llama_cluster.brief",
    }
    status, lines = playbook_lines(
        ROOT / "playbooks/site.yml", "-i", str(tmp_path / "mien"), home=tmp_path, **environment
    )
    assert status != 0
    assert len(lines) < 4 and "Completely failed to parse inventory source %s" % (tmp_path / "mien") in " ".join(lines)
