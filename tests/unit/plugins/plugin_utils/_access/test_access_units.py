# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Refusals of a node for its workers and heads."""

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._access.node import node_refusals
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._access.units import build_refusals

HEAD = {
    "service": "chat",
    "unit": "llama-head-chat.service",
    "model_path": "/opt/models/m.gguf",
    "workers": ["n2"],
    "layers": {"n2": 30},
    "tensor_split": [30, 1],
    "build": "b1",
}
BUILD = "/opt/llama.cpp/releases/b1"
NO_PLAN = (
    "llama_services.chat.tensor_split: no plan of this run seen, that of role preflight is needed: run site.yml "
    "without --skip-tags"
)


def unit(name, managed=True, installed=True):
    return {"name": name, "installed": installed, "managed": managed}


def refusals(*units, kind="head", item=None, build="b1", model=(9, 1.5), deployed=True):
    node = {"units": list(units), "build": {"of": {"b1": {"current_build": build}}}}
    node["files"] = {"/opt/models/m.gguf": model}
    return of([item or HEAD], kind, node, deployed)


def of(instances, kind, node, deployed=True):
    units = {"kind": kind, "instances": instances, "deployed": deployed}
    return node_refusals({"llama_node": node}, "n1", units=units)


def test_cards_need_the_plan_of_this_run():
    said = (
        "llama_services.chat.cards: its cards on n1 are not known in this run, role preflight is needed: run "
        "site.yml without --skip-tags and without --limit"
    )
    for cards, refused in ((None, []), ([], []), (["GPU-a"], []), ([""], [said]), (["GPU-a", ""], [said])):
        assert refusals(item=dict(HEAD, cards=cards)) == refused
        assert (
            refusals(
                kind="rpc", item={"service": "chat", "unit": "llama-rpc-chat.service", "build": "b1", "cards": cards}
            )
            == refused
        )


def test_nothing_is_in_the_way():
    assert (
        refusals(
            unit("llama-head-chat.service"), unit("llama-head.service"), unit("llama-rpc-chat.service", managed=False)
        )
        == []
    )


HELP = """----- common params -----

-m,    --model FNAME                    model path, see --other
--jinja, --no-jinja                     whether to use it
--draft, --draft-n N                    the argument has been removed. use --spec
"""


@pytest.mark.parametrize(
    ("args", "asks", "text", "unknown"),
    [
        (["-m", "/m.gguf", "--no-jinja"], True, HELP, []),
        (["--model", "/m.gguf", "--port", "-1"], True, HELP, [("port", "--port")]),
        (["--mine", "--reasoning", "off", "--draft", "4"], True, HELP, [
            ("extra_args", "--mine"), ("reasoning", "--reasoning"), ("draft", "--draft"),
        ]),
        (["--other"], True, HELP, [("extra_args", "--other")]),
        (["--mine"], False, HELP, []),
        (["--mine"], True, None, []),
    ],
)  # fmt: skip
def test_unknown_flags_are_refused(args, asks, text, unknown):
    item = dict(HEAD, args=args, asks_build=asks)
    node = {"units": [], "build": {"of": {"b1": {"current_build": "b1"}}}, "files": {"/opt/models/m.gguf": [9, 1.5]}}
    units = {"kind": "head", "instances": [item], "deployed": True, "helps": text and {"b1": text}}
    assert node_refusals({"llama_node": node}, "n1", units=units) == [
        "llama_services.chat.%s: %s seen, a flag that b1 of n1 has is needed: choose one of its llama-server --help, "
        "or another release" % one
        for one in unknown
    ]


def test_build_without_flags_is_refused():
    node = {"units": [], "build": {"of": {"b1": {"current_build": "b1"}}}, "files": {"/opt/models/m.gguf": [9, 1.5]}}
    item = dict(HEAD, args=["--port", "1"], asks_build=True)
    units = {"kind": "head", "instances": [item], "deployed": True, "helps": {"b1": "killed"}}
    assert node_refusals({"llama_node": node}, "n1", units=units) == [
        "/opt/llama.cpp/releases/b1/bin/llama-server: no flags in what --help says on n1, its list is needed to "
        "compare the settings of service chat with: run it there"
    ]


@pytest.mark.parametrize("kind", ["rpc", "head"])
def test_a_build_is_missing(kind):
    assert refusals(kind=kind, build=None) == [
        "%s: missing on n1, a llama.cpp build is needed: run with --tags build first" % BUILD
    ]
    assert refusals(kind=kind, build=None, deployed=False) == []
    assert of([], kind, {"units": [], "build": {"of": {}}}) == []


