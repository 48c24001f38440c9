# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Architectures of a CUDA build: the cards of its nodes, unless the inventory lists them."""

import os
import re
import shutil
import sys
from pathlib import Path

import pytest
import yaml
from ansible_collections.thefermisea.llama_cluster.tests.unit.playbooks.simulation import run_playbook

ROOT = Path(__file__).resolve().parents[2]
ROLE = "thefermisea.llama_cluster.llama_cpp"
CUDA = {"default": {"accelerator": "cuda"}}
V100S = ROOT / "tests/unit/fixtures/nvidia_smi_535_v100s.xml"


@pytest.fixture(name="cards")
def fixture_cards(tmp_path):
    """A stub of nvidia-smi, and what it prints for a node by compute capability."""
    (tmp_path / "bin").mkdir()
    shutil.copy(ROOT / "tests/unit/stub_nvidia_smi", tmp_path / "bin/nvidia-smi")

    def card(capability):
        path = tmp_path / ("card_%s.xml" % capability)
        element = "<compute_cap>%s</compute_cap>\n\t\t<minor_number>" % capability
        path.write_text(V100S.read_text().replace("<minor_number>", element if capability else "<minor_number>"))
        return str(path)

    return card


def run(tmp_path, nodes, limit=None, tasks_from="facts.yml", **variables):
    """nodes: {name: what the stub does}. -> (exit status, output without line folding, names of the build)"""
    hosts = {name: {"stub": stub} for name, stub in nodes.items()}
    (tmp_path / "hosts.yml").write_text(yaml.safe_dump({"llama_nodes": {"hosts": hosts}}))
    role = {"ansible.builtin.include_role": {"name": ROLE, "tasks_from": tasks_from, "public": True}}
    said = {"ansible.builtin.debug": {"msg": "build={{ __llama_cpp_build }} for={{ __llama_cpp_definitions }}"}}
    play = {
        "hosts": "llama_nodes",
        "connection": "local",
        "gather_facts": False,
        "tasks": [role, said],
        "vars": dict(variables),
    }
    play["vars"]["ansible_python_interpreter"] = sys.executable
    play["environment"] = {"PATH": "%s/bin:%s" % (tmp_path, os.environ["PATH"]), "STUB_NVIDIA_SMI": "{{ stub }}"}
    (tmp_path / "play.yml").write_text(yaml.safe_dump([play]))
    arguments = ("-i", str(tmp_path / "hosts.yml"), *(("--limit", limit) if limit else ()))
    status, output = run_playbook(
        tmp_path / "play.yml", *arguments, home=tmp_path, ANSIBLE_CONFIG=str(ROOT / "ansible.cfg")
    )
    return (
        status,
        output,
        sorted(set(re.findall(r"build=(\S+) for=(.*?-DCMAKE_CUDA_ARCHITECTURES=\S+|)", output))),
    )


def listing(*architectures):
    return {"default": {"accelerator": "cuda", "cuda_architectures": list(architectures)}}


def test_one_build_for_the_cards_of_all_nodes(tmp_path, cards):
    nodes = {"node1": cards("8.6"), "node2": cards("12.0"), "node3": "no_driver"}
    status, output, ((name, options),) = run(tmp_path, nodes, llama_builds=CUDA)
    assert status == 0, output
    assert options.endswith("=86;120'")
    listed = run(tmp_path, nodes, llama_builds=listing("86", "120"))[2]
    assert [one[0] for one in listed] == [name], "a list that says the same is the same build"
    other = run(tmp_path, nodes, llama_builds=listing("86"))[2]
    assert other[0][0] != name and other[0][1].endswith("=86")


def test_a_build_for_cpus_asks_for_no_card(tmp_path, cards):
    nodes = {"node1": cards("8.6"), "node2": "no_driver"}
    cpu = {"default": {"accelerator": "cpu"}}
    status, output, ((name, options),) = run(tmp_path, nodes, limit="node1", llama_builds=cpu)
    assert (status, options) == (0, ""), output
    assert "Ask each node for its cards" not in output
    cpu = {"default": {"accelerator": "cpu", "cuda_architectures": ["70"]}}
    assert run(tmp_path, nodes, llama_builds=cpu)[2] == [(name, "")]


def test_accelerator_auto_builds_for_each_kind_of_node(tmp_path, cards):
    nodes = {"node1": cards("8.6"), "node2": "no_driver"}
    status, output, _names = run(tmp_path, nodes)
    assert status == 0, output
    assert {name.split("-")[1] for name in re.findall(r"build=(\S+) for=", output)} == {"cpu", "cuda"}


@pytest.mark.parametrize(
    "capabilities, limit, sentence",
    [
        (
            (None, None),
            None,
            "auto seen and no card on node1, node2, a compute capability is needed to compile for: install NVIDIA's "
            "driver, ",
        ),
        (
            ("8.6", "8.6"),
            "node1",
            "auto seen with node2 left out of this run, the cards of all nodes are needed: run without --limit, or "
            "list their ",
        ),
        (
            ("8.6", ""),
            None,
            "auto seen and Tesla V100S-PCIE-32GB reports none, a compute capability is needed to compile for: install "
            "a newer driver, ",
        ),
    ],
)
def test_what_cannot_be_known_is_one_sentence(tmp_path, cards, capabilities, limit, sentence):
    nodes = {
        "node%d" % number: "no_driver" if one is None else cards(one) for number, one in enumerate(capabilities, 1)
    }
    status, output, names = run(tmp_path, nodes, limit, llama_builds=CUDA)
    assert (status != 0, names) == (True, [])
    assert "llama_builds.default.cuda_architectures: " + sentence in output
    assert 'such as ["86"]' in output.replace('\\"', '"')


def test_a_bundle_asks_no_node(tmp_path, cards):
    status, output, _names = run(
        tmp_path, {"node1": cards("8.6")}, tasks_from="bundle.yml", llama_builds=CUDA, folder=str(tmp_path)
    )
    assert status != 0
    assert (
        "llama_builds.default.cuda_architectures: auto seen, a bundle asks no node for its cards, their "
        "compute capabilities are needed" in output
    )
