# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The files of a node's workers and heads, and what changes the digest of a unit."""

import configparser
import copy
import json
import os

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._units import files
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._units.files import preset
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._units.links import build_links
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._units.sandbox import unit_sandbox

HEAD = {
    "service": "chat",
    "unit": "llama-head-chat.service",
    "primary": False,
    "url": "http://10.0.0.1:8000",
    "model_path": "/opt/models/m.gguf",
    "rpc_endpoints": ["10.1.0.2:50052"],
    "api_key_file": "/etc/llama-cluster/keys/chat",
    "args": ["--port", "8000"],
}
WORKER = {
    "service": "chat",
    "unit": "llama-rpc-chat.service",
    "primary": False,
    "address": "10.1.0.2",
    "port": "50052",
    "head_url": "http://10.0.0.1:8000",
    "args": [],
}
BUILT = {"of": {"": {"current_build": "b1", "build_sha256": "0" * 64}}}
NODE = {"units": [], "templates": [], "watched": [], "build": BUILT}
NODE["files"] = {"/opt/models/m.gguf": [9, 1.5]}
PROCESS = {
    "template": "text",
    "user": "llama",
    "environment": {},
    "numa_node": "",
}


def heads(*instances, node=None, at_boot=True, process=None, **more):
    return files.unit_files(list(instances), "head", node or NODE, process or PROCESS, at_boot, **more)


def of(entries, path):
    (entry,) = [entry for entry in entries if entry["path"] == path]
    return entry


def digest(*instances, **more):
    return of(heads(*instances, **more), "/etc/systemd/system/llama-head-chat.service")["vars"]["digest"]


def test_files_of_a_router():
    one = {"service": "fast.big", "model": "big", "args": ["--model", "/opt/models/m.gguf"], "chat_template_file": "/t"}
    router = dict(
        HEAD, service="fast", kind="router", unit="llama-router-fast.service", models=[one], models_max=1, model_path=""
    )
    router.update(model_paths=["/opt/models/m.gguf"], api_key_file="")
    beside = dict(HEAD, kind="head", service="old", api_key_file="/etc/llama-cluster/keys/old")
    units = [
        {
            "name": "llama-router-%s.service" % name,
            "kind": "router",
            "service": name,
            "managed": True,
            "installed": True,
        }
        for name in ("old", "fast")
    ]
    lying = ["fast.big", "fast.gone", "old", "old.big", "older.big", "theirs.big"]
    lying = ["/etc/llama-cluster/template-%s.jinja" % name for name in lying]

    def made(*instances, **more):
        return files.unit_files(
            [*instances, beside],
            "router",
            dict(NODE, units=units, templates=lying),
            PROCESS,
            True,
            templates={"fast.big": "text"},
            **more,
        )

    entries = made(router)
    assert [entry["path"] for entry in entries] == [
        "/etc/systemd/system/llama-router-fast.service",
        "/etc/llama-cluster/template-fast.big.jinja",
        "/etc/llama-cluster/preset-fast.ini",
        "/etc/llama-cluster/watchdog/router-fast.json",
        "/etc/systemd/system/multi-user.target.wants/llama-router-fast.service",
        # A key that it has lost.
        "/etc/llama-cluster/keys/fast",
        # Templates of a model it has lost, and of a router that is gone. A head of that name keeps its keys and plan.
        "/etc/llama-cluster/template-fast.gone.jinja",
        "/etc/llama-cluster/template-old.jinja",
        "/etc/llama-cluster/template-old.big.jinja",
        "/etc/llama-cluster/preset-old.ini",
    ]
    assert [entry.get("state") for entry in entries[5:]] == ["absent"] * 5
    assert of(entries, "/etc/llama-cluster/preset-fast.ini")["content"].endswith("[big]\nmodel = /opt/models/m.gguf\n")
    assert json.loads(of(entries, "/etc/llama-cluster/watchdog/router-fast.json")["content"])["kind"] == "router"
    unit = of(entries, "/etc/systemd/system/llama-router-fast.service")
    assert unit["template"] == "llama-head.service.j2"
    changed = of(made(dict(router, models=[dict(one, args=["--model", "/other"])])), unit["path"])
    assert changed["vars"]["digest"] != unit["vars"]["digest"]
    elsewhere = of(made(dict(router, models=[dict(one, chat_template_file="/other")])), unit["path"])
    assert elsewhere["vars"]["digest"] == unit["vars"]["digest"]


