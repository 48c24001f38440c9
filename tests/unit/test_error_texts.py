# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every refusal side by side and in one voice: the entry, the value seen, the value needed, the next step; one
sentence, no full stop.

`make errors` prints the list. It has two parts: the texts that REFUSALS below produces for real, and every text that is
written in a plugin, a role or a playbook.
"""

import ast
import copy
import datetime
import functools
import os
import re
import socket
import struct
from pathlib import Path

import pytest
import yaml
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._llama import api
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._model import describe
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._model import gguf as model_gguf
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._model import shape as model_shape
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._node import build as node_build
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._node import fabric, sockets, units
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._plan import devices as plan_devices
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._text import Refusal
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._access import ports
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._cluster_plan import cards, estimate, plan
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._intent import check
from ansible_collections.thefermisea.llama_cluster.tests.unit import gguf_files as make
from ansible_collections.thefermisea.llama_cluster.tests.unit import mixture

ROOT = Path(__file__).resolve().parents[2]
UTILS = ROOT / "plugins"

# Modules whose every text has a row in REFUSALS. The others need hubs, processes and disks: their own tests produce
# their texts.
PRODUCED = (
    "module_utils/_model/describe.py", "module_utils/_model/gguf.py", "module_utils/_model/shape.py",
    "module_utils/_node/fabric.py",
    "module_utils/_plan/devices.py", "module_utils/_plan/table.py",
    "plugin_utils/_access/ports.py", "plugin_utils/_cluster_plan/cards.py",
    "plugin_utils/_cluster_plan/refusals.py", "plugin_utils/_cluster_plan/routers.py",
    "plugin_utils/_intent/check.py", "plugin_utils/_intent/check_addresses.py", "plugin_utils/_intent/check_builds.py",
    "plugin_utils/_intent/check_family.py", "plugin_utils/_intent/check_gateway.py",
    "plugin_utils/_intent/check_head.py",
    "plugin_utils/_intent/check_header.py", "plugin_utils/_intent/check_models.py",
    "plugin_utils/_intent/check_nodes.py", "plugin_utils/_intent/check_routers.py",
    "plugin_utils/_intent/check_services.py",
    "plugin_utils/_intent/check_shared.py", "plugin_utils/_intent/check_targets.py",
    "plugin_utils/_intent/extra_args.py", "plugin_utils/_intent/hosts.py",
    "plugin_utils/_intent/models.py", "plugin_utils/_intent/routers.py", "plugin_utils/_intent/services.py",
    "plugin_utils/_intent/values.py",
)  # fmt: skip
PLACEHOLDER = r"%[.0-9]*[srdgf]"


# The smallest inventory with a head and a worker.
CHAT = {"model": "m", "quant": "Q8_0", "head": "node1", "workers": "llama_rpc", "port": 8000, "rpc_port": 50052}
FAST = {"kind": "router", "head": "node2", "models": {"m": "Q8_0"}, "port": 8080}
INVENTORY = {
    "services": {"chat": CHAT},
    "models": {"m": {"repo": "some/m-GGUF", "quants": {"Q8_0": {"files": ["m.Q8_0.gguf"]}}}},
    "groups": {
        "all": ["node1", "node2", "other"],
        "llama_nodes": ["node1", "node2"],
        "llama_rpc": ["node2"],
        "nobody": [],
    },
    "hostvars": {
        "node1": {"llama_fabric_address": "10.1.0.1"},
        "node2": {"llama_fabric_address": "10.1.0.2"},
        "other": {},
    },
}


def intent(**parts):
    """What an inventory with these parts instead of its own is told."""
    return lambda **_fixtures: check.intent_errors(**dict(copy.deepcopy(INVENTORY), **parts))


def chat(**keys):
    """What a service with these keys is told; None removes a key."""
    service = {name: value for name, value in dict(CHAT, **keys).items() if value is not None}
    return intent(services={"chat": service})


# Behind a gateway.
LONE = {"model": "m", "quant": "Q8_0", "head": "node1", "port": 8001}


def gateway(services=None, **facts):
    """What an inventory with this gateway is told."""
    known = dict(INVENTORY["hostvars"], gw=dict({"ansible_host": "10.0.0.9"}, **facts))
    return intent(
        services=services or {"chat": LONE},
        models=dict.fromkeys(("m", "other"), INVENTORY["models"]["m"]),
        groups=dict(INVENTORY["groups"], all=[*INVENTORY["groups"]["all"], "gw"], llama_gateway=["gw"]),
        hostvars=known,
    )


def two(first=None, **second):
    """Two services behind a gateway: chat, and code with another model."""
    return gateway({"chat": dict(LONE, **(first or {})), "code": dict(LONE, model="other", port=8002, **second)})


DRAFT = {"model": "m", "quant": "Q8_0"}


def alone_with(**keys):
    """What a service of one node with these keys is told."""
    return chat(workers=None, rpc_port=None, **keys)


def of_build(build, **keys):
    """What a service with these keys is told whose head runs this build."""
    service = {name: value for name, value in dict(CHAT, **keys).items() if value is not None}
    return intent(services={"chat": service}, hostvars=built(default={"version": build}))


def built(**builds):
    """The variables of nodes that have these builds."""
    return {name: dict(facts, llama_builds=builds) for name, facts in INVENTORY["hostvars"].items()}


def entry(**keys):
    """What an inventory is told that has an entry of llama_builds with these keys."""
    return intent(hostvars=built(turbo=keys))


def variables(**facts):
    """What an inventory is told whose node1 has these variables."""
    return intent(hostvars=dict(INVENTORY["hostvars"], node1=facts))


def wanted(**levels):
    """What an inventory is told that wants this rate of chat."""
    return variables(**INVENTORY["hostvars"]["node1"], llama_targets={"chat": {"tokens_per_second": levels}})


def second(**keys):
    """What two services are told, both right on their own."""
    return intent(services={"chat": CHAT, "code": dict(CHAT, **keys)})


def visible(accelerator, environment):
    """What a service with a card of its own is told whose nodes are like this."""
    hostvars = built(default={"accelerator": accelerator})
    hostvars["node1"]["head_server_environment"] = environment
    return intent(services={"chat": dict(CHAT, cards=1)}, hostvars=hostvars)


def model(**keys):
    return intent(models={"m": dict(INVENTORY["models"]["m"], **keys)})


def quant(**keys):
    return model(quants={"Q8_0": keys})


def occupied(**_fixtures):
    listeners = 'LISTEN 0 128 10.1.0.2:50052 0.0.0.0:* users:(("nginx",pid=7,fd=5))'
    return ports.port_conflicts([("llama_services.chat.rpc_port", "10.1.0.2", 50052)], listeners, [])


def occupied_by_ours(**_fixtures):
    listeners = 'LISTEN 0 128 10.1.0.2:8000 0.0.0.0:* users:(("nginx",pid=7,fd=5))'
    return ports.port_conflicts([("gateway_port", "10.1.0.2", 8000)], listeners, [], {"7": "llama-head-chat.service"})


def not_deployed(**services):
    return lambda **_fixtures: check.undeployable(services)


GIANT = {
    "parameters": 671 * 10**9,
    "repo": "some/giant-GGUF",
    "quants": {"Q5_K_M": {"files": ["g.gguf"], "bits_per_weight": 5.7}},
}


def card(node, count=1, memory=32510):
    return {
        "devices": plan_devices.as_dicts(plan_devices.of_inventory(node, [{"memory_mib": memory}] * count, 1024)),
        "cores": 40,
    }


def too_large(quants):
    """What a service is told whose two nodes have a card of 32 GiB each."""
    nodes = {node: card(node, memory=32768) for node in ("node1", "node2")}
    models = {"giant": dict(GIANT, quants=dict(GIANT["quants"], **quants))}
    services = {"chat": dict(CHAT, model="giant", quant="Q5_K_M")}
    return lambda **_fixtures: check.hopeless(services, models, INVENTORY["groups"], nodes)


# A dense model of 80 layers, and a card of 32 GB in each of the two nodes.
FACTS = {
    "architecture": "qwen3",
    "block_count": 80,
    "context_length": 40960,
    "embedding_length": 8192,
    "feed_forward_length": 29568,
}
FACTS.update({"head_count": 64, "head_count_kv": 8, "key_length": 128, "vocab_size": 151936})
PLANNED = {
    "big": {
        "header": FACTS,
        "quants": {"Q4_K_M": {"size": 40 * 10**9}, "Q8_0": {"size": 77 * 10**9}, "Q1_0": {"size": 9 * 10**9}, "X": {}},
    }
}
PLANNED["few"] = {"header": dict(FACTS, block_count=8), "quants": {"Q": {"size": 40 * 10**9}}}


def planned(nodes=None, **keys):
    """What a service with these keys is told by the memory plan."""
    service = dict(CHAT, model="big", quant="Q4_K_M", ctx_size=4096, parallel=1)
    service = {name: value for name, value in dict(service, **keys).items() if value is not None}
    nodes = dict({node: card(node) for node in ("node1", "node2")}, **(nodes or {}))
    return lambda **_fixtures: plan.memory_plan({"chat": service}, PLANNED, INVENTORY["groups"], nodes)["refused"]


def heads_of(other, **keys):
    """What a service of one node with these keys is told whose model's header says something else."""
    whole = estimate.estimate(FACTS, 40 * 10**9)._replace(**other)
    header = {"item": {"model": "big", "quant": "Q4_K_M"}, "shape": whole.as_dict()}
    service = dict(CHAT, model="big", quant="Q4_K_M", ctx_size=4096, parallel=1, **keys)
    del service["workers"]
    nodes = {"node1": card("node1", memory=80000)}
    return lambda **_fixtures: plan.memory_plan({"chat": service}, PLANNED, INVENTORY["groups"], nodes, [header])[
        "refused"
    ]


