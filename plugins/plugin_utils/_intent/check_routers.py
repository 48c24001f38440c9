# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is wrong with a router, one sentence a mistake. Private to the collection."""

from collections.abc import Mapping

from ...module_utils._key import Key
from ...module_utils._settings import FAMILY_KEYS, KEYS, MODEL_KEYS
from .builds import dialect_of, entry_of, extra_types
from .check_services import (
    builds_in,
    cards_errors,
    family_of,
    host_errors,
    quant_errors,
    release_errors,
    setting_errors,
    with_types,
)
from .records import Groups, HostVars, Models, Settings
from .routers import own_settings, router_model_key, served_alone
from .values import key_errors, plain, shown

# A draft model would have to be planned for each model that is loaded beside it.
OF_MODEL = {key.name: key for key in KEYS if key.name in {"quant", *MODEL_KEYS, *FAMILY_KEYS} - {"draft"}}


def router_errors(name: str, service: Settings, models: Models, groups: Groups, hostvars: HostVars) -> list[str]:
    """service: with keys and values that service_errors() finds sound."""
    entry = f"llama_services.{name}"
    builds = builds_in(groups, hostvars)
    keys = with_types(OF_MODEL, extra_types(service, builds))
    hosts, found = host_errors(entry, "head", service["head"], groups)
    most = len(service["models"])
    if service.get("models_max", 0) > most:
        found.append(
            "%s.models_max: %d seen, at most %d is allowed, its models: lower it or drop the key"
            % (entry, service["models_max"], most)
        )
    if "cards" in service:
        found.extend(cards_errors(entry, service, {"head": hosts}, builds, hostvars))
    for model, own in service["models"].items():
        found.extend(_map_errors(entry, model, own, keys))
    if found:
        return found
    for model, own in service["models"].items():
        alone = served_alone(service, model)
        found.extend(quant_errors(entry, "models", model, alone["quant"], models))
        place = f"{entry}.models.{model}" if own_settings(own) is own else entry
        where, whole = family_of(place, alone, models)
        told = setting_errors(place, alone, where, whole)
        version = dialect_of(entry_of(service, builds))
        told += [] if found or told else release_errors(where, whole, version)
        found.extend(sentence for sentence in told if sentence not in found)
    return found or _name_errors(entry, service, models)


def _map_errors(entry: str, model: str, own: object, keys: Mapping[str, Key]) -> list[str]:
    entry = f"{entry}.models.{plain(model)}"
    if not isinstance(own, (str, dict)):
        return [f"{entry}: {shown(own)} seen, a quant or a map with quant is needed: correct it"]
    settings = own_settings(own)
    found = [router_model_key(entry, key, keys) for key in settings if key not in keys]
    if "quant" not in settings:
        found.append(f"{entry}.quant: missing, one of the quants of the model is needed: add it")
    return found + [
        wrong for key in settings if key in keys for wrong in key_errors(f"{entry}.{key}", settings[key], keys[key])
    ]


def _name_errors(entry: str, service: Settings, models: Models) -> list[str]:
    """Names by which requests could not find their model. A preset's name is a model's and its quant's to llama.cpp,
    which writes the latter anew."""
    found, taken = [], dict.fromkeys(service["models"], "")
    for model in service["models"]:
        if ":" in model or model == "default":
            found.append(
                "%s.models: %s seen, a name without a colon that is not default is needed, since llama.cpp reads it as "
                "another one: rename the model" % (entry, model)
            )
        for alias in models[model].get("aliases") or []:
            other = taken.setdefault(alias, model)
            if other != model:
                found.append(
                    "%s.models: %s seen as a name of %s and of %s, a name of one of them alone is needed: remove it "
                    "from the aliases" % (entry, alias, other or alias, model)
                )
    return found