def test_files_of_a_head():
    plan = [{"node": "node1", "devices": [{"node": "n1"}]}]
    seen = [{"problem": "no header", "node": "node1", "devices": [{"node": "n1", "free_mib": 9}]}]
    entries = heads(HEAD, plans={"chat": seen, "other": seen})
    assert [entry["path"] for entry in entries] == [
        "/etc/systemd/system/llama-head-chat.service",
        "/etc/llama-cluster/plan-chat.json",
        "/etc/llama-cluster/watchdog/head-chat.json",
        "/etc/systemd/system/multi-user.target.wants/llama-head-chat.service",
    ]
    assert entries[0]["template"] == "llama-head.service.j2" and entries[0]["vars"]["item"] == HEAD
    assert json.loads(entries[1]["content"]) == plan
    assert json.loads(entries[2]["content"]) == {
        "kind": "head",
        "unit": "llama-head-chat.service",
        "url": "http://10.0.0.1:8000",
        "rpc_endpoints": ["10.1.0.2:50052"],
        "api_key_file": "/etc/llama-cluster/keys/chat",
        "ubatch": 512,
    }
    linked = {"state": "link", "target": "/etc/systemd/system/llama-head-chat.service"}
    assert [dict(entry, path="") for entry in entries[3:]] == [dict(linked, path="")]
    assert all(entry["content"].endswith("}\n") or entry["content"].endswith("]\n") for entry in entries[1:3])


def test_replica_keeps_its_plan_and_digest():
    plans = {"chat": [{"node": name, "devices": []} for name in ("node1", "node2")]}
    own = of(heads(dict(HEAD, node="node2"), plans=plans), "/etc/llama-cluster/plan-chat.json")
    assert json.loads(own["content"]) == [plans["chat"][1]]
    assert digest(dict(HEAD, node="node2"), plans=plans) == digest(HEAD)
    # A replica outside of this run's plan keeps its file.
    paths = [entry["path"] for entry in heads(dict(HEAD, node="node3"), plans=plans)]
    assert "/etc/llama-cluster/plan-chat.json" not in paths


@pytest.mark.parametrize("serves", ["text", "embeddings", "scores"])
def test_the_watchdog_knows_a_head_of_embeddings(serves):
    entries = heads(dict(HEAD, serves=serves))
    watched = json.loads(of(entries, "/etc/llama-cluster/watchdog/head-chat.json")["content"])
    assert watched.get("embeddings", False) is (serves != "text")
    assert watched.get("reranking", False) is (serves == "scores")


def test_files_of_a_worker():
    unit, watch, at_boot = files.unit_files([WORKER], "rpc", NODE, PROCESS, True)
    assert unit["path"] == "/etc/systemd/system/llama-rpc-chat.service" and unit["template"] == "llama-rpc.service.j2"
    assert json.loads(watch["content"]) == {
        "kind": "rpc",
        "unit": "llama-rpc-chat.service",
        "address": "10.1.0.2",
        "port": 50052,
        "head_url": "http://10.0.0.1:8000",
    }
    assert at_boot["path"] == "/etc/systemd/system/multi-user.target.wants/llama-rpc-chat.service"
    assert at_boot["target"] == "/etc/systemd/system/llama-rpc-chat.service"


def test_units_not_started_at_boot_lose_links():
    unit = {"name": "llama-head-chat.service", "kind": "head", "service": "chat", "managed": True, "enabled": True}
    wants = "/etc/systemd/system/multi-user.target.wants/llama-head-chat.service"
    assert of(heads(HEAD, at_boot=False, node=dict(NODE, units=[unit])), wants) == {"path": wants, "state": "absent"}
    assert wants not in [entry["path"] for entry in heads(HEAD, at_boot=False)]


def test_the_primary_service_has_the_short_names_everywhere():
    head = dict(HEAD, primary=True, unit="llama-head.service")
    entries = heads(head)
    assert [entry["path"] for entry in entries] == [
        "/etc/systemd/system/llama-head.service",
        "/etc/llama-cluster/watchdog/head-chat.json",
        "/etc/systemd/system/multi-user.target.wants/llama-head.service",
    ]
    assert json.loads(entries[1]["content"])["unit"] == "llama-head.service"
    assert entries[2]["target"] == entries[0]["path"]