def routed(memory=32510, build="b11434", models_max=None, **models):
    """What a router with these models is told by the memory plan."""
    router = dict(FAST, models=models, ctx_size=4096, **{"models_max": models_max} if models_max else {})
    known, nodes = dict(PLANNED, other=PLANNED["big"]), {"node2": card("node2", memory=memory)}
    builds = {"default": {"version": build}}
    return lambda **_fixtures: plan.memory_plan({"fast": router}, known, INVENTORY["groups"], nodes, builds=builds)[
        "refused"
    ]


def fast(names=("m",), **keys):
    """What a router with these keys is told where models have these names, and one alias."""
    models = {name: dict(INVENTORY["models"]["m"], aliases=["little"]) for name in names}
    return intent(services={"fast": dict(FAST, **keys)}, models=models)


def bound(**kinds):
    """A node of two NUMA nodes, its head bound to the second one."""
    return dict(card("node1"), numa=dict({"head": "1", "rpc": "", "cpus": ["0", "1", "0", "1"]}, **kinds))


def of_cards(visible=None, order=None, **facts):
    """What a node with two unlike cards is told of its units' environment, and of facts of all its cards."""
    own = {"memory_used_mib": None, "memory_free_mib": None, "processes": []}
    gpus = [
        dict({"index": 0, "name": "RTX 3060", "uuid": "GPU-a", "memory_total_mib": 12288, **own}, **facts),
        dict({"index": 1, "name": "RTX 4090", "uuid": "GPU-b", "memory_total_mib": 24564, **own}, **facts),
    ]

    def told(**_fixtures):
        with pytest.raises(Refusal) as refused:
            plan_devices.of_node("node1", gpus, 64000, 1024, visible=visible, order=order)
        return [str(refused.value)]

    return told


MAIN = {"devices": plan_devices.as_dicts(plan_devices.of_node("node1", [], 64000, 1024)), "cores": 40}


def alone(complete=True, **_fixtures):
    """What a plan is told that has one of two nodes."""
    services = {"chat": dict(CHAT, model="big", quant="Q4_K_M")}
    return plan.memory_plan(services, PLANNED, INVENTORY["groups"], {"node1": card("node1")}, complete=complete)[
        "refused"
    ]


def counted(**_fixtures):
    """What a plan is told that has one of two nodes, and a service there that counts cards."""
    services = {
        "chat": dict(CHAT, model="big", quant="Q4_K_M", head="node2", workers="node1"),
        "solo": {"model": "big", "quant": "Q4_K_M", "head": "node1", "cards": 1},
    }
    return plan.memory_plan(services, PLANNED, INVENTORY["groups"], {"node1": card("node1", memory=80000)})["refused"]


def described(devices=""):
    """What a plan is told that asks no node, with nodes that say nothing of their cards."""
    hostvars = {"node1": {}, "node2": {}}
    return lambda **_fixtures: cards.card_errors(devices, "llama_nodes", INVENTORY["groups"], hostvars, True)


def raised(function, *arguments):
    """The text that a call refuses with."""

    def produce(**_fixtures):
        with pytest.raises(Refusal) as problem:
            function(*arguments)
        return [str(problem.value)]

    return produce


def key(name, kind, value):
    return make.text(name) + struct.pack("<I", kind) + value


def number(name, value):
    return key(name, make.U32, struct.pack("<I", value))


def array(name, kind, length):
    return key(name, make.ARRAY, struct.pack("<IQ", kind, length))


def tensor(name, dims=(32,), kind=0, offset=0):
    return make.text(name) + struct.pack("<I%dQIQ" % len(dims), len(dims), *dims, kind, offset)


def gguf(keys=(), tensors=(), version=3, announced=None):
    """A file that starts with this header."""
    counts = announced or (len(tensors), len(keys))
    return b"GGUF" + struct.pack("<IQQ", version, *counts) + b"".join(keys) + b"".join(tensors)


def parse(data, limit=model_gguf.MAX_HEADER):
    return model_gguf.read_header(lambda offset, length: data[offset : offset + length], "m.gguf", limit)


def shape(keys=(), tensors=("token_embd.weight", "blk.0.weight")):
    """What is told of the memory of a llama of one block with these keys and tensors."""
    known = [key(b"general.architecture", make.STRING, make.text("llama")), number(b"llama.block_count", 1), *keys]
    header = parse(gguf(known, [tensor(name, offset=128 * place) for place, name in enumerate(tensors)]))
    return raised(model_shape.read_shape, header)


def blocks_of(count):
    """What a header is told that says no more than its number of blocks."""
    return raised(
        model_shape.read_shape,
        parse(gguf([key(b"general.architecture", make.STRING, make.text("qwen")), number(b"qwen.block_count", count)])),
    )


def size_problem(size):
    return lambda **_fixtures: [describe.size_problem(parse(gguf(tensors=[tensor(b"t")])), size, "m.gguf")]


def shards(*splits):
    """What shards are told whose headers have these values of split.count, split.no and split.tensors.count."""
    names = (b"split.count", b"split.no", b"split.tensors.count")
    headers = [parse(gguf([number(name, value) for name, value in zip(names, values)])) for values in splits]
    return raised(describe.check_shards, headers, ["m-%d.gguf" % place for place in range(1, len(headers) + 1)])


def file_of(content, use):
    """What is said of a file with this content; None for no file."""

    def produce(tmp_path, **_fixtures):
        path = tmp_path / "file"
        if content is not None:
            path.write_text(content)
        return raised(use, str(path))()

    return produce


def broken_build(tmp_path, **_fixtures):
    (tmp_path / "current").mkdir()
    (tmp_path / "current/build.json").write_text("[]")
    return raised(node_build.build_info, str(tmp_path))()


def without_systemctl(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    return raised(units.systemctl_show, ["llama-head-chat.service"])()


def with_silent_systemd(tmp_path, monkeypatch):
    """A stub of systemctl, as it answers in a container that was not booted."""
    (tmp_path / "systemctl").write_text("#!/bin/sh\necho 'Failed to connect to bus' >&2\nexit 1\n")
    (tmp_path / "systemctl").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    return raised(units.systemctl_show, ["llama-head-chat.service"])()


def unresolved(monkeypatch, **_fixtures):
    def no_such_name(name):
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "gethostbyname_ex", no_such_name)
    return raised(sockets.resolve, "node2:1")()


def without_ip(tmp_path, monkeypatch):
    def no_such_file(*_arguments, **_options):
        raise FileNotFoundError(2, "No such file or directory")

    monkeypatch.setattr(fabric.subprocess, "Popen", no_such_file)
    return raised(fabric.collect, "10.1.0.1")()


def off_fabric(expected=None, **facts):
    """What a node is warned of that has its fabric address on ib0, apart from these facts."""
    seen = dict({"address": "10.1.0.1", "interface": "ib0", "state": "up", "peers": []}, **facts)
    return lambda **_fixtures: fabric.warnings(seen, {"127.0.0.1": "lo", "10.0.0.1": "eth0"}, expected)


def peer(**seen):
    return [
        dict({"address": "10.1.0.2", "interface": None, "source": None, "on_fabric": False, "problem": None}, **seen)
    ]


