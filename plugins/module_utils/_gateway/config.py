# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the gateway is configured to do: gateway.json and keys.json, read once and held as records. Private to the
collection."""

from __future__ import annotations

import hashlib
import json
import os
from typing import Any, NamedTuple

from .._text import Refusal, printable

# Of a service for which nothing else is told: seconds without a word, how many requests may wait, and seconds within
# which it is waited for while it recovers.
SILENCE, QUEUE, PATIENCE = 7200.0, 64, 60.0
NEXT = "run site.yml with --tags gateway again"


class Model(NamedTuple):
    """A name that a service answers to. told: its entry as gateway.json has it, for whoever reads status.json."""

    name: str
    aliases: tuple[str, ...]
    told: dict[str, Any]


class Address(NamedTuple):
    """Where a replica listens. most: slots that it may claim to have."""

    node: str
    address: str
    port: int
    slots: int
    most: int


class Service(NamedTuple):
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

    def model(self, name: str | None) -> Model | None:
        for one in self.models:
            if name == one.name or name in one.aliases:
                return one
        return None


class Config(NamedTuple):
    services: dict[str, Service]
    names: dict[str, tuple[str, str]]  # of a model or an alias: service, and the model's own name
    tiers: dict[str, str]  # service of each
    unserved: dict[str, str]
    default: str | None
    tasks: dict[str, str]
    unknown_model: str
    required: bool
    hosts: dict[str, str]  # addresses that a registry may name
    told: dict[str, Any]  # gateway.json itself


class Keys(NamedTuple):
    clients: dict[bytes, str]  # by the digest of each key, its name
    services: dict[str, str]

    def name(self, key: str | None) -> str | None:
        """Whose key it is."""
        return self.clients.get(digest(key)) if key else None


def digest(key: str) -> bytes:
    """A key is looked up by its digest: how long that takes tells nothing of other keys."""
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()


class Reader:
    """Values of a parsed file, each of the type that is needed there."""

    def __init__(self, path: str, value: Any, where: str = "") -> None:
        self.path, self.where = path, where
        if not isinstance(value, dict):
            raise self.wrong(where or "the file", value, "a map")
        self.value: dict[str, Any] = value

    def wrong(self, key: str, seen: Any, needed: str) -> Refusal:
        return Refusal(f"{self.path}: {key}: {printable(repr(seen), 60)} seen, {needed} is needed: {NEXT}")

    def get(self, key: str, types: tuple[type, ...], default: Any = None) -> Any:
        value = self.value.get(key)
        if value is None:
            if default is None and type(None) not in types:
                raise self.wrong(self.where + key, None, types[0].__name__)
            return default
        if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
            raise self.wrong(self.where + key, value, types[0].__name__)
        return value

    def choice(self, key: str, allowed: tuple[str, ...], default: str) -> str:
        value: str = self.get(key, (str,), default)
        if value not in allowed:
            raise self.wrong(self.where + key, value, " or ".join(allowed))
        return value

    def texts(self, key: str) -> dict[str, str]:
        value: dict[str, str] = self.get(key, (dict,), {})
        for name, one in value.items():
            if not isinstance(one, str):
                raise self.wrong(f"{self.where}{key}.{name}", one, "text")
        return value

    def each(self, key: str) -> list[Reader]:
        value = self.get(key, (list,), [])
        return [Reader(self.path, one, "%s%s[%d]." % (self.where, key, at)) for at, one in enumerate(value)]


def parse(data: Any, path: str) -> Config:
    """Of gateway.json's value. Errors: Refusal."""
    top = Reader(path, data)
    if top.get("version", (int,)) != 1:
        raise top.wrong("version", top.value["version"], "1")
    services = {
        name: _service(name, Reader(path, value, f"services.{name}."))
        for name, value in top.get("services", (dict,), {}).items()
    }
    names: dict[str, tuple[str, str]] = {}
    tiers: dict[str, str] = {}
    # A model's own name comes before an alias of another one, and what is started before what is stopped.
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
    for service in services.values():
        if service.fallback is not None and service.fallback not in services:
            raise top.wrong(f"services.{service.name}.fallback", service.fallback, "the name of a service")
    routes = Reader(path, top.get("routes", (dict,), {}), "routes.")
    registry = top.get("registry", (dict, type(None)))
    return Config(
        services=services,
        names=names,
        tiers=tiers,
        unserved=top.texts("unserved"),
        default=routes.get("default", (str, type(None))),
        tasks=routes.texts("tasks"),
        unknown_model=top.choice("unknown_model", ("404", "400", "default"), "404"),
        required=top.choice("auth", ("required", "log_only"), "required") == "required",
        hosts=Reader(path, registry, "registry.").texts("hosts") if registry else {},
        told=top.value,
    )


def _service(name: str, reader: Reader) -> Service:
    models = tuple(
        Model(one.get("name", (str,)), tuple(str(alias) for alias in one.get("aliases", (list,), [])), one.value)
        for one in reader.each("models")
    )
    endpoints = tuple(
        Address(one.get("node", (str,)), one.get("address", (str,)), one.get("port", (int,)), slots, slots)
        for one in reader.each("endpoints")
        for slots in [one.get("slots", (int,), 1)]
    )
    return Service(
        name=name,
        kind=reader.choice("kind", ("server", "router"), "server"),
        tier=reader.get("tier", (str, type(None))),
        models=models,
        endpoints=endpoints,
        started=reader.choice("state", ("started", "stopped"), "started") == "started",
        fallback=reader.get("fallback", (str, type(None))),
        timeout=float(reader.get("timeout", (float, int), SILENCE)),
        queue=reader.get("queue", (int,), QUEUE),
        patience=float(reader.get("patience", (float, int), PATIENCE)),
    )


def parse_keys(data: Any, path: str) -> Keys:
    """Of the value of keys.json. Errors: Refusal."""
    reader = Reader(path, data)
    clients: dict[bytes, str] = {}
    for name, given in reader.get("clients", (dict,), {}).items():
        # Several of one name: one is exchanged for the other while both hold.
        for key in given if isinstance(given, list) else [given]:
            if not isinstance(key, str):
                raise Refusal(f"{path}: clients.{printable(name, 60)}: no text seen, a key is needed: {NEXT}")
            clients[digest(key)] = name
    return Keys(clients, reader.texts("services"))


def load(folder: str) -> tuple[Config, Keys]:
    """Both files of a folder. Errors: Refusal."""
    gateway, keys = (os.path.join(folder, name) for name in ("gateway.json", "keys.json"))
    return parse(read_json(gateway), gateway), parse_keys(read_json(keys), keys)


def read_json(path: str) -> Any:
    """A file's value. Errors: Refusal."""
    try:
        with open(path, encoding="utf-8") as stream:
            return json.load(stream)
    except OSError as error:
        raise Refusal(f"{path} cannot be read ({error.strerror}): {NEXT}") from None
    except (ValueError, RecursionError) as error:
        raise Refusal(f"{path} is no JSON ({printable(error)}): {NEXT}") from None