def test_a_stopped_service_does_not_start_at_boot():
    stopped, watch = dict(HEAD, state="stopped"), "/etc/llama-cluster/watchdog/head-chat.json"
    unit = {"name": "llama-head-chat.service", "kind": "head", "service": "chat", "managed": True, "enabled": True}
    entries = heads(stopped, node=dict(NODE, units=[unit], watched=[watch]))
    links = [entry for entry in entries[1:] if not entry["path"].endswith(".jinja")]
    assert [(entry["path"], entry["state"]) for entry in links] == [
        ("/etc/systemd/system/multi-user.target.wants/llama-head-chat.service", "absent"),
        (watch, "absent"),
    ]
    # Without link and watched file only its unit and its plan are written.
    plans = {"chat": [{"node": "node1", "devices": []}]}
    running = [entry["path"] for entry in heads(HEAD, plans=plans)]
    assert [entry["path"] for entry in heads(stopped, plans=plans)] == running[:2]


def own_variables(entry):
    """The environment of a unit, without what every unit has."""
    return [one for one in entry["vars"]["exported"] if one != "GGML_NO_BACKTRACE=1"]


def test_unit_sees_only_cards_of_its_service():
    def exported(**item):
        process = dict(PROCESS, environment={"A": "1"})
        return own_variables(heads(dict(HEAD, **item), process=process)[0])

    assert exported(cards=["GPU-a", "GPU-b"]) == ["A=1", "CUDA_VISIBLE_DEVICES=GPU-a,GPU-b"]
    assert exported(cards=[]) == ["A=1", "CUDA_VISIBLE_DEVICES="]
    assert exported(cards=None) == exported() == ["A=1"]
    # A service without the key keeps its digest.
    assert digest(dict(HEAD, cards=None)) == digest(HEAD)
    assert len({digest(dict(HEAD, cards=cards)) for cards in (None, [], ["GPU-a"], ["GPU-b"])}) == 4


@pytest.mark.parametrize("kind", ["head", "router", "rpc"])
def test_units_of_vulkan_have_cache_and_groups(kind):
    item = dict(WORKER if kind == "rpc" else HEAD, accelerator="vulkan")
    node = {**NODE, "card_groups": ["render"]}

    def unit(process=None, **more):
        return files.unit_files([{**item, **more}], kind, node, process or PROCESS, True)[0]

    entry = unit(cards=["1", "0"])
    folder = os.path.basename(entry["path"])[: -len(".service")]
    cache = f"/var/cache/llama-cluster/shaders/{folder}"
    assert {"SupplementaryGroups=render", f"CacheDirectory=llama-cluster/shaders/{folder}"} <= set(
        entry["vars"]["sandbox"]
    )
    assert {"GGML_VK_VISIBLE_DEVICES=1,0", f"MESA_SHADER_CACHE_DIR={cache}"} <= set(own_variables(entry))
    assert not [one for one in own_variables(entry) if one.startswith("CUDA")]
    # Cards of the plan are opened first; a device that the inventory names may be no hardware.
    software = dict(PROCESS, environment={"GGML_VK_VISIBLE_DEVICES": "0"})
    opened = [
        [line for line in one["vars"]["sandbox"] if line.startswith("ExecStartPre")]
        for one in (entry, unit(), unit(process=software), unit(cards=[]))
    ]
    assert [("[ -e /dev/dri ] ||" in line) for lines in opened for line in lines] == [False, False, True]
    other = unit(unit="llama-other.service")
    assert f"MESA_SHADER_CACHE_DIR={cache}" not in own_variables(other)
    # The inventory's own directory counts.
    own = unit(process=dict(PROCESS, environment={"MESA_SHADER_CACHE_DIR": "/scratch/shaders"}))
    assert "MESA_SHADER_CACHE_DIR=/scratch/shaders" in own_variables(own)


@pytest.mark.parametrize("kind", ["head", "rpc", "router"])
def test_units_of_cuda_count_cards_by_slot(kind):
    def exported(accelerator, environment):
        item = dict(WORKER if kind == "rpc" else HEAD, accelerator=accelerator)
        process = dict(PROCESS, environment=environment)
        entries = files.unit_files([item], kind, NODE, process, True)
        return own_variables(entries[0])

    assert exported("cuda", {"A": "1"}) == ["A=1", "CUDA_DEVICE_ORDER=PCI_BUS_ID"]
    assert exported("cuda", {"CUDA_DEVICE_ORDER": "FASTEST_FIRST"}) == ["CUDA_DEVICE_ORDER=FASTEST_FIRST"]
    assert exported("cpu", {"A": "1"}) == ["A=1"]


