# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The services of an inventory by node."""

import json

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._intent import hosts as intent_hosts
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._intent import models as intent_models
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._intent import services as intent_services
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._intent.ports import ports
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._intent.seeds import rpc_seeds
from ansible_collections.thefermisea.llama_cluster.tests.unit.intents import (
    GROUPS,
    HOSTVARS,
    MODELS,
    SERVICES,
    changed,
    mistakes,
)


def test_directories_that_are_the_systems_are_refused():
    variable = "llama_models_dir"

    def found(path):
        return mistakes(SERVICES, hostvars=dict(HOSTVARS, node1=dict(HOSTVARS["node1"], **{variable: path})))

    for path in (
        "/",
        "models",
        "./models",
        "/opt/../etc",
        "/srv//m",
        "/srv/m/",
        "/srv/a b",
        "/srv/%h",
        "/srv/$HOME",
        "/srv/m\n",
        "",
        ["/srv"],
        7,
    ):
        (sentence,) = found(path)
        assert sentence.startswith(variable + ": ") and " seen for node1, an absolute path of letters" in sentence
    for path in (
        "/etc",
        "/etc/llama",
        "/usr",
        "/usr/bin/llama",
        "/opt",
        "/var",
        "/var/lib",
        "/home",
        "/root",
        "/tmp/x",
        "/var/tmp/x",
        "/dev/shm",
        "/run/x",
    ):
        (sentence,) = found(path)
        assert sentence.startswith("%s: %s, which is the system's, seen for node1, " % (variable, path))
    for path in (
        "/opt/models",
        "/srv/llama",
        "/data/models",
        "/scratch",
        "/usr/local/llama.cpp",
        "/mnt/d-1/m2_x.y",
        None,
    ):
        assert found(path) == []


def family_head(settings=None, model=None, **facts):
    hostvars = dict(HOSTVARS, node1=dict(HOSTVARS["node1"], **facts))
    models = {"big": dict(MODELS["big"], **model or {})}
    (head,) = intent_services.head_instances(changed(**settings or {}), models, "node1", GROUPS, hostvars, "/opt/m")
    return head


def test_head_settings_override_model_settings():
    model = {"reasoning": "off", "temperature": 0.6, "top_k": 20}
    args = " ".join(family_head({"temperature": 1, "cache": "q8_0"}, model).args)
    for words in ("--reasoning off", "--temp 1 ", "--top-k 20", "--cache-type-k q8_0 --cache-type-v q8_0"):
        assert words in args
    assert "0.6" not in args and "--cache " not in args


def test_a_template_is_a_file_beside_the_inventory():
    head = family_head(model={"chat_template": "templates/qwen.jinja"}, inventory_dir="/home/me/inventories/mine")
    assert head.chat_template_file == "/home/me/inventories/mine/templates/qwen.jinja"
    assert "--chat-template-file /etc/llama-cluster/template-reasoning.jinja" in " ".join(head.args)
    assert family_head({"chat_template": "/srv/q"}, inventory_dir="/i").chat_template_file == "/srv/q"
    assert family_head({"chat_template": "chatml"}, inventory_dir="/i").chat_template_file == ""
    assert family_head().chat_template_file == ""


@pytest.mark.parametrize(
    ("settings", "entry", "asks"),
    [
        ({}, {}, False),
        ({}, {"version": "b7772"}, False),
        ({"extra_args": ["--verbose-prompt"]}, {}, True),
        ({}, {"version": "b11434-mine", "source": "/srv/mine.tar.gz"}, True),
        ({}, {"repository": "https://x/y", "commit": "0" * 40}, True),
        ({}, {"repository": "https://x/y", "commit": "0" * 40, "number": 11434}, True),
    ],
)
def test_build_is_asked_where_no_table_knows_it(settings, entry, asks):
    assert family_head(settings, llama_builds={"default": entry}).asks_build is asks


