# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is wrong with several services together, with routes and with API keys, one sentence a mistake. Private to the
collection."""

import re
from collections.abc import Mapping
from typing import Any

from . import gateway
from .hosts import expand
from .records import Groups, HostVars, Models, Services, Settings
from .values import near, plain, type_errors

# What an HTTP header carries, a line of a key file keeps, and nginx reads as it stands.
API_KEY = re.compile(r"^(?!#)(?!.*[\"$\\])[!-~]+\Z")
TASK = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}\Z")
# What the example inventory has in a key's place: everybody knows it.
EXAMPLE_KEY = "put-a-key-of-your-own-here"


def shared_errors(services: Services, groups: Groups, hostvars: HostVars) -> list[str]:
    """Two services on one port of one node, and two primaries. A port that is not given is free, see ports()."""
    found = []
    taken = {
        (host, port): name for host in groups["llama_nodes"] for port, name in gateway.reserved(hostvars[host]).items()
    }
    for name, service in services.items():
        heads = expand(service["head"], groups) if "port" in service else []
        claims = [(host, service["port"], "port") for host in heads]
        claims += [(host, service["rpc_port"], "rpc_port") for host in expand(service.get("workers", ""), groups)]
        for host, port, key in claims:
            own = f"llama_services.{name}.{key}"
            other = taken.setdefault((host, port), own)
            if other != own:
                found.append(
                    "%s: %d on %s is taken by %s, a port of its own is needed: choose another"
                    % (own, port, host, other)
                )
    primary = [name for name, service in services.items() if service.get("primary")]
    if len(primary) > 1:
        found.append(
            "llama_services.%s.primary: true seen for %s too, only one service may have the units llama-rpc "
            "and llama-head, false is needed: remove the key" % (primary[1], primary[0])
        )
    return found


def answers(service: Settings, models: Models) -> str:
    """What a service is asked for: chat, embeddings or reranking."""
    model = models[service["model"]] if "model" in service else {}
    return next((key for key in ("embeddings", "reranking") if service.get(key, model.get(key))), "chat")


def route_errors(routes: Any, services: Services, models: Models) -> list[str]:
    """llama_routes: {default: NAME, tasks: {task: NAME}}, where a name is a model that some service serves, or an alias
    of it. Tasks stand in paths and in a header."""
    found = type_errors("llama_routes", routes, dict)
    if found:
        return found
    tasks = {} if routes.get("tasks") is None else routes["tasks"]
    found = type_errors("llama_routes.tasks", tasks, dict)
    if found:
        return found
    targets = [("default", routes["default"])] if "default" in routes else []
    targets += [(f"tasks.{plain(task)}", name) for task, name in tasks.items()]
    found = [wrong for route, name in targets for wrong in type_errors(f"llama_routes.{route}", name, str)]
    if found:
        return found
    served: set[str] = set()
    for service in services.values():
        served.update(known for _model, known in gateway.names(service, models))
    found = [
        f"llama_routes.{plain(key)}: unknown key; known keys: default, tasks"
        for key in routes
        if key not in ("default", "tasks")
    ]
    found.extend(
        "llama_routes.tasks.%s: the name stands in paths, letters, digits, dots and dashes are needed: rename it"
        % plain(task)
        for task in tasks
        if not TASK.match(str(task))
    )
    found.extend(
        "llama_routes.%s: %s is a service, a name of what it serves is needed: write %s"
        % (route, name, next(gateway.names(services[name], models))[1])
        for route, name in targets
        if name in services and name not in served
    )
    found.extend(
        "llama_routes.%s: %s is served by no service, one of %s is needed%s"
        % (route, plain(name), ", ".join(sorted(served)), near(name, served, ": correct it"))
        for route, name in targets
        if name not in served and name not in services
    )
    return found or _default_errors(routes.get("default"), services, models)


def _default_errors(default: Any, services: Services, models: Models) -> list[str]:
    """Requests whose model and task nobody knows are chats."""
    kinds = {name: answers(one, models) for name, one in services.items()}
    of_default = {
        kinds[name]
        for name, one in services.items()
        for _model, known in gateway.names(one, models)
        if known == default
    }
    if default is None or "chat" in of_default or "chat" not in kinds.values():
        return []
    return [
        "llama_routes.default: %s seen, which is for %s, a model for chat is needed: name one that a service without "
        "that key serves" % (default, min(of_default))
    ]


def api_key_errors(api_keys: Any, services: Services) -> list[str]:
    """llama_api_keys: {SERVICE: [KEY]}. No sentence shows a key."""
    if not isinstance(api_keys, dict):
        return ["llama_api_keys: no map seen, a map of service to list of keys is needed: write SERVICE: [KEY]"]
    found = []
    for name, keys in api_keys.items():
        entry = f"llama_api_keys.{name}"
        if name not in services:
            found.append(
                "%s: no service of that name, one of %s is needed%s"
                % (
                    entry,
                    ", ".join(sorted(services)),
                    near(name, services, ": rename it, or move it to gateway_keys if it is the key of a client"),
                )
            )
        elif not isinstance(keys, list) or not keys:
            seen, step = (
                ("an empty list", "add a key or remove the entry") if keys == [] else ("no list", "write [KEY]")
            )
            found.append(f"{entry}: {seen} seen, a list of at least one key is needed: {step}")
        else:
            found.extend(
                '%s: key %d is no plain text, letters, digits and punctuation but ", $ and \\, and no # in front, are '
                "needed: choose another" % (entry, number)
                for number, key in enumerate(keys, 1)
                # A key from a vault may be an object that only becomes text.
                if isinstance(key, (int, float, dict, list, type(None))) or not API_KEY.match(str(key))
            )
    return found


def example_keys(api_keys: Mapping[str, Any]) -> list[str]:
    """Sentences for keys that the example inventory's vault.yml came with."""
    return [
        "llama_api_keys.%s: %s seen, a key of your own is needed: print one with `openssl rand -hex 32` and write it "
        "in group_vars/all/vault.yml" % (name, EXAMPLE_KEY)
        for name, keys in api_keys.items()
        if EXAMPLE_KEY in [str(key) for key in keys]
    ]
