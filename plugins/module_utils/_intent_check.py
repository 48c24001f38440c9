# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Finds what is wrong with an inventory's intent, one sentence a mistake: entry, value seen, value needed. Private to the collection."""

import re

from ._bytes import human
from ._intent import IntentError, build_of, expand, model_file, near, rpc_address
from ._llama_args import OLDEST, build_number, load_modes
from ._model_shape import MAX_BLOCKS
from ._plan_catalog import HEADER_KEYS
from ._settings import context, kind_of

# One holder in a line of `ss -p`. A process chooses its own name, up to 15 bytes: too few to hold the end of one holder and the start of the next.
HOLDER = re.compile(r'\("(.{0,15})",pid=(\d+),fd=\d+\)')
# key -> (type, required). Types are checked; what a value means is checked below.
SERVICE_KEYS = {
    "server": {
        "kind": (str, False),
        "primary": (bool, False),
        "model": (str, True),
        "quant": (str, True),
        "head": (str, True),
        "workers": (str, False),
        "port": (int, True),
        "rpc_port": (int, False),
        "rpc_cache": (str, False),
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
        "force_split": (bool, False),
        "slot_ctx_size": (int, False),
        "memory_max": (str, False),
        "rpc_memory_max": (str, False),
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
MODEL_KEYS = {"repo", "revision", "aliases", "parameters", "header", "quants"}
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
# What an HTTP header carries and a line of a key file keeps.
API_KEY = re.compile(r"^(?!#)[!-~]+\Z")
SHA256 = re.compile(r"^[0-9a-fA-F]{64}\Z")
# The first build whose tensor cache was measured.
CACHE_BUILD = 11434
QUOTA = re.compile(r"^[1-9][0-9]*[MGT]\Z")
UNIT_NAME = re.compile(r"^[a-z0-9][a-z0-9-]{0,39}\Z")
# A name becomes an argument of a command line, a part of a list or a path: letters, digits and what separates nothing there.
MODEL_NAME = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._:/@+-]{0,127}\Z")
FILE_NAME = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._+-]{0,199}\Z")
PATH = re.compile(r"^(/[A-Za-z0-9_+-][A-Za-z0-9._+-]*)+\Z")
IPV4 = re.compile(r"^[0-9]{1,3}(\.[0-9]{1,3}){3}\Z")
# Files are made, and removed, as root: not in these and not below the first ones.
SYSTEM = re.compile(
    r"^/((bin|boot|dev|etc|lib|lib32|lib64|libx32|proc|run|sbin|sys|tmp|var/tmp|usr/(bin|lib|lib32|lib64|libexec|sbin))(/|\Z)"
    r"|(home|media|mnt|opt|root|srv|usr|usr/local|usr/share|usr/src|var|var/cache|var/lib|var/log|var/opt|var/spool)\Z)"
)
ADDRESS = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._-]{0,252}\Z")
# key -> (what its text has to be, how that is said): these become lines of units and words of command lines.
FORMS = {
    "memory_max": (re.compile(r"^[1-9][0-9]*[KMGT]\Z"), "a size such as 100G"),
    "rpc_memory_max": (re.compile(r"^[1-9][0-9]*[KMGT]\Z"), "a size such as 100G"),
    "partition": (re.compile(r"^[A-Za-z0-9][A-Za-z0-9_.-]*\Z"), "a name of SLURM's"),
    "qos": (re.compile(r"^[A-Za-z0-9][A-Za-z0-9_.-]*\Z"), "a name of SLURM's"),
}
# Variables of a node that roles write into units.
NODE_FORMS = {
    "llama_models_dir": (PATH, "an absolute path of letters, digits, dots and dashes"),
    "llama_cpp_prefix": (PATH, "an absolute path of letters, digits, dots and dashes"),
    "rpc_worker_cache_dir": (PATH, "an absolute path of letters, digits, dots and dashes"),
    "head_server_prefix": (PATH, "an absolute path of letters, digits, dots and dashes"),
    "rpc_worker_prefix": (PATH, "an absolute path of letters, digits, dots and dashes"),
    "llama_address": (ADDRESS, "an IPv4 address or a host name"),
    "llama_fabric_address": (re.compile(r"^[0-9]{1,3}(\.[0-9]{1,3}){3}\Z"), "an IPv4 address"),
    "rpc_worker_numa_node": (re.compile(r"^[0-9]*\Z"), "the number of a NUMA node"),
    "head_server_numa_node": (re.compile(r"^[0-9]*\Z"), "the number of a NUMA node"),
}
ENVIRONMENTS = ("rpc_worker_environment", "head_server_environment")
VARIABLE = re.compile(r"^[A-Za-z_][A-Za-z0-9_]*\Z")
# Every user of a node can read its units.
SECRET = re.compile(r"(^|_)(API_?KEY|KEY|TOKEN|SECRET|PASS|PASSWD|PASSWORD|CREDENTIALS?)(_|\Z)", re.IGNORECASE)


