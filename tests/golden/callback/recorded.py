# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""For tests/unit/playbooks/test_golden.py: no task runs anything. What would be written is recorded in $RECORDED/HOST,
one [path, mode and the like, text] a line; facts describe a node on which everything is installed."""

from __future__ import annotations

import base64
import json
import os
from pathlib import Path

from ansible.executor.task_executor import TaskExecutor
from ansible.plugins.callback import CallbackBase

DOCUMENTATION = r"""
name: recorded
type: aggregate
short_description: Record the files that tasks would write
version_added: 1.0.0
author: The Fermi Sea (@thefermisea)
description:
  - For tests only.
"""
# Modules that are skipped: other tests check refusals and starts.
SKIPPED = {"ansible.builtin." + name for name in ("assert", "fail", "systemd_service")}
# The accounts of every host.
ACCOUNTS = ("llama", "llama-rpc", "llama-gateway")
# Random files of an earlier run.
SECRETS = {"/etc/llama-cluster/gateway/keys.json": b'"generated": "KeyOfClients"', "/etc/llama-cluster/salt": b"salt"}
PARTS = ("state", "mode", "owner", "group", "target")
CALLS = ("firewalld_rules",)


def facts(arguments, known):
    """Facts of a host on which everything is installed and nothing is configured; known: earlier answers."""
    build = {"current_build": "", "build_sha256": "0"}
    asked = {
        "files": dict.fromkeys([*arguments.get("files", ()), "/var/lib/llama-cluster/gateway-read"]),
        "interfaces": dict.fromkeys(arguments.get("interfaces", ()), "eth0"),
        "records": {path: [] for path in arguments.get("records", ())},
    }
    node = {key: {**known.get(key, {}), **value} for key, value in asked.items()}
    before = known.get("build", {"of": {}})["of"]
    node["build"] = {"of": {**before, **dict.fromkeys(arguments.get("build", {}).get("releases", ()), build)}}
    node["accounts"] = {"passwd": [[name, "x", "990", "990", "", "", ""] for name in ACCOUNTS], "group": []}
    node.update(firewalld=True, held=None, packages_installed=True, plans={}, ruleset="", selinux={"enabled": False})
    node.update(dict.fromkeys(("templates", "units", "watched", "writable"), []))
    system = {"os_family": "Debian", "distribution_major_version": "12", "service_mgr": "systemd"}
    return dict(system, llama_node=node, nvidia_smi={"available": False, "gpus": []})


def answer(name, arguments):
    """Whatever the tasks of the roles read of a result."""
    asked = arguments.get("units", ()) if name == "llama_unit_info" else ()
    off = {"managed": True, "enabled": False, "active_state": "inactive", "sub_state": "dead", "stale": False}
    result = {"changed": False, "rc": 0, "stdout": "", "stdout_lines": [], "stderr": "", "files": [], "results": []}
    result["units"] = [dict(off, name=unit) for unit in asked if "*" not in unit]
    result.update(
        stat={"exists": False}, digest="programs", changed_paths=[], handed_on=[], unsettled=[], sentences={}, ended={}
    )
    result["at"] = 0
    if name == "shell":
        result["stdout"] = "\n---\n---"  # three answers without a word
    if name == "command" and arguments.get("argv", [""])[0] == "id":
        result["stdout"] = "2000"
    if name == "slurp":
        result["content"] = base64.b64encode(SECRETS.get(arguments["src"], b"")).decode()
    return result


def recorded(executor, handler):
    """The handler of a task, that records what the task would write and asks no host."""
    arguments, name = executor._task.args, executor._task.resolved_action.rpartition(".")[2]

    def write(path, text, parts=()):
        with (Path(os.environ["RECORDED"]) / executor._host.name).open("a") as stream:
            stream.write(json.dumps([path, " ".join(parts), text]) + "\n")

    def module(module_args, **_others):
        for entry in module_args["files"] if name == "node_files" else ():
            parts = [f"{part}={entry[part]}" for part in PARTS if part in entry]
            write(entry["path"], entry["content"] if entry.get("state", "file") == "file" else "", parts)
        return answer(name, arguments)

    def run(tmp=None, task_vars=None):
        result = answer(name, arguments)
        if name in ("node_facts", "setup"):
            result["ansible_facts"] = facts(arguments, task_vars["ansible_facts"].get("llama_node", {}))
        elif name in CALLS:
            write(name, json.dumps(arguments))
        elif name == "show_lines":
            write("(shown)", "\n".join([*arguments.get("warnings", ()), *arguments["lines"]]))
        elif name == "copy":
            write(arguments["dest"], arguments["content"])
        return result

    handler._execute_module = module
    if name != "node_files":
        handler.run = run
    return handler


class CallbackModule(CallbackBase):
    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "recorded"
    CALLBACK_NEEDS_ENABLED = True

    def v2_playbook_on_start(self, playbook):
        find, execute = TaskExecutor._get_action_handler_with_module_context, TaskExecutor.run

        def found(executor, templar):
            handler, context = find(executor, templar)
            real = executor._task.action == "ansible.builtin.set_fact"
            return (handler if real else recorded(executor, handler)), context

        def run(executor):
            skipped = {"changed": False, "skipped": True, "results": []}
            task = executor._task
            refuses = task.action.endswith(".show_lines") and "lines" not in task.args
            return skipped if refuses or task.action in SKIPPED else execute(executor)

        TaskExecutor._get_action_handler_with_module_context, TaskExecutor.run = found, run
