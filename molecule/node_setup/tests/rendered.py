"""The units and rules of a small cluster, rendered from the roles' own templates, for tests that need no deployment."""

import pathlib

import jinja2
from ansible.plugins.filter.core import FilterModule
from ansible_collections.thefermisea.llama_cluster.plugins.filter import intent, units

ROLES = pathlib.Path(__file__).resolve().parents[3] / "roles"
RELEASE = "/opt/llama.cpp/releases/b11434-cpu-00000000"
HEAD, WORKER, PORT = "10.9.0.1", "10.9.0.2", 50052
GROUPS = {"all": ["node1", "node2"], "llama_nodes": ["node1", "node2"], "llama_head": ["node1"], "llama_rpc": ["node2"]}
HOSTVARS = {
    "node1": {"llama_address": "10.8.0.1", "llama_fabric_address": HEAD},
    "node2": {"llama_address": "10.8.0.2", "llama_fabric_address": WORKER},
}
MODELS = {"m": {"repo": "some/m-GGUF", "quants": {"Q8_0": {"files": ["m.Q8_0.gguf"]}}}}
SERVICE = {"model": "m", "quant": "Q8_0", "head": "node1", "workers": "llama_rpc", "port": 8000, "rpc_port": PORT}
ACCOUNTS = {
    "node_setup_user": "llama",
    "node_setup_rpc_user": "llama-rpc",
    "node_setup_jobs_uid": "4711",
    "head_server_user": "llama",
    "rpc_worker_user": "llama-rpc",
    "__node_setup_firewall_digest": "llama-cluster 0123456789abcdef",
}
BUILT = {"current_build": RELEASE.rpartition("/")[2], "build_sha256": "0" * 64}
NODE = {"units": [], "templates": [], "watched": [], "files": {}, "build": {"of": {"": BUILT}}}
NODE["card_groups"] = ["video"]
FILTERS = {name: function for module in (intent, units) for name, function in module.FilterModule().filters().items()}


def template(path, **values):
    environment = jinja2.Environment(trim_blocks=True, keep_trailing_newline=True, undefined=jinja2.StrictUndefined)
    environment.filters.update(FilterModule().filters())
    return environment.from_string((ROLES / path).read_text()).render(ansible_managed="rendered", **ACCOUNTS, **values)


def rules(**peers):
    """The table of a node with these workers, heads and clients behind a gateway, as filter node_rpc names them."""
    names = ("incoming", "outgoing", "jobs_incoming", "jobs_outgoing", "clients")
    access = {**dict.fromkeys(names, ()), **peers}
    return template(
        "node_setup/templates/firewall.nft.j2",
        node_setup_rpc_access={name: list(given) for name, given in access.items()},
    )


def units(accelerator="cpu", numa="", rdma=False, environment=None, api_key_file=None, listen=None, **service):
    """{name: text} of every unit that the roles write, of a service with these settings, on nodes that compute on
    `accelerator`."""
    services = {"chat": dict(SERVICE, **service)}
    process = {
        "template": "",
        "environment": environment or {},
        "numa_node": numa,
    }
    workers = FILTERS["node_rpc"](services, "node2", GROUPS, HOSTVARS)["workers"]
    heads = FILTERS["node_serving"](services, MODELS, "node1", GROUPS, HOSTVARS, "/opt/models")["heads"]
    runs = {"build": "", "accelerator": accelerator, "rdma": rdma}
    workers = [dict(worker, **runs) for worker in workers]
    heads = [dict(head, **runs, api_key_file=api_key_file, address=listen or head["address"]) for head in heads]
    (worker,) = (entry for entry in FILTERS["unit_files"](workers, "rpc", NODE, process, False) if "template" in entry)
    (head,) = (entry for entry in FILTERS["unit_files"](heads, "head", NODE, process, False) if "template" in entry)
    return {
        "llama-rpc-chat.service": template(
            "rpc_worker/templates/llama-rpc.service.j2",
            **worker["vars"],
        ),
        "llama-head-chat.service": template(
            "head_server/templates/llama-head.service.j2",
            **head["vars"],
        ),
        "llama-watchdog.service": template("node_setup/templates/llama-watchdog.service.j2", digest="0123456789abcdef"),
        "llama-firewall.service": template("node_setup/templates/llama-firewall.service.j2"),
    }