def test_workers_need_no_model_and_no_plan():
    assert refusals(kind="rpc", item={"service": "chat", "unit": "llama-rpc-chat.service", "build": "b1"}) == []


def test_a_model_is_missing():
    assert refusals(model=None) == [
        "/opt/models/m.gguf: missing on n1, the model of service chat is needed: run with --tags model first"
    ]
    assert refusals(model=None, deployed=False) == []


@pytest.mark.parametrize(
    "split,workers,layers,said",
    [(None, ["n2"], {}, True), (None, [], {"n1": 1}, True), (None, [], {}, False), ([1], ["n2"], {}, False)],
)
def test_a_split_needs_a_plan(split, workers, layers, said):
    assert refusals(item=dict(HEAD, tensor_split=split, workers=workers, layers=layers)) == [NO_PLAN] * said


@pytest.mark.parametrize("experts,said", [(None, True), (0, False), (12, False), ("all", False)])
def test_experts_that_a_plan_counts_need_one(experts, said):
    sentence = (
        "llama_services.chat.cpu_moe: auto and no plan of this run seen, that of role preflight is needed: run "
        "site.yml without --skip-tags, or give the number of layers"
    )
    assert refusals(item=dict(HEAD, cpu_moe=experts)) == [sentence] * said


def build(sha256="1" * 64, broken=(), intact=True, identity="b1"):
    return {
        "build_sha256": sha256,
        "build_broken": list(broken),
        "build_intact": intact,
        "build_identity": identity,
    }


def holder(name, release, built):
    """A node with one unit that names a release."""
    words = ["/usr/bin/stdbuf", "-oL", "/opt/llama.cpp/releases/%s/bin/ggml-rpc-server" % release]
    one = {"name": name, "service": "chat", "installed": True, "managed": True, "arguments": words}
    return {"units": [one], "build": {"of": {release: built}}}


HEAD_UNIT, WORKER_UNIT = "llama-head-chat.service", "llama-rpc-chat.service"
WANTED = {"node1": [HEAD_UNIT], "node2": [WORKER_UNIT]}


def both(first, second, releases=("b1-cpu-x", "b1-cpu-x"), wanted=None):
    nodes = {"node1": holder(HEAD_UNIT, releases[0], first), "node2": holder(WORKER_UNIT, releases[1], second)}
    return build_refusals(nodes, wanted or WANTED)


def test_head_and_workers_run_one_intact_build():
    assert build_refusals({}) == []
    assert both(build(), build()) == []
    damaged = build(broken=["bin/llama-server", "bin/x"], intact=False)
    assert both(build(), damaged) == [
        "node2: bin/llama-server, bin/x of build b1-cpu-x differ from its build.json, an intact build is needed: "
        "remove the release and run with --tags build"
    ]
    # Builds without a wanted unit do not count.
    assert both(build(), damaged, wanted={"node1": [HEAD_UNIT]}) == []
    assert both(build(), build("2" * 64)) == [
        "/opt/llama.cpp/releases/b1-cpu-x: different builds on the nodes (node1 has 1111111111, node2 has 2222222222), "
        "one identical build is needed: remove it on those that differ and run with --tags build"
    ]
    assert len(both(build(), dict(build(), build_intact=None))) == 1


def test_build_differs_between_architectures():
    first, second = dict(build(), build_kind="x86_64 Debian 13"), dict(build("2" * 64), build_kind="aarch64 Ubuntu 24")
    assert both(first, second) == []
    assert len(both(first, dict(second, build_kind="x86_64 Debian 13"))) == 1


def test_each_accelerator_has_a_build_of_one_commit():
    releases = ("b1-cpu-x", "b1-cuda-y")
    assert both(build(), build("2" * 64), releases) == []
    assert both(build(identity="a" * 40), build("2" * 64, identity="b" * 40), releases) == [
        "llama_services.chat.build: different commits on its nodes (node1 has aaaaaaaaaa, node2 has bbbbbbbbbb), one "
        "for head and workers is needed: run with --tags build, without --limit"
    ]


def test_builds_of_future_units_are_judged():
    node = {"units": [], "build": {"of": {"b2": build()}}}
    runs = {"node1": [{"service": "chat", "build": "b2"}]}
    assert build_refusals({"node1": node}, runs=runs) == []
    assert build_refusals({"node1": {"units": [], "build": {"of": {}}}}, runs=runs) == [
        "node1: all files of build b2 differ from its build.json, an intact build is needed: remove the release and "
        "run with --tags build"
    ]
