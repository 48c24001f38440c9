# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the sampler is told of its node, and what others have noted there. Private to the collection."""

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
    """allowed: the addresses that are answered."""

    address: str
    port: int
    allowed: list[str]


class Config(NamedTuple):
    """Of sampler.json. textfile: a directory of node_exporter's; planned: {unit: bytes of main memory}; models:
    {service: {model, quant}}; stopped: units that the inventory has stopped; primary: the service whose units have none
    in their names, for who writes the file next."""

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
    """A unit as the watchdog is told of it. kind: head, router or rpc."""

    service: str
    kind: str
    unit: str
    told: dict[str, Any]


def load(path: str = paths.SAMPLER) -> Config:
    """Errors: Refusal."""
    try:
        told = json.loads(_files.read_trusted(path, LARGEST).decode("utf-8"))
        http = told.pop("http", None)
        return Config(http=http and Http(**http), **told)
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise Refusal(f"{path}: cannot be used ({error}): run site.yml with --tags monitoring again") from None


def written(path: str = paths.SAMPLER) -> tuple[int, int] | None:
    """Another value for each time that somebody has written sampler.json; None without one."""
    try:
        seen = os.stat(path)
    except OSError:
        return None
    return seen.st_mtime_ns, seen.st_ino


def watched(folder: str = paths.WATCHED) -> list[Watched]:
    """What role head_server, router_server and rpc_worker have written for the watchdog."""
    found = []
    for path in sorted(glob.glob(os.path.join(folder, "*.json"))):
        told = read_json(path)
        service = os.path.basename(path)[: -len(".json")].partition("-")[2]
        if told.get("kind") in ("head", "router", "rpc") and isinstance(told.get("unit"), str):
            found.append(Watched(service, told["kind"], told["unit"], told))
    return found


def read(path: str, most: int = LARGEST) -> str:
    """A file's text, "" when it is not there."""
    try:
        with open(path, encoding="utf-8", errors="replace") as stream:
            return stream.read(most)
    except OSError:
        return ""


def read_json(path: str) -> dict[str, Any]:
    """A table in a file, an empty one where there is none."""
    try:
        return table(json.loads(read(path)))
    except (ValueError, RecursionError):
        return {}


def repairs(unit: str) -> dict[str, Any]:
    """What the watchdog notes of its repairs of a unit: {count, at, reason}."""
    told = read_json(paths.REPAIRS_FILES.replace("*", unit[: -len(".service")]))
    at = told.get("at")
    return {
        "count": count(told.get("count")),
        "at": at if isinstance(at, (int, float)) else None,
        "reason": str(told.get("reason") or "")[:200],
    }