def test_state_does_not_change_the_digest():
    assert digest(dict(HEAD, state="stopped")) == digest(dict(HEAD, state="started")) == digest(HEAD)


def test_files_of_removed_services_go():
    owned = (("head", "chat", True), ("head", "old", True), ("head", "theirs", False), ("rpc", "worker", True))
    units = [
        {"name": "llama-%s-%s.service" % one[:2], "kind": one[0], "service": one[1], "managed": one[2]} for one in owned
    ]
    watched = ["/etc/llama-cluster/watchdog/%s.json" % name for name in ("head-chat", "head-old", "rpc-old")]
    # A head has one template: a copy beside it is unmanaged.
    templates = ("chat", "chat.kept", "fast.big", "old", "old.kept", "theirs")
    templates = ["/etc/llama-cluster/template-%s.jinja" % name for name in templates]
    entries = heads(HEAD, node=dict(NODE, units=units, watched=watched, templates=templates))
    assert [entry["path"] for entry in entries if entry.get("state") == "absent"] == [
        "/etc/llama-cluster/watchdog/head-old.json",
        "/etc/llama-cluster/keys/old",
        "/etc/llama-cluster/template-chat.jinja",
        "/etc/llama-cluster/template-old.jinja",
        # A service without a plan in this run keeps its plan.
        "/etc/llama-cluster/plan-old.json",
    ]
    # A service that has lost its keys.
    entries = heads(dict(HEAD, api_key_file=""), node=dict(NODE, units=units))
    assert of(entries, "/etc/llama-cluster/keys/chat") == {
        "path": "/etc/llama-cluster/keys/chat",
        "state": "absent",
        "hidden": True,
    }


def test_text_of_chat_template_changes_the_digest():
    """Its path on the controller and the build that listed the flags do not change it."""
    unit = {"name": "llama-head-chat.service", "kind": "head", "service": "chat", "managed": True}
    head = dict(HEAD, chat_template_file="/home/me/inventories/mine/t.jinja", asks_build=False)
    text = "{{ messages }}\n"
    entries = heads(head, templates={"chat": text}, node=dict(NODE, units=[unit]))
    path = "/etc/llama-cluster/template-chat.jinja"
    assert of(entries, path) == {"path": path, "content": text}
    digests = [
        digest(one, templates={"chat": words})
        for one in (head, dict(head, chat_template_file="/elsewhere/t.jinja"), dict(head, asks_build=True))
        for words in (text, text + "\n")
    ]
    assert digests[0] == digests[2] == digests[4] != digests[1] == digests[3] == digests[5]
    assert digest(HEAD) == digest(dict(HEAD, chat_template_file="", asks_build=False)) != digests[0]


def test_every_input_of_a_process_changes_the_digest():
    keys = {"chat": ["one"]}
    base = digest(HEAD, keys=keys, salt="s")
    assert digest(copy.deepcopy(HEAD), keys=keys, salt="s") == base
    others = [
        digest(dict(HEAD, args=["--port", "8001"]), keys=keys, salt="s"),
        digest(HEAD, keys={"chat": ["two"]}, salt="s"),
        digest(HEAD, keys=keys, salt="t"),
        digest(HEAD, keys=keys, salt="s", node=dict(NODE, files={"/opt/models/m.gguf": [9, 2.5]})),
        digest(HEAD, keys=keys, salt="s", node=dict(NODE, files={"/opt/models/m.gguf": [8, 1.5]})),
    ]
    changed = {
        "template": "another",
        "user": "others",
        "environment": {"A": "1"},
        "numa_node": "0",
    }
    assert set(changed) == set(PROCESS)
    others += [
        digest(HEAD, keys=keys, salt="s", process=dict(PROCESS, **{name: value})) for name, value in changed.items()
    ]
    other = {"of": {"": {"current_build": "b1", "build_sha256": "1" * 64}, "b2": BUILT["of"][""]}}
    others += [
        digest(HEAD, keys=keys, salt="s", node=dict(NODE, build=other)),
        digest(dict(HEAD, build="b2"), keys=keys, salt="s", node=dict(NODE, build=other)),
        digest(dict(HEAD, accelerator="cuda"), keys=keys, salt="s"),
        digest(dict(HEAD, rdma=True), keys=keys, salt="s"),
    ]
    assert len({base, *others}) == 10 + len(PROCESS)


