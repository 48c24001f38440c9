# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The models that a node needs, and which node copies them from which. Private to the collection."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import unquote

from ...module_utils._companion_keys import ADAPTER, PROJECTOR, companions
from ...module_utils._llama.drafts import model_of
from ...module_utils._settings import resolved
from .hosts import expand
from .records import Groups, ModelItem, Models, Services, Settings
from .routers import as_service, quants


def model_items(services: Services, models: Models, host: str, groups: Groups, models_dir: str) -> list[ModelItem]:
    """The models a node holds: a model lives where its head runs, with its draft model, its projector
    and its adapters. The last two have their name as quant."""
    items: dict[str, ModelItem] = {}
    wanted: list[tuple[str, str]] = []
    for service in services.values():
        if host in expand(service["head"], groups):
            wanted.extend(quants(service).items())
            wanted.extend((name, file) for name in quants(service) for file in _companions(service, name, models))
            draft = resolved(service, models[service["model"]]).get("draft") if "model" in service else None
            second = model_of(draft)
            wanted.extend([second] if second else [])
    for name, quant_name in wanted:
        model = models[name]
        quant = files_of(model, quant_name)
        dest = f"{models_dir}/{model_file(model, quant_name)}"
        items[dest] = ModelItem(
            model=name,
            quant=quant_name,
            dest=dest,
            urls=list(quant.get("urls") or []),
            repo=model.get("repo", ""),
            revision=model.get("revision", "main"),
            files=list(quant.get("files") or []),
            sha256=list(quant.get("sha256") or []),
        )
    return [items[dest] for dest in sorted(items)]


def _companions(service: Settings, name: str, models: Models) -> list[str]:
    own = as_service(service, name) if "models" in service else service
    return companions(resolved(own, models[name]))


def companion_paths(settings: Settings, path: Callable[[str, str], str]) -> dict[str, Any]:
    """The paths of the files beside its model, as in Head. path: of a model's file, by its name."""
    model = settings["model"]
    return {
        "mmproj_path": path(model, PROJECTOR) if settings.get("mmproj") else "",
        "lora_paths": {name: path(model, f"{ADAPTER}{name}") for name in settings.get("lora") or {}},
    }


def files_of(model: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """The entry of a quant, of the projector, or of an adapter."""
    if name == PROJECTOR:
        return model["mmproj"]
    return model["loras"][name[len(ADAPTER) :]] if name.startswith(ADAPTER) else model["quants"][name]


def model_fan_out(nodes: Sequence[Mapping[str, Any]], host: str) -> list[dict[str, Any]]:
    """The models of ``host`` and whether it fetches each one itself or copies it from another node that fetches it.

    nodes: [{host, address, items, there}] in inventory order; address: on the fabric, empty for none; items: of
    model_items(); there: paths of those that the node has, whole.
    -> the host's items, each with source (the node it copies from, empty for fetching it itself), original (its path
    there) and address (the host's own).
    """
    own = next(node for node in nodes if node["host"] == host)
    found = []
    for item in own["items"]:
        # The first that may lend it; one that has it comes before one that fetches it. A file URL names what every node
        # has by itself.
        local = item.get("urls") and are_local(item["urls"])
        holders = (
            []
            if local or not own["address"]
            else [(node, same) for node in nodes if node["address"] for same in node["items"] if _same(item, same)]
        )
        holders.sort(key=lambda holder: holder[1]["dest"] not in holder[0].get("there", []))
        source, original = holders[0] if holders else (own, item)
        lent = source["host"] != host
        found.append(
            dict(item, source=source["host"] if lent else "", original=original["dest"], address=own["address"])
        )
    return found


def are_local(urls: Sequence[str]) -> bool:
    """Whether these are files on the disk of the node that holds the model."""
    return all(url.startswith(("file:", "/")) for url in urls)


def _same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether two items are one model from one place, under whatever path."""
    defaults: dict[str, Any] = {"urls": [], "repo": "", "revision": "main", "files": [], "sha256": []}
    return all((one.get(key) or default) == (other.get(key) or default) for key, default in defaults.items())


def model_file(model: Mapping[str, Any], quant: str) -> str:
    """The name that files are published under: `file`, or its only source's name, or the name its raw pieces share."""
    spec = files_of(model, quant)
    if spec.get("file"):
        return spec["file"]
    first = spec["files"][0] if spec.get("files") else unquote(spec["urls"][0].split("?")[0])
    return re.sub(r"\.part(\d+of\d+|\d+)\Z", "", first.rsplit("/", 1)[-1])
