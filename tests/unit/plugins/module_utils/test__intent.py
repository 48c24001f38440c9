import copy
from pathlib import Path

import pytest
import yaml
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils import _intent, _intent_check

ROOT = Path(__file__).resolve().parents[4]

GROUPS = {
    "all": ["node1", "node2", "node3", "ctl"],
    "llama_nodes": ["node1", "node2", "node3"],
    "llama_head": ["node1"],
    "llama_rpc": ["node2", "node3"],
}
HOSTVARS = {
    "node1": {"ansible_host": "10.0.0.31", "llama_fabric_address": "10.100.0.31"},
    "node2": {"ansible_host": "10.0.0.32", "llama_fabric_address": "10.100.0.32"},
    "node3": {"ansible_host": "10.0.0.33", "llama_fabric_address": "10.100.0.33"},
    "ctl": {},
}
MODELS = {
    "big": {
        "repo": "someone/Big-GGUF",
        "aliases": ["Big"],
        "quants": {
            "Q8_0": {"files": ["Big.Q8_0.gguf.part1of2", "Big.Q8_0.gguf.part2of2"]},
            "Q4_K_M": {"urls": ["https://files.example/Big.Q4_K_M.gguf?x=1"]},
        },
    }
}
SERVICES = {
    "reasoning": {
        "primary": True,
        "model": "big",
        "quant": "Q8_0",
        "head": "llama_head",
        "workers": "llama_rpc",
        "port": 8000,
        "rpc_port": 50052,
        "ctx_size": 4096,
        "parallel": 1,
        "threads": 40,
        "tensor_split": {"node1": 26, "node2": 27, "node3": 27},
        "launcher": "systemd",
    }
}


def mistakes(services=None, models=None, groups=None, hostvars=None):
    return _intent_check.errors(services or SERVICES, models or MODELS, groups or GROUPS, hostvars or HOSTVARS)


def changed(**settings):
    services = copy.deepcopy(SERVICES)
    for key, value in settings.items():
        if value is None:
            del services["reasoning"][key]
        else:
            services["reasoning"][key] = value
    return services


def test_a_sound_inventory_has_no_mistake():
    assert mistakes() == []


@pytest.mark.parametrize(
    "settings, sentence",
    [
        ({"prot": 1}, "llama_services.reasoning.prot: unknown key, did you mean port?"),
        ({"zzz": 1}, "llama_services.reasoning.zzz: unknown key; known keys: batch_size, "),
        ({"kind": "scattered"}, "llama_services.reasoning.kind: 'scattered' seen, server or router is needed: drop the key"),
        ({"port": None}, "llama_services.reasoning.port: missing, the HTTP port of the endpoint is needed: add it"),
        ({"port": "8000"}, "llama_services.reasoning.port: '8000' seen, a whole number is needed"),
        ({"port": 70000}, "llama_services.reasoning.port: 70000 seen, 1 to 65535 is needed"),
        ({"parallel": 0}, "llama_services.reasoning.parallel: 0 seen, 1 to 256 is needed"),
        ({"parallel": True}, "llama_services.reasoning.parallel: True seen, a whole number is needed"),
        ({"launcher": "cron"}, "llama_services.reasoning.launcher: 'cron' seen, one of systemd, slurm is needed"),
        ({"model": "bigg"}, "llama_services.reasoning.model: bigg is not in llama_models, did you mean big?"),
        ({"quant": "Q2_K"}, "llama_services.reasoning.quant: big has no Q2_K, one of Q4_K_M, Q8_0 is needed"),
        ({"head": "node9"}, "llama_services.reasoning.head: node9 is neither a host nor a group of this inventory, did you mean node"),
        ({"head": "llama_rpc", "workers": "node1"}, "llama_services.reasoning.head: llama_rpc matches node2, node3, exactly one host is needed"),
        ({"head": "ctl"}, "llama_services.reasoning.head: ctl is not in group llama_nodes, every head and worker is needed there"),
        (
            {"workers": "llama_nodes"},
            "llama_services.reasoning.workers: node1 is its head too, a head uses its own card without RPC: take it out of the group, or exclude it as in ",
        ),
        ({"workers": "llama_rpc:!node2:!node3"}, "llama_services.reasoning.workers: llama_rpc:!node2:!node3 matches no host, at least one is needed"),
        ({"rpc_port": None}, "llama_services.reasoning.rpc_port: missing, a port for its RPC workers is needed"),
        ({"rpc_port": 8000, "workers": "node2", "tensor_split": "auto", "head": "node1"}, None),
        ({"tensor_split": {"node1": 26, "node2": 27}}, "llama_services.reasoning.tensor_split: worker node3 is missing, its number of layers is needed"),
        (
            {"tensor_split": {"node4": 1, "node2": 1, "node3": 1}},
            "llama_services.reasoning.tensor_split: node4 is no node of this service, one of node2, node3, node1 is needed, did you mean node",
        ),
        ({"tensor_split": {"node2": 1.5, "node3": 1}}, "llama_services.reasoning.tensor_split.node2: 1.5 seen, a whole number of layers is needed"),
        ({"cache_type_k": "q8_0"}, "llama_services.reasoning.cache_type_v: f16 seen with cache_type_k q8_0, the same type for both is needed"),
        (
            {"cache_type_k": "q4_0", "cache_type_v": "q4_0", "flash_attn": "off"},
            "llama_services.reasoning.flash_attn: off seen with cache_type_v q4_0, on or auto is needed",
        ),
        ({"rpc_cache": "80G"}, None),
        ({"rpc_cache": "80 GB"}, "llama_services.reasoning.rpc_cache: '80 GB' seen, a size such as 80G is needed: write digits and one of M, G, T"),
    ],
)
def test_each_mistake_is_one_sentence(settings, sentence):
    found = mistakes(changed(**settings))
    if sentence is None:
        assert found == []
    else:
        assert len(found) == 1
        assert found[0].startswith(sentence)
        assert "\n" not in found[0]


