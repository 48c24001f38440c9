# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The files of a node's workers or heads, as node_files takes them. Private to the collection."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ...module_utils._node import paths
from ...module_utils._node.systemd_escape import systemd_escape
from ...module_utils._node.units import ANSWERING, unit_name, units_of
from ...module_utils._plan.devices import BY_SLOT
from ...module_utils._plan.stored import stored
from ...module_utils._settings import is_stopped
from .._intent.builds import VISIBLE
from .sandbox import shader_cache, unit_sandbox

Instance = Mapping[str, Any]
Entry = dict[str, Any]

# Fields of an instance that do not change the process: its state, names for the operator, the controller's path of a
# template, the build that listed its flags, and what its arguments say too.
UNSEEN = ("state", "node", "label", "chat_template_file", "asks_build", "kind", "model_paths", "registry", "serves")
# Defaults that are left out of the digest: all of a node's cards, its NUMA policy, no draft, fields of routers.
NOTHING: Mapping[str, Any] = {"cards": None, "numa": "", "draft_path": "", "models": [], "models_max": 0}
NOTHING = {**NOTHING, "mmproj_path": "", "lora_paths": {}}


def unit_files(
    instances: Sequence[Instance],
    kind: str,
    node: Mapping[str, Any],
    process: Mapping[str, Any],
    at_boot: bool,
    plans: Mapping[str, Any] | None = None,
    keys: Mapping[str, Sequence[str]] | None = None,
    salt: str = "",
    templates: Mapping[str, str] | None = None,
    only: Sequence[str] = (),
) -> list[Entry]:
    """Returns units, watched files, memory plans, links that start units at boot, and files to remove because no
    service has them any more.

    kind: rpc, head or router: files of instances of this kind are written, other instances keep theirs;
    node: the fact llama_node with units, `watched` and, for all but rpc, `files` with their models;
    process: settings common to the processes of all units, see the filter; plans, keys, templates: by service; salt:
    root's secret, without which keys could be tried against a digest; only: services whose files are written, all if
    empty.
    """
    plans, templates, everybody = plans or {}, templates or {}, instances
    instances = [item for item in instances if item.get("kind", kind) == kind]
    entries: list[Entry] = []
    written = [item for item in instances if not only or item["service"] in only]
    for item in written:
        accelerator, build = item.get("accelerator", "cpu"), node["build"]["of"][item.get("build", "")]
        release = f"{paths.BUILDS}/releases/{build['current_build'] or item.get('build') or 'none'}"
        sandbox = unit_sandbox(
            accelerator,
            bool(_numactl(item, process)),
            bool(item.get("rdma")),
            node.get("card_groups") or (),
            _shaders(kind, item),
            _named_devices(item, process),
        )
        own = _own_parts(item, node["files"], keys or {}, salt, templates) if kind in ANSWERING else None
        entries.append(
            {
                "path": _unit_path(_unit(kind, item)),
                "template": f"llama-{'rpc' if kind == 'rpc' else 'head'}.service.j2",
                "vars": dict(
                    _words(kind, item, process, release),
                    item=item,
                    release=release,
                    accelerator=accelerator,
                    sandbox=sandbox,
                    digest=digest([process, build["build_sha256"], sandbox, _running_parts(item), own]),
                ),
            }
        )
    for item in written:
        for one in templated(item):
            entries.append({"path": _template_path(one["service"]), "content": templates[one["service"]]})
        if item.get("models"):
            path = paths.PRESETS.replace("*", item["service"])
            entries.append({"path": path, "content": preset(item["models"])})
        # Each replica keeps the plan of its node.
        own = [part for part in plans.get(item["service"], []) if part["node"] == item.get("node", part["node"])]
        if own:
            entries.append({"path": paths.PLANS.replace("*", item["service"]), "content": _text(stored(own))})
        # The watchdog would report a unit without a process.
        if not is_stopped(item):
            entries.append({"path": _watch_path(kind, item["service"]), "content": _text(_watched(kind, item))})
    entries += _boot_links(written, kind, node, at_boot)
    if only:
        return entries
    wanted = {entry["path"] for entry in entries} | {item.get("api_key_file") for item in everybody}
    wanted |= {_template_path(one["service"]) for item in everybody for one in templated(item)}
    gone = [path for path in node["watched"] if path.startswith(_watch_path(kind, "")[: -len(".json")])]
    if kind in ANSWERING:
        # Remaining units tell which services had keys and templates; other files in these directories are unmanaged.
        had = [unit.service or "" for unit in units_of(node["units"]) if unit.kind == kind and unit.managed]
        gone += [f"{paths.KEYS}/{service}" for service in had]
        gone += [path for path in node["templates"] if _template_owner(path, kind) in had]
        gone += [paths.PRESETS.replace("*", service) for service in had if kind == "router"]
        # A service without a plan in this run keeps the plan that it was started with.
        there = [item["service"] for item in everybody]
        gone += [paths.PLANS.replace("*", service) for service in had if service not in there]
    return entries + [{"path": path, "state": "absent", "hidden": True} for path in gone if path not in wanted]