def test_arguments_and_environment_are_escaped_for_systemd():
    process = dict(PROCESS, environment={"B": "1", "A": "two $words"}, numa_node="0")
    given = dict(WORKER, service="x", rdma=True, args=["--cache", "100 %"])
    variables = files.unit_files([given], "rpc", NODE, process, True)[0]["vars"]
    assert variables["command"].startswith("/usr/bin/numactl --cpunodebind=0 --membind=0 -- /usr/bin/stdbuf -oL /opt/")
    assert variables["command"].endswith('/bin/ggml-rpc-server --cache "100 %%"')
    assert variables["exported"] == ['"A=two $words"', "B=1", "GGML_NO_BACKTRACE=1"]
    assert variables["sandbox"] == unit_sandbox("cpu", numa=True, rdma=True)
    plain = files.unit_files([WORKER], "rpc", NODE, PROCESS, True)[0]["vars"]
    assert plain["command"].startswith("/usr/bin/stdbuf ") and plain["sandbox"] == unit_sandbox("cpu")


@pytest.mark.parametrize(
    ("policy", "node", "words"),
    [
        (None, "0", "/usr/bin/numactl --cpunodebind=0 --membind=0 -- "),
        ("", "", ""),
        ("bind", "1", "/usr/bin/numactl --cpunodebind=1 --membind=1 -- "),
        ("3", "1", "/usr/bin/numactl --cpunodebind=3 --membind=3 -- "),
        ("0", "", "/usr/bin/numactl --cpunodebind=0 --membind=0 -- "),
        ("none", "1", ""),
        ("interleave", "1", "/usr/bin/numactl --interleave=all -- "),
    ],
)
def test_each_service_has_its_numa_policy(policy, node, words):
    item, process = dict(HEAD, **({} if policy is None else {"numa": policy})), dict(PROCESS, numa_node=node)
    variables = of(heads(item, process=process), "/etc/systemd/system/llama-head-chat.service")["vars"]
    assert variables["command"].partition("/opt/llama.cpp/")[0] == words
    assert variables["command"].endswith(" --numa numactl") is bool(words)
    assert variables["sandbox"] == unit_sandbox("cpu", numa=bool(words))


def test_process_of_each_kind_has_its_words():
    rpc = files.process_words("rpc", dict(WORKER, service="x", cache=True), PROCESS, "/r")
    assert rpc["argv"][:3] == ["/usr/bin/stdbuf", "-oL", "/r/bin/ggml-rpc-server"]
    assert rpc["environment"]["LLAMA_CACHE"] == "/var/cache/llama-cluster/rpc-x"
    router = files.process_words("router", dict(HEAD, models=[{}]), PROCESS, "/r")
    assert router["environment"]["LLAMA_CACHE"] == "/run/llama-cluster/no-models"
    head = files.process_words("head", HEAD, dict(PROCESS, environment={"GGML_NO_BACKTRACE": "0"}), "/r")
    assert head == {"argv": ["/r/bin/llama-server", "--port", "8000"], "environment": {"GGML_NO_BACKTRACE": "0"}}


def test_each_way_with_numa_nodes_is_another_digest():
    assert digest(dict(HEAD, numa="")) == digest(HEAD)
    assert len({digest(dict(HEAD, numa=policy)) for policy in ("", "bind", "none", "interleave", "0")}) == 5


def test_each_unit_names_the_build_of_its_service():
    built = {"of": {**BUILT["of"], "b2-cuda-x": {"current_build": "b2-cuda-x", "build_sha256": "2" * 64}}}
    given = dict(WORKER, service="x", build="b2-cuda-x", accelerator="cuda")
    entries = files.unit_files([WORKER, given], "rpc", dict(NODE, build=built), PROCESS, True)
    chat, other = entries[0]["vars"], entries[1]["vars"]
    assert (chat["release"], other["release"]) == (
        "/opt/llama.cpp/releases/b1",
        "/opt/llama.cpp/releases/b2-cuda-x",
    )
    assert (chat["sandbox"], other["sandbox"]) == (unit_sandbox("cpu"), unit_sandbox("cuda"))


def test_files_of_one_service_leave_others():
    seen = dict(NODE, watched=["/etc/llama-cluster/watchdog/head-gone.json"])
    other = dict(HEAD, service="quick", unit="llama-head-quick.service", api_key_file="")
    quick = heads(HEAD, other, node=seen, only=["quick"])
    assert {"quick" in entry["path"] for entry in quick} == {True}
    assert [entry for entry in heads(HEAD, other, node=seen) if "quick" in entry["path"]] == quick