def test_two_services_cannot_share_a_port():
    services = dict(SERVICES, second=dict(SERVICES["reasoning"], primary=False, port=8001))
    assert mistakes(services) == [
        "llama_services.second.rpc_port: 50052 on node2 is taken by llama_services.reasoning.rpc_port, a port of its own is needed: choose another",
        "llama_services.second.rpc_port: 50052 on node3 is taken by llama_services.reasoning.rpc_port, a port of its own is needed: choose another",
    ]


ROUTER = {"kind": "router", "host": "node3", "models": {"big": "Q4_K_M"}, "models_max": 1, "port": 8080}


def test_a_router_serves_several_models_from_one_host():
    assert mistakes(dict(SERVICES, fast=ROUTER)) == []
    assert mistakes(dict(SERVICES, fast=dict(ROUTER, host="nowhere", models={"big": "Q2_K"}))) == [
        "llama_services.fast.models.big: big has no Q2_K, one of Q4_K_M, Q8_0 is needed, did you mean Q4_K_M?",
        "llama_services.fast.host: nowhere is neither a host nor a group of this inventory: correct the name, or add it to hosts.yml",
    ]
    assert [item["dest"] for item in _intent.model_items({"fast": ROUTER}, MODELS, "node3", GROUPS, "/m")] == ["/m/Big.Q4_K_M.gguf"]


@pytest.mark.parametrize("variable", ["llama_models_dir", "llama_cpp_prefix", "rpc_worker_cache_dir"])
def test_directories_that_are_the_systems_are_refused(variable):
    def found(path):
        return mistakes(SERVICES, hostvars=dict(HOSTVARS, node1=dict(HOSTVARS["node1"], **{variable: path})))

    for path in ("/", "models", "./models", "/opt/../etc", "/srv//m", "/srv/m/", "/srv/a b", "/srv/%h", "/srv/$HOME", "/srv/m\n", "", ["/srv"], 7):
        (sentence,) = found(path)
        assert sentence.startswith(variable + ": ") and " seen for node1, an absolute path of letters" in sentence
    for path in ("/etc", "/etc/llama", "/usr", "/usr/bin/llama", "/opt", "/var", "/var/lib", "/home", "/root", "/tmp/x", "/var/tmp/x", "/dev/shm", "/run/x"):
        (sentence,) = found(path)
        assert sentence.startswith("%s: %s, which is the system's, seen for node1, " % (variable, path))
    for path in ("/opt/models", "/srv/llama", "/var/lib/llama-cluster/rpc-cache", "/home/models", "/scratch", "/usr/local/llama.cpp", "/mnt/d-1/m2_x.y", None):
        assert found(path) == []


def test_slurm_keys_mean_nothing_to_systemd():
    assert mistakes(changed(partition="gpu")) == [
        "llama_services.reasoning.partition: seen with launcher systemd, launcher slurm is needed for it: drop the key or change the launcher"
    ]
    assert mistakes(changed(partition="gpu", launcher="slurm")) == []