def templated(item: Instance) -> list[Instance]:
    """The instance and its router's models whose chat templates are files."""
    return [one for one in (item, *item.get("models", ())) if one.get("chat_template_file")]


def _template_path(service: str) -> str:
    return paths.TEMPLATES.replace("*", service)


def _template_owner(path: str, kind: str) -> str:
    """The service of a template's path; a router's file may also name a model: no service has a dot in its name."""
    before, _star, after = paths.TEMPLATES.partition("*")
    name = path[len(before) : -len(after)]
    return name.partition(".")[0] if kind == "router" else name


def _unit(kind: str, item: Instance) -> str:
    return item.get("unit") or unit_name(kind, item["service"], bool(item.get("primary")))


def _unit_path(name: str) -> str:
    return f"{paths.UNITS}/{name}"


def process_words(kind: str, item: Instance, process: Mapping[str, Any], release: str) -> dict[str, Any]:
    """The process of a worker, head or router, as its unit and its job start it.

    kind, process: as for unit_files(); release: the directory of its build.
    -> {argv: its words, environment: {name: text}}
    """
    program = f"{release}/bin/{'ggml-rpc-server' if kind == 'rpc' else 'llama-server'}"
    numactl = _numactl(item, process)
    words = [*numactl, program, *item["args"]]
    if kind == "rpc":
        # Its log would stay in its buffer until the first client.
        words = [*numactl, "/usr/bin/stdbuf", "-oL", program, *item["args"]]
    elif numactl:
        words += ["--numa", "numactl"]
    # An abort must not fork a debugger.
    environment = {"GGML_NO_BACKTRACE": "1"}
    if item.get("accelerator") == "cuda":
        # CUDA would order cards by speed: split and indices are in the order of nvidia-smi.
        environment["CUDA_DEVICE_ORDER"] = BY_SLOT
    if item.get("models"):
        # A router offers every file in its download directory beside the models of its preset.
        environment["LLAMA_CACHE"] = paths.NO_MODELS
    environment.update({str(name): str(text) for name, text in process["environment"].items()})
    if item.get("cards") is not None:
        environment[VISIBLE.get(item.get("accelerator", ""), VISIBLE["cuda"])] = ",".join(item["cards"])
    if kind == "rpc" and item.get("cache"):
        environment["LLAMA_CACHE"] = f"{paths.TENSORS}/rpc-{item['service']}"
    return {"argv": [str(word) for word in words], "environment": environment}


def _words(kind: str, item: Instance, process: Mapping[str, Any], release: str) -> dict[str, Any]:
    """Variables of a unit's template, escaped for systemd."""
    words = process_words(kind, item, process, release)
    caches = shader_cache(_shaders(kind, item)) if item.get("accelerator") == "vulkan" else {}
    return {
        "command": " ".join(systemd_escape(word, command=True) for word in words["argv"]),
        # `environment` is Ansible's own in a task.
        "exported": [
            systemd_escape("%s=%s" % variable) for variable in sorted({**caches, **words["environment"]}.items())
        ],
    }


def _shaders(kind: str, item: Instance) -> str:
    """The directory of a unit's compiled shaders, which no other unit writes."""
    return f"{paths.SHADERS}/{_unit(kind, item).removesuffix('.service')}"


def _named_devices(item: Instance, process: Mapping[str, Any]) -> str | None:
    """The devices of Vulkan that the inventory names, None for none; cards of the plan are hardware."""
    if item.get("cards") is not None:
        return None if item["cards"] else ""
    named = process["environment"].get(VISIBLE["vulkan"])
    return None if named is None else str(named)