# (entry the text starts with, value seen, value needed, how it comes about)
REFUSALS = [
    # The inventory's intent.
    (
        "group llama_nodes:",
        "no host",
        "at least one is needed",
        intent(groups=dict(INVENTORY["groups"], llama_nodes=[])),
    ),
    ("llama_services:", "nothing seen", "at least one service is needed: write it in", intent(services={})),
    ("llama_services:", "a list of 1 seen", "a map of name to service is needed: write NAME:", intent(services=[CHAT])),
    (
        "llama_models_dir:",
        "/opt, which is the system's, seen for node1",
        "a directory of its own is needed",
        variables(llama_models_dir="/opt"),
    ),
    (
        "llama_models_dir:",
        "/home/ops/models, which units cannot see, seen for node1",
        "a path outside /home, /root and /tmp is needed",
        variables(llama_models_dir="/home/ops/models"),
    ),
    (
        "head_server_environment.LD_LIBRARY_PATH:",
        "/home/ops/lib, which units cannot see, seen for node1",
        "a path outside /home, /root and /tmp is needed",
        variables(head_server_environment={"LD_LIBRARY_PATH": "/opt/lib:/home/ops/lib"}),
    ),
    (
        "llama_services.chat.extra_args:",
        "/home/ops/mmproj.gguf seen, which units cannot see",
        "a path outside /home, /root and /tmp is needed",
        chat(extra_args=["--mmproj", "/home/ops/mmproj.gguf"]),
    ),
    (
        "llama_builds.default.cuda_home:",
        "/root/cuda seen, which units cannot see",
        "a path outside /home, /root and /tmp is needed",
        variables(llama_builds={"default": {"version": "b11434", "cuda_home": "/root/cuda"}}),
    ),
    (
        "llama_services.code.primary:",
        "true seen for chat too",
        "false is needed: remove the key",
        intent(
            services={"chat": dict(CHAT, primary=True), "code": dict(CHAT, primary=True, port=8001, rpc_port=50053)}
        ),
    ),
    (
        "llama_services.Chat:",
        "Chat",
        "lower-case letters, digits and dashes are needed",
        intent(services={"Chat": CHAT}),
    ),
    ("llama_services.chat:", "'node1' seen", "a map is needed", intent(services={"chat": "node1"})),
    ("llama_services.chat.kind:", "'shared' seen", "server or router", chat(kind="shared")),
    ("llama_services.chat.ctx_sise:", "unknown key", "did you mean ctx_size?", chat(ctx_sise=4096)),
    ("llama_services.chat.colour:", "unknown key", "known keys: batch_size", chat(colour="red")),
    ("llama_services.chat.quant:", "missing", "one of the quants of the model is needed", chat(quant=None)),
    ("llama_services.chat.port:", "'8000' seen", "a whole number is needed", chat(port="8000")),
    ("llama_services.chat.port:", "80000 seen", "1 to 65535 is needed", chat(port=80000)),
    # The gateway.
    (
        "llama_services.chat.tier:",
        "seen without a gateway",
        "a host in group llama_gateway is needed",
        chat(tier="fast"),
    ),
    (
        "llama_services.code.tier:",
        "fast seen for chat too",
        "one service for each tier is needed",
        two({"tier": "fast"}, tier="fast"),
    ),
    (
        "llama_services.chat.tier:",
        "deep is not in gateway_tiers",
        "one of fast, reasoning is needed",
        two({"tier": "deep"}),
    ),
    ("llama_services.chat.fallback:", "itself seen", "another service is needed", two({"fallback": "chat"})),
    ("llama_services.chat.fallback:", "cod is no service", "did you mean code?", two({"fallback": "cod"})),
    (
        "llama_services.chat.fallback:",
        "code seen, which is for embeddings",
        "one for chat is needed",
        two({"fallback": "code"}, embeddings=True),
    ),
    (
        "llama_services.chat.fallback:",
        "the circle chat -> code -> chat seen",
        "an end is needed",
        two({"fallback": "code"}, fallback="chat"),
    ),
    (
        "llama_services.code.model:",
        "m seen as a name of chat too",
        "a name of only one service is needed behind a gateway: give code names of its own, such as names: [code]",
        gateway({"chat": LONE, "code": dict(LONE, port=8002)}),
    ),
    (
        "llama_services.code.names:",
        "m seen as a name of chat too",
        "a name of only one service is needed behind a gateway: choose another name",
        gateway({"chat": LONE, "code": dict(LONE, names=["m"], port=8002)}),
    ),
    (
        "llama_services.code.models:",
        "m seen as a name of fast too",
        "a name of only one service is needed behind a gateway: leave the model out of one of them",
        gateway({"fast": FAST, "code": dict(FAST, port=8002)}),
    ),
    (
        "llama_targets.caht:",
        "no service of that name",
        "one of chat is needed, did you mean chat?",
        variables(**INVENTORY["hostvars"]["node1"], llama_targets={"caht": {}}),
    ),
    (
        "llama_targets.chat.tokens_per_second:",
        "8, 10, 15 seen",
        "target, acceptable and critical in that order are needed, the best first",
        wanted(target=8, acceptable=10, critical=15),
    ),
    (
        "llama_targets.chat.tokens_per_second.critical:",
        "nothing seen",
        "a number above 0 is needed",
        wanted(target=15, acceptable=10),
    ),
    ("llama_services.chat.names:", "'a b' seen", "a name of letters, digits and", chat(names=["a b"])),
    (
        "gateway_tls.key:",
        "the file of the certificate seen",
        "that of its key is needed",
        gateway(gateway_tls={"certificate": "/c", "key": "/c"}),
    ),
    (
        "gateway_tls:",
        "privkey.pem seen as certificate and fullchain.pem as key",
        "names of the other file are needed: exchange them",
        gateway(gateway_tls={"certificate": "/e/privkey.pem", "key": "/e/fullchain.pem"}),
    ),
    (
        "gateway_address:",
        "'https://llm.example.org' seen",
        "a host name or an address is needed: write it without http://",
        gateway(gateway_address="https://llm.example.org"),
    ),
    (
        "llama_routes.default:",
        "other seen, which is for embeddings",
        "a model for chat is needed",
        intent(
            services={"chat": LONE, "texts": dict(LONE, model="other", port=8002, embeddings=True)},
            models=dict.fromkeys(("m", "other"), INVENTORY["models"]["m"]),
            routes={"default": "other"},
        ),
    ),
    (
        "llama_services.chat.preflight_margin_mib:",
        "seen in a service",
        "a variable of nodes is needed: write it in group_vars",
        chat(preflight_margin_mib=1),
    ),
    ("llama_services.chat.aliases:", "unknown key", "write aliases of a model in llama_models", chat(aliases=["x"])),
    ("llama_services.chat.port:", "22 on node1 is taken by sshd", "a port of its own is needed", chat(port=22)),
    (
        "llama_services.chat.rpc_port:",
        "50099 on node2 is taken by model_share_port",
        "a port of its own is needed",
        chat(rpc_port=50099),
    ),
    (
        "ansible_host:",
        "10.0.0.9 seen for node1 and gw",
        "an address of its own is needed: correct it, or write node1 in every group of that machine",
        intent(
            groups=dict(INVENTORY["groups"], llama_gateway=["gw"]),
            hostvars=dict(
                INVENTORY["hostvars"],
                node1={"ansible_host": "10.0.0.9", "llama_fabric_address": "10.1.0.1"},
                gw={"ansible_host": "10.0.0.9"},
            ),
        ),
    ),
    (
        "llama_address:",
        "10.0.0.9 seen for node1 and node2",
        "an address of its own is needed: correct it",
        intent(hostvars={node: dict(facts, llama_address="10.0.0.9") for node, facts in INVENTORY["hostvars"].items()}),
    ),
    (
        "llama_models.m.quants.Q8_0:",
        "a file of Q4_K_M seen",
        "one of Q8_0 is needed: name that file, or call the entry Q4_K_M",
        quant(files=["m-Q4_K_M.gguf"]),
    ),
    (
        "llama_fabric_address:",
        "'127.0.0.1' seen",
        "an address that the other nodes reach",
        variables(llama_fabric_address="127.0.0.1"),
    ),
    (
        "llama_devices.1.memory_mib:",
        "24 MiB seen",
        "write 24576 if it has 24 GB",
        variables(llama_devices=[{"memory_mib": 24}]),
    ),
    (
        "llama_clients:",
        "'10.1.0.0' seen",
        "an IPv4 network with its mask is needed: write 10.1.0.0/16",
        variables(llama_clients=["10.1.0.0"]),
    ),
    (
        "llama_services.chat.model:",
        "big is of architecture bert",
        "embeddings: true is needed",
        heads_of({"architecture": "bert"}),
    ),
    (
        "gateway_auth:",
        "'log-only' seen",
        "one of required, log_only is needed",
        gateway(gateway_auth="log-only"),
    ),
    (
        "gateway_unknown_model:",
        "default seen without llama_routes.default",
        "a model that answers is needed",
        gateway(gateway_unknown_model="default"),
    ),
    ("gateway_patience:", "'1m' seen", "0 to 3600 is needed", gateway(gateway_patience="1m")),
    ("gateway_max_body:", "'32MB' seen", "a size up to 256m is needed", gateway(gateway_max_body="32MB")),
    ("gateway_tls:", "'/c.pem' seen", "a map is needed", gateway(gateway_tls="/c.pem")),
    (
        "gateway_tls.certifcate:",
        "unknown key",
        "did you mean certificate?",
        gateway(gateway_tls={"certificate": "/c", "key": "/k", "certifcate": "/c"}),
    ),
    (
        "gateway_tls.colour:",
        "unknown key",
        "known keys: certificate, key",
        gateway(gateway_tls={"certificate": "/c", "key": "/k", "colour": "/c"}),
    ),
    ("gateway_tls:", "no key seen", "both files are needed", gateway(gateway_tls={"certificate": "/c"})),
    (
        "gateway_tls.key:",
        "'k.pem' seen",
        "an absolute path without spaces is needed",
        gateway(gateway_tls={"certificate": "/c", "key": "k.pem"}),
    ),
    ("gateway_keys:", "no map seen", "a map of name to key is needed", gateway(gateway_keys=["s3cret"])),
    (
        "gateway_keys.a b:",
        "the name stands in the log",
        "letters, digits, dots and dashes are needed",
        gateway(gateway_keys={"a b": "s3cret"}),
    ),
    (
        "gateway_keys.a:",
        "no plain text seen",
        "a key or a list of keys of letters, digits and punctuation",
        gateway(gateway_keys={"a": "s3cret key"}),
    ),
    (
        "gateway_keys.b:",
        "the key of a seen",
        "one of its own is needed",
        gateway(gateway_keys={"a": "s3cret", "b": "s3cret"}),
    ),
    (
        "gateway_addresses:",
        "'10.0.0.5' seen",
        "a list of addresses is needed",
        gateway(gateway_addresses="10.0.0.5"),
    ),
    ("gateway_addresses:", "'gw' seen", "addresses of gw are needed", gateway(gateway_addresses=["gw"])),
    (
        "llama_address:",
        "'a b' seen for gw",
        "an IPv4 address or a host name is needed",
        gateway(llama_address="a b"),
    ),
    (
        "llama_gateway:",
        "gw comes to its nodes from gw",
        "an IPv4 address is needed",
        gateway(ansible_host="gw"),
    ),
    (
        "gateway_auth:",
        "log_only seen with the public address 8.8.8.8 of gw",
        "required is needed",
        gateway(gateway_auth="log_only", gateway_addresses=["8.8.8.8"]),
    ),
    (
        "gateway_tiers:",
        "a list of 1 seen",
        "a map of tier to port is needed",
        gateway(gateway_tiers=[8080]),
    ),
    ("gateway_port:", "0 seen", "1 to 65535 is needed", gateway(gateway_port=0)),
    (
        "gateway_tiers.fast:",
        "8000 on gw is taken by gateway_port",
        "a port of its own is needed",
        gateway({"chat": dict(LONE, tier="fast")}, gateway_tiers={"fast": 8000}),
    ),
    (
        "llama_services.code.port:",
        "8000 on node1 is taken by llama_services.chat.port",
        "a port of its own is needed",
        second(rpc_port=50053),
    ),
    ("llama_services.chat.rpc_port:", "missing", "a port for its RPC workers is needed", chat(rpc_port=None)),
    (
        "llama_services.chat.rpc_port:",
        "50052 of 10.1.0.2 is in use by nginx (pid 7)",
        "a free port is needed",
        occupied,
    ),
    (
        "gateway_port:",
        "8000 of 10.1.0.2 is that of our llama-head-chat.service",
        "a free one is needed",
        occupied_by_ours,
    ),
    ("llama_services.fast.head:", "nobody matches no host", "at least one is needed", fast(head="nobody")),
    ("llama_services.fast.quant:", "seen in a router", "a map of models is needed in its place", fast(quant="Q8_0")),
    ("llama_services.fast.top_k:", "seen for a whole router", "it is needed for each model", fast(top_k=1)),
    ("llama_services.fast.numa:", "seen in a router", "make the model a service of its own", fast(numa="bind")),
    (
        "llama_services.fast.models.m.cards:",
        "seen for one model of a router",
        "write it beside models",
        fast(models={"m": {"quant": "Q8_0", "cards": []}}),
    ),
    ("llama_services.fast.models.m:", "4 seen", "a quant or a map with quant is needed", fast(models={"m": 4})),
    ("llama_services.fast.models.m.quant:", "missing", "one of the quants of the model", fast(models={"m": {}})),
    (
        "llama_services.fast.models:",
        "m:x seen",
        "a name without a colon that is not default is needed",
        fast(("m:x",), models={"m:x": "Q8_0"}),
    ),
    (
        "llama_services.fast.models:",
        "little seen as a name of m and of n",
        "a name of one of them alone is needed",
        fast(("m", "n"), models={"m": "Q8_0", "n": "Q8_0"}),
    ),
    (
        "llama_services.chat.rpc_cache:",
        "seen without workers",
        "drop the key",
        chat(rpc_cache=True, rpc_port=None, workers=None),
    ),
    (
        "llama_services.chat.memory_max:",
        "'64G\\nExecStart=/bin/x' seen",
        "a size such as 100G is needed",
        chat(memory_max="64G\nExecStart=/bin/x"),
    ),
    (
        "llama_services.'chat\\n':",
        "chat",
        "lower-case letters, digits and dashes are needed",
        intent(services={"chat\n": CHAT}),
    ),
    (
        "llama_models.m n:",
        "'m n' is the name that clients use",
        "letters, digits",
        intent(models={"m n": INVENTORY["models"]["m"]}),
    ),
    ("llama_models.m.aliases:", "'$HOME' seen", "names of letters, digits", model(aliases=["$HOME"])),
    ("llama_models.m.quants.Q8_0.files:", "'m.gguf' seen", "a list is needed: write [m.gguf]", quant(files="m.gguf")),
    (
        "llama_models.m.quants.Q8_0.urls:",
        "'OR1 Behemoth.gguf' is the name of the file",
        "are needed: give the name it shall have by file",
        quant(urls=["https://mirror.example/OR1%20Behemoth.gguf?x=1"]),
    ),
    (
        "llama_models.m.quants.Q8_0.files:",
        "7 seen",
        "a list of strings is needed: correct it",
        quant(files=["m.gguf", 7]),
    ),
    (
        "llama_models.m.quants.Q8_0.urls:",
        "'htps://x.example/m.gguf' seen",
        "file URL is needed: correct it",
        quant(urls=["htps://x.example/m.gguf"]),
    ),
    ("llama_models.m.quants.Q8_0.size:", "0 seen", "more than 0 is needed", quant(urls=["file:///m.gguf"], size=0)),
    (
        "llama_models.m.repo:",
        "'m-GGUF' seen",
        "OWNER/NAME of a Hugging Face repository is needed",
        model(repo="m-GGUF"),
    ),
    ("llama_routes:", "a list of 1 seen", "a map is needed", intent(routes=["m"])),
    (
        "llama_models.m.quants.Q8_0.file:",
        "'../m.gguf' is the name of the file",
        "are needed",
        quant(file="../m.gguf", urls=["file:///m.gguf"]),
    ),
    (
        "llama_models.m.quants.Q8_0.sha256:",
        "'0' seen",
        "64 hexadecimal digits are needed",
        quant(urls=["file:///m.gguf"], sha256=["0"]),
    ),
    (
        "llama_models_dir:",
        "'/opt/my models' seen for node1",
        "an absolute path",
        variables(llama_models_dir="/opt/my models"),
    ),
    (
        "ansible_host:",
        "'$(id)' seen for node1",
        "an IPv4 address or a host name is needed",
        variables(ansible_host="$(id)"),
    ),
    (
        "rpc_worker_environment:",
        "a list of 1 seen for node1",
        "a map of NAME to value is needed",
        variables(rpc_worker_environment=["A=b"]),
    ),
    (
        "head_server_environment.A B:",
        "the name of a variable seen for node1",
        "letters, digits and _ are needed",
        variables(head_server_environment={"A B": 1}),
    ),
    (
        "head_server_environment.CUDA_DEVICE_ORDER:",
        "FASTEST_FIRST' beside unlike cards in llama_devices seen",
        "PCI_BUS_ID is needed: remove it, or write UUIDs in CUDA_VISIBLE_DEVICES",
        variables(
            head_server_environment={"CUDA_DEVICE_ORDER": "FASTEST_FIRST"},
            llama_devices=[{"name": "RTX 3060", "memory_mib": 12000}, {"name": "RTX 4090", "memory_mib": 24200}],
        ),
    ),
    (
        "head_server_environment.HF_TOKEN:",
        "a secret's name seen for node1",
        "remove it",
        variables(head_server_environment={"HF_TOKEN": "x"}),
    ),
    (
        "head_server_environment.A:",
        "'\\x1b' seen for node1",
        "text without control characters is needed",
        variables(head_server_environment={"A": "\x1b"}),
    ),
    ("llama_services.chat.nodes:", "seen with launcher systemd", "launcher slurm is needed", chat(nodes=3)),
    ("llama_routes.default:", "x is served by no service", "one of m is needed", intent(routes={"default": "x"})),
    (
        "llama_routes.default:",
        "chat is a service",
        "a name of what it serves is needed: write m",
        intent(routes={"default": "chat"}),
    ),
    (
        "llama_routes.tasks.a/b:",
        "the name stands in paths",
        "letters, digits, dots and dashes are needed: rename it",
        intent(routes={"tasks": {"a/b": "m"}}),
    ),
    ("llama_api_keys:", "no map seen", "a map of service to list of keys is needed", intent(api_keys=["k3y"])),
    (
        "llama_api_keys.chta:",
        "no service of that name",
        "one of chat is needed, did you mean chat?",
        intent(api_keys={"chta": ["k3y"]}),
    ),
    ("llama_api_keys.chat:", "an empty list seen", "at least one key is needed", intent(api_keys={"chat": []})),
    ("llama_api_keys.chat:", "no list seen", "at least one key is needed", intent(api_keys={"chat": "k3y"})),
    (
        "llama_api_keys.chat:",
        "key 2 is no plain text",
        "letters, digits and punctuation but",
        intent(api_keys={"chat": ["k3y", "k3y s3cret"]}),
    ),
    (
        "llama_services.chat.models:",
        "seen without kind: router",
        "it is needed for it: add that line, or name one model and its quant",
        chat(models={"m": "Q8_0"}),
    ),
    ("llama_routes.fast:", "unknown key", "known keys: default, tasks", intent(routes={"fast": "m"})),
    (
        "llama_services.chat.launcher:",
        "slurm seen",
        "systemd is needed",
        not_deployed(chat=dict(CHAT, launcher="slurm")),
    ),
    (
        "llama_api_keys.chat:",
        "put-a-key-of-your-own-here seen",
        "a key of your own is needed",
        lambda **_fixtures: check.undeployable({}, {"chat": ["put-a-key-of-your-own-here"]}),
    ),
    (
        "llama_builds.turbo.rdma:",
        "true seen with b7772",
        "b9824 or a newer release is needed",
        entry(version="b7772", rdma=True),
    ),
    (
        "llama_services.chat.quant:",
        "giant Q5_K_M has 671.0 billion weights at 5.7 bits, about 478.1 GB, more than the 68.7 GB of GPU memory",
        "choose another model, or add nodes",
        too_large({}),
    ),
    (
        "llama_services.chat.quant:",
        "about 478.1 GB",
        "choose IQ0 (60.0 GB)",
        too_large({"IQ0": {"files": ["i.gguf"], "size": 60 * 10**9}}),
    ),
    (
        "llama_services.chat.ctx_size:",
        "4096 seen with slot_ctx_size 4096 for each of 2 slots",
        "8192 is needed: drop ctx_size",
        chat(parallel=2, slot_ctx_size=4096, ctx_size=4096),
    ),
    ("llama_services.chat.threads:", "0 seen", "at least 1 is needed", chat(threads=0)),
    ("llama_services.chat.threads:", "2147483648 seen", "at most 2147483647 is allowed", chat(threads=2**31)),
    (
        "llama_services.chat.head:",
        "nothing seen",
        "the node that answers is needed",
        intent(services={"chat": dict(CHAT, head=None)}),
    ),
    ("llama_services.chat.override_kv:", "an empty list seen", "at least one entry is needed", chat(override_kv=[])),
    (
        "llama_services.chat.slot_ctx_size:",
        "2147483648 tokens",
        "at most 2147483647 are allowed",
        chat(slot_ctx_size=2**30, parallel=2),
    ),
    (
        "llama_services.chat.yarn_orig_ctx:",
        "seen without rope_scaling yarn",
        "add that or drop the key",
        chat(yarn_orig_ctx=32768),
    ),
    (
        "llama_services.chat.rpc_memory_max:",
        "seen without workers",
        "drop the key",
        chat(rpc_memory_max="9G", rpc_port=None, workers=None),
    ),
    (
        "llama_services.chat.numa:",
        "'all' seen",
        "bind, interleave, none, {node: N}, distribute, isolate or numactl is needed",
        chat(numa="all"),
    ),
    (
        "llama_services.chat.numa:",
        "a map of 1 seen",
        "a map such as {node: 0} is needed",
        chat(numa={"node": "0"}),
    ),
    ("llama_services.chat.numa:", "bind seen", "head_server_numa_node of node1 is empty", chat(numa="bind")),
    (
        "llama_services.chat.numa:",
        "node 2 seen",
        "one of the NUMA nodes of node1 (0, 1) is needed: correct it",
        planned(nodes={"node1": bound()}, threads=2, numa={"node": 2}),
    ),
    (
        "llama_services.chat.load_mode:",
        "mlock seen with build b10500",
        "which knows auto, dio, mmap, none: choose one of these",
        of_build("b10500", load_mode="mlock"),
    ),
    (
        "llama_services.chat.reasoning_budget:",
        "512 seen with build b7772, which knows 0 and -1",
        "b8692 or newer is needed",
        of_build("b7772", reasoning_budget=512),
    ),
    (
        "llama_services.chat.chat_template:",
        "'granite-5' seen",
        "a built-in template of b11434 is needed, did you mean granite",
        chat(chat_template="granite-5", jinja=False),
    ),
    (
        "llama_services.chat.chat_template:",
        "'llama3' seen with Jinja",
        "add jinja: false, or give a file",
        chat(chat_template="llama3"),
    ),
    (
        "llama_services.chat.chat_template:",
        "a file seen with jinja false",
        "Jinja is needed to read it: drop jinja",
        chat(chat_template="t.jinja", jinja=False),
    ),
    (
        "llama_services.chat.chat_template_kwargs:",
        "seen with jinja false",
        "Jinja is needed for it",
        chat(chat_template_kwargs={"a": 1}, jinja=False),
    ),
    (
        "llama_services.chat.chat_template_kwargs:",
        "datetime.date(2026, 1, 1) seen in it",
        "texts, numbers, true, false, lists and maps are needed",
        chat(chat_template_kwargs={"a": datetime.date(2026, 1, 1)}),
    ),
    (
        "llama_services.chat.chat_template_kwargs:",
        "enable_thinking seen with reasoning off",
        "one of both is needed",
        chat(chat_template_kwargs={"enable_thinking": False}, reasoning="off"),
    ),
    (
        "llama_models.m.reasoning_budget:",
        "9 seen with reasoning off",
        "drop one of both",
        model(reasoning_budget=9, reasoning="off"),
    ),
    (
        "llama_services.chat.pooling:",
        "seen without embeddings",
        "add embeddings: true or drop the key",
        chat(pooling="mean"),
    ),
    (
        "llama_services.chat.cache_ram:",
        "8192 seen with workers",
        "drop the key",
        chat(cache_ram=8192),
    ),
    (
        "llama_services.chat.ubatch_size:",
        "micro-batches of 8192 tokens seen with embeddings and batches of 2048",
        "write batch_size: 8192",
        chat(ubatch_size=8192, batch_size=2048, embeddings=True),
    ),
    (
        "llama_services.chat.cache:",
        "q5_1 seen with workers",
        "one of f16, q8_0, q4_0 is needed",
        chat(cache="q5_1"),
    ),
    ("llama_services.chat.mmap:", "false seen with load_mode", "drop one", chat(mmap=False, load_mode="mlock")),
    (
        "llama_services.chat.extra_args:",
        "'7' seen first",
        "a flag is needed there",
        chat(extra_args=["7"]),
    ),
    ("llama_services.chat.extra_args:", "'-c' seen", "ctx_size is needed", chat(extra_args=["-c", "7"])),
    (
        "llama_services.chat.extra_args:",
        "'--metrics' seen",
        "a flag that the collection does not set itself is needed",
        chat(extra_args=["--metrics"]),
    ),
    (
        "llama_builds: ",
        "node2 has other builds than node1",
        "write them in group_vars/all",
        intent(
            hostvars=dict(
                built(),
                node1={"llama_fabric_address": "10.1.0.1"},
                node2=dict(INVENTORY["hostvars"]["node2"], llama_builds={"turbo": {}}),
            )
        ),
    ),
    ("llama_builds.Turbo 2:", "a name of lower-case letters", "rename it", intent(hostvars=built(**{"Turbo 2": {}}))),
    ("llama_services.chat.build:", "'turbo' is not in llama_builds", "add it there or choose one", chat(build="turbo")),
    (
        "llama_builds.turbo.version:",
        "'latest' seen",
        "the tag of a release such as b11434 is needed",
        entry(version="latest"),
    ),
    (
        "llama_builds.turbo:",
        "b11434 seen from another source than llama_builds.default",
        "a version of its own is needed",
        entry(version="b11434", source="/srv/mine.tar.gz"),
    ),
    ("llama_builds.turbo.commit:", "'main' seen", "copy the whole commit", entry(commit="main")),
    (
        "llama_builds.turbo.version:",
        "seen beside repository",
        "drop the other",
        entry(repository="https://x/y", commit="0" * 40, version="b11434"),
    ),
    ("llama_builds.turbo.commit:", "missing", "are needed with repository", entry(repository="https://x/y")),
    ("llama_builds.turbo.commit:", "seen without repository", "add it", entry(commit="0" * 40)),
    ("llama_builds.turbo.source_sha256:", "missing", "add it", entry(source="/srv/x.tar.gz")),
    ("llama_builds.turbo.number:", "seen beside version", "drop one of them", entry(version="b11434", number=11434)),
    (
        "llama_builds.turbo.number:",
        "7000 seen",
        "7760 or more is needed",
        entry(repository="https://x/y", commit="0" * 40, number=7000),
    ),
    ("llama_builds.turbo.accelerator:", "'rocm' seen", "one of auto, cpu, cuda is needed", entry(accelerator="rocm")),
    (
        "llama_builds.turbo.cmake_options.-DX:",
        "no name of a CMake option",
        "without -D",
        entry(cmake_options={"-DX": 1}),
    ),
    (
        "llama_builds.turbo.cmake_options.X:",
        "a list of 1 seen",
        "one word or number is needed",
        entry(cmake_options={"X": [1]}),
    ),
    ("llama_builds.turbo.cuda_architectures:", "'86' seen", "auto or a list is needed", entry(cuda_architectures="86")),
    ("llama_builds.turbo.cuda_architectures:", "'8.6' seen", "write 86 for 8.6", entry(cuda_architectures=["8.6"])),
    (
        "llama_builds.turbo.cache_types.T:",
        "a name as --cache-type-k takes it",
        "correct it",
        entry(cache_types={"T": 4}),
    ),
    ("llama_builds.turbo.cache_types.q8_0:", "a type of llama.cpp itself", "drop it", entry(cache_types={"q8_0": 8})),
    ("llama_builds.turbo.cache_types.t:", "99 seen", "above 0 and up to 32", entry(cache_types={"t": 99})),
    (
        "llama_builds.turbo.version:",
        "b7000 seen",
        "b7760 or a newer release is needed",
        entry(version="b7000"),
    ),
    ("llama_services.chat.cache_type_v:", "q8_0 seen", "the same type for both is needed", chat(cache_type_v="q8_0")),
    (
        "llama_services.chat.flash_attn:",
        "off seen",
        "on or auto is needed",
        chat(flash_attn="off", cache_type_k="q8_0", cache_type_v="q8_0"),
    ),
    ("llama_services.chat.model:", "n is not in llama_models", "known models: m", chat(model="n")),
    ("llama_services.chat.quant:", "m has no Q4_0", "one of Q8_0 is needed", chat(quant="Q4_0")),
    (
        "llama_services.chat.head:",
        "elsewhere is neither a host nor a group of this inventory",
        "correct the name",
        chat(head="elsewhere"),
    ),
    ("llama_services.chat.head:", "nod1 is neither a host nor a group", "did you mean node1?", chat(head="nod1")),
    (
        "llama_services.chat.head:",
        "matches node1, node2",
        "exactly one host is needed",
        chat(head="llama_nodes"),
    ),
    (
        "llama_services.chat.head:",
        "a list of 2 seen",
        "a host, a group or a pattern is needed",
        chat(head=["node1", "node2"]),
    ),
    (
        "llama_services.chat.tensor_split:",
        "a map seen with replicas on node1, node2",
        "auto is needed",
        chat(head="llama_nodes", workers=None, rpc_port=None, tensor_split={"node1": 1}),
    ),
    (
        "llama_services.chat.head:",
        "other is not in group llama_nodes",
        "every head and worker is needed there",
        chat(head="other"),
    ),
    ("llama_services.chat.workers:", "nobody matches no host", "at least one is needed", chat(workers="nobody")),
    (
        "llama_services.chat.workers:",
        "node2 has no llama_fabric_address",
        "the IPv4 address of its fabric interface is needed",
        intent(hostvars={"node1": {}, "node2": {}}),
    ),
    (
        "llama_services.chat.head:",
        "node1 comes to its workers from gpu1.site",
        "an IPv4 address is needed",
        intent(hostvars={"node1": {"ansible_host": "gpu1.site"}, "node2": {"llama_fabric_address": "10.1.0.2"}}),
    ),
    ("llama_services.chat.workers:", "node2 is its head too", "exclude it", chat(head="node2")),
    ("llama_services.chat.tensor_split:", "'even' seen", "auto or a map", chat(tensor_split="even")),
    (
        "llama_services.chat.tensor_split:",
        "other is no node of this service",
        "node2, node1",
        chat(tensor_split={"node2": 5, "other": 5}),
    ),
    (
        "llama_services.chat.tensor_split.node2:",
        "-1 seen",
        "a whole number of layers is needed",
        chat(tensor_split={"node2": -1}),
    ),
    (
        "llama_services.chat.tensor_split:",
        "node2 is missing",
        "its number of layers is needed",
        chat(tensor_split={"node1": 5}),
    ),
    (
        "llama_services.chat.tensor_split:",
        "0 layers in all seen",
        "those of m are needed: give the counts or choose auto",
        chat(tensor_split={"node2": 0}),
    ),
    (
        "llama_services.chat.cpu_moe:",
        "'even' seen",
        "auto, all or a number of layers is needed: write auto, all, or digits",
        chat(cpu_moe="even", workers=None, rpc_port=None),
    ),
    (
        "llama_services.chat.cpu_moe:",
        "seen with workers",
        "a service of one node is needed for it",
        chat(cpu_moe="auto"),
    ),
    (
        "llama_services.chat.cpu_moe:",
        "seen with cards []",
        "a card is needed for it",
        chat(cpu_moe="auto", cards=[], workers=None, rpc_port=None),
    ),
    (
        "llama_services.chat.n_gpu_layers:",
        "20 seen with workers",
        "a service of one node is needed for it",
        chat(n_gpu_layers=20),
    ),
    (
        "llama_services.chat.n_gpu_layers:",
        "20 seen with cards []",
        "a card is needed for it",
        chat(n_gpu_layers=20, cards=[], workers=None, rpc_port=None),
    ),
    (
        "llama_services.chat.n_gpu_layers:",
        "20 seen with cpu_moe",
        "one of both is needed",
        chat(n_gpu_layers=20, cpu_moe="all", workers=None, rpc_port=None),
    ),
    (
        "llama_services.chat.n_gpu_layers:",
        "20 seen with layers per node in tensor_split",
        "auto is needed there",
        chat(n_gpu_layers=20, tensor_split={"node1": 32}, workers=None, rpc_port=None),
    ),
    ("llama_services.chat.draft:", "true seen", "a model is needed: write {model: NAME", alone_with(draft=True)),
    (
        "llama_services.chat.draft:",
        "'small' seen",
        "a map or false is needed: write {model: NAME, quant: Q}, or false for none",
        alone_with(draft="small"),
    ),
    ("llama_services.chat.draft.quant:", "nothing seen", "a text is needed", alone_with(draft={"model": "m"})),
    (
        "llama_services.chat.draft.max:",
        "65 seen",
        "1 to 64 tokens are allowed",
        alone_with(draft=dict(DRAFT, max=65)),
    ),
    (
        "llama_services.chat.draft.min:",
        "9 seen",
        "at most max (8) is allowed",
        alone_with(draft=dict(DRAFT, max=8, min=9)),
    ),
    ("llama_services.chat.draft.most:", "unknown key", "known keys: max, min", alone_with(draft=dict(DRAFT, most=8))),
    (
        "llama_services.chat.draft.model:",
        "x is not in llama_models",
        "known models",
        alone_with(draft=dict(DRAFT, model="x")),
    ),
    ("llama_services.chat.draft:", "seen with workers", "a service of one node is needed", chat(draft=DRAFT)),
    (
        "llama_services.chat.reranking:",
        "seen with embeddings",
        "one of both is needed",
        alone_with(reranking=True, embeddings=True),
    ),
    (
        "llama_services.chat.ubatch_size:",
        "seen with reranking and batches of 2048",
        "write batch_size: 8192",
        alone_with(ubatch_size=8192, batch_size=2048, reranking=True),
    ),
    (
        "llama_services.chat.draft:",
        "seen with reranking",
        "draft: false",
        alone_with(draft=DRAFT, reranking=True),
    ),
    (
        "llama_services.chat.draft:",
        "seen with embeddings",
        "draft: false",
        alone_with(draft=DRAFT, embeddings=True),
    ),
    (
        "llama_services.chat.draft:",
        "seen with build b9000",
        "b11434 or newer is needed",
        of_build("b9000", draft=DRAFT, workers=None, rpc_port=None),
    ),
    (
        "llama_services.chat.draft:",
        "moe with a vocabulary of 151936 tokens seen",
        "one like the 152192 of big is needed",
        lambda **_fixtures: mixture.other_words()["refused"],
    ),
    ("llama_models:", "[] seen", "a map of name to model is needed: write NAME:", intent(models=[])),
    ("llama_models:", "nothing seen", "at least one model is needed: write it in", intent(models={})),
    ("llama_models.m.quants:", "", "a map of quant name to its files is needed", model(quants={})),
    ("llama_models.m.alias:", "unknown key", "did you mean aliases?", model(alias=["n"])),
    (
        "llama_models.m.quants.Q8_0:",
        "'m.gguf' seen",
        "a map is needed: write its keys below it",
        model(quants={"Q8_0": "m.gguf"}),
    ),
    ("llama_models.m.quants.Q8_0:", "neither seen", "either files (of repo) or urls is needed", quant(file="m.gguf")),
    (
        "llama_models.m.quants.Q8_0.url:",
        "unknown key",
        "did you mean urls?",
        quant(url="http://x/m.gguf", files=["m.gguf"]),
    ),
    (
        "llama_models.m.quants.Q8_0.files:",
        "m has no repo",
        "the Hugging Face repository of the files is needed",
        model(repo=""),
    ),
    (
        "llama_models.m.quants.Q8_0.sha256:",
        "2 seen",
        "one for each of its 1 files is needed",
        quant(files=["m.gguf"], sha256=["a", "b"]),
    ),
    ("llama_models.m.header:", "a list of 1 seen", "a map is needed", model(header=[1])),
    ("llama_models.m.header.layers:", "unknown key", "known keys: architecture", model(header=dict(FACTS, layers=1))),
    (
        "llama_models.m.header.block_count:",
        "100000 seen",
        "1 to 512 is needed",
        model(header=dict(FACTS, block_count=100000)),
    ),
    (
        "llama_models.m.header.head_count:",
        "0 seen",
        "a whole number above 0 is needed",
        model(header=dict(FACTS, head_count=0)),
    ),
    (
        "llama_models.m.header:",
        "block_count, ",
        "is needed to estimate a plan",
        model(header={"architecture": "qwen3"}),
    ),
    (
        "llama_models.m.header.block_count:",
        "513 seen",
        "1 to 512 is needed",
        model(header=dict(FACTS, block_count=513)),
    ),
    (
        "llama_models.m.header.key_length_mla:",
        "64 seen",
        "more than the 64 of rope_dimension_count is needed",
        model(
            header=dict(FACTS, kv_lora_rank=512, key_length_mla=64, value_length_mla=128, rope_dimension_count=64),
        ),
    ),
    (
        "llama_models.m.header.expert_used_count:",
        "9 seen",
        "at most the 8 of expert_count are allowed",
        model(header=dict(FACTS, expert_count=8, expert_used_count=9, expert_feed_forward_length=512)),
    ),
    # The memory plan.
    (
        "llama_services.chat.quant:",
        "big Q8_0 with 4096 tokens a slot of f16 KV cache does not fit, 3",
        "MiB are there, the worst of 2 devices that are too small: choose quant Q4_K_M (40.0 GB), or use 3 cards of "
        "32510 MiB",
        planned(quant="Q8_0"),
    ),
    (
        "llama_services.chat.quant:",
        "does not fit",
        "lower slot_ctx_size to ",
        planned(ctx_size=40960, quant="Q4_K_M", nodes={"node2": card("node2", 1, 20000)}),
    ),
    (
        "llama_services.chat.tensor_split:",
        "big Q4_K_M with 4096 tokens a slot of f16 KV cache does not fit",
        "set tensor_split to auto (node2 41, node1 39)",
        planned(tensor_split={"node1": 1, "node2": 79}),
    ),
    ("llama_services.fast.models:", "does not fit", "are needed on GPU0 of node2", routed(big="Q4_K_M")),
    (
        "llama_services.fast.models_max:",
        "5 seen",
        "at most 1 is allowed, its models",
        fast(models_max=5),
    ),
    (
        "llama_services.fast.models_max:",
        "nothing seen without a plan of its models (big X: ",
        "a header is needed",
        routed(big="X"),
    ),
    (
        "llama_services.fast.models_max:",
        "2 seen",
        "at most 1 is allowed, since more need ",
        routed(big="Q1_0", other="Q1_0", models_max=2, memory=16000),
    ),
    (
        "llama_services.fast.models_max:",
        "1 seen with build b7772",
        "all 2 models at a time are needed",
        routed(big="Q1_0", other="Q1_0", models_max=1, memory=16000, build="b7772"),
    ),
    (
        "llama_services.solo.cards:",
        "1 seen beside chat on node1",
        "a plan of it is needed to count cards: run without --limit, or write indices",
        counted,
    ),
    ("llama_services.chat.cards:", "3 seen, node1 has 0", "an index that nvidia-smi prints", planned(cards=[3])),
    ("llama_services.chat.cards:", "2 seen", "at most the 1 of node1 are allowed: lower it", planned(cards=2)),
    (
        "llama_services.chat.cards:",
        "[] seen",
        "the main memory of node1 is needed to plan it: add {main",
        planned(cards=[], workers=None, rpc_port=None),
    ),
    ("llama_services.chat.cards:", "[-1] seen", "indices that nvidia-smi prints are needed", chat(cards=[-1])),
    ("llama_services.chat.cards:", "[1, 1] seen", "each index once is needed", chat(cards=[1, 1])),
    ("llama_services.chat.cards:", "[] seen with workers", "a card on each node is needed", chat(cards=[])),
    (
        "llama_services.chat.cards:",
        "seen beside CUDA_VISIBLE_DEVICES in head_server_environment of node1",
        "one of them is needed: drop the other",
        visible("cuda", {"CUDA_VISIBLE_DEVICES": "0"}),
    ),
    (
        "llama_services.chat.cards:",
        "1 seen with llama_builds.default.accelerator cpu",
        "cuda or auto is needed to use cards",
        visible("cpu", {}),
    ),
    (
        "llama_services.chat.workers:",
        "big Q1_0 fits GPU0 of node1 alone",
        "a head without workers is needed",
        planned(quant="Q1_0"),
    ),
    (
        "llama_services.chat.workers:",
        "16 devices seen",
        "at most 15 are allowed",
        planned(nodes={"node2": card("node2", 15)}),
    ),
    (
        "llama_services.chat.workers:",
        "",
        "one for each layer of few: use fewer workers",
        planned(nodes={"node2": card("node2", 10)}, model="few", quant="Q"),
    ),
    (
        "llama_services.chat.tensor_split:",
        "79 layers in all seen",
        "the 80 of big are needed",
        planned(tensor_split={"node1": 40, "node2": 39}),
    ),
    (
        "llama_services.chat.tensor_split.node1:",
        "40 layers seen",
        "0 are needed",
        planned(tensor_split={"node1": 40, "node2": 40}, nodes={"node1": MAIN, "node2": card("node2", 1, 80000)}),
    ),
    (
        "llama_services.chat.tensor_split:",
        "auto seen without a plan of big X",
        "a header is needed",
        planned(quant="X"),
    ),
    (
        "llama_services.chat.cpu_moe:",
        "auto seen without a plan of moe Q8_0 (cpu_moe is for experts",
        "make it readable, or give the number of layers",
        lambda **_fixtures: mixture.planned(quant="Q8_0", cpu_moe="auto")["refused"],
    ),
    (
        "llama_services.chat.cpu_moe:",
        "all seen",
        "a mixture of experts is needed for it, big is none",
        lambda **_fixtures: mixture.planned(model="big", cpu_moe="all")["refused"],
    ),
    (
        "llama_services.chat.n_gpu_layers:",
        "20 seen",
        "a card is needed for it, node1 has none that its build uses: drop the key",
        lambda **_fixtures: mixture.planned(model="big", n_gpu_layers=20, cards=())["refused"],
    ),
    (
        "llama_services.chat.n_gpu_layers:",
        "66 seen",
        "at most the 64 layers of big and its output layer are allowed",
        lambda **_fixtures: mixture.planned(model="big", n_gpu_layers=66)["refused"],
    ),
    (
        "llama_services.chat.n_gpu_layers:",
        "20 seen",
        "the main memory of node1 is needed for it: add {main: true",
        lambda **_fixtures: mixture.planned(memory_mib=None, model="big", n_gpu_layers=20)["refused"],
    ),
    (
        "llama_services.chat.memory_max:",
        "64G seen",
        "MiB that it has to keep in main memory are needed: raise it",
        lambda **_fixtures: mixture.planned(cpu_moe="all", memory_max="64G")["refused"],
    ),
    (
        "llama_services.chat.cpu_moe:",
        "95 seen",
        "at most the 94 layers of moe are allowed",
        lambda **_fixtures: mixture.planned(cpu_moe=95)["refused"],
    ),
    (
        "llama_services.chat.cpu_moe:",
        "all seen",
        "the main memory of node1 is needed for it: add {main: true",
        lambda **_fixtures: mixture.planned(memory_mib=None, cpu_moe="all")["refused"],
    ),
    (
        "llama_services.chat.ctx_size:",
        "40961 tokens a slot seen",
        "at most 40960 are allowed by the header of big",
        planned(ctx_size=40961, cache_type_k="q4_0"),
    ),
    ("llama_services.chat.threads:", "64 seen", "at most the 40 cores of node1 are allowed", planned(threads=64)),
    (
        "llama_services.chat.threads_batch:",
        "64 seen",
        "at most the 40 cores of node1 are allowed",
        planned(threads_batch=64),
    ),
    (
        "llama_services.chat.cache_type_k:",
        "q8_0 seen, a type that is not quantized is needed, since heads of big have 80 weights",
        "no multiple of its blocks of 32: choose f16",
        heads_of({"head_k": [80] * 80}, cache_type_k="q8_0"),
    ),
    (
        "llama_services.chat.cache_type_v:",
        "f16 seen with cache_type_k q8_0",
        "the same type for both is needed for the compressed cache of big",
        heads_of({"mla": model_shape.Mla(512, 64, 192)}, cache_type_k="q8_0"),
    ),
    (
        "head_server_numa_node:",
        "7 seen for node1",
        "one of its NUMA nodes (0, 1) is needed",
        planned(nodes={"node1": bound(head="7")}, threads=2),
    ),
    (
        "llama_services.chat.threads:",
        "64 seen",
        "at most the 2 cores of NUMA node 1 of node1 are allowed",
        planned(nodes={"node1": bound()}, threads=64),
    ),
    (
        "llama_services.chat.threads:",
        "missing beside head_server_numa_node",
        "at most the 2 cores of NUMA",
        planned(nodes={"node1": bound()}),
    ),
    (
        "llama_services.chat.numa:",
        "isolate seen beside head_server_numa_node of node1",
        "numactl is needed",
        planned(nodes={"node1": bound()}, threads=2, numa="isolate"),
    ),
    (
        "llama_services.chat.workers:",
        "node2 would hold no layers",
        "leave it out of workers",
        planned(
            quant="Q1_0",
            force_split=True,
            nodes={"node2": dict(MAIN, devices=[dict(MAIN["devices"][0], node="node2")])},
        ),
    ),
    (
        "llama_services.chat:",
        "not planned, node2 is not part of this run",
        "a plan needs all nodes of a service: run without --limit",
        alone,
    ),
    (
        "llama_services.chat.tensor_split:",
        "auto seen and node2 is not",
        "all nodes of the service are needed",
        functools.partial(alone, complete=False),
    ),
    ("node1:", "0 in CUDA_VISIBLE_DEVICES seen", "each card once is needed: correct", of_cards(visible="0,0")),
    ("node1:", "all in CUDA_VISIBLE_DEVICES seen", "a UUID of one card or MIG instance", of_cards(visible="all")),
    ("node1:", "0 in CUDA_VISIBLE_DEVICES seen", "only indices or only UUIDs", of_cards(visible="GPU-a,0")),
    (
        "node1:",
        "CUDA_DEVICE_ORDER FASTEST_FIRST seen with unlike cards (0 RTX 3060, 1 RTX 4090)",
        "PCI_BUS_ID is needed to count them as nvidia-smi does: remove it",
        of_cards(order="FASTEST_FIRST"),
    ),
    (
        "node1:",
        "N/A seen as the memory of GPU0",
        "its size is needed: write llama_devices for the node",
        of_cards(memory_total_mib=None, memory_reason="N/A"),
    ),
    ("devices:", "3*24GB seen", "COUNTxSIZE such as 3x24GB is needed", raised(cards.cards, "3*24GB")),
    (
        "devices:",
        "none given, and no inventory with nodes in group llama_nodes",
        "one of them is needed",
        lambda **_fixtures: cards.card_errors("", "llama_nodes", {"all": []}, {}),
    ),
    ("devices:", "3 nodes seen", "2 are needed, one for each of node1, node2", described("3x24GB")),
    ("llama_devices:", "missing for node1, node2", "the memory of each card is needed", described()),
    (
        "nodes:",
        "nod is neither a host nor a group",
        "did you mean node2?",
        lambda **_fixtures: cards.card_errors("", "nod", INVENTORY["groups"], {}),
    ),
    # Headers of model files.
    ("m.gguf:", "empty", "a GGUF file is needed", raised(parse, b"")),
    ("m.gguf:", "starts with b'<htm'", "a GGUF file starts with b'GGUF'", raised(parse, b"<html>")),
    ("m.gguf:", "GGUF version 1", "2 or 3 is needed", raised(parse, gguf(version=1))),
    ("m.gguf:", "announces 200,000 tensors", "", raised(parse, gguf(announced=(200000, 0)))),
    ("m.gguf:", "announces 70,000 metadata keys", "", raised(parse, gguf(announced=(0, 70000)))),
    ("m.gguf:", "cut at byte 24", "fetch it again", raised(parse, gguf(announced=(0, 1)))),
    (
        "m.gguf:",
        "larger than 64 bytes",
        "",
        raised(parse, gguf([number(b"general.file_type", 1), number(b"n", 1)]), 64),
    ),
    ("m.gguf:", "a metadata key is empty", "", raised(parse, gguf([number(b"", 1)]))),
    (
        "m.gguf:",
        "a metadata key has 70,000 bytes",
        "at most 65,535 bytes",
        raised(parse, gguf([number(b"k" * 70000, 1)])),
    ),
    ("m.gguf:", "key n appears twice", "", raised(parse, gguf([number(b"n", 1), number(b"n", 1)]))),
    ("m.gguf:", "n has type 99", "", raised(parse, gguf([key(b"n", 99, b"")]))),
    ("m.gguf:", "array n has elements of type 99", "", raised(parse, gguf([array(b"n", 99, 1)]))),
    (
        "m.gguf:",
        "array n16 makes more than 65,536 numbers in short arrays",
        "not a usable GGUF file",
        raised(parse, gguf([array(b"n%d" % place, make.I8, 4096) + bytes(4096) for place in range(17)])),
    ),
    ("m.gguf:", "array n has 1,000,000,000 strings", "", raised(parse, gguf([array(b"n", make.STRING, 10**9)]))),
    (
        "m.gguf:",
        "more than 8,388,608 bytes of metadata text",
        "",
        raised(parse, gguf([key(name, make.STRING, make.text(b"x" * 5000000)) for name in (b"a", b"b")])),
    ),
    (
        "m.gguf:",
        "general.alignment is 3",
        "a power of two is needed",
        raised(parse, gguf([number(b"general.alignment", 3)])),
    ),
    ("m.gguf:", "tensor t appears twice", "", raised(parse, gguf(tensors=[tensor(b"t"), tensor(b"t", offset=128)]))),
    (
        "m.gguf:",
        "tensor t has 0 dimensions",
        "1 to 4 are possible",
        raised(parse, gguf(tensors=[tensor(b"t", dims=())])),
    ),
    (
        "m.gguf:",
        "tensor t has type 99",
        "of a fork such as ik_llama.cpp",
        raised(parse, gguf(tensors=[tensor(b"t", kind=99)])),
    ),
    (
        "m.gguf:",
        "tensor t has type Q4_0_4_8",
        "use the quant Q4_0",
        raised(parse, gguf(tensors=[tensor(b"t", kind=32)])),
    ),
    (
        "m.gguf:",
        "tensor t has type 50",
        "use another quant, or a newer",
        raised(parse, gguf(tensors=[tensor(b"t", kind=50)])),
    ),
    ("m.gguf:", "tensor t has type 70000", "damaged header", raised(parse, gguf(tensors=[tensor(b"t", kind=70000)]))),
    ("m.gguf:", "array n has arrays in it", "use another file", raised(parse, gguf([array(b"n", 9, 1)]))),
    ("m.gguf:", "GGUF version 4", "a newer format", raised(parse, gguf(version=4))),
    ("m.gguf:", "a pointer of Git LFS", "give the address of the file", raised(parse, b"version https://git-lfs")),
    ("m.gguf:", "a format of before GGUF", "use a GGUF file of it", raised(parse, b"tjgg" + bytes(20))),
    ("m.gguf:", "tensor t has dimensions 0", "", raised(parse, gguf(tensors=[tensor(b"t", dims=(0,))]))),
    (
        "m.gguf:",
        "rows of 33 weights",
        "a multiple of 32",
        raised(parse, gguf(tensors=[tensor(b"t", dims=(33,), kind=2)])),
    ),
    ("m.gguf:", "tensor t starts at 64", "end at 0", raised(parse, gguf(tensors=[tensor(b"t", offset=64)]))),
    (
        "m.gguf:",
        "its tensors need 9,223,372,036,854,775,808 bytes",
        "",
        raised(parse, gguf(tensors=[tensor(b"t", dims=(2**61,))])),
    ),
    ("m.gguf:", "10 bytes present", "fetch it again", size_problem(10)),
    ("m.gguf:", "1,000 bytes present", "foreign bytes follow the model", size_problem(1000)),
    ("m-1.gguf:", "its header names 3 shards, 2 given", "give all shards", shards((3, 0, 0), (3, 1, 0))),
    ("m-1.gguf:", "its header says shard 1", "place 1 needs shard 0", shards((2, 1, 0), (2, 0, 0))),
    ("m-1.gguf:", "5 tensors in all shards, they have 0", "", shards((2, 0, 5), (2, 1, 5))),
    # A node's fabric.
    ("ip", "cannot be run (No such file or directory)", "install the package iproute2", without_ip),
    ("llama_fabric_address:", "which has 10.0.0.1 (eth0)", "one of these is needed", off_fabric(interface=None)),
    ("llama_fabric_address:", "ib0 with 10.1.0.1 is down", "up is needed", off_fabric(state="down")),
    ("llama_fabric_interface:", "10.1.0.1 is on ib0", "ib1 is needed", off_fabric("ib1")),
    (
        "llama_fabric_address:",
        "RPC to 10.1.0.2 would leave over eth0 with source 10.0.0.1",
        "ib0 with source 10.1.0.1 is needed",
        off_fabric(peers=peer(interface="eth0", source="10.0.0.1")),
    ),
    (
        "llama_fabric_address:",
        "no route from 10.1.0.1 to 10.1.0.2 (RTNETLINK answers: Network is unreachable)",
        "one over ib0 is needed",
        off_fabric(peers=peer(problem="RTNETLINK answers: Network is unreachable")),
    ),
    # The memory that a header tells.
    (
        "header:",
        "general.architecture is missing",
        "give the first shard",
        raised(model_shape.read_shape, parse(gguf())),
    ),
    (
        "header:",
        "general.architecture is 'a\\nb'",
        "its name is needed",
        raised(model_shape.read_shape, parse(gguf([key(b"general.architecture", make.STRING, make.text("a\nb"))]))),
    ),
    (
        "header:",
        "architecture 'clip' seen: a projector for images or sound",
        "name the file of the model itself",
        raised(model_shape.read_shape, parse(gguf([key(b"general.architecture", make.STRING, make.text("clip"))]))),
    ),
    ("architecture qwen:", "qwen.block_count is 100000000", "1 to 512 are allowed", blocks_of(100000000)),
    (
        "architecture llama:",
        "llama.nextn_predict_layers is 2 of 1 blocks",
        "fewer are needed",
        shape([number(b"llama.nextn_predict_layers", 2)]),
    ),
    (
        "architecture llama:",
        "tensors of the embedding or of a block are missing",
        "give all shards",
        shape(tensors=("blk.0.weight",)),
    ),
    ("architecture llama:", "llama.embedding_length is missing", "a count is needed", shape()),
    (
        "architecture llama:",
        "llama.attention.indexer.head_count seen",
        "a cache of keys and values or a Mamba state is needed",
        shape([number(b"llama.attention.indexer.head_count", 4)]),
    ),
    (
        "architecture llama:",
        "names 0 layers",
        "1 are needed",
        shape(
            [
                number(b"llama.embedding_length", 32),
                number(b"llama.attention.sliding_window", 32),
                array(b"llama.attention.sliding_window_pattern", make.I32, 0),
            ]
        ),
    ),
    # A node's services.
    ("systemctl", "cannot be run (No such file or directory)", "nodes with systemd only", without_systemctl),
    ("systemctl show", "Failed to connect to bus", "is systemd running", with_silent_systemd),
    ("", "build.json is not a build manifest", "install the build again", broken_build),
    ("api_key_file", "No such file or directory", "give a file", file_of(None, api.read_api_key)),
    ("api_key_file", "holds no key", "one line with the key is needed", file_of("# none\n", api.read_api_key)),
    ("url", "'node1:8000' is not an address", "http://HOST:PORT is needed", raised(api.LlamaApi, "node1:8000")),
    ("rpc_endpoints:", "'node2' is not an endpoint", "HOST:PORT is needed", raised(sockets.resolve, "node2")),
    ("rpc_endpoints:", "node2:1 cannot be resolved", "a name this node knows", unresolved),
]


