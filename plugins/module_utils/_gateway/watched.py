# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files that the engine watches: draining endpoints, and the endpoints of a registry. Private to the collection."""

from __future__ import annotations

import contextlib
import json
import os
from typing import Any

from .._files import text_of
from .._node.notify import say
from .._text import printable
from .config import Address, Config, Service, Waiting, parse
from .replicas import CHANGE, MAINTENANCE, NO_WORD, Drained

# The most slots that a file may report.
MOST_SLOTS = 64
MALFORMED = (KeyError, TypeError, ValueError, AttributeError)


class Watched:
    """A file that other programs replace. absent: the value without the file; None: the last value stays."""

    def __init__(self, path: str | None, absent: Any) -> None:
        self.path, self.value = path, absent
        self._absent = absent
        self._seen: tuple[int, ...] | None = None

    def look(self) -> bool:
        """Reads the file. True if its value has changed. A broken file changes nothing and is reported once."""
        if not self.path:
            return False
        before = self.value
        try:
            now = os.stat(self.path)
        except OSError:
            if self._seen is not None and self._absent is not None:
                self.value = self._absent
            self._seen = None
            return bool(self.value != before)
        seen = (now.st_mtime_ns, now.st_size, now.st_ino)
        if seen != self._seen:
            self._seen = seen
            try:
                value = json.loads(text_of(self.path) or "")
                self.value = {**value, "endpoints": list(value["endpoints"])}
            except (*MALFORMED, RecursionError) as error:
                say(f"{self.path}: cannot be read ({printable(error)}): its last content stays valid")
        return bool(self.value != before)


def drained(value: dict[str, Any]) -> list[Drained]:
    """The draining endpoints of draining.json."""
    found = []
    for entry in value["endpoints"]:
        with contextlib.suppress(*MALFORMED):
            reason = MAINTENANCE if entry.get("reason") == MAINTENANCE else CHANGE
            found.append(Drained(str(entry["service"]), str(entry["node"]), reason))
    return found


def merged(config: Config, registry: dict[str, Any]) -> tuple[Config, list[Drained]]:
    """The configuration with a registry's endpoints, which are replicas or new services, and the endpoints that the
    registry drains. Only addresses of the inventory's nodes count."""
    services, names, tiers, drains = dict(config.services), dict(config.names), dict(config.tiers), []
    for entry in registry["endpoints"]:
        try:
            slots = min(max(1, entry["slots"]), MOST_SLOTS) if entry.get("slots") else None
            where = Address(str(entry["node"]), entry["address"], int(entry["port"]), slots or 1, slots or MOST_SLOTS)
            service = services.get(entry["service"]) or _service(entry)
        except MALFORMED:
            continue
        if where.address not in config.hosts.values() or not service.started:
            continue
        known = {(one.address, one.port) for one in service.endpoints}
        own = config.services.get(service.name)
        waits = entry.get("state") == "waiting"
        if waits or (where.address, where.port) not in known:
            # A file adds nothing to a service of the inventory that has servers.
            if own is not None and own.endpoints:
                continue
            service = service._replace(
                waiting=_waiting(entry) if waits else service.waiting,
                endpoints=service.endpoints if waits else (*service.endpoints, where),
            )
        if entry.get("state") == "draining":
            # A job that gives up its GPUs is not soon back: its requests go elsewhere.
            reason = MAINTENANCE if service.by_slurm else CHANGE
            drains.append(Drained(service.name, "%s:%d" % (where.address, where.port), reason))
        services[service.name] = service
        for model in service.models:
            for name in (model.name, *model.aliases):
                names.setdefault(name, (service.name, model.name))
        if service.tier:
            tiers.setdefault(service.tier, service.name)
    return config._replace(services=services, names=names, tiers=tiers), drains


def _waiting(entry: dict[str, Any]) -> Waiting:
    return Waiting(
        str(entry["node"]), str(entry.get("why") or NO_WORD.why), int(entry.get("retry_after") or NO_WORD.retry_after)
    )


def _service(entry: dict[str, Any]) -> Service:
    """A service that only the registry has. Its first name is the model."""
    name, *aliases = [str(one) for one in entry.get("models") or [entry["service"]]]
    model = {"name": name, "aliases": aliases, "embeddings": False}
    model.update({key: entry.get(key) for key in ("quant", "build", "slot_ctx_size")})
    service = {"tier": str(entry["tier"]) if entry.get("tier") else None, "models": [model]}
    return parse({"version": 1, "services": {str(entry["service"]): service}}).services[str(entry["service"])]