def _numactl(item: Instance, process: Mapping[str, Any]) -> list[str]:
    """The words before the program; none without NUMA binding."""
    policy = item.get("numa") or "bind"
    if policy == "interleave":
        return ["/usr/bin/numactl", "--interleave=all", "--"]
    node = {"bind": process["numa_node"], "none": ""}.get(policy, policy)
    return ["/usr/bin/numactl", f"--cpunodebind={node}", f"--membind={node}", "--"] if node != "" else []


def _running_parts(item: Instance) -> dict[str, Any]:
    """The fields of an instance that change its process."""
    found = {name: value for name, value in item.items() if name not in UNSEEN}
    found = {name: value for name, value in found.items() if name not in NOTHING or value != NOTHING[name]}
    if "models" in found:
        found["models"] = [_running_parts(one) for one in found["models"]]
    return found


def digest(parts: Any) -> str:
    return hashlib.sha256(_text(parts).encode("utf-8")).hexdigest()[:16]


def _own_parts(
    item: Instance,
    files: Mapping[str, Any],
    keys: Mapping[str, Sequence[str]],
    salt: str,
    templates: Mapping[str, str],
) -> list[Any]:
    """Digest parts of one head. The model's size and time stand for its content: a newly published model means a
    restart."""
    secrets = ([salt] if item.get("api_key_file") else []) + list(keys.get(item["service"], []))
    models = [*(item.get("model_paths") or [item["model_path"]]), item.get("draft_path")]
    parts = [files.get(path) for path in models if path]
    parts += [hashlib.sha256("\n".join(secrets).encode("utf-8")).hexdigest()]
    return parts + [templates[one["service"]] for one in templated(item)]


def _boot_links(instances: Sequence[Instance], kind: str, node: Mapping[str, Any], at_boot: bool) -> list[Entry]:
    """The links that `systemctl enable` would create for WantedBy=."""
    enabled = {unit.name for unit in units_of(node["units"]) if unit.enabled}
    entries: list[Entry] = []
    for item in instances:
        name = _unit(kind, item)
        link: Entry = {"path": paths.AT_BOOT + "/" + name}
        if at_boot and not is_stopped(item):
            entries.append(dict(link, state="link", target=_unit_path(name)))
        elif name in enabled:
            entries.append(dict(link, state="absent"))
    return entries


def _watch_path(kind: str, service: str) -> str:
    return paths.WATCHED_FILES.replace("*", f"{kind}-{service}")


def _watched(kind: str, item: Instance) -> Entry:
    """The watched file of a unit."""
    entry: Entry = {"kind": kind, "unit": _unit(kind, item)}
    if kind == "rpc":
        return dict(entry, address=item["address"], port=int(item["port"]), head_url=item.get("head_url") or "")
    key = item.get("api_key_file")
    serves = item.get("serves", "text")
    if serves != "text":
        # It generates no token.
        entry["embeddings"] = True
    if serves == "scores":
        entry["reranking"] = True
    return dict(
        entry,
        url=item["url"],
        rpc_endpoints=item["rpc_endpoints"],
        api_key_file=key,
        ubatch=int(item.get("ubatch_size") or 512),
    )


def _text(value: Any) -> str:
    """JSON, indented: json then calls the methods of Ansible's lazy containers, which compute their values."""
    return json.dumps(value, indent=4, sort_keys=True, separators=(",", ": ")) + "\n"


# Characters that end a value in the INI, quoted or not. Only JSON values contain them, where an escape works too.
ENDS = {";": "\\u003b", "#": "\\u0023"}


def preset(models: Iterable[Mapping[str, Any]]) -> str:
    """models: of Head.models."""
    found = ["; Written by the collection from llama_services: change the inventory.", "version = 1"]
    found += ["", "[*]", "metrics = true"]
    for one in models:
        found += ["", f"[{one['model']}]", *_lines(one["args"])]
    return "\n".join(found) + "\n"


def _lines(args: Sequence[str]) -> list[str]:
    """Returns a line for each flag. A negative number is a value, not a flag."""
    found: list[str] = []
    for word in args:
        if word.startswith("--"):
            found.append(f"{word[2:]} = true")
        else:
            found[-1] = found[-1][: -len("true")] + "".join(ENDS.get(letter, letter) for letter in word)
    return found
