# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The gateway's configuration: gateway.json and keys.json as records. Private to the collection.

Role gateway writes both files. A malformed file is refused.
"""

from __future__ import annotations

import hashlib
import json
import os
from typing import Any, NamedTuple

from .._text import Refusal, printable

# Defaults of a service: seconds without a byte, requests in its queue, and seconds that requests wait for its recovery.
SILENCE, QUEUE, PATIENCE = 7200.0, 64, 60.0
NEXT = "run site.yml with --tags gateway again"


class Model(NamedTuple):
    """A model of a service. entry: its entry in gateway.json, also shown in status.json."""

    name: str
    aliases: tuple[str, ...]
    entry: dict[str, Any]


class Address(NamedTuple):
    """The address of a replica. most: the most slots that it may report."""

    node: str
    address: str
    port: int
    slots: int
    most: int


class Waiting(NamedTuple):
    """A job that waits. node: where its server will be; why: a sentence; retry_after: seconds until clients may ask
    again."""

    node: str
    why: str
    retry_after: int


class Service(NamedTuple):
    """by_slurm: its servers are jobs, which register themselves; waiting: the word of a registry on the job to come."""

    name: str
    kind: str
    tier: str | None
    models: tuple[Model, ...]
    endpoints: tuple[Address, ...]
    started: bool
    fallback: str | None
    timeout: float
    queue: int
    patience: float
    by_slurm: bool
    waiting: Waiting | None = None

    def model(self, name: str | None) -> Model | None:
        return next((one for one in self.models if name == one.name or name in one.aliases), None)


class Config(NamedTuple):
    services: dict[str, Service]
    names: dict[str, tuple[str, str]]  # {model or alias: (service, model)}
    tiers: dict[str, str]  # {tier: service}
    unserved: dict[str, str]
    default: str | None
    tasks: dict[str, str]
    unknown_model: str
    required: bool
    hosts: dict[str, str]  # addresses that a registry may name
    document: dict[str, Any]  # gateway.json itself


class Keys(NamedTuple):
    clients: dict[bytes, str]  # {digest of a key: name of the client}
    services: dict[str, str]

    def name(self, key: str | None) -> str | None:
        """The name of the client that has this key."""
        return self.clients.get(digest(key)) if key else None


def digest(key: str) -> bytes:
    """Keys are looked up by digest: the time of a lookup reveals nothing about other keys."""
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()


def parse(data: Any) -> Config:
    """The configuration in gateway.json. Errors: ValueError, TypeError, KeyError, AttributeError."""
    if data["version"] != 1 or data.get("auth", "required") not in ("required", "log_only"):
        raise ValueError("version or auth")
    services = {name: _service(name, value) for name, value in data["services"].items()}
    names: dict[str, tuple[str, str]] = {}
    tiers: dict[str, str] = {}
    # Names come before aliases, and started services before stopped ones.
    started_first = sorted(services.values(), key=lambda one: not one.started)
    for service in started_first:
        for model in service.models:
            names.setdefault(model.name, (service.name, model.name))
    for service in started_first:
        for model in service.models:
            for alias in model.aliases:
                names.setdefault(alias, (service.name, model.name))
        if service.tier:
            tiers.setdefault(service.tier, service.name)
        if service.fallback is not None and service.fallback not in services:
            raise ValueError(f"no service {service.fallback}, the fallback of {service.name}")
    routes = data.get("routes") or {}
    return Config(
        services=services,
        names=names,
        tiers=tiers,
        unserved=_texts(data.get("unserved")),
        default=routes.get("default"),
        tasks=_texts(routes.get("tasks")),
        unknown_model=data.get("unknown_model", "404"),
        required=data.get("auth", "required") == "required",
        hosts=_texts((data.get("registry") or {}).get("hosts")),
        document=data,
    )


def _texts(value: Any) -> dict[str, str]:
    return {str(name): str(one) for name, one in (value or {}).items()}


def _service(name: str, value: Any) -> Service:
    return Service(
        name=name,
        kind=value.get("kind", "server"),
        tier=value.get("tier"),
        models=tuple(Model(one["name"], tuple(one.get("aliases", ())), one) for one in value.get("models", ())),
        endpoints=tuple(
            Address(str(one["node"]), str(one["address"]), int(one["port"]), slots, slots)
            for one in value.get("endpoints", ())
            for slots in [int(one.get("slots", 1))]
        ),
        started=value.get("state", "started") == "started",
        fallback=value.get("fallback"),
        timeout=float(value.get("timeout", SILENCE)),
        queue=int(value.get("queue", QUEUE)),
        patience=float(value.get("patience", PATIENCE)),
        by_slurm=value.get("launcher") == "slurm",
    )


def parse_keys(data: Any) -> Keys:
    """The keys in keys.json. A name has several keys while one is exchanged. Errors: as parse()."""
    clients = {
        digest(key): name
        for name, given in data.get("clients", {}).items()
        for key in (given if isinstance(given, list) else [given])
    }
    return Keys(clients, _texts(data.get("services")))


def load(folder: str) -> tuple[Config, Keys]:
    """Both files of a folder. Errors: Refusal."""
    found = []
    for name, parsed in (("gateway.json", parse), ("keys.json", parse_keys)):
        path = os.path.join(folder, name)
        try:
            with open(path, encoding="utf-8") as stream:
                found.append(parsed(json.load(stream)))
        except OSError as error:
            raise Refusal(f"{path} cannot be read ({error.strerror}): {NEXT}") from None
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            # No message may show a key: only the type of the error is known.
            why = type(error).__name__ if name == "keys.json" else f"{type(error).__name__}: {printable(error)}"
            raise Refusal(f"{path} cannot be used ({why}): {NEXT}") from None
    return found[0], found[1]  # type: ignore[return-value]