def complaints(sentence):
    """What the house's voice would not say."""
    found = []
    if "\n" in sentence or re.search(r"[a-z0-9)]\. [A-Z]", sentence):
        found.append("more than one sentence")
    if sentence[-1:] in (".", "!"):
        found.append("a full stop, though other texts quote it")
    if ": " not in sentence:
        found.append("no entry before a colon")
    if re.search(r"Traceback|Exception|\[Errno|  |\bNone\b|(?i:please|invalid|unable|\bbad\b|illegal)", sentence):
        found.append("the language of programs, not of operators")
    return found


@pytest.fixture(scope="module")
def sentences(tmp_path_factory):
    """What each row of REFUSALS is told."""
    told = []
    for _entry, _seen, _needed, produce in REFUSALS:
        with pytest.MonkeyPatch.context() as monkeypatch:
            told.append(produce(tmp_path=tmp_path_factory.mktemp("row"), monkeypatch=monkeypatch))
    return told


@pytest.mark.parametrize("row", range(len(REFUSALS)), ids=[" ".join(row[:3]) for row in REFUSALS])
def test_refusal(row, tmp_path, monkeypatch):
    entry, seen, needed, produce = REFUSALS[row]
    told = produce(tmp_path=tmp_path, monkeypatch=monkeypatch)
    fitting = [one for one in told if one.startswith(entry) and seen in one and needed in one]
    assert len(fitting) == 1, told
    assert complaints(fitting[0]) == []


