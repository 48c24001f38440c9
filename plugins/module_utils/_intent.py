# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What an inventory says: check llama_services and llama_models, and resolve them to what each node runs.

Intent is written once, in the inventory. Roles read lists that the functions here derive from it, so a new worker is one line in
hosts.yml and a new model one entry in models.yml. Pure functions over plain dicts; `groups` and `hostvars` are Ansible's.
"""

import difflib
import re

from ._llama_args import head_args, rpc_args

# key -> (type, required). Types are checked; what a value means is checked below.
SERVICE_KEYS = {
    "distributed": {
        "kind": (str, True),
        "primary": (bool, False),
        "model": (str, True),
        "quant": (str, True),
        "head": (str, True),
        "workers": (str, False),
        "port": (int, True),
        "rpc_port": (int, False),
        "ctx_size": (int, False),
        "parallel": (int, False),
        "threads": (int, False),
        "batch_size": (int, False),
        "ubatch_size": (int, False),
        "cache_type_k": (str, False),
        "cache_type_v": (str, False),
        "flash_attn": (str, False),
        "load_mode": (str, False),
        "numa": (str, False),
        "timeout": (int, False),
        "tensor_split": ((str, dict), False),
        "memory_max": (str, False),
        "launcher": (str, False),
        "nodes": (int, False),
        "partition": (str, False),
        "qos": (str, False),
    },
    "router": {
        "kind": (str, True),
        "host": (str, True),
        "models": (dict, True),
        "models_max": (int, False),
        "port": (int, True),
        "ctx_size": (int, False),
        "parallel": (int, False),
        "threads": (int, False),
        "launcher": (str, False),
        "nodes": (int, False),
        "partition": (str, False),
        "qos": (str, False),
    },
}
# What a job asks SLURM for, and so means nothing under systemd.
SLURM_KEYS = ("nodes", "partition", "qos")
MODEL_KEYS = {"repo", "revision", "aliases", "parameters", "quants"}
QUANT_KEYS = {"files", "urls", "file", "sha256", "size", "bits_per_weight"}
CACHE_TYPES = ("f16", "q8_0", "q4_0")
CHOICES = {
    "launcher": ("systemd", "slurm"),
    "flash_attn": ("on", "off", "auto"),
    "load_mode": ("auto", "none", "mmap", "mlock", "mmap+mlock", "dio"),
    "numa": ("distribute", "isolate", "numactl"),
    "cache_type_k": CACHE_TYPES,
    "cache_type_v": CACHE_TYPES,
}
TYPE_NAMES = {str: "a string", bool: "true or false", int: "a whole number", dict: "a map"}
UNIT_NAME = re.compile(r"^[a-z0-9][a-z0-9-]{0,39}$")


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
            raise IntentError("%s is neither a host nor a group of this inventory%s" % (name, _near(name, known + sorted(groups))))
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


def errors(services, models, groups, hostvars, routes=None):
    """Every mistake of an inventory's intent, one sentence each: entry, value seen, value needed. routes: llama_routes, where there are any."""
    found = []
    if not groups.get("llama_nodes"):
        found.append("group llama_nodes: no host in it, at least one is needed: list the nodes in hosts.yml")
    if not isinstance(services, dict) or not services:
        found.append("llama_services: %r seen, a map of at least one service is needed" % (services,))
        return found
    if not isinstance(models, dict):
        found.append("llama_models: %r seen, a map of model names is needed" % (models,))
        models = {}
    for name, model in models.items():
        found.extend(_model_errors(name, model))
    for name, service in services.items():
        found.extend(_service_errors(name, service, models, groups, hostvars))
    if not found:
        found.extend(_shared_errors(services, groups))
        found.extend(_route_errors(routes or {}, services, models))
    return found


def undeployable(services):
    """Sentences for services whose intent is sound but which this version of the collection cannot deploy."""
    found = []
    for name, service in services.items():
        if service["kind"] != "distributed":
            found.append("llama_services.%s.kind: %s seen, distributed is needed: this version deploys no other kind" % (name, service["kind"]))
        elif service.get("launcher", "systemd") != "systemd":
            found.append("llama_services.%s.launcher: %s seen, systemd is needed: this version deploys no other launcher" % (name, service["launcher"]))
    return found


