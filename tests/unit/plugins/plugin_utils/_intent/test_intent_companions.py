# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Projectors and adapters of a service: mistakes, files of its node, command lines."""

import copy

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._intent.services import node_serving
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._slurm.script import slurm_jobs
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._units.files import unit_files
from ansible_collections.thefermisea.llama_cluster.tests.unit.intents import GROUPS, HOSTVARS, MODELS, mistakes

FILES = {
    "mmproj": {"files": ["mmproj-F16.gguf"], "file": "big-mmproj.gguf"},
    "loras": {"tone": {"urls": ["https://a.b/tone.gguf"]}, "law": {"urls": ["/opt/law.gguf"]}},
}
SERVICE = {"model": "big", "quant": "Q4_K_M", "head": "node1", "port": 8000}


def models(**more):
    return {"big": {**copy.deepcopy(MODELS["big"]), **more}}


def reported(model=None, **settings):
    return mistakes({"chat": {**SERVICE, **settings}}, models(**(FILES if model is None else model)))


def served(service, model=None):
    return node_serving(
        {"chat": service}, models(**(FILES if model is None else model)), "node1", GROUPS, HOSTVARS, "/m"
    )


def words(args, flag):
    return args[args.index(flag) + 1] if flag in args else None


@pytest.mark.parametrize(
    "settings, model, sentence",
    [
        ({}, FILES, None),
        ({"mmproj": False}, {}, None),
        ({"mmproj": "cpu", "lora": {"tone": 1, "law": -0.5}}, FILES, None),
        ({"mmproj": True, "embeddings": True}, FILES, None),
        ({"mmproj": True}, {}, "llama_services.chat.mmproj: true seen, the entry of big needs mmproj for it"),
        ({"lora": {"tone": 1}}, {}, "llama_services.chat.lora: tone is not in loras of big, an entry there is needed"),
        ({"lora": {"ton": 1}}, FILES, "llama_services.chat.lora: ton is not in loras of big, one of tone, law is "),
        ({"lora": {"tone": "1"}}, FILES, "llama_services.chat.lora.tone: '1' seen, a scale from -10 to 10 is needed"),
        ({"lora": {"tone": 11}}, FILES, "llama_services.chat.lora.tone: 11 seen, a scale from -10 to 10 is needed"),
        ({}, {"mmproj": {}, "loras": {"a b": {"urls": ["/x.gguf"]}}}, "llama_models.big.loras: 'a b' seen, letters, "),
        ({}, {"mmproj": {"urls": ["x"]}}, "llama_models.big.mmproj.urls: 'x' seen, an http, https or file URL is "),
        ({}, {"loras": {"a": {"files": ["a"], "sha256": ["1"]}}}, "llama_models.big.loras.a.sha256: '1' seen, 64 "),
        ({}, {"quants": {"mmproj": {"urls": ["/x.gguf"]}}}, "llama_models.big.quants: mmproj seen, which is the name "),
    ],
)
def test_mistakes_of_files_beside_model(settings, model, sentence):
    found = reported(model, **settings)
    assert found == [] if sentence is None else any(one.startswith(sentence) for one in found), found


def test_two_files_of_one_name_are_refused():
    sees = {"mmproj": {"files": ["mmproj-F16.gguf"]}}
    other = {"repo": "someone/Other", "quants": {"Q8_0": {"files": ["Other.gguf"]}}, **sees}
    both = {**models(**sees), "other": other}
    assert mistakes({"chat": SERVICE}, both) == [
        "llama_models.other.mmproj: mmproj-F16.gguf seen, as llama_models.big.mmproj has it, a name of its own is "
        "needed: give one by file"
    ]
    other["repo"] = both["big"]["repo"]
    assert mistakes({"chat": SERVICE}, both) == []