def errors(services, models, groups, hostvars, routes=None, api_keys=None):
    """Every mistake of an inventory's intent, one sentence each: entry, value seen, value needed. routes, api_keys: llama_routes and llama_api_keys."""
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
    for node in groups.get("llama_nodes") or []:
        found.extend(_node_errors(node, hostvars[node]))
    if not found:
        found.extend(_shared_errors(services, groups))
        found.extend(_route_errors(routes or {}, services, models))
        found.extend(_key_errors(api_keys or {}, services))
    return found


def undeployable(services):
    """Sentences for services whose intent is sound but which this version of the collection cannot deploy."""
    found = []
    for name, service in services.items():
        if kind_of(service) != "server":
            found.append("llama_services.%s.kind: router seen, server is needed: this version deploys no other kind" % name)
        elif service.get("launcher", "systemd") != "systemd":
            found.append("llama_services.%s.launcher: %s seen, systemd is needed: this version deploys no other launcher" % (name, service["launcher"]))
    return found


def hopeless(services, models, groups, nodes):
    """Sentences for services whose weights alone are more than the memory of all their nodes, known before any hub is asked.

    nodes: {node: {devices: [of _plan_devices]}}. A service with a node that is not in it is not judged, nor is a quant with neither size nor
    bits_per_weight. Weights are a lower bound: KV cache and compute buffers come on top.
    """
    found = []
    for name, service in services.items():
        if kind_of(service) != "server":
            continue
        own = expand(service["head"], groups) + expand(service.get("workers", ""), groups)
        model = models[service["model"]]
        size, how = weights(model, service["quant"])
        if size is None or any(node not in nodes for node in own):
            continue
        devices = [device for node in own for device in nodes[node]["devices"]]
        have = sum(int(device["total_mib"]) for device in devices) << 20
        if size <= have:
            continue
        sizes = {quant: weights(model, quant)[0] for quant in model["quants"]}
        smaller = ["%s (%s)" % (quant, human(sizes[quant])) for quant in sizes if sizes[quant] is not None and sizes[quant] <= have]
        kinds = " and ".join(sorted({device["kind"] for device in devices}))
        found.append(
            "llama_services.%s.quant: %s %s %s, more than the %s of %s memory of %s: choose %s"
            % (name, service["model"], service["quant"], how, human(have), kinds, ", ".join(own), ", ".join(smaller) or "another model, or add nodes")
        )
    return found


def weights(model, quant):
    """-> (bytes of a quant's weights, how that is known); (None, None) where the inventory does not say.

    parameters * bits_per_weight / 8, unless the quant's size is written down.
    """
    spec = model["quants"][quant]
    if spec.get("size"):
        return spec["size"], "has %s" % human(spec["size"])
    if model.get("parameters") and spec.get("bits_per_weight"):
        size = int(model["parameters"] * spec["bits_per_weight"] / 8)
        return size, "has %.1f billion weights at %s bits, about %s" % (model["parameters"] / 1e9, spec["bits_per_weight"], human(size))
    return None, None


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
        holders = HOLDER.findall(line)
        if any(int(pid) in own_pids for _name, pid in holders):
            continue
        for entry, wanted_address, wanted_port in wanted:
            if port == str(wanted_port) and address in (wanted_address, "0.0.0.0", "*", "::"):
                holder = "%s (pid %s)" % holders[0] if holders else "another process"
                found.append(
                    "%s: port %s of %s is in use by %s, a free port is needed: stop that process or choose another port" % (entry, port, wanted_address, holder)
                )
    return found