def _service_errors(name, service, models, groups, hostvars):
    entry = "llama_services.%s" % name
    if not UNIT_NAME.match(str(name)):
        return ["%s: the name becomes part of unit names, lower-case letters, digits and dashes are needed" % entry]
    if not isinstance(service, dict):
        return ["%s: %r seen, a map is needed" % (entry, service)]
    keys = SERVICE_KEYS.get(service.get("kind"))
    if keys is None:
        return ["%s.kind: %r seen, one of %s is needed" % (entry, service.get("kind"), ", ".join(sorted(SERVICE_KEYS)))]
    found = []
    for key in service:
        if key not in keys:
            found.append("%s.%s: unknown key%s" % (entry, key, _near(key, keys, "; known keys: " + ", ".join(sorted(keys)))))
    for key, (kind, required) in keys.items():
        if key not in service:
            if required:
                found.append("%s.%s: missing, %s is needed" % (entry, key, _type_name(kind)))
        elif not _is(service[key], kind):
            found.append("%s.%s: %r seen, %s is needed" % (entry, key, service[key], _type_name(kind)))
        elif key in CHOICES and service[key] not in CHOICES[key]:
            found.append("%s.%s: %r seen, one of %s is needed" % (entry, key, service[key], ", ".join(CHOICES[key])))
    if found:
        return found
    return _meaning_errors(entry, service, models, groups, hostvars)


def _meaning_errors(entry, service, models, groups, hostvars):
    if service["kind"] == "router":
        return _router_errors(entry, service, models, groups)
    found = _number_errors(entry, service)
    cache = (service.get("cache_type_k", "f16"), service.get("cache_type_v", "f16"))
    if cache[0] != cache[1]:
        found.append(
            "%s.cache_type_v: %s seen with cache_type_k %s, the same type for both is needed: "
            "an RPC worker aborts at the first token of a mixed pair" % (entry, cache[1], cache[0])
        )
    if service.get("flash_attn") == "off" and cache[1] != "f16":
        found.append(
            "%s.flash_attn: off seen with cache_type_v %s, on or auto is needed: llama.cpp has no quantized V cache without flash attention" % (entry, cache[1])
        )
    found.extend(_quant_errors(entry, "model", service["model"], service["quant"], models))
    hosts = {}
    for key in ("head", "workers"):
        if key not in service:
            continue
        try:
            hosts[key] = expand(service[key], groups)
        except IntentError as problem:
            found.append("%s.%s: %s" % (entry, key, problem))
            continue
        if not hosts[key]:
            found.append("%s.%s: %s matches no host, at least one is needed: add hosts to the group or drop the key" % (entry, key, service[key]))
        for host in hosts[key]:
            if host not in groups.get("llama_nodes", []):
                found.append("%s.%s: %s is not in group llama_nodes, every head and worker is needed there" % (entry, key, host))
    if len(hosts.get("head", [])) > 1:
        found.append("%s.head: %s matches %s, exactly one host is needed" % (entry, service["head"], ", ".join(hosts["head"])))
    if hosts.get("workers") and "rpc_port" not in service:
        found.append("%s.rpc_port: missing, a port for its RPC workers is needed" % entry)
    for host in hosts.get("workers", []):
        if not hostvars[host].get("llama_fabric_address"):
            found.append("%s.workers: %s has no llama_fabric_address, the IPv4 address of its fabric interface is needed in hosts.yml" % (entry, host))
        if host in hosts.get("head", []):
            found.append(
                "%s.workers: %s is its head too, a head uses its own card without RPC: exclude it, as in %s:!%s" % (entry, host, service["workers"], host)
            )
    if not found:
        found.extend(_split_errors(entry, service, hosts))
    return found


def _router_errors(entry, service, models, groups):
    found = _number_errors(entry, service)
    for model, quant in service["models"].items():
        found.extend(_quant_errors(entry, "models", model, quant, models))
    try:
        hosts = expand(service["host"], groups)
    except IntentError as problem:
        return found + ["%s.host: %s" % (entry, problem)]
    if not hosts:
        found.append("%s.host: %s matches no host, at least one is needed: add hosts to the group" % (entry, service["host"]))
    return found


