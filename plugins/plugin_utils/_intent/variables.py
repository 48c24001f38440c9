# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The variables of an inventory by name: those that nothing reads, and those without a value. Private to the
collection."""

from __future__ import annotations

import difflib
import functools
import re
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible.module_utils.common.yaml import yaml_load

from ...module_utils._text import Refusal
from .values import named

# The intent: what an inventory says of itself, beside the variables of roles. docs/settings.md lists both.
INTENT = {
    "llama_services": "What runs, see below.",
    "llama_models": "What may be served, see below.",
    "llama_tuned": "Settings that [tune.yml](tuning.md) measured, `{SERVICE: {KEY: VALUE, measured: {...}}}`: for keys "
    "that `llama_services` leaves unset.",
    "llama_routes": "Tasks of the gateway's clients to models: `{default: NAME, tasks: {TASK: NAME}}`.",
    "gateway_registry_suffix": "What the file of a service is called in a registry, behind its number: "
    "`{SERVICE: WORD}` (default: the service's name).",
    "llama_api_keys": "The keys of clients: `{SERVICE: [KEY]}`, from a vault.",
    "llama_address": "The address that clients reach a node at (default: `ansible_host`).",
    "llama_fabric_address": "The IPv4 address of a node on the network that carries RPC.",
    "llama_fabric_interface": "The interface that this address is expected on.",
    "llama_clients": "IPv4 networks that may use the API port (default: the head's own network; with a gateway "
    "only its hosts).",
    "llama_models_dir": "Where models are stored (default: `/opt/models`).",
    "llama_devices": "The cards and the main memory that a node uses, for plans that contact no node: "
    "[Cards](inventory.md#cards).",
    "llama_targets": "What is wanted of a service, for [reports](measuring.md#targets-in-two-readings): `{SERVICE: "
    "{tokens_per_second: {target: 20, acceptable: 10, critical: 8, source: WHO AND WHEN}}}`; `first_token_seconds` in "
    "the same way.",
    "slurm_user": "The user whose [jobs](slurm.md) services are.",
    "slurm_script_dir": "Where their scripts are (default: `/cluster/shared/scripts/llama-cpp`).",
    "slurm_scripts": "Names of scripts: `{SERVICE: FILE}` (default: `run-SERVICE.slurm`).",
    "slurm_log_dir": "A shared directory for logs of a job's nodes (default: `/cluster/shared/ai/logs`).",
    "slurm_local_log_dir": "A directory of each node for logs of jobs (default: `/scratch/ai/logs`).",
    "slurm_qos": "QoS to write: `{NAME: {priority: 100, grace_time: 30, preempt_mode: requeue, preempt: [NAME]}}`.",
    "slurm_associations": "Associations to write: `[{user: NAME, account: NAME, qos: [NAME]}]`.",
    "slurm_yield_to": "Partitions to which jobs make room (default: none).",
    "slurm_reserve": "Whether SLURM is kept from nodes whose cards systemd's services use (default: false).",
    "llama_bundle": "A directory of the controller with a bundle, for a site without a network.",
    "llama_builds": "The builds of llama.cpp that services name, see [inventory.md](inventory.md#builds).",
}
# The variables that playbooks take with -e.
EXTRA = (
    *(
        "all",
        "asked_from",
        "axes",
        "bundle_dir",
        "busy",
        "cache",
        "client",
        "compare",
        "concurrency",
        "ctx_size",
        "deep",
        "depths",
        "devices",
        "dir",
        "doctor_json",
        "drills",
        "evaluation",
        "explain",
        "first_token",
        "force_split",
        "goal",
        "headers",
        "interrupt",
        "keep",
        "lines",
        "loss",
        "models",
        "maintenance_drain",
        "max_tokens",
        "minutes",
        "node",
        "nodes",
        "parallel",
        "park",
        "prompts",
        "quant",
        "requests",
    ),
    *("limit", "retire", "samples", "service", "since", "slot_ctx_size", "state", "task_dir", "tasks"),
    *("teardown_models", "tensor_split", "trial"),
    *("ubatch_size", "undo", "url", "wait", "write"),
)
ROLES = Path(__file__).resolve().parents[3] / "roles"
WORD = re.compile(r"[A-Za-z_]\w*")


@functools.cache
def _entry_points() -> list[tuple[str, dict[str, Any]]]:
    """The entry points of all roles: (name, {variable: its option})"""
    return [
        (name, entry_point.get("options", {}))
        for path in sorted(ROLES.glob("*/meta/argument_specs.yml"))
        for name, entry_point in yaml_load(path.read_text(encoding="utf-8"))["argument_specs"].items()
    ]


def role_options() -> frozenset[str]:
    """The names of all variables of all roles that an inventory may set: what a role needs of its caller is not one."""
    options = [option for _name, options in _entry_points() for option in options.items()]
    return frozenset(name for name, option in options if not option.get("required"))


def known() -> frozenset[str]:
    return role_options() | set(INTENT)


def variable_mistakes(hostvars: Any, nodes: Sequence[str], typed: Collection[str] = ()) -> dict[str, list[str]]:
    """{unknown: of unknown_variables(), undefined: of undefined_variables()}. typed: names given with -e NAME=VALUE"""
    return {
        "unknown": unknown_variables(hostvars, nodes, typed),
        "undefined": undefined_variables(hostvars, nodes),
    }


def unknown_variables(hostvars: Any, nodes: Sequence[str], typed: Collection[str] = ()) -> list[str]:
    """A sentence for each variable that looks like the collection's, or was typed behind -e, and that nothing reads,
    neither a role nor another variable; it names the nodes where not all have it."""
    of_nodes = {node: _raw(hostvars, node) for node in nodes}
    variables = {}
    for raw in of_nodes.values():
        variables.update(raw)
    used = {
        word
        for value in variables.values()
        for leaf in _leaves(value)
        if isinstance(leaf, str)
        for word in WORD.findall(leaf)
    }
    candidates = known() | set(EXTRA)
    # A module of an earlier play has set them.
    facts = {name for raw in of_nodes.values() for name in raw.get("ansible_facts") or ()}
    found = []
    for name in sorted(set(variables) - candidates - used - facts):
        if name.startswith(("_", "ansible_")):
            continue
        near = difflib.get_close_matches(name, candidates, 1, 0.5 if name in typed else 0.8)
        if near or name in typed or name.startswith("llama_"):
            having = [node for node, raw in of_nodes.items() if name in raw]
            found.append(
                "%s: nothing reads this variable%s, %s"
                % (
                    name,
                    "" if len(having) == len(nodes) else " of " + ", ".join(having),
                    "did you mean %s?" % near[0] if near else "docs/settings.md lists those that are read",
                )
            )
    return found


def loose_words(texts: Sequence[str]) -> list[str]:
    """A sentence for each text behind -e that belongs to no name: the end of a list with blanks in it."""
    return [f"-e: {text} without a name seen, NAME=VALUE is needed: write a list without blanks" for text in texts]


def undefined_variables(hostvars: Any, nodes: Sequence[str]) -> list[str]:
    """A sentence for each variable of the collection whose value cannot be computed."""
    where: dict[tuple[str, tuple[str, str]], list[str]] = {}
    for node in nodes:
        # Once for all names: Ansible puts the variables of a host together anew each time.
        raw, values = _raw(hostvars, node), hostvars[node]
        for name in sorted(known() & set(raw)):
            problem = _problem(values, name, raw)
            if problem:
                where.setdefault((name, problem), []).append(node)
    return [f"{name}: {seen} for {named(found, nodes)}, {step}" for (name, (seen, step)), found in where.items()]


def mistyped_variables(hostvars: Any, nodes: Sequence[str]) -> list[str]:
    """Ansible's message for each variable of a role that is of another type than its argument_specs want, or none of
    their choices. Our playbooks ask here, once for all nodes and roles, before any login."""
    options = {name: option for point, entry in _entry_points() if point == "main" for name, option in entry.items()}
    found: dict[str, None] = {}
    for node in nodes:
        raw, values = _raw(hostvars, node), hostvars[node]
        given = {name: values[name] for name in sorted(set(options) & set(raw)) if not _needs_a_run(raw, name)}
        wanted = {name: dict(options[name], required=False) for name in given}
        found.update(dict.fromkeys(ArgumentSpecValidator(wanted).validate(given).error_messages))
    return list(found)


def known_now(hostvars: Any, host: str, name: str) -> Any:
    """The value of a variable of a host; None where it has none, or where only a run knows it."""
    raw = _raw(hostvars, host)
    return hostvars[host].get(name) if name in raw and not _needs_a_run(raw, name) else None


def _raw(hostvars: Any, node: str) -> dict[str, Any]:
    """The variables of a node, templates as they are written."""
    return getattr(hostvars, "raw_get", hostvars.__getitem__)(node)


def _leaves(value: Any) -> Iterator[Any]:
    """The leaves of a value at any depth."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        for one in value:
            yield from _leaves(one)
    else:
        yield value


