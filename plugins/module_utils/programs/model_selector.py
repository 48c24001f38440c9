# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""llama-model-selector TASK: prints the model that answers a task, and the base URL to call it at.

`read -r MODEL URL <<< "$(llama-model-selector fix)"`. Called llama-model-selector.sh, it prints `Using model:` and
`Model path:` as a script of that name did. Exit codes: 0 printed, also for an unknown task, which the
default answers; 1 nothing to print; 2 wrong use; 3 the gateway does not answer. It asks the gateway, for which no key
is needed, so its file holds none and every user may run it.
"""

from __future__ import annotations

import argparse
import http.client
import json
import signal
import sys
import urllib.error
import urllib.parse
import urllib.request
from typing import Any

from .._node import paths
from .._text import Refusal, printable

# Seconds without a byte, and of the whole program; bytes of an answer.
PATIENCE, LONGEST, LARGEST = 5, 60, 8 << 20


class NoGateway(Refusal):
    """It does not answer."""


class NoRedirect(urllib.request.HTTPRedirectHandler):
    """A gateway sends nobody elsewhere: that is an error as any other status."""

    def redirect_request(self, *_words: Any) -> None:
        return None


def told_by(path: str) -> tuple[str, dict[str, str]]:
    """What the role has written: {"base_url": "http://10.0.0.5:8000", "paths": {model: file on its head}}."""
    paths_of: Any = {}
    try:
        with open(path, encoding="utf-8") as stream:
            told = json.load(stream)
        url, paths_of = told["base_url"], told.get("paths")
    except OSError as error:
        raise Refusal(
            f"{path}: {error.strerror}, the gateway's address is needed: run site.yml with --tags gateway"
        ) from None
    except (ValueError, KeyError, TypeError):
        url = None
    if not isinstance(url, str) or not url.startswith(("http://", "https://")):
        raise Refusal(f"{path}: no base_url seen, one is needed: run site.yml with --tags gateway")
    return url.rstrip("/"), paths_of if isinstance(paths_of, dict) else {}


def ask(url: str, what: str) -> str:
    """What the gateway says at that path."""
    # The gateway is on this host or beside it: no proxy of the user's lies between.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), NoRedirect)
    try:
        with opener.open(url + what, timeout=PATIENCE) as answer:
            return answer.read(LARGEST).decode("utf-8", "replace")
    except urllib.error.HTTPError as error:
        reason = sentence_of(error)
        if error.code == 404:
            raise Refusal(f"{url}{what}: {reason or '404 seen, a path of the gateway is needed'}") from None
        told = f" ({reason})" if reason else ""
        raise NoGateway("%s: status %d seen, 200 is needed%s: see %s/status" % (url, error.code, told, url)) from None
    except (OSError, ValueError, http.client.HTTPException) as error:
        reason = str(getattr(error, "reason", error))
        raise NoGateway(
            "%s: no answer (%s), a running gateway is needed: see systemctl status llama-gateway there"
            % (url, printable(reason))
        ) from None


def sentence_of(answer: urllib.error.HTTPError) -> str:
    """The message of an error in OpenAI's shape."""
    try:
        return printable(json.loads(answer.read(LARGEST).decode("utf-8"))["error"]["message"], 500)
    except (OSError, http.client.HTTPException, RecursionError, ValueError, KeyError, TypeError):
        return ""


def status_of(url: str) -> dict[str, Any]:
    try:
        status = json.loads(ask(url, "/status.json"))
    except (ValueError, RecursionError):
        status = None
    if not isinstance(status, dict) or not isinstance(status.get("services"), dict):
        raise NoGateway(f"{url}/status.json: no services seen, a gateway's status is needed: correct base_url")
    return status


def find(status: dict[str, Any], wanted: str) -> dict[str, Any] | None:
    """The model of that name or alias, with the service that has it: one that is ready before others."""
    found = []
    for service, told in sorted(status["services"].items()):
        for model in told.get("models", ()):
            if wanted == model["name"] or wanted in model.get("aliases", ()):
                entry = {"model": model["name"], "service": service, "state": told.get("state")}
                entry["context"] = model.get("slot_ctx_size")
                found.append(entry)
    found.sort(key=lambda entry: entry["state"] != "ready")
    return found[0] if found else None


def select(status: dict[str, Any], task: str) -> dict[str, Any]:
    """{task, known, model, service, state, context} of a task; the default answers an unknown one. Refusal where there
    is no default, or no service has the model."""
    routes = status.get("routes") or {}
    tasks = routes.get("tasks") or {}
    known = task in tasks
    wanted = tasks[task] if known else routes.get("default")
    if not wanted:
        raise Refusal(
            "%s: unknown task and no default, one of %s is needed: give one of them, or set llama_routes.default"
            % (printable(task), ", ".join(sorted(tasks)) or "llama_routes.tasks")
        )
    entry = find(status, wanted)
    if entry is None or entry["state"] == "stopped":
        raise Refusal(
            "%s: its model %s is served by no service, a started one is needed: see llama-model-selector --list"
            % (printable(task), printable(wanted))
        )
    return dict(entry, task=task, known=known)


def list_lines(status: dict[str, Any]) -> list[str]:
    """A line for each task, and one for any other."""
    routes = status.get("routes") or {}
    rows = sorted((routes.get("tasks") or {}).items())
    if routes.get("default"):
        rows.append(("(any other)", routes["default"]))
    lines = []
    for task, wanted in rows:
        entry = find(status, wanted) or {"model": wanted, "state": "served by no service"}
        lines.append(printable(f"{task:20} {entry['model']} ({entry['state']})", None))
    return lines


def run(options: argparse.Namespace) -> int:
    url, paths_of = told_by(options.config)
    if options.client:
        show(ask(url, "/clients/" + urllib.parse.quote(options.client, safe="")).rstrip("\n"))
        return 0
    status = status_of(url)
    if options.list:
        if options.json:
            show(json.dumps(status.get("routes") or {}, indent=2, sort_keys=True))
        else:
            show("\n".join(list_lines(status)) or "no tasks: set llama_routes")
        return 0
    chosen = select(status, options.task)
    chosen["base_url"] = url + "/v1"
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
    return 0


def say(text: str) -> None:
    sys.stderr.write("llama-model-selector: " + printable(text, None) + "\n")


def show(text: str) -> None:
    """Lines of what the gateway says: a terminal acts on none of it."""
    for line in text.split("\n"):
        sys.stdout.write(printable(line, None) + "\n")


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="llama-model-selector", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("task", nargs="?", metavar="TASK", help="as in llama_routes, such as analyze or fix")
    parser.add_argument("--json", action="store_true", help="with service, state and context")
    parser.add_argument("--list", action="store_true", help="all tasks and their models")
    parser.add_argument("--client", metavar="NAME", help="the configuration of a client, such as opencode or litellm")
    parser.add_argument("--old", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--config", default=paths.SELECTOR, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if sum((options.task is not None, options.list, options.client is not None)) != 1:
        parser.error("one of TASK, --list and --client NAME is needed")
    try:
        return run(options)
    except NoGateway as error:
        say(str(error))
        return 3
    except (AttributeError, KeyError, TypeError):
        say(f"the gateway's status has not the shape of one: correct base_url in {options.config}")
        return 3
    except Refusal as error:
        say(str(error))
        return 1


if __name__ == "__main__":
    # A gateway that sends a byte now and then.
    signal.alarm(LONGEST)
    raise SystemExit(main(sys.argv[1:]))