def test_keys_cannot_be_tried_against_the_digest():
    """Every user can read a digest and its other parts."""
    known = {digest(HEAD, keys={"chat": ["weak"]}, salt=salt) for salt in ("", "\n")}
    salted = {digest(HEAD, keys={"chat": ["weak"]}, salt=salt) for salt in ("b25l", "dHdv")}
    assert len(salted) == 2 and not known & salted
    # Without keys there is no secret to guess, and a new salt restarts no head.
    assert digest(dict(HEAD, api_key_file=""), salt="b25l") == digest(dict(HEAD, api_key_file=""), salt="dHdv")


ARGS = ["--model", "/m/big.gguf", "--alias", "big,b", "--no-mmap", "--reasoning-budget", "-1", "--chat-template-kwargs"]


def test_preset_has_section_per_model_line_per_flag():
    text = preset([{"model": "big", "args": [*ARGS, '{"a": "one; two #3"}']}, {"model": "small", "args": ["--jinja"]}])
    read = configparser.ConfigParser()
    read.read_string(text.replace("version = 1\n", ""))
    assert dict(read["*"]) == {"metrics": "true"}
    assert dict(read["big"]) == {
        "model": "/m/big.gguf",
        "alias": "big,b",
        "no-mmap": "true",
        "reasoning-budget": "-1",
        # Characters that would end a value for llama.cpp.
        "chat-template-kwargs": '{"a": "one\\u003b two \\u00233"}',
    }
    assert dict(read["small"]) == {"jinja": "true"}


LINKS = {"current": "releases/b2", "previous": "releases/b1", "build": "current"}


def node(links=None, releases=("b1", "b2"), taken=(), arguments=(), kept=()):
    build = {
        "links": LINKS if links is None else links,
        "releases": list(releases),
        "taken": list(taken),
        "kept": list(kept),
    }
    return {"build": build, "units": [{"arguments": list(arguments)}]}


def links(release="b2", others=(), **seen):
    return build_links(node(**seen), "/opt/llama.cpp", release, others)


def test_a_node_that_is_as_it_should_be():
    assert links() == {
        "wanted": "releases/b2",
        "current": "releases/b2",
        "strange": [],
        "linked": True,
        "used": ["/opt/llama.cpp/releases/b1", "/opt/llama.cpp/releases/b2"],
        "settled": True,
    }
    assert links(links={"current": "releases/b2", "build": "current"}, releases=["b2"])["settled"]


def test_new_release_becomes_current_old_one_previous():
    found = links("b3", releases=["b1", "b2", "b3"])
    assert not found["settled"] and found["used"] == ["/opt/llama.cpp/releases/b2", "/opt/llama.cpp/releases/b3"]


def test_a_release_that_a_unit_names_stays():
    program = "/opt/llama.cpp/releases/b0/bin/ggml-rpc-server"
    found = links(
        releases=["b0", "b1", "b2"], arguments=["/usr/bin/stdbuf", "-oL", program, "/opt/llama-cpp/releases/b9"]
    )
    assert found["settled"] and found["used"][0] == "/opt/llama.cpp/releases/b0" and len(found["used"]) == 3
    assert not links(releases=["b0", "b1", "b2"])["settled"]


def test_builds_of_services_and_rollback_stay():
    four = ["b0", "b1", "b2", "b3"]
    assert not links(releases=four)["settled"] and not links(releases=four, others=["b3"])["settled"]
    found = links(releases=four, others=["b3"], kept=["b0"])
    assert found["settled"] and len(found["used"]) == 4


@pytest.mark.parametrize(
    "seen, strange",
    [
        ({"links": dict(LINKS, previous="/srv/b1"), "releases": ["b2"]}, ["previous"]),
        ({"links": {"build": "current"}, "taken": ["current"]}, ["current"]),
        ({"links": dict(LINKS, current="releases/b1/bin")}, ["current"]),
        # The path that operators know may be unmanaged.
        ({"links": dict(LINKS, build="/srv/llama")}, []),
    ],
)
def test_unmanaged_links_are_strange(seen, strange):
    found = links(**seen)
    assert found["strange"] == strange and found["settled"] == (not strange)


def test_the_path_that_operators_know():
    bare = {"current": "releases/b2", "previous": "releases/b1"}
    assert not links(links=bare)["linked"] and not links(links=bare)["settled"]
    assert links(links=bare, taken=["build"])["settled"]