def test_a_head_reads_its_keys_from_a_file():
    hostvars = dict(HOSTVARS, node1=dict(HOSTVARS["node1"], llama_api_keys={"reasoning": ["s3cret"]}))
    (head,) = intent_services.head_instances(SERVICES, MODELS, "node1", GROUPS, hostvars, "/opt/models")
    assert head.api_key_file == "/etc/llama-cluster/keys/reasoning"
    assert "--api-key-file /etc/llama-cluster/keys/reasoning" in " ".join(head.args) and "s3cret" not in str(head)
    (head,) = intent_services.head_instances(SERVICES, MODELS, "node1", GROUPS, HOSTVARS, "/opt/models")
    assert head.api_key_file == "" and "--api-key-file" not in head.args


def test_rpc_admits_only_own_head():
    assert intent_services.node_rpc(SERVICES, "node1", GROUPS, HOSTVARS)["access"] == {
        "incoming": [],
        "outgoing": ["10.100.0.32:50052", "10.100.0.33:50052"],
    }
    assert intent_services.node_rpc(SERVICES, "node3", GROUPS, HOSTVARS)["access"] == {
        "incoming": ["10.100.0.31:50052"],
        "outgoing": [],
    }
    both = dict(SERVICES, second=dict(SERVICES["reasoning"], head="node2", workers="node1", port=8001, rpc_port=50053))
    assert intent_services.node_rpc(both, "node2", GROUPS, HOSTVARS)["access"] == {
        "incoming": ["10.100.0.31:50052"],
        "outgoing": ["%s:50053" % HOSTVARS["node1"]["llama_fabric_address"]],
    }


@pytest.mark.parametrize(
    "pattern, hosts",
    [
        ("node2", ["node2"]),
        ("llama_rpc", ["node2", "node3"]),
        ("node3:llama_head", ["node3", "node1"]),
        ("llama_nodes:!llama_head", ["node2", "node3"]),
        ("llama_nodes,&llama_rpc", ["node2", "node3"]),
        ("", []),
    ],
)
def test_patterns(pattern, hosts):
    assert intent_hosts.expand(pattern, GROUPS) == hosts


def test_a_head_is_last_in_the_split():
    plan = {
        "rendered": {"reasoning": {"layers": {"node2": 27, "node3": 27, "node1": 26}, "tensor_split": [27, 27, 27]}}
    }
    (head,) = intent_services.head_instances(SERVICES, MODELS, "node1", GROUPS, HOSTVARS, "/opt/models", plan)
    assert head.rpc_endpoints == ["10.100.0.32:50052", "10.100.0.33:50052"]
    assert head.layers == {"node2": 27, "node3": 27, "node1": 26}
    assert head.tensor_split == [27, 27, 27]
    assert head.endpoint == "http://10.0.0.31:8000/v1"
    assert head.model_path == "/opt/models/Big.Q8_0.gguf"
    assert head.aliases == ["big", "Big"]
    arguments = " ".join(head.args)
    assert (
        "--rpc 10.100.0.32:50052,10.100.0.33:50052 --split-mode layer --n-gpu-layers 999 --fit off "
        "--tensor-split 27,27,27" in arguments
    )
    assert arguments.count("--n-gpu-layers") == 1
    assert "--ctx-size 4096 --parallel 1 --threads 40" in arguments


def test_shares_without_plan_have_layers_of_inventory():
    (head,) = intent_services.head_instances(SERVICES, MODELS, "node1", GROUPS, HOSTVARS, "/opt/models")
    assert [share.layers for share in head.shares] == [27, 27]
    (head,) = intent_services.head_instances(
        changed(tensor_split="auto"), MODELS, "node1", GROUPS, HOSTVARS, "/opt/models"
    )
    assert [share.layers for share in head.shares] == [None, None]