def written_in_python(path):
    """{line: text} of what a file raises or fails with, and of every other text that has an entry and names a need."""
    nodes = list(ast.walk(ast.parse(path.read_text())))
    prose = {node.value for node in nodes if isinstance(node, ast.Expr)}
    refusing = [
        node
        for node in nodes
        if isinstance(node, ast.Raise) or (isinstance(node, ast.Call) and ast.unparse(node.func) == "module.fail_json")
    ]
    refused = {part for node in refusing for part in ast.walk(node)}
    found = {}
    for node in nodes:
        if not isinstance(node, ast.Constant) or not isinstance(node.value, str) or node in prose or "\n" in node.value:
            continue
        if ": " in node.value and (node in refused or re.search(r"\bneeded\b", node.value)):
            found[node.lineno] = node.value
    return found


def written_in_yaml(node):
    """The texts that assert and fail tasks end with; one that only hands on others is none."""
    if isinstance(node, dict):
        for name, value in node.items():
            if name in ("ansible.builtin.assert", "ansible.builtin.fail"):
                text = " ".join(value.get("fail_msg", value.get("msg", "")).split())
                if re.sub(r"{{.*?}}", "", text):
                    yield text
            else:
                yield from written_in_yaml(value)
    elif isinstance(node, list):
        for item in node:
            yield from written_in_yaml(item)