def test_what_is_for_workers_alone_needs_some():
    keys = {"rpc_cache": "80G", "rpc_memory_max": "9G", "tensor_split": "auto", "workers": None}
    assert mistakes(changed(**keys)) == [
        "llama_services.reasoning.%s: seen without workers, it is for them alone: drop the key" % key for key in ("rpc_port", "rpc_cache", "rpc_memory_max")
    ]
    assert mistakes(changed(workers=None, rpc_port=None, tensor_split="auto")) == []


@pytest.mark.parametrize("scaling, wrong", [({"rope_scaling": "yarn"}, 0), ({"rope_scaling": "linear"}, 1), ({}, 1)])
def test_a_key_of_yarn_needs_yarn(scaling, wrong):
    assert len(mistakes(changed(yarn_orig_ctx=32768, **scaling))) == wrong


def test_what_this_version_cannot_deploy_is_refused_by_name():
    assert _intent_check.undeployable(SERVICES) == []
    assert _intent_check.undeployable(dict(changed(launcher="slurm"), fast=ROUTER)) == [
        "llama_services.reasoning.launcher: slurm seen, systemd is needed: this version deploys no other launcher",
        "llama_services.fast.kind: router seen, server is needed: this version deploys no other kind",
    ]
    assert _intent.rpc_instances(changed(launcher="slurm"), "node2", GROUPS, HOSTVARS) == []
    assert _intent.head_instances(changed(launcher="slurm"), MODELS, "node1", GROUPS, HOSTVARS, "/m") == []


def test_the_key_of_the_example_inventory_is_planned_and_not_deployed():
    keys = yaml.safe_load((ROOT / "inventories/example/group_vars/all/vault.yml").read_text())["vault_llama_api_keys"]
    needed = "put-a-key-of-your-own-here seen, a key of your own is needed: print one with `openssl rand -hex 32` and write it in group_vars/all/vault.yml"
    assert _intent_check.undeployable({}, keys) == ["llama_api_keys.%s: %s" % (name, needed) for name in ("chat", "quick")]
    assert _intent_check.undeployable({}, {"chat": ["k3y"]}) == []
    services = {"chat": SERVICES["reasoning"]}
    assert _intent_check.errors(services, MODELS, GROUPS, HOSTVARS, {}, {"chat": keys["chat"]}) == []


def test_routes_lead_to_what_is_served():
    def found(routes):
        return _intent_check.errors(SERVICES, MODELS, GROUPS, HOSTVARS, routes)

    assert found({"default": "reasoning", "tasks": {"fix": "Big", "complete": "big"}}) == []
    assert found({"default": "bigg", "taks": {}}) == [
        "llama_routes.taks: unknown key; known keys: default, tasks",
        "llama_routes.default: bigg is served by no service, one of Big, big, reasoning is needed, did you mean big?",
    ]
    assert found({"default": None, "tasks": {"fix": ["big"]}}) == [
        "llama_routes.default: nothing seen, a string is needed: give one or remove the key",
        "llama_routes.tasks.fix: a list of 1 seen, a string is needed: correct it",
    ]


@pytest.mark.parametrize("key", ["s3cret key", "s3cret\n", "#s3cret", "", 7, None, ["s3cret"]])
def test_a_key_that_no_file_and_no_header_keeps_is_refused_and_not_shown(key):
    (sentence,) = _intent_check.errors(SERVICES, MODELS, GROUPS, HOSTVARS, None, {"reasoning": ["fine", key]})
    assert sentence.startswith("llama_api_keys.reasoning: key 2 is no plain text") and "s3cret" not in sentence
    assert _intent_check.errors(SERVICES, MODELS, GROUPS, HOSTVARS, None, {"reasoning": ["fine", "sk-+/=_.~!"]}) == []


def test_a_head_reads_its_keys_from_a_file():
    hostvars = dict(HOSTVARS, node1=dict(HOSTVARS["node1"], llama_api_keys={"reasoning": ["s3cret"]}))
    (head,) = _intent.head_instances(SERVICES, MODELS, "node1", GROUPS, hostvars, "/opt/models")
    assert head["api_key_file"] == "/etc/llama-cluster/keys/reasoning"
    assert "--api-key-file /etc/llama-cluster/keys/reasoning" in " ".join(head["args"]) and "s3cret" not in str(head)
    (head,) = _intent.head_instances(SERVICES, MODELS, "node1", GROUPS, HOSTVARS, "/opt/models")
    assert head["api_key_file"] == "" and "--api-key-file" not in head["args"]