def test_files_beside_model_are_fetched():
    found = served({**SERVICE, "lora": {"tone": 0.5}})
    assert [(item["quant"], item["dest"]) for item in found["models"]] == [
        ("Q4_K_M", "/m/Big.Q4_K_M.gguf"),
        ("mmproj", "/m/big-mmproj.gguf"),
        ("lora tone", "/m/tone.gguf"),
    ]
    (head,) = found["heads"]
    assert head["model_paths"] == ["/m/Big.Q4_K_M.gguf", "/m/big-mmproj.gguf", "/m/tone.gguf"]
    assert [item["quant"] for item in served({**SERVICE, "mmproj": False})["models"]] == ["Q4_K_M"]


@pytest.mark.parametrize(
    "settings, projector, on_card",
    [
        ({}, "/m/big-mmproj.gguf", True),
        ({"mmproj": "cpu"}, "/m/big-mmproj.gguf", False),
        ({"cards": []}, "/m/big-mmproj.gguf", False),
        ({"workers": "node2", "rpc_port": 50052}, "/m/big-mmproj.gguf", False),
        ({"mmproj": False}, None, True),
        ({"reranking": True}, None, True),
    ],
)
def test_projector_in_command_line(settings, projector, on_card):
    (head,) = served({**SERVICE, **settings})["heads"]
    assert words(head["args"], "--mmproj") == projector
    assert ("--no-mmproj-offload" not in head["args"]) is on_card


def test_adapters_in_command_line():
    (head,) = served({**SERVICE, "lora": {"tone": 1, "law": -0.25}})["heads"]
    assert words(head["args"], "--lora-scaled") == "/m/tone.gguf:1,/m/law.gguf:-0.25"


def test_router_has_files_of_each_model():
    own = {"quant": "Q4_K_M", "lora": {"tone": 2.0}, "mmproj": "cpu"}
    router = {"kind": "router", "head": "node1", "port": 8000, "models": {"big": own}}
    assert mistakes({"chat": router}, models(**FILES)) == []
    found = served(router)
    (head,) = found["heads"]
    args = head["models"][0]["args"]
    assert (words(args, "--mmproj"), words(args, "--lora-scaled")) == ("/m/big-mmproj.gguf", "/m/tone.gguf:2")
    assert len(found["models"]) == len(head["model_paths"]) == 3
    assert any("loras of big" in one for one in mistakes({"chat": router}, models(mmproj=FILES["mmproj"])))


def test_another_adapter_restarts_head():
    (head,) = served({**SERVICE, "lora": {"tone": 1}})["heads"]
    process = {**dict.fromkeys(("build", "template", "user", "numa_node"), ""), "environment": {}}

    def digest(item, size):
        files = {path: [1, 1.5] for path in head["model_paths"]} | {"/m/tone.gguf": [size, 1.5]}
        built = {"of": {item["build"]: {"current_build": item["build"], "build_sha256": "1" * 64}}}
        there = {"units": [], "aliases": [], "templates": [], "watched": [], "files": files, "build": built}
        return unit_files([item], "head", there, process, False)[0]["vars"]["digest"]

    assert digest(head, 1) != digest(head, 2)
    (plain,) = served({**SERVICE, "mmproj": False})["heads"]
    earlier = {key: value for key, value in plain.items() if key not in ("mmproj_path", "lora_paths")}
    assert digest(plain, 1) == digest(earlier, 2)


def test_jobs_load_files_beside_model():
    service = {**SERVICE, "launcher": "slurm", "partition": "gpu", "lora": {"tone": 1}}
    hostvars = {**HOSTVARS, "ctl": {"slurm_user": "llama"}}
    groups = {**GROUPS, "llama_slurm": ["ctl"]}
    (job,) = slurm_jobs({"chat": service}, models(**FILES), groups, hostvars, "/m")
    assert words(job["head"]["args"], "--mmproj") == "/m/big-mmproj.gguf"
    assert job["head"]["model_paths"][1:] == ["/m/big-mmproj.gguf", "/m/tone.gguf"]