def written():
    """[(where, text)] of every refusal in the sources, with its placeholders."""
    found = []
    for path in sorted(ROOT.glob("plugins/*/*.py")):
        found.extend(
            ("%s:%d" % (path.relative_to(ROOT), line), text) for line, text in sorted(written_in_python(path).items())
        )
    for path in sorted([*ROOT.glob("roles/*/tasks/*.yml"), *ROOT.glob("playbooks/**/*.yml")]):
        found.extend((str(path.relative_to(ROOT)), text) for text in written_in_yaml(yaml.safe_load(path.read_text())))
    return found


def filled(text):
    """A written text with something in its placeholders."""
    return re.sub(r"{{.*?}}|%s" % PLACEHOLDER, "X", text)


def test_every_text_has_the_voice():
    faults = {where: (complaints(filled(text)), text) for where, text in written() if complaints(filled(text))}
    assert faults == {}


@pytest.mark.parametrize("module", PRODUCED)
def test_every_text_has_a_row(module, sentences):
    told = [one for row in sentences for one in row]
    missing = []
    for line, text in written_in_python(UTILS / module).items():
        pattern = ".*".join(re.escape(part) for part in re.split(PLACEHOLDER, text))
        if not any(re.search(pattern, sentence) for sentence in told):
            missing.append("%s:%d: %s" % (module, line, text))
    assert missing == []


# Handled where they are raised for, never shown as they are: a failure that is tried again, and a run that is asked to
# stop.
# Unanswered: what becomes of one request in the gateway, whose answers are for clients.
NOT_REFUSALS = {"Transient", "Stopped", "Unanswered"}


def test_one_exception_is_for_the_operator():
    """Classes of errors derive from Refusal, so that modules and filters catch that one."""
    bases = {}
    for path in [*UTILS.glob("module_utils/**/*.py"), *UTILS.glob("plugin_utils/**/*.py")]:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                bases.update((node.name, ast.unparse(base)) for base in node.bases)
    assert {name for name, base in bases.items() if base == "Exception"} == {"Refusal", *NOT_REFUSALS}
    assert {name for name, base in bases.items() if base.endswith("Error")} == set()


def test_side_by_side(sentences):
    """The list itself: `pytest -s` shows it."""
    print("\n\nProduced:")
    for row in sentences:
        print("\n".join("  " + sentence for sentence in row))
    print("\nWritten:")
    texts = written()
    for where, text in texts:
        print("  %-50s %s" % (where, text))
    assert {where.split("/")[0] for where, _text in texts} == {"plugins", "roles", "playbooks"}
