# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What others tell the engine through files while it runs: which endpoints are drained, and which a registry has beside
the configuration's. Private to the collection."""

from __future__ import annotations

import json
import os
from typing import Any

from .._files import text_of
from .._node.notify import say
from .._text import printable
from .config import PATIENCE, QUEUE, SILENCE, Address, Config, Model, Service
from .replicas import CHANGE, MAINTENANCE, Drained

# Slots that a file may claim.
MOST_SLOTS = 64


def table(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


class Watched:
    """A file that others replace."""

    def __init__(self, path: str | None, absent: Any) -> None:
        self.path, self.value = path, absent
        self._absent = absent  # what holds without the file; None: what was there last
        self._seen: tuple[int, ...] | None = None

    def look(self) -> bool:
        """Whether it says something else than before. A broken file changes nothing, and is told of once."""
        if not self.path:
            return False
        try:
            now = os.stat(self.path)
        except OSError:
            gone = self._seen is not None and self._absent is not None and self.value != self._absent
            self._seen = None
            if gone:
                self.value = self._absent
            return gone
        seen = (now.st_mtime_ns, now.st_size, now.st_ino)
        if seen == self._seen:
            return False
        self._seen = seen
        try:
            text = text_of(self.path)
            if text is None:
                raise ValueError("no regular file")
            value = json.loads(text)
            if not isinstance(value, dict) or not isinstance(value.get("endpoints"), list):
                raise ValueError("no list of endpoints")
        except (ValueError, RecursionError) as error:
            say(f"{self.path}: cannot be read ({printable(error)}): what it said before still holds")
            return False
        if value == self.value:
            return False
        self.value = value
        return True


def drained(value: dict[str, Any]) -> list[Drained]:
    """Of draining.json; what has no service or node is nobody's."""
    found = []
    for entry in value["endpoints"]:
        service, node, reason = [table(entry).get(key) for key in ("service", "node", "reason")]
        if isinstance(service, str) and isinstance(node, str):
            found.append(Drained(service, node, MAINTENANCE if reason == MAINTENANCE else CHANGE))
    return found


def merged(config: Config, registry: dict[str, Any]) -> tuple[Config, list[Drained]]:
    """The configuration with a registry's endpoints: replicas of its services, or services of their own; and those that
    the registry says are drained. Addresses are those of the inventory's nodes alone."""
    services, names, tiers, drains = dict(config.services), dict(config.names), dict(config.tiers), []
    allowed = set(config.hosts.values())
    for entry in registry["endpoints"] if config.hosts else ():
        where = _address(entry)
        if where is None or where.address not in allowed:
            continue
        models = [name for name in entry.get("models") or () if isinstance(name, str)]
        service = services.get(entry["service"])
        if service is None:
            service = _service(entry, models)
        elif not service.started:
            continue
        known = {(one.address, one.port) for one in service.endpoints}
        own = config.services.get(service.name)
        # Where the inventory says who serves, a file does not add to it.
        if own is not None and own.endpoints and (where.address, where.port) not in known:
            continue
        if (where.address, where.port) not in known:
            service = service._replace(endpoints=(*service.endpoints, where))
        if entry.get("state") == "draining":
            drains.append(Drained(service.name, "%s:%d" % (where.address, where.port), CHANGE))
        services[service.name] = service
        for model in service.models:
            for name in (model.name, *model.aliases):
                names.setdefault(name, (service.name, model.name))
        if service.tier:
            tiers.setdefault(service.tier, service.name)
    return config._replace(services=services, names=names, tiers=tiers), drains


def _address(entry: Any) -> Address | None:
    if not isinstance(entry, dict) or not isinstance(entry.get("models") or [], list):
        return None
    texts = [entry.get(key) for key in ("service", "node", "address")]
    port, slots = entry.get("port"), entry.get("slots")
    if (
        not all(isinstance(text, str) and text for text in texts)
        or not isinstance(port, int)
        or isinstance(port, bool)
        or not 0 < port < 65536
    ):
        return None
    told = min(max(1, slots), MOST_SLOTS) if isinstance(slots, int) else None
    return Address(str(texts[1]), str(texts[2]), port, told or 1, told or MOST_SLOTS)


def _service(entry: dict[str, Any], models: list[str]) -> Service:
    """Of one that only the registry knows: its first name is the model's own."""
    told: dict[str, Any] = {
        "name": (models or [entry["service"]])[0],
        "aliases": models[1:],
        "embeddings": False,
        "max_tokens": None,
    }
    told.update({key: entry.get(key) for key in ("quant", "build", "slot_ctx_size")})
    tier = entry.get("tier")
    model = Model(told["name"], tuple(models[1:]), told)
    return Service(
        name=entry["service"],
        kind="server",
        tier=tier if isinstance(tier, str) else None,
        models=(model,),
        endpoints=(),
        started=True,
        fallback=None,
        timeout=SILENCE,
        queue=QUEUE,
        patience=PATIENCE,
    )