def test_rpc_is_for_the_service_of_the_head_alone():
    assert _intent.rpc_access(SERVICES, "node1", GROUPS, HOSTVARS) == {"incoming": [], "outgoing": ["10.100.0.32:50052", "10.100.0.33:50052"]}
    assert _intent.rpc_access(SERVICES, "node3", GROUPS, HOSTVARS) == {"incoming": ["10.100.0.31:50052"], "outgoing": []}
    both = dict(SERVICES, second=dict(SERVICES["reasoning"], head="node2", workers="node1", port=8001, rpc_port=50053))
    assert _intent.rpc_access(both, "node2", GROUPS, HOSTVARS) == {
        "incoming": ["10.100.0.31:50052"],
        "outgoing": ["%s:50053" % HOSTVARS["node1"]["llama_fabric_address"]],
    }


def test_one_primary_at_most():
    services = dict(SERVICES, second=dict(SERVICES["reasoning"], port=8001, rpc_port=50053))
    assert mistakes(services) == [
        "llama_services.second.primary: true seen for reasoning too, one service alone may answer to llama-rpc and llama-head, false is needed: remove the key"
    ]


def test_a_service_name_becomes_a_unit_name():
    (sentence,) = mistakes({"Deep Thought": SERVICES["reasoning"]})
    assert sentence.startswith("llama_services.Deep Thought: the name becomes part of unit names")


def test_a_worker_needs_a_fabric_address():
    (sentence,) = mistakes(hostvars=dict(HOSTVARS, node3={"ansible_host": "10.0.0.33"}))
    assert sentence.startswith("llama_services.reasoning.workers: node3 has no llama_fabric_address")


@pytest.mark.parametrize(
    "spec, sentence",
    [
        ({}, "llama_models.big.quants.Q8_0: neither seen, either files (of repo) or urls is needed: add one"),
        ({"files": ["a"], "urls": ["file:///b"]}, "llama_models.big.quants.Q8_0: both seen, either files (of repo) or urls is needed: drop one"),
        (
            {"urls": ["/a", "/b"], "sha256": ["0" * 64]},
            "llama_models.big.quants.Q8_0.sha256: 1 seen, one for each of its 2 files is needed: add or remove digests",
        ),
        ({"urls": ["a"], "sah256": ["0"]}, "llama_models.big.quants.Q8_0.sah256: unknown key, did you mean sha256?"),
    ],
)
def test_models_are_checked_too(spec, sentence):
    found = mistakes(models={"big": dict(MODELS["big"], quants={"Q8_0": spec})})
    assert found == [sentence]


def test_no_nodes_and_no_services():
    assert mistakes(groups={"all": []}, services={})[0].startswith("group llama_nodes: no host in it")
    hostvars = dict(HOSTVARS, node1=dict(HOSTVARS["node1"], inventory_dir="/srv/mine"))
    assert _intent_check.errors({}, {}, GROUPS, hostvars) == [
        "llama_services: nothing seen, at least one service is needed: write it in /srv/mine/group_vars/all/services.yml, "
        "since group_vars/services.yml would be for a group services",
        "llama_models: nothing seen, at least one model is needed: write it in /srv/mine/group_vars/all/models.yml",
    ]


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
    assert _intent.expand(pattern, GROUPS) == hosts


def test_a_head_is_last_in_the_split():
    plan = {"rendered": {"reasoning": {"layers": {"node2": 27, "node3": 27, "node1": 26}, "tensor_split": [27, 27, 27]}}}
    hostvars = dict(HOSTVARS, node1=dict(HOSTVARS["node1"], preflight_plan=plan))
    (head,) = _intent.head_instances(SERVICES, MODELS, "node1", GROUPS, hostvars, "/opt/models")
    assert head["rpc_endpoints"] == ["10.100.0.32:50052", "10.100.0.33:50052"]
    assert head["layers"] == {"node2": 27, "node3": 27, "node1": 26}
    assert head["tensor_split"] == [27, 27, 27]
    assert head["endpoint"] == "http://10.0.0.31:8000/v1"
    assert head["model_path"] == "/opt/models/Big.Q8_0.gguf"
    assert head["aliases"] == ["big", "Big"]
    arguments = " ".join(head["args"])
    assert "--rpc 10.100.0.32:50052,10.100.0.33:50052 --split-mode layer --cache-ram 0 --n-gpu-layers 999 --fit off --tensor-split 27,27,27" in arguments
    assert arguments.count("--n-gpu-layers") == 1
    assert "--ctx-size 4096 --parallel 1 --threads 40" in arguments