def _number_errors(entry, service):
    found = []
    for key in ("port", "rpc_port"):
        if key in service and not 1 <= service[key] <= 65535:
            found.append("%s.%s: %d seen, 1 to 65535 is needed" % (entry, key, service[key]))
    for key in ("ctx_size", "parallel", "threads", "batch_size", "ubatch_size", "timeout", "models_max", "nodes"):
        if key in service and service[key] < 1:
            found.append("%s.%s: %d seen, at least 1 is needed" % (entry, key, service[key]))
    for key in SLURM_KEYS:
        if key in service and service.get("launcher", "systemd") != "slurm":
            found.append("%s.%s: seen with launcher systemd, launcher slurm is needed for it: drop the key or change the launcher" % (entry, key))
    return found


def _quant_errors(entry, key, name, quant, models):
    if name not in models:
        return ["%s.%s: %s is not in llama_models%s" % (entry, key, name, _near(name, models, "; known models: " + (", ".join(sorted(models)) or "none")))]
    quants = sorted(models[name].get("quants") or {})
    if quant not in quants:
        field = "quant" if key == "model" else "%s.%s" % (key, name)
        return ["%s.%s: %s has no %s, one of %s is needed" % (entry, field, name, quant, ", ".join(quants) or "its quants")]
    return []


def _route_errors(routes, services, models):
    """llama_routes: {default: NAME, tasks: {task: NAME}}, where a name is a service, or a model that some service serves."""
    served = set(services)
    for service in services.values():
        for name in [service["model"]] if "model" in service else service["models"]:
            served.update([name] + list(models[name].get("aliases") or []))
    found = ["llama_routes.%s: unknown key; known keys: default, tasks" % key for key in routes if key not in ("default", "tasks")]
    targets = [("default", routes["default"])] if "default" in routes else []
    targets += [("tasks.%s" % task, name) for task, name in (routes.get("tasks") or {}).items()]
    found.extend("llama_routes.%s: %s is served by no service%s" % (route, name, _near(name, served)) for route, name in targets if name not in served)
    return found


def _split_errors(entry, service, hosts):
    split = service.get("tensor_split", "auto")
    if split == "auto":
        return []
    if not isinstance(split, dict):
        return ["%s.tensor_split: %r seen, auto or a map of node to number of layers is needed" % (entry, split)]
    nodes = hosts.get("workers", []) + hosts["head"]
    found = ["%s.tensor_split: %s is no node of this service (%s)" % (entry, node, ", ".join(nodes)) for node in split if node not in nodes]
    found.extend(
        "%s.tensor_split.%s: %r seen, a whole number of layers is needed" % (entry, node, count)
        for node, count in split.items()
        if not _is(count, int) or count < 0
    )
    found.extend(
        "%s.tensor_split: worker %s is missing, its number of layers is needed" % (entry, node) for node in hosts.get("workers", []) if node not in split
    )
    return found


def _model_errors(name, model):
    entry = "llama_models.%s" % name
    if not isinstance(model, dict) or not isinstance(model.get("quants"), dict) or not model["quants"]:
        return ["%s.quants: a map of quant name to its files is needed" % entry]
    found = [
        "%s.%s: unknown key%s" % (entry, key, _near(key, MODEL_KEYS, "; known keys: " + ", ".join(sorted(MODEL_KEYS))))
        for key in model
        if key not in MODEL_KEYS
    ]
    for quant, spec in model["quants"].items():
        where = "%s.quants.%s" % (entry, quant)
        if not isinstance(spec, dict):
            found.append("%s: %r seen, a map with files or urls is needed" % (where, spec))
            continue
        found.extend(
            "%s.%s: unknown key%s" % (where, key, _near(key, QUANT_KEYS, "; known keys: " + ", ".join(sorted(QUANT_KEYS))))
            for key in spec
            if key not in QUANT_KEYS
        )
        if bool(spec.get("files")) == bool(spec.get("urls")):
            found.append("%s: either files (of repo) or urls is needed, %s seen" % (where, "both" if spec.get("files") else "neither"))
        if spec.get("files") and not model.get("repo"):
            found.append("%s.files: %s has no repo, the Hugging Face repository of the files is needed" % (where, name))
        sources = spec.get("files") or spec.get("urls") or []
        if spec.get("sha256") and len(spec["sha256"]) != len(sources):
            found.append("%s.sha256: %d seen, one for each of its %d files is needed" % (where, len(spec["sha256"]), len(sources)))
    return found


