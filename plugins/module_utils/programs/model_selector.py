# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""llama-model-selector TASK: prints the model that answers a task, and the base URL to call it at.

`read -r MODEL URL <<< "$(llama-model-selector fix)"`. Called llama-model-selector.sh, it prints `Using model:` and
`Model path:` as a script of that name did. Exit codes: 0 printed, also the default for an unknown task; 1 nothing to
print; 2 wrong use; 3 the gateway does not respond. The page of the gateway needs no key, so every user may run it.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
from typing import Any

from .._llama.api import LlamaApi, NoAnswer, error_text
from .._node import paths
from .._text import Refusal, printable

# Seconds for an answer, and for the program.
PATIENCE, LONGEST = 5, 60


class NoGateway(Refusal):
    """No answer of a gateway."""


def settings_of(path: str) -> tuple[LlamaApi, dict[str, str]]:
    """The file of the role: {"base_url": "http://10.0.0.5:8000", "paths": {model: file on its head}}."""
    next_step = "run site.yml with --tags gateway"
    try:
        with open(path, encoding="utf-8") as stream:
            given = json.load(stream)
        return LlamaApi(given["base_url"]), given.get("paths") or {}
    except OSError as error:
        raise Refusal(f"{path}: {error.strerror}, the gateway's address is needed: {next_step}") from None
    except (ValueError, KeyError, TypeError, AttributeError, Refusal):
        raise Refusal(f"{path}: no base_url seen, one is needed: {next_step}") from None


def status_of(gateway: LlamaApi) -> dict[str, Any]:
    """status.json of the gateway. Errors: NoGateway."""
    try:
        code, status = gateway.get("/status.json", PATIENCE)
    except NoAnswer as error:
        words = f"no answer ({printable(error)}), a running gateway is needed"
        raise NoGateway(f"{gateway.url}: {words}: see systemctl status llama-gateway there") from None
    if code != 200:
        reason = printable(error_text(status), 500)
        raise NoGateway(f"{gateway.url}: status {code} seen, 200 is needed ({reason}): see {gateway.url}/status")
    if not isinstance(status, dict) or not isinstance(status.get("services"), dict):
        words = "no services seen, a gateway's status is needed: correct base_url"
        raise NoGateway(f"{gateway.url}/status.json: {words}")
    return status


def find(status: dict[str, Any], wanted: str) -> dict[str, Any] | None:
    """The model with that name or alias, and its service. Ready services come first."""
    found = [
        {
            "model": model["name"],
            "service": name,
            "state": service.get("state"),
            "context": model.get("slot_ctx_size"),
        }
        for name, service in sorted(status["services"].items())
        for model in service.get("models", ())
        if wanted == model["name"] or wanted in model.get("aliases", ())
    ]
    return min(found, key=lambda entry: entry["state"] != "ready", default=None)


def select(status: dict[str, Any], task: str) -> dict[str, Any]:
    """{task, known, model, service, state, context} of a task; an unknown task has the default. Errors: Refusal without
    a default or a service."""
    routes = status.get("routes") or {}
    tasks = routes.get("tasks") or {}
    wanted = tasks[task] if task in tasks else routes.get("default")
    if not wanted:
        known = ", ".join(sorted(tasks)) or "llama_routes.tasks"
        words = f"unknown task and no default, one of {known} is needed"
        raise Refusal(f"{printable(task)}: {words}: give one of them, or set llama_routes.default")
    entry = find(status, wanted)
    if entry is None or entry["state"] == "stopped":
        words = f"its model {printable(wanted)} is served by no service, a started one is needed"
        raise Refusal(f"{printable(task)}: {words}: see llama-model-selector --list")
    return dict(entry, task=task, known=task in tasks)


def list_lines(status: dict[str, Any]) -> list[str]:
    """A line for each task, and for all others."""
    routes = status.get("routes") or {}
    rows = sorted((routes.get("tasks") or {}).items())
    rows += [("(any other)", routes["default"])] if routes.get("default") else []
    lines = []
    for task, wanted in rows:
        entry = find(status, wanted) or {"model": wanted, "state": "served by no service"}
        lines.append(printable(f"{task:20} {entry['model']} ({entry['state']})", None))
    return lines or ["no tasks: set llama_routes"]


def run(options: argparse.Namespace) -> None:
    gateway, paths_of = settings_of(options.config)
    status = status_of(gateway)
    if options.list and options.json:
        show(json.dumps(status.get("routes") or {}, indent=2, sort_keys=True))
        return
    if options.list:
        show("\n".join(list_lines(status)))
        return
    chosen = select(status, options.task)
    chosen["base_url"] = gateway.url + "/v1"
    if not chosen["known"]:
        say(f"{printable(options.task)}: unknown task, the default answers")
    # One word each: a script reads them by `read -r MODEL URL`.
    model, base_url = (printable(chosen[key], None).replace(" ", "?") for key in ("model", "base_url"))
    if options.json:
        show(json.dumps(chosen, indent=2, sort_keys=True))
    elif options.old:
        show(f"Using model: {model}\nModel path: {paths_of.get(chosen['model'], 'unknown')}")
    else:
        show(f"{model} {base_url}")


def say(text: str) -> None:
    sys.stderr.write("llama-model-selector: " + printable(text, None) + "\n")


def show(text: str) -> None:
    """Prints lines of a gateway without control characters."""
    for line in text.split("\n"):
        sys.stdout.write(printable(line, None) + "\n")


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="llama-model-selector", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("task", nargs="?", metavar="TASK", help="as in llama_routes, such as analyze or fix")
    parser.add_argument("--json", action="store_true", help="with service, state and context")
    parser.add_argument("--list", action="store_true", help="all tasks and their models")
    parser.add_argument("--old", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--config", default=paths.SELECTOR, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if (options.task is not None) == options.list:
        parser.error("one of TASK and --list is needed")
    try:
        run(options)
    except (AttributeError, KeyError, TypeError):
        say(f"the gateway's status is malformed: correct base_url in {options.config}")
        return 3
    except Refusal as error:
        say(str(error))
        return 3 if isinstance(error, NoGateway) else 1
    return 0


if __name__ == "__main__":
    # Against a gateway that sends a byte at a time.
    signal.alarm(LONGEST)
    raise SystemExit(main(sys.argv[1:]))