def test_nobody_but_the_plan_renders_a_split():
    """Layers per node say nothing of cards."""
    services = changed(tensor_split={"node2": 40, "node3": 40})
    (head,) = _intent.head_instances(services, MODELS, "node1", GROUPS, HOSTVARS, "/opt/models")
    assert (head["layers"], head["tensor_split"]) == ({"node2": 40, "node3": 40}, None)
    assert "--tensor-split" not in head["args"]
    assert _intent.head_instances(services, MODELS, "node2", GROUPS, HOSTVARS, "/opt/models") == []


def test_a_worker_lets_its_head_in_over_the_fabric():
    (worker,) = _intent.rpc_instances(SERVICES, "node3", GROUPS, HOSTVARS)
    assert (worker["address"], worker["head_address"]) == ("10.100.0.33", "10.100.0.31")
    assert worker["args"] == ["--host", "10.100.0.33", "--port", "50052", "--threads", "40"]
    assert _intent.rpc_instances(SERVICES, "node1", GROUPS, HOSTVARS) == []


def test_a_worker_with_a_quota_keeps_tensors():
    (worker,) = _intent.rpc_instances(changed(rpc_cache="80G"), "node3", GROUPS, HOSTVARS)
    assert worker["cache"] == "80G"
    assert worker["args"][-1] == "--cache"


def test_a_tensor_cache_needs_a_build_that_was_measured_on_every_worker():
    hostvars = dict(HOSTVARS, node3=dict(HOSTVARS["node3"], llama_cpp_version="b7772"))
    (mistake,) = mistakes(changed(rpc_cache="80G"), hostvars=hostvars)
    assert mistake.startswith("llama_services.reasoning.rpc_cache: seen with llama_cpp_version b7772 of node3, b11434 or newer is needed")
    assert mistakes(SERVICES, hostvars=hostvars) == []


def test_a_model_lives_where_its_head_runs():
    (item,) = _intent.model_items(SERVICES, MODELS, "node1", GROUPS, "/opt/models")
    assert item["dest"] == "/opt/models/Big.Q8_0.gguf"
    assert item["repo"] == "someone/Big-GGUF"
    assert item["files"] == ["Big.Q8_0.gguf.part1of2", "Big.Q8_0.gguf.part2of2"]
    assert _intent.model_items(SERVICES, MODELS, "node2", GROUPS, "/opt/models") == []


def fan_out(items, addresses, host):
    """Where ``host`` gets its items from, all nodes holding the same ones under a path of their own."""
    nodes = [{"host": name, "address": address, "items": [dict(item, dest="/%s/m.gguf" % name) for item in items]} for name, address in addresses.items()]
    return [(item["source"], item["original"], item["address"]) for item in _intent.fan_out(nodes, host)]


def test_the_first_node_with_a_fabric_address_fetches_and_the_others_copy():
    items = [{"urls": ["https://hub/m.gguf"], "sha256": ["a"]}]
    addresses = {"node1": "", "node2": "10.100.0.32", "node3": "10.100.0.33", "node4": "10.100.0.34"}
    assert fan_out(items, addresses, "node1") == [("", "/node1/m.gguf", "")]
    assert fan_out(items, addresses, "node2") == [("", "/node2/m.gguf", "10.100.0.32")]
    assert fan_out(items, addresses, "node3") == [("node2", "/node2/m.gguf", "10.100.0.33")]
    assert fan_out(items, addresses, "node4") == [("node2", "/node2/m.gguf", "10.100.0.34")]


def test_a_node_that_is_alone_with_a_model_fetches_it():
    item, other = {"repo": "a/m", "files": ["m.gguf"], "dest": "/m.gguf"}, {"repo": "a/m", "files": ["n.gguf"], "dest": "/n.gguf"}
    nodes = [{"host": "node1", "address": "10.0.0.1", "items": [item]}, {"host": "node2", "address": "10.0.0.2", "items": [other]}]
    assert [item["source"] for item in _intent.fan_out(nodes, "node2")] == [""]
    assert [item["source"] for item in _intent.fan_out(nodes[1:], "node2")] == [""]
    nodes.insert(0, {"host": "node0", "address": "10.0.0.9", "items": [dict(other, revision="main", sha256=[], urls=[])]})
    assert [item["source"] for item in _intent.fan_out(nodes, "node2")] == ["node0"]