def test_what_a_node_serves():
    plan = {"rendered": {"reasoning": {"layers": {"node2": 40, "node3": 40, "node1": 0}, "tensor_split": [40, 41]}}}
    for host in GROUPS["all"]:
        heads = intent_services.head_instances(SERVICES, MODELS, host, GROUPS, HOSTVARS, "/m", plan)
        items = intent_models.model_items(SERVICES, MODELS, host, GROUPS, "/m")
        serving = intent_services.node_serving(SERVICES, MODELS, host, GROUPS, HOSTVARS, "/m", plan)
        assert serving == {
            "heads": [head.as_dict() for head in heads],
            "jobs": [],
            "models": [item.as_dict() for item in items],
            "clients": [],
            "units": intent_services.wanted_units(SERVICES, GROUPS),
            "stopped": [],
            "job_units": [],
            "primary": "reasoning",
        }
        assert json.loads(json.dumps(serving)) == serving
        workers = intent_services.rpc_instances(SERVICES, host, GROUPS, HOSTVARS)
        rpc = intent_services.node_rpc(SERVICES, host, GROUPS, HOSTVARS)
        assert rpc["workers"] == [worker.as_dict() for worker in workers]
    without = intent_services.node_serving(changed(primary=False), MODELS, "node1", GROUPS, HOSTVARS, "/m")
    assert without["primary"] == "reasoning", "the only one"
    two = dict(changed(primary=False), other=dict(changed(primary=False)["reasoning"], port=8001, rpc_port=50053))
    assert intent_services.node_serving(two, MODELS, "node1", GROUPS, HOSTVARS, "/m")["primary"] == ""


def test_a_stopped_service_is_configured_like_any_other():
    services = changed(state="stopped")
    serving = intent_services.node_serving(services, MODELS, "node1", GROUPS, HOSTVARS, "/m")
    running = intent_services.node_serving(SERVICES, MODELS, "node1", GROUPS, HOSTVARS, "/m")
    assert serving["stopped"] == ["llama-head.service", "llama-rpc.service"]
    assert serving["units"] == running["units"] and serving["models"] == running["models"]
    (head,), (same,) = serving["heads"], running["heads"]
    assert (head["state"], same["state"]) == ("stopped", "started") and dict(head, state="started") == same
    (worker,) = intent_services.node_rpc(services, "node2", GROUPS, HOSTVARS)["workers"]
    assert worker["state"] == "stopped"
    assert mistakes(services) == []
    (sentence,) = mistakes(changed(state="off"))
    assert sentence.startswith("llama_services.reasoning.state: 'off' seen, one of started, stopped is needed")


def test_units_get_uuids_of_cards():
    plan = {"cards": {"reasoning": {"node1": ["GPU-a"], "node2": ["GPU-b", "GPU-c"]}}}
    services = changed(cards=[0])
    (head,) = intent_services.head_instances(services, MODELS, "node1", GROUPS, HOSTVARS, "/m", plan)
    (worker,) = intent_services.node_rpc(services, "node2", GROUPS, HOSTVARS, plan)["workers"]
    assert (head.cards, worker["cards"]) == (["GPU-a"], ["GPU-b", "GPU-c"])
    # Unknown without a plan of this run.
    (worker,) = intent_services.rpc_instances(services, "node2", GROUPS, HOSTVARS)
    assert worker.cards == [""]
    (head,) = intent_services.head_instances(SERVICES, MODELS, "node1", GROUPS, HOSTVARS, "/m", {"cards": {}})
    assert head.cards is None and "--device" not in head.args
    # A plan that leaves a card of the node out names the others, though the service does not.
    (head,) = intent_services.head_instances(SERVICES, MODELS, "node1", GROUPS, HOSTVARS, "/m", plan)
    assert head.cards == ["GPU-a"] and "--device" not in head.args


def test_a_service_without_cards_computes_in_main_memory():
    services = changed(cards=[], workers=None, rpc_port=None, tensor_split=None)
    (head,) = intent_services.head_instances(services, MODELS, "node1", GROUPS, HOSTVARS, "/m")
    assert head.cards == [] and "--device none --n-gpu-layers" in " ".join(head.args)


def test_default_port_follows_from_name():
    names = ("qwen36", "gemma", "devstral", "minimax", "glm", "embed")
    found = ports({name: {} for name in names})
    # Known to clients: a change here moves every endpoint with a default port.
    assert found == {"qwen36": 18962, "gemma": 18182, "devstral": 18121, "minimax": 18527, "glm": 18753, "embed": 18411}
    for name in names:
        fewer = ports({other: {} for other in reversed(names) if other != name})
        assert fewer == {other: port for other, port in found.items() if other != name}