def _service_errors(name, service, models, groups, hostvars):
    entry = "llama_services.%s" % _shown(name)
    if not UNIT_NAME.match(str(name)):
        return ["%s: the name becomes part of unit names, lower-case letters, digits and dashes are needed" % entry]
    if not isinstance(service, dict):
        return ["%s: %r seen, a map is needed" % (entry, service)]
    if kind_of(service) not in ("server", "router"):
        return ["%s.kind: %r seen, server or router is needed: drop the key for a llama-server, with or without workers" % (entry, service["kind"])]
    keys = SERVICE_KEYS[kind_of(service)]
    found = []
    for key in service:
        if key not in keys:
            found.append("%s.%s: unknown key%s" % (entry, key, near(key, keys, "; known keys: " + ", ".join(sorted(keys)))))
    for key, (form, required) in keys.items():
        if key not in service:
            if required:
                found.append("%s.%s: missing, %s is needed" % (entry, key, _type_name(form)))
        elif not _is(service[key], form):
            found.append("%s.%s: %r seen, %s is needed" % (entry, key, service[key], _type_name(form)))
        elif key in CHOICES and service[key] not in CHOICES[key]:
            found.append("%s.%s: %r seen, one of %s is needed" % (entry, key, service[key], ", ".join(CHOICES[key])))
        elif key in FORMS and not FORMS[key][0].match(service[key]):
            found.append("%s.%s: %r seen, %s is needed" % (entry, key, service[key], FORMS[key][1]))
    if found:
        return found
    return _meaning_errors(entry, service, models, groups, hostvars)


def _meaning_errors(entry, service, models, groups, hostvars):
    if kind_of(service) == "router":
        return _router_errors(entry, service, models, groups)
    found = _number_errors(entry, service)
    total = context(service)
    if service.get("ctx_size", total) != total:
        found.append(
            "%s.ctx_size: %d seen with slot_ctx_size %d for each of %d slots, %d is needed: drop ctx_size, the product is what llama-server gets"
            % (entry, service["ctx_size"], service["slot_ctx_size"], service.get("parallel", 1), total)
        )
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
    for host in hosts.get("head", [])[:1] if hosts.get("workers") else []:
        # Rules and units know addresses: at boot they are read before anybody could look up a name.
        address = _shown(rpc_address(host, hostvars))
        if host in groups.get("llama_nodes", []) and not IPV4.match(str(address)):
            found.append(
                "%s.head: %s comes to its workers from %s, an IPv4 address is needed: give it llama_fabric_address in hosts.yml" % (entry, host, address)
            )
    for host in hosts.get("workers", []):
        if not hostvars[host].get("llama_fabric_address"):
            found.append("%s.workers: %s has no llama_fabric_address, the IPv4 address of its fabric interface is needed in hosts.yml" % (entry, host))
        if host in hosts.get("head", []):
            found.append(
                "%s.workers: %s is its head too, a head uses its own card without RPC: exclude it, as in %s:!%s" % (entry, host, service["workers"], host)
            )
    if "rpc_cache" in service:
        found.extend(_cache_errors(entry, service, hosts.get("workers", []), hostvars))
    if not found:
        found.extend(_split_errors(entry, service, hosts))
        found.extend(_build_errors(entry, service, build_of(hosts["head"][0], hostvars)))
    return found


def _build_errors(entry, service, version):
    """What the head's build does not know."""
    if (build_number(version) or OLDEST) < OLDEST:
        return ["llama_cpp_version: %s seen, b%d or a newer release is needed: its command line is the oldest that this version renders" % (version, OLDEST)]
    known = load_modes(version)
    if service.get("load_mode", "auto") in known:
        return []
    return [
        "%s.load_mode: %s seen with llama_cpp_version %s, which knows %s: choose one of these or another release"
        % (entry, service["load_mode"], version, ", ".join(known))
    ]


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
    for key in ("ctx_size", "slot_ctx_size", "parallel", "threads", "batch_size", "ubatch_size", "timeout", "models_max", "nodes"):
        if key in service and service[key] < 1:
            found.append("%s.%s: %d seen, at least 1 is needed" % (entry, key, service[key]))
    for key in SLURM_KEYS:
        if key in service and service.get("launcher", "systemd") != "slurm":
            found.append("%s.%s: seen with launcher systemd, launcher slurm is needed for it: drop the key or change the launcher" % (entry, key))
    return found


def _quant_errors(entry, key, name, quant, models):
    if name not in models:
        return ["%s.%s: %s is not in llama_models%s" % (entry, key, name, near(name, models, "; known models: " + (", ".join(sorted(models)) or "none")))]
    quants = sorted(models[name].get("quants") or {})
    if quant not in quants:
        field = "quant" if key == "model" else "%s.%s" % (key, name)
        return ["%s.%s: %s has no %s, one of %s is needed" % (entry, field, name, quant, ", ".join(quants) or "its quants")]
    return []