@pytest.mark.parametrize(("url", "source"), [("file:///mnt/m.gguf", ""), ("/mnt/m.gguf", ""), ("http://hub/m.gguf", "node1")])
def test_files_of_the_node_itself_are_not_copied_from_another(url, source):
    assert fan_out([{"urls": [url]}], {"node1": "10.0.0.1", "node2": "10.0.0.2"}, "node2")[0][0] == source


def test_published_names():
    assert _intent.model_file(MODELS["big"], "Q4_K_M") == "Big.Q4_K_M.gguf"
    assert _intent.model_file({"quants": {"Q": {"urls": ["file:///x/y.gguf.part00"]}}}, "Q") == "y.gguf"
    assert _intent.model_file({"quants": {"Q": {"urls": ["file:///x/y.gguf"], "file": "z.gguf"}}}, "Q") == "z.gguf"


LISTENERS = """\
LISTEN 0 512 10.0.0.31:8000 0.0.0.0:* users:(("llama-server",pid=812,fd=3))
LISTEN 0 128 0.0.0.0:50052 0.0.0.0:* users:(("python3",pid=99,fd=4))
LISTEN 0 128 [::]:22 [::]:* users:(("sshd",pid=1,fd=4))
LISTEN 0 128 127.0.0.1:8001 0.0.0.0:* users:(("nginx",pid=5,fd=4))
"""


def test_foreign_listeners_are_conflicts():
    wanted = [
        ("llama_services.reasoning.port", "10.0.0.31", 8000),
        ("llama_services.reasoning.rpc_port", "10.100.0.31", 50052),
        ("llama_services.second.port", "10.0.0.31", 8001),
    ]
    assert _intent_check.port_conflicts(wanted, LISTENERS, [812]) == [
        "llama_services.reasoning.rpc_port: port 50052 of 10.100.0.31 is in use by python3 (pid 99), a free port is needed: "
        "stop that process or choose another port"
    ]
    assert _intent_check.port_conflicts(wanted, LISTENERS, [])[0] == (
        "llama_services.reasoning.port: port 8000 of 10.0.0.31 is in use by llama-server (pid 812), a free port is needed: run adopt.yml, which takes over "
        "what was started by hand, or choose another port"
    )


@pytest.mark.parametrize("name", ['x",pid=7', 'x",pid=7),("', '",pid=7,fd=1)', '",pid=7,fd=1),(', '"),("x",pid=7'])
def test_a_listener_cannot_call_itself_one_of_ours(name):
    listeners = 'LISTEN 0 128 0.0.0.0:50052 0.0.0.0:* users:(("%s",pid=99,fd=4),("nginx",pid=98,fd=4))\n' % name
    wanted = [("llama_services.chat.rpc_port", "10.100.0.31", 50052)]
    assert len(name) <= 15
    assert len(_intent_check.port_conflicts(wanted, listeners, [7])) == 1
    assert _intent_check.port_conflicts(wanted, listeners, [98]) == []


CARD = {"devices": [{"kind": "GPU", "total_mib": 32 << 10}]}


@pytest.mark.parametrize(
    "quant, nodes, refused",
    [
        ({"size": 77 * 10**9}, 3, False),
        ({"size": 104 * 10**9}, 3, True),
        ({"bits_per_weight": 8.5}, 3, False),  # 72e9 weights: 76.5 GB in 103.1 GB
        ({"bits_per_weight": 16}, 3, True),
        ({"size": 1, "bits_per_weight": 16}, 3, False),  # what is written down counts
        ({}, 3, False),
        ({"size": 104 * 10**9}, 2, False),  # a node nobody looked at
    ],
)
def test_weights_are_held_against_the_memory_of_all_nodes(quant, nodes, refused):
    models = {"big": {"parameters": 72 * 10**9, "quants": {"Q8_0": quant}}}
    found = _intent_check.hopeless(SERVICES, models, GROUPS, dict.fromkeys(["node1", "node2", "node3"][:nodes], CARD))
    assert [sentence.split(": ")[0] for sentence in found] == ["llama_services.reasoning.quant"] * refused
