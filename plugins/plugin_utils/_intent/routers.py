# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A router's models, each as the entry of a service that serves only it: what checks, plan and command lines see; and
which keys are not for routers. Private to the collection."""

from collections.abc import Iterable, Mapping
from typing import Any

from ...module_utils._companion_keys import COMPANIONS
from ...module_utils._settings import BY_KIND, FAMILY_KEYS, MODEL_KEYS
from . import variables
from .records import Settings
from .values import unknown_key

# Keys that say the same in other ways: a model's own replaces all of them.
SAME = (("ctx_size", "slot_ctx_size"), ("cache", "cache_type_k", "cache_type_v"), ("load_mode", "mmap"))
SHARED = (*MODEL_KEYS, "build", "cards", "launcher", "state")


def quants(service: Settings) -> dict[str, str]:
    """{model: quant} of what a service serves, a router several."""
    if "models" not in service:
        return {service["model"]: service["quant"]}
    return {name: own_settings(own)["quant"] for name, own in service["models"].items()}


def own_settings(own: Any) -> Mapping[str, Any]:
    """The settings of a router's model."""
    return own if isinstance(own, Mapping) else {"quant": own}


def as_service(service: Settings, model: str) -> dict[str, Any]:
    """The entry of a service that serves one model of a router only, without a draft model."""
    own = own_settings(service["models"][model])
    replaced = {name for names in SAME for name in names if any(one in own for one in names)}
    shared = {name: service[name] for name in SHARED if name in service and name not in replaced}
    return {**shared, **own, "model": model, "head": service["head"], "draft": False}


def wrong_key(entry: str, key: Any, known: Iterable[str], kind: str) -> str:
    """A sentence for a key that an entry does not have. kind: server, router, or model for a model of a router."""
    if key in variables.known():
        return f"{entry}.{key}: seen in a service, a variable of nodes is needed: write it in group_vars or hosts.yml"
    if key == "aliases":
        return (
            "%s.aliases: unknown key: write aliases of a model in llama_models, or the names of this service as names"
            % entry
        )
    of_models = {"model", "quant", *FAMILY_KEYS, *(one.name for one in COMPANIONS)} - {"draft"}
    of_router, of_model = key in BY_KIND["router"], key in of_models
    rows = (
        (kind == "server" and of_router, "a key of routers: add kind: router, without model and quant, or drop it"),
        (kind == "model" and of_router, "a key of the whole router: write it beside models"),
        (kind == "router" and of_model, "a key of each model: write it below models, as in NAME: {quant: QUANT}"),
        (key in BY_KIND["server"], "no key of routers: drop it, or make the model a service of its own"),
    )
    hint = next((text for applies, text in rows if applies), "")
    return f"{entry}.{key}: {hint}" if hint else unknown_key(entry, key, known)