def _cache_errors(entry, service, workers, hostvars):
    found = []
    if not QUOTA.match(service["rpc_cache"]):
        found.append("%s.rpc_cache: %s seen, the most that a worker may keep is needed, such as 80G" % (entry, service["rpc_cache"]))
    if "workers" not in service:
        found.append("%s.rpc_cache: seen without workers, it is their cache: drop the key" % entry)
    for host in workers:
        version = build_of(host, hostvars)
        if (build_number(version) or 0) < CACHE_BUILD:
            found.append(
                "%s.rpc_cache: seen with llama_cpp_version %s of %s, b%d or newer is needed: older builds fill the disk with activations too, "
                "and none of them was measured: drop the key or take a newer build" % (entry, version, host, CACHE_BUILD)
            )
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
    entry = "llama_models.%s" % _shown(name)
    if not MODEL_NAME.match(str(name)):
        return ["%s: %r is the name that clients use, letters, digits and . _ : / @ + - are needed" % (entry, name)]
    if not isinstance(model, dict) or not isinstance(model.get("quants"), dict) or not model["quants"]:
        return ["%s.quants: a map of quant name to its files is needed" % entry]
    found = [
        "%s.%s: unknown key%s" % (entry, key, near(key, MODEL_KEYS, "; known keys: " + ", ".join(sorted(MODEL_KEYS)))) for key in model if key not in MODEL_KEYS
    ]
    aliases = model.get("aliases") or []
    if not isinstance(aliases, list) or not all(isinstance(alias, str) and MODEL_NAME.match(alias) for alias in aliases):
        found.append("%s.aliases: %r seen, a list of names of letters, digits and . _ : / @ + - is needed" % (entry, aliases))
    found.extend(_header_errors(entry + ".header", model.get("header", {})))
    for quant, spec in model["quants"].items():
        where = "%s.quants.%s" % (entry, quant)
        if not isinstance(spec, dict):
            found.append("%s: %r seen, a map with files or urls is needed" % (where, spec))
            continue
        found.extend(
            "%s.%s: unknown key%s" % (where, key, near(key, QUANT_KEYS, "; known keys: " + ", ".join(sorted(QUANT_KEYS))))
            for key in spec
            if key not in QUANT_KEYS
        )
        wrong = _source_errors(where, spec)
        if wrong:
            found.extend(wrong)
            continue
        if bool(spec.get("files")) == bool(spec.get("urls")):
            found.append("%s: either files (of repo) or urls is needed, %s seen" % (where, "both" if spec.get("files") else "neither"))
        if spec.get("files") and not model.get("repo"):
            found.append("%s.files: %s has no repo, the Hugging Face repository of the files is needed" % (where, name))
        sources = spec.get("files") or spec.get("urls") or []
        if spec.get("sha256") and len(spec["sha256"]) != len(sources):
            found.append("%s.sha256: %d seen, one for each of its %d files is needed" % (where, len(spec["sha256"]), len(sources)))
        else:
            found.extend("%s.sha256: %r seen, 64 hexadecimal digits are needed" % (where, one) for one in spec.get("sha256") or [] if not SHA256.match(one))
    return found


def _source_errors(where, spec):
    """What is wrong with the places of a quant's files, and with the names that they give."""
    for key in ("files", "urls", "sha256"):
        given = spec.get(key) or []
        if not isinstance(given, list) or not all(isinstance(one, str) for one in given):
            return ["%s.%s: %r seen, a list of strings is needed" % (where, key, given)]
    if spec.get("file"):
        name, key = spec["file"], "file"
    elif spec.get("files") or spec.get("urls"):
        name, key = model_file({"quants": {"": spec}}, ""), "files" if spec.get("files") else "urls"
    else:
        return []
    if isinstance(name, str) and FILE_NAME.match(name):
        return []
    step = "" if key == "file" else ": give the name it shall have by file"
    return ["%s.%s: %r is the name of the file, letters, digits, dots, dashes, + and _ are needed%s" % (where, key, name, step)]


