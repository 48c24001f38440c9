# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What an inventory says: llama_services and llama_models resolved to what each node runs. Private to the collection.

Intent is written once, in the inventory. Roles read lists that the functions here derive from it, so a new worker is one line in
hosts.yml and a new model one entry in models.yml. Pure functions over plain dicts; `groups` and `hostvars` are Ansible's.
"""

from ...module_utils._llama.args import head_args, rpc_args
from ...module_utils._node import paths
from ...module_utils._settings import effective, kind_of, value
from .hosts import build_of, expand, node_address, rpc_address
from .models import model_file


def managed(services):
    """The services of kind server that systemd runs, by name."""
    found = services.items()
    return sorted((name, one) for name, one in found if kind_of(one) == "server" and value(one, "launcher") == "systemd")


def rpc_instances(services, host, groups, hostvars):
    """The RPC workers of a node: list of {service, primary, address, port, head_address, threads, head_url, memory_max, cache, args}."""
    instances = []
    for name, service in managed(services):
        if host not in expand(service.get("workers", ""), groups):
            continue
        instance = {
            "service": name,
            "primary": bool(service.get("primary")),
            "address": hostvars[host]["llama_fabric_address"],
            "port": service["rpc_port"],
            "head_address": rpc_address(expand(service["head"], groups)[0], hostvars),
            "threads": service.get("threads", 0),
            "head_url": "http://%s:%d" % (node_address(expand(service["head"], groups)[0], hostvars), service["port"]),
            "memory_max": service.get("rpc_memory_max", ""),
            "cache": service.get("rpc_cache", ""),
        }
        instance["args"] = rpc_args(instance)
        instances.append(instance)
    return instances


def rpc_access(services, host, groups, hostvars):
    """Who may use RPC on a node -> {incoming: [HEAD:PORT] for each of its workers, outgoing: [WORKER:PORT] for each worker of its heads}."""
    incoming, outgoing = [], []
    for _name, service in managed(services):
        head = expand(service["head"], groups)[0]
        workers = expand(service.get("workers", ""), groups)
        if host in workers:
            incoming.append("%s:%d" % (rpc_address(head, hostvars), service["rpc_port"]))
        if host == head:
            outgoing.extend(_rpc_endpoints(service, workers, hostvars))
    return {"incoming": incoming, "outgoing": outgoing}


def _rpc_endpoints(service, workers, hostvars):
    return ["%s:%d" % (hostvars[worker]["llama_fabric_address"], service["rpc_port"]) for worker in workers]


def head_instances(services, models, host, groups, hostvars, models_dir):
    """The heads of a node: list of dicts with all that the unit, the health check and the report need.

    tensor_split is in llama.cpp's device order: RPC devices in --rpc order, then the head's own; counts are layers, and the last device's
    count includes the output layer (llama.cpp counts it as one more item). The memory plan alone renders it (the fact preflight_plan of the head):
    None says that this run made none. layers are those of the plan, else those of the inventory.
    """
    instances = []
    for name, service in managed(services):
        if host not in expand(service["head"], groups):
            continue
        workers = expand(service.get("workers", ""), groups)
        model = models[service["model"]]
        address = node_address(host, hostvars)
        instance = {
            "service": name,
            "primary": bool(service.get("primary")),
            "address": address,
            "port": service["port"],
            "endpoint": "http://%s:%d/v1" % (address, service["port"]),
            "model": service["model"],
            "quant": service["quant"],
            "aliases": [service["model"]] + list(model.get("aliases") or []),
            "model_path": "%s/%s" % (models_dir, model_file(model, service["quant"])),
            "workers": workers,
            "rpc_endpoints": _rpc_endpoints(service, workers, hostvars),
            "layers": {},
            "tensor_split": None,
            "memory_max": service.get("memory_max", ""),
            # Tokens of a micro-batch.
            "ubatch_size": min(effective(service, "batch_size"), effective(service, "ubatch_size")),
            "api_key_file": "%s/%s" % (paths.KEYS, name) if (hostvars[host].get("llama_api_keys") or {}).get(name) else "",
        }
        split = value(service, "tensor_split")
        plans = hostvars[host].get("preflight_plan") or {}
        planned = plans.get("services", {}).get(name) or [plans.get("rendered", {}).get(name)]
        if planned[0]:
            instance["layers"] = {node: count for node, count in planned[0]["layers"].items() if count or node != host}
            instance["tensor_split"] = planned[0]["tensor_split"]
        elif isinstance(split, dict):
            instance["layers"] = {node: split[node] for node in workers + ([host] if split.get(host) else [])}
        instance["args"] = head_args(instance, service, build_of(host, hostvars))
        instances.append(instance)
    return instances
