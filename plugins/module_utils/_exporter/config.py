# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The sampler's configuration, and other files that it reads. Private to the collection."""

from __future__ import annotations

import glob
import json
import os
from typing import Any, NamedTuple

from .. import _files
from .._llama.api import count, table
from .._node import paths
from .._text import Refusal

LARGEST = 1 << 20


class Http(NamedTuple):
    """allowed: client addresses."""

    address: str
    port: int
    allowed: list[str]


class Config(NamedTuple):
    """The content of sampler.json. textfile: a directory of node_exporter; planned: {unit: bytes of main memory};
    models: {service: {model, quant}}; stopped: units that the inventory has stopped; primary: the service whose units
    have no service in their names, for the role."""

    version: str = ""
    http: Http | None = None
    textfile: str | None = None
    disks: list[str] = []
    fabric_address: str = ""
    planned: dict[str, int] = {}
    models: dict[str, dict[str, str]] = {}
    stopped: list[str] = []
    primary: str = ""
    certificate: str = ""


class Watched(NamedTuple):
    """A unit of the watchdog's configuration. kind: head, router or rpc."""

    service: str
    kind: str
    unit: str
    settings: dict[str, Any]


def load(path: str = paths.SAMPLER) -> Config:
    """Errors: Refusal."""
    try:
        content = json.loads(_files.read_trusted(path, LARGEST).decode("utf-8"))
        http = content.pop("http", None)
        return Config(http=http and Http(**http), **content)
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise Refusal(f"{path}: cannot be used ({error}): run site.yml with --tags monitoring again") from None


def written(path: str = paths.SAMPLER) -> tuple[int, int] | None:
    """Changes with each write of sampler.json; None without one."""
    try:
        seen = os.stat(path)
    except OSError:
        return None
    return seen.st_mtime_ns, seen.st_ino


def watched(folder: str = paths.WATCHED) -> list[Watched]:
    """The units that roles head_server, router_server and rpc_worker configured the watchdog with."""
    found = []
    for path in sorted(glob.glob(os.path.join(folder, "*.json"))):
        content = read_json(path)
        service = os.path.basename(path)[: -len(".json")].partition("-")[2]
        if content.get("kind") in ("head", "router", "rpc") and isinstance(content.get("unit"), str):
            found.append(Watched(service, content["kind"], content["unit"], content))
    return found


def read(path: str, most: int = LARGEST) -> str:
    """A file's text, "" if it does not exist."""
    try:
        with open(path, encoding="utf-8", errors="replace") as stream:
            return stream.read(most)
    except OSError:
        return ""


def read_json(path: str) -> dict[str, Any]:
    """A JSON object, empty if there is no valid one."""
    try:
        return table(json.loads(read(path)))
    except (ValueError, RecursionError):
        return {}


def repairs(unit: str) -> dict[str, Any]:
    """The watchdog's repairs of a unit: {count, at, reason}."""
    content = read_json(paths.REPAIRS_FILES.replace("*", unit[: -len(".service")]))
    at = content.get("at")
    return {
        "count": count(content.get("count")),
        "at": at if isinstance(at, (int, float)) else None,
        "reason": str(content.get("reason") or "")[:200],
    }