def _node_errors(node, facts):
    """What is wrong with the variables of a node that become lines of its units."""
    found = []
    for name, (form, words) in NODE_FORMS.items():
        value = facts.get(name)
        if name == "llama_address":
            value = value or facts.get("ansible_host")
        if value is not None and (value != "" or form is PATH) and not form.match(str(value)):
            found.append("%s: %r seen for %s, %s is needed" % (name, value, node, words))
        elif value is not None and form is PATH and SYSTEM.match(str(value)):
            found.append("%s: %s seen on %s, which is the system's, a directory of its own is needed: choose one such as /srv/llama" % (name, value, node))
    for variable in ENVIRONMENTS:
        given = facts.get(variable) or {}
        if not isinstance(given, dict):
            found.append("%s: %r seen for %s, a map of NAME to value is needed" % (variable, given, node))
            continue
        for name, value in given.items():
            entry = "%s.%s" % (variable, name)
            if not VARIABLE.match(str(name)) or str(name).startswith("LLAMA_CLUSTER_"):
                found.append("%s: the name of a variable seen for %s, letters, digits and _ are needed, and LLAMA_CLUSTER_ is ours" % (entry, node))
            elif SECRET.search(str(name)):
                found.append("%s: a secret's name seen for %s, every user can read a unit: remove it, API keys go into llama_api_keys" % (entry, node))
            elif isinstance(value, (dict, list)) or re.search(r"[\x00-\x08\x0b-\x1f\x7f]", str(value)):
                found.append("%s: %r seen for %s, text without control characters is needed" % (entry, value, node))
    return found


def _header_errors(entry, header):
    if not isinstance(header, dict):
        return ["%s: %r seen, a map is needed" % (entry, header)]
    found = [
        "%s.%s: unknown key%s" % (entry, key, near(key, HEADER_KEYS, "; known keys: " + ", ".join(HEADER_KEYS))) for key in header if key not in HEADER_KEYS
    ]
    missing = [key for key, (_name, required) in HEADER_KEYS.items() if required and key not in header]
    if header and missing:
        found.append("%s: %s missing, all of what the header of its GGUF file says of them is needed to estimate a plan" % (entry, ", ".join(missing)))
    for key, value in header.items():
        if key == "architecture":
            continue
        if not _is(value, int) or value < 1:
            found.append("%s.%s: %r seen, a whole number above 0 is needed" % (entry, key, value))
        elif key == "block_count" and value > MAX_BLOCKS:
            found.append("%s.%s: %d seen, 1 to %d is needed" % (entry, key, value, MAX_BLOCKS))
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


def _route_errors(routes, services, models):
    """llama_routes: {default: NAME, tasks: {task: NAME}}, where a name is a service, or a model that some service serves."""
    served = set(services)
    for service in services.values():
        for name in [service["model"]] if "model" in service else service["models"]:
            served.update([name] + list(models[name].get("aliases") or []))
    found = ["llama_routes.%s: unknown key; known keys: default, tasks" % key for key in routes if key not in ("default", "tasks")]
    targets = [("default", routes["default"])] if "default" in routes else []
    targets += [("tasks.%s" % task, name) for task, name in (routes.get("tasks") or {}).items()]
    found.extend(
        "llama_routes.%s: %s is served by no service, one of %s is needed%s" % (route, name, ", ".join(sorted(served)), near(name, served))
        for route, name in targets
        if name not in served
    )
    return found


def _key_errors(api_keys, services):
    """llama_api_keys: {SERVICE: [KEY]}. No sentence shows a key."""
    if not isinstance(api_keys, dict):
        return ["llama_api_keys: no map seen, a map of service to list of keys is needed"]
    found = []
    for name, keys in api_keys.items():
        entry = "llama_api_keys.%s" % name
        if name not in services:
            found.append("%s: no service of that name, one of %s is needed%s" % (entry, ", ".join(sorted(services)), near(name, services)))
        elif not isinstance(keys, list) or not keys:
            seen = "an empty list" if keys == [] else "no list"
            found.append("%s: %s seen, a list of at least one key is needed: add a key or remove the entry" % (entry, seen))
        else:
            found.extend(
                "%s: key %d is no plain text, letters, digits and punctuation without spaces or a # in front are needed: choose another" % (entry, number)
                for number, key in enumerate(keys, 1)
                # A key from a vault may be an object that only becomes text.
                if isinstance(key, (int, float, dict, list, type(None))) or not API_KEY.match(str(key))
            )
    return found


def _shown(name):
    """A name that makes no line of its own."""
    return name if str(name).isprintable() else ascii(name)


def _is(value, form):
    if form is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, form)


def _type_name(form):
    return " or ".join(TYPE_NAMES[one] for one in (form if isinstance(form, tuple) else (form,)))