def test_default_port_is_free_in_inventory():
    (free,) = ports({"embed": {}}).values()
    services = {"embed": {}, "chat": {"port": free}, "split": {"port": 8000, "rpc_port": free + 1}}
    assert ports(services) == {"embed": free + 2, "chat": free, "split": 8000}


def test_a_service_without_a_port_has_one_everywhere():
    services = changed(port=None)
    (head,) = intent_services.head_instances(services, MODELS, "node1", GROUPS, HOSTVARS, "/m")
    (worker,) = intent_services.rpc_instances(services, "node2", GROUPS, HOSTVARS)
    assert head.port == ports(services)["reasoning"]
    assert head.args[head.args.index("--port") + 1] == str(head.port)
    assert worker.head_url == head.url == "http://10.0.0.31:%d" % head.port
    assert mistakes(services) == []


def test_only_the_plan_sets_tensor_split():
    """Layers per node say nothing of cards."""
    services = changed(tensor_split={"node2": 40, "node3": 40})
    (head,) = intent_services.head_instances(services, MODELS, "node1", GROUPS, HOSTVARS, "/opt/models")
    assert (head.layers, head.tensor_split) == ({"node2": 40, "node3": 40}, None)
    assert "--tensor-split" not in head.args
    assert intent_services.head_instances(services, MODELS, "node2", GROUPS, HOSTVARS, "/opt/models") == []


def test_worker_lets_its_head_in_over_fabric():
    (worker,) = intent_services.rpc_instances(SERVICES, "node3", GROUPS, HOSTVARS)
    assert (worker.address, worker.head_address) == ("10.100.0.33", "10.100.0.31")
    assert worker.args == ["--host", "10.100.0.33", "--port", "50052", "--threads", "40"]
    assert intent_services.rpc_instances(SERVICES, "node1", GROUPS, HOSTVARS) == []


def test_worker_with_a_tensor_cache():
    (worker,) = intent_services.rpc_instances(changed(rpc_cache=True), "node3", GROUPS, HOSTVARS)
    assert worker.cache is True
    assert worker.args[-1] == "--cache"


def test_head_and_workers_run_build_of_their_service():
    builds = {"turbo": {"version": "b7772", "rdma": True}}
    hostvars = {host: dict(facts, llama_builds=builds) for host, facts in HOSTVARS.items()}
    (head,) = intent_services.head_instances(changed(build="turbo"), MODELS, "node1", GROUPS, hostvars, "/opt/m")
    (worker,) = intent_services.rpc_instances(changed(build="turbo"), "node3", GROUPS, hostvars)
    assert head.build == worker.build and head.build.startswith("b7772-cpu-")
    assert (head.accelerator, head.rdma, worker.rdma) == ("cpu", True, True)
    assert "--log-verbosity 3" in " ".join(head.args)
    (plain,) = intent_services.rpc_instances(SERVICES, "node3", GROUPS, hostvars)
    assert plain.build.startswith("b11434-cpu-") and not plain.rdma


def test_a_model_lives_where_its_head_runs():
    (item,) = intent_models.model_items(SERVICES, MODELS, "node1", GROUPS, "/opt/models")
    assert item.dest == "/opt/models/Big.Q8_0.gguf"
    assert item.repo == "someone/Big-GGUF"
    assert item.files == ["Big.Q8_0.gguf.part1of2", "Big.Q8_0.gguf.part2of2"]
    assert intent_models.model_items(SERVICES, MODELS, "node2", GROUPS, "/opt/models") == []


def fan_out(items, addresses, host):
    """The sources of a host's items, if all nodes hold the same ones under different paths."""
    nodes = [
        {"host": name, "address": address, "items": [dict(item, dest="/%s/m.gguf" % name) for item in items]}
        for name, address in addresses.items()
    ]
    return [(item["source"], item["original"], item["address"]) for item in intent_models.model_fan_out(nodes, host)]


def test_first_node_fetches_and_others_copy():
    items = [{"urls": ["https://hub/m.gguf"], "sha256": ["a"]}]
    addresses = {"node1": "", "node2": "10.100.0.32", "node3": "10.100.0.33", "node4": "10.100.0.34"}
    assert fan_out(items, addresses, "node1") == [("", "/node1/m.gguf", "")]
    assert fan_out(items, addresses, "node2") == [("", "/node2/m.gguf", "10.100.0.32")]
    assert fan_out(items, addresses, "node3") == [("node2", "/node2/m.gguf", "10.100.0.33")]
    assert fan_out(items, addresses, "node4") == [("node2", "/node2/m.gguf", "10.100.0.34")]


