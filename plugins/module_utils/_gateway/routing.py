# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Finds the service of a request by port, task and model. Private to the collection."""

from __future__ import annotations

from typing import Any, NamedTuple

from . import answers
from .answers import Answer
from .config import Config, Service


class Route(NamedTuple):
    """model: the model at that service; rewrite: its name, if the body has to be changed; note: value of the header
    X-Llama-Task."""

    service: Service
    model: str
    rewrite: str | None = None
    note: str | None = None


def of_tier(config: Config, tier: str, asked: Any) -> Route | Answer:
    """The service of a tier, whatever model the request names."""
    service = config.services.get(config.tiers.get(tier, ""))
    if service is None:
        words = f"no service has tier {answers.shown(tier)}: give a service this tier"
        return answers.error(503, "no_endpoint", words, retry_after=30)
    if service.kind == "server":
        return Route(service, service.models[0].name if service.models else "")
    return _of_router(service, asked if isinstance(asked, str) else None)


def _of_router(service: Service, asked: str | None) -> Route:
    """The route to a router, which needs one of its own names."""
    model = service.model(asked) or (service.models[0] if service.models else None)
    name = model.name if model else asked or ""
    return Route(service, name, rewrite=None if name == asked else name)


def of_model(config: Config, task: str | None, asked: Any) -> Route | Answer:
    """The route at the port of all services. The task comes before the model."""
    if task is not None:
        name, note = config.tasks.get(task), None
        if name is None:
            name, note = config.default, f"default; unknown task {answers.shown(task)}"
        if name is None:
            near = answers.nearest(task, sorted(config.tasks))
            words = "The task %s has no route, and llama_routes has no default: %s" % (
                answers.shown(task),
                "use " + " or ".join(near) if near else "name a model",
            )
            return answers.error(404, "task_not_found", words, "task")
        return _named(config, name, note=note, asked=asked, forced=True)
    if asked is None and config.default is not None:
        return _named(config, config.default, asked=asked, forced=True)
    if not isinstance(asked, str):
        return answers.error(400, "model_missing", "model: no name seen, the name of a model is needed", "model")
    if asked not in config.names and asked not in config.unserved:
        if config.unknown_model == "default" and config.default is not None:
            return _named(config, config.default, asked=asked, forced=True)
        return answers.unknown_model(asked, config)
    return _named(config, asked, asked=asked)


def _named(
    config: Config, name: str, note: str | None = None, asked: Any = None, forced: bool = False
) -> Route | Answer:
    """forced: the body names another model and has to be changed."""
    if name not in config.names:
        return answers.unknown_model(name, config)
    service, model = config.names[name]
    there = config.services[service]
    rewrite = model if asked != model and (forced or there.kind == "router") else None
    return Route(there, model, rewrite, note)


def to_fallback(config: Config, route: Route) -> Route | None:
    """The route to the fallback of a service, if it has one."""
    other = config.services.get(route.service.fallback or "")
    if other is None or not other.models:
        return None
    model = other.model(route.model) or other.models[0]
    return Route(other, model.name, model.name, route.note)