def _problem(values: Any, name: str, raw: dict[str, Any]) -> tuple[str, str] | None:
    """-> (what is wrong with a variable, its next step), or None."""
    if _needs_a_run(raw, name):
        return None
    try:
        texts = [str(leaf) for leaf in _leaves(values[name])]
        # Before ansible-core 2.19 a template without a value stays as it is written.
        for word in (word for text in texts for word in _names_in(text)):
            if word not in raw:
                return _missing(word)
            for leaf in _leaves(raw[word]):
                str(leaf)  # decrypts
    except Exception as problem:  # of Ansible's templating, which has no public class for it
        words = str(problem)
        missing = re.search(r"'(\w+)' is undefined", words)
        if missing:
            return _missing(missing.group(1))
        if "vault" in words.lower():
            return (
                "encrypted",
                "the password of the vault is needed: run with --ask-vault-pass or --vault-password-file",
            )
        # The reason may hold what was computed so far.
        reason = (
            "" if name.endswith("_api_keys") else f" ({(words.strip().splitlines() or [type(problem).__name__])[0]})"
        )
        return "no value" + reason, "an expression that can be computed is needed: correct it"
    return None


def _needs_a_run(raw: dict[str, Any], name: str) -> bool:
    """Whether a value comes from facts or from the play: those are not known yet."""
    open_names, seen = [name], set()
    while open_names:
        one = open_names.pop()
        if one == "ansible_facts" or (one.startswith("ansible_") and one not in raw):
            return True
        if one in raw and one not in seen:
            seen.add(one)
            open_names.extend(word for leaf in _leaves(raw[one]) if isinstance(leaf, str) for word in _names_in(leaf))
    return False


def _names_in(text: str) -> Iterator[str]:
    """The variables of a text's templates; words in quotes, attributes and filters are left out."""
    for expression in re.findall(r"{{(.*?)}}", text, re.DOTALL):
        yield from WORD.findall(re.sub(r"'[^']*'|\"[^\"]*\"|\.\s*\w+|\|\s*[\w.]+", "", expression))


def _missing(name: str) -> tuple[str, str]:
    way = (
        "put it into group_vars/all/vault.yml, or run with -e @vault.yml"
        if "vault" in name
        else "define it in group_vars or with -e"
    )
    return f"{name} is not defined", f"a value is needed: {way}"


def yaml_of(text: str, name: str) -> Any:
    """The content of a file of the inventory, {} for none. name: of the file. Errors: Refusal for what is no YAML."""
    try:
        # A lookup returns a subclass of str, which the reader of libyaml refuses.
        found = yaml_load(str(text)) if text.strip() else None
    except Exception as problem:  # of YAML's readers, which Ansible chooses
        raise Refusal(f"{name}: no YAML seen ({str(problem).splitlines()[0]}): correct it or remove it") from problem
    return {} if found is None else found