def test_node_that_has_the_model_lends_it():
    """The others copy it, even the first one, whose own file is damaged or missing."""
    item = {"urls": ["https://hub/m.gguf"], "dest": "/m.gguf"}
    nodes = [{"host": "node%d" % n, "address": "10.0.0.%d" % n, "items": [item], "there": []} for n in (1, 2, 3)]
    nodes[1]["there"] = ["/m.gguf"]
    assert [intent_models.model_fan_out(nodes, "node%d" % n)[0]["source"] for n in (1, 2, 3)] == ["node2", "", "node2"]
    nodes[1]["address"] = ""
    assert [intent_models.model_fan_out(nodes, "node%d" % n)[0]["source"] for n in (1, 2, 3)] == ["", "", "node1"]


def test_only_node_with_model_fetches_it():
    item, other = (
        {"repo": "a/m", "files": ["m.gguf"], "dest": "/m.gguf"},
        {"repo": "a/m", "files": ["n.gguf"], "dest": "/n.gguf"},
    )
    nodes = [
        {"host": "node1", "address": "10.0.0.1", "items": [item]},
        {"host": "node2", "address": "10.0.0.2", "items": [other]},
    ]
    assert [item["source"] for item in intent_models.model_fan_out(nodes, "node2")] == [""]
    assert [item["source"] for item in intent_models.model_fan_out(nodes[1:], "node2")] == [""]
    nodes.insert(
        0, {"host": "node0", "address": "10.0.0.9", "items": [dict(other, revision="main", sha256=[], urls=[])]}
    )
    assert [item["source"] for item in intent_models.model_fan_out(nodes, "node2")] == ["node0"]


@pytest.mark.parametrize(
    ("url", "source"), [("file:///mnt/m.gguf", ""), ("/mnt/m.gguf", ""), ("http://hub/m.gguf", "node1")]
)
def test_local_files_are_not_copied(url, source):
    assert fan_out([{"urls": [url]}], {"node1": "10.0.0.1", "node2": "10.0.0.2"}, "node2")[0][0] == source


def test_published_names():
    assert intent_models.model_file(MODELS["big"], "Q4_K_M") == "Big.Q4_K_M.gguf"
    assert intent_models.model_file({"quants": {"Q": {"urls": ["file:///x/y.gguf.part00"]}}}, "Q") == "y.gguf"
    assert (
        intent_models.model_file({"quants": {"Q": {"urls": ["file:///x/y.gguf"], "file": "z.gguf"}}}, "Q") == "z.gguf"
    )


def replicas(host, plan=None, **settings):
    services = changed(head="llama_rpc", workers=None, rpc_port=None, tensor_split=None, **settings)
    return intent_services.head_instances(services, MODELS, host, GROUPS, HOSTVARS, "/opt/models", plan)


def test_replicas_share_one_name():
    (one,), (two,) = replicas("node2"), replicas("node3")
    assert replicas("node1") == []
    assert (one.node, one.endpoint) == ("node2", "http://10.0.0.32:8000/v1")
    assert (two.node, two.endpoint) == ("node3", "http://10.0.0.33:8000/v1")
    assert one.unit == two.unit == "llama-head.service"
    assert [word for word in one.args if word not in two.args] == ["10.0.0.32"]


def test_replica_uses_plan_of_its_node():
    parts = [
        {"node": name, "layers": {name: 80}, "tensor_split": split}
        for name, split in (("node2", []), ("node3", [40, 41]))
    ]
    plan = {"services": {"reasoning": parts}, "cards": {"reasoning": {"node3": ["GPU-3"]}}}
    (one,), (two,) = replicas("node2", plan, cards=1), replicas("node3", plan, cards=1)
    assert "--tensor-split" not in one.args and two.args[two.args.index("--tensor-split") + 1] == "40,41"
    assert (one.cards, two.cards) == ([""], ["GPU-3"])
    assert (one.layers, two.layers) == ({"node2": 80}, {"node3": 80})