def _shared_errors(services, groups):
    """What only several services together get wrong: two of them on one port of one node, two primaries, two files of one name."""
    found = []
    taken = {}
    primary = []
    for name, service in services.items():
        if service.get("primary"):
            primary.append(name)
        claims = [(host, service["port"], "port") for host in expand(service["head" if "head" in service else "host"], groups)]
        claims += [(host, service["rpc_port"], "rpc_port") for host in expand(service.get("workers", ""), groups)]
        for host, port, key in claims:
            other = taken.setdefault((host, port), "%s.%s" % (name, key))
            if other != "%s.%s" % (name, key):
                found.append("llama_services.%s.%s: %d on %s is taken by llama_services.%s, a port of its own is needed" % (name, key, port, host, other))
    if len(primary) > 1:
        found.append("llama_services: primary is true for %s, at most one service is needed to answer to llama-rpc and llama-head" % " and ".join(primary))
    return found


def _by_systemd(services):
    """The distributed services that systemd runs, by name."""
    return sorted((name, service) for name, service in services.items() if service["kind"] == "distributed" and service.get("launcher", "systemd") == "systemd")


def rpc_instances(services, host, groups, hostvars):
    """The RPC workers of a node: list of {service, primary, address, port, threads, heads: [addresses allowed in], args}."""
    instances = []
    for name, service in _by_systemd(services):
        if host not in expand(service.get("workers", ""), groups):
            continue
        heads = expand(service["head"], groups)
        instance = {
            "service": name,
            "primary": bool(service.get("primary")),
            "address": hostvars[host]["llama_fabric_address"],
            "port": service["rpc_port"],
            "threads": service.get("threads", 0),
            "heads": [hostvars[head].get("llama_fabric_address") or node_address(head, hostvars) for head in heads],
        }
        instance["args"] = rpc_args(instance)
        instances.append(instance)
    return instances


def head_instances(services, models, host, groups, hostvars, models_dir):
    """The heads of a node: list of dicts with all that the unit, the health check and the report need.

    tensor_split is in llama.cpp's device order: RPC devices in --rpc order, then the head's own; counts are layers, and the last device's
    count includes the output layer (llama.cpp counts it as one more item).
    """
    instances = []
    for name, service in _by_systemd(services):
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
            "rpc_endpoints": ["%s:%d" % (hostvars[worker]["llama_fabric_address"], service["rpc_port"]) for worker in workers],
            "layers": {},
            "tensor_split": [],
            "memory_max": service.get("memory_max", ""),
        }
        split = service.get("tensor_split", "auto")
        if isinstance(split, dict):
            devices = workers + ([host] if split.get(host) else [])
            counts = [split[device] for device in devices]
            instance["layers"] = dict(zip(devices, counts))
            instance["tensor_split"] = counts[:-1] + [counts[-1] + 1]
        instance["args"] = head_args(instance, service)
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


def model_file(model, quant):
    """The name a quant is published under: `file`, or its only source's name, or the name its raw pieces share."""
    spec = model["quants"][quant]
    if spec.get("file"):
        return spec["file"]
    first = (spec.get("files") or spec.get("urls"))[0].split("?")[0].rsplit("/", 1)[-1]
    return re.sub(r"\.part(\d+of\d+|\d+)$", "", first)


def port_conflicts(wanted, listeners, own_pids):
    """Sentences for wanted (entry, address, port) triples that a foreign process listens on.

    listeners: the text of `ss -Hltnp`; own_pids: the processes of this collection's units on that node.
    """
    found = []
    for line in listeners.splitlines():
        fields = line.split()
        if len(fields) < 4:
            continue
        address, _colon, port = fields[3].rpartition(":")
        address = address.strip("[]").split("%")[0]
        holders = re.findall(r'\("([^"]*)",pid=(\d+)', line)
        if any(int(pid) in own_pids for _name, pid in holders):
            continue
        for entry, wanted_address, wanted_port in wanted:
            if port == str(wanted_port) and address in (wanted_address, "0.0.0.0", "*", "::"):
                holder = "%s (pid %s)" % holders[0] if holders else "another process"
                found.append(
                    "%s: port %s of %s is in use by %s, a free port is needed: stop that process or choose another port" % (entry, port, wanted_address, holder)
                )
    return found


def _is(value, kind):
    if kind is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, kind)


def _type_name(kind):
    return " or ".join(TYPE_NAMES[one] for one in (kind if isinstance(kind, tuple) else (kind,)))


def _near(name, known, otherwise=""):
    near = difflib.get_close_matches(str(name), [str(one) for one in known], 1)
    return ", did you mean %s?" % near[0] if near else otherwise
