# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What an inventory says: llama_services and llama_models resolved to what each node runs. Private to the collection.

Intent is written once, in the inventory. Roles read lists that the functions here derive from it, so a new worker is one line in
hosts.yml and a new model one entry in models.yml. Pure functions over plain dicts; `groups` and `hostvars` are Ansible's.
"""

import difflib
import re
from urllib.parse import unquote

from ._llama_args import PIN, head_args, rpc_args
from ._settings import effective, kind_of, value
from ._units import KEYS


class IntentError(Exception):
    """A service that cannot be resolved; the message is one sentence."""


def expand(pattern, groups):
    """Hosts of an Ansible pattern (host, group, ``a:b``, ``a:!b``, ``a:&b``, commas for colons), in inventory order."""
    known = list(groups.get("all", []))
    chosen = []
    excluded = set()
    required = None
    for term in re.sub(r"[:,]", " ", str(pattern)).split():
        sign, name = (term[0], term[1:]) if term[0] in "!&" else ("", term)
        if name in groups:
            hosts = list(groups[name])
        elif name in known:
            hosts = [name]
        else:
            raise IntentError(
                "%s is neither a host nor a group of this inventory%s"
                % (name, near(name, known + sorted(groups), ": correct the name, or add it to hosts.yml"))
            )
        if sign == "!":
            excluded.update(hosts)
        elif sign == "&":
            required = set(hosts) if required is None else required & set(hosts)
        else:
            chosen.extend(host for host in hosts if host not in chosen)
    return [host for host in chosen if host not in excluded and (required is None or host in required)]


def node_address(host, hostvars):
    """The address clients reach a node at: llama_address, else ansible_host, else its inventory name."""
    facts = hostvars[host]
    return facts.get("llama_address") or facts.get("ansible_host") or host


def rpc_address(head, hostvars):
    """The address a head comes from to its workers."""
    return hostvars[head].get("llama_fabric_address") or node_address(head, hostvars)


def build_of(host, hostvars):
    """The llama.cpp release that a node runs, by its tag."""
    return hostvars[host].get("llama_cpp_version") or PIN


def near(name, known, otherwise=""):
    """A hint for a mistyped name: `, did you mean X?` where something known is near, else `otherwise`."""
    near = difflib.get_close_matches(str(name), [str(one) for one in known], 1)
    return ", did you mean %s?" % near[0] if near else otherwise


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
            "api_key_file": "%s/%s" % (KEYS, name) if (hostvars[host].get("llama_api_keys") or {}).get(name) else "",
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


def model_items(services, models, host, groups, models_dir):
    """The models a node holds (a model lives where its head runs): list of {model, quant, dest, urls, repo, files, revision, sha256, size}."""
    items = {}
    wanted = []
    for service in services.values():
        if host in expand(service["head" if "head" in service else "host"], groups):
            wanted.extend([(service["model"], service["quant"])] if "model" in service else service["models"].items())
    for name, quant_name in wanted:
        model = models[name]
        quant = model["quants"][quant_name]
        dest = "%s/%s" % (models_dir, model_file(model, quant_name))
        items[dest] = {
            "model": name,
            "quant": quant_name,
            "dest": dest,
            "urls": list(quant.get("urls") or []),
            "repo": model.get("repo", ""),
            "revision": model.get("revision", "main"),
            "files": list(quant.get("files") or []),
            "sha256": list(quant.get("sha256") or []),
        }
    return [items[dest] for dest in sorted(items)]


def fan_out(nodes, host):
    """The models of ``host`` and whether it fetches each one itself or copies it from another node that fetches it.

    nodes: [{host, address, items}] in inventory order; address: on the fabric, empty for none; items: of model_items().
    -> the host's items, each with source (the node it copies from, empty for fetching it itself), original (its path there) and
    address (the host's own).
    """
    own = next(node for node in nodes if node["host"] == host)
    found = []
    for item in own["items"]:
        # The first that may lend it, in the same order for everybody. A file URL names what every node has by itself.
        local = item.get("urls") and all(url.startswith(("file:", "/")) for url in item["urls"])
        holders = [] if local or not own["address"] else [(node, same) for node in nodes if node["address"] for same in node["items"] if _same(item, same)]
        source, original = holders[0] if holders else (own, item)
        lent = source["host"] != host
        found.append(dict(item, source=source["host"] if lent else "", original=original["dest"], address=own["address"]))
    return found


def _same(one, other):
    """Whether two items are one model from one place, under whatever path."""
    defaults = {"urls": [], "repo": "", "revision": "main", "files": [], "sha256": []}
    return all((one.get(key) or default) == (other.get(key) or default) for key, default in defaults.items())


def model_file(model, quant):
    """The name a quant is published under: `file`, or its only source's name, or the name its raw pieces share."""
    spec = model["quants"][quant]
    if spec.get("file"):
        return spec["file"]
    first = spec["files"][0] if spec.get("files") else unquote(spec["urls"][0].split("?")[0])
    return re.sub(r"\.part(\d+of\d+|\d+)\Z", "", first.rsplit("/", 1)[-1])