def test_replica_nodes_have_unit_and_model():
    services = changed(head="llama_rpc", workers=None, rpc_port=None, tensor_split=None, state="stopped")
    found = intent_services.node_serving(services, MODELS, "node3", GROUPS, HOSTVARS, "/opt/models")
    assert found["units"] == {name: ["llama-head.service"] for name in ("node2", "node3")}
    assert "llama-head.service" in found["stopped"] and len(found["models"]) == 1
    rpc = intent_services.node_rpc(services, "node3", GROUPS, HOSTVARS)
    assert rpc == {"workers": [], "jobs": [], "access": {"incoming": [], "outgoing": []}}


def test_a_router_has_the_models_of_its_node():
    big = {"quant": "Q4_K_M", "parallel": 2, "cache": "q8_0", "temperature": 0.5}
    service = {"kind": "router", "head": "node3", "models": {"big": big}, "port": 8080, "slot_ctx_size": 2048}
    service.update(cache_type_k="f16", cache_type_v="f16", timeout=2700)
    part = {"node": "node3", "model": "big", "models_max": 1, "layers": {"node3": 80}, "tensor_split": [41, 40]}
    plan = {"services": {"fast": [part]}}

    def made(plan, **changes):
        services = {"fast": dict(service, **changes)}
        (router,) = intent_services.head_instances(services, MODELS, "node3", GROUPS, HOSTVARS, "/m", plan)
        return router

    router = made(plan)
    assert (router.kind, router.unit, router.models_max) == ("router", "llama-router-fast.service", 1)
    assert router.args[:5] == ["--models-preset", "/etc/llama-cluster/preset-fast.ini", "--models-max", "1", "--host"]
    assert router.args[router.args.index("--timeout") + 1] == "2700"
    (one,) = router.models
    words = dict(zip(one.args, one.args[1:], strict=False))
    assert (words["--ctx-size"], words["--parallel"], words["--tensor-split"]) == ("4096", "2", "41,40")
    assert (words["--cache-type-k"], words["--temp"]) == ("q8_0", "0.5")
    assert "--host" not in one.args and "--timeout" not in one.args
    assert router.as_dict()["model_paths"] == [one.model_path] == ["/m/Big.Q4_K_M.gguf"]
    assert made({}).models_max is None and made({}, models_max=2).models_max == 2


def seeds(**settings):
    found = rpc_seeds(changed(**settings), MODELS, GROUPS, HOSTVARS, "/opt/models")
    return {one["node"]: (*one["layers"], one["output"]) for one in found}


@pytest.mark.parametrize(
    "split, expected",
    [
        ({"node2": 27, "node3": 53}, {"node2": (0, 27, False), "node3": (27, 80, True)}),
        ({"node1": 26, "node2": 27, "node3": 27}, {"node2": (0, 27, False), "node3": (27, 54, False)}),
        ({"node2": 80, "node3": 0}, {"node2": (0, 80, True), "node3": (80, 80, False)}),
        ("auto", {}),
    ],
    ids=["workers only", "head too", "one worker", "no plan"],
)
def test_workers_are_seeded_with_their_layers(split, expected):
    assert seeds(rpc_cache="seeded", tensor_split=split) == expected


def test_other_caches_are_not_seeded():
    assert seeds() == seeds(rpc_cache=True) == {}


def test_seed_names_model_and_build():
    one = rpc_seeds(changed(rpc_cache="seeded"), MODELS, GROUPS, HOSTVARS, "/opt/models")[0]
    assert (one["service"], one["head"], one["model_path"]) == ("reasoning", "node1", "/opt/models/Big.Q8_0.gguf")
    assert one["program"].startswith("/opt/llama.cpp/releases/b11434-cpu-")
    assert one["program"].endswith("/bin/ggml-rpc-server")


@pytest.mark.parametrize("value", ["true", "seed", 1, []])
def test_other_values_are_refused(value):
    (found,) = mistakes(changed(rpc_cache=value))
    assert " seen, true, false or seeded is needed: " in found
    assert mistakes(changed(rpc_cache="seeded")) == []
