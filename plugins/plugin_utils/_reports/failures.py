# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Messages of failed tasks without the words of Ansible around them, for the callback brief and for rescues. Private to
the collection."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

OURS = "thefermisea.llama_cluster."
# They change nothing: each line of their messages is a sentence of the collection.
REFUSE = ("assert", "fail", "set_fact", "show_lines", "validate_argument_spec")
# Actions that contact no host.
ON_CONTROLLER = (*REFUSE, "add_host", "debug", "group_by", "include_role", "include_tasks", "meta")
# Kinds of failures, in the order of the last line of a run.
MISTAKE, SILENT, FINDING, FAILURE = "mistake", "host", "finding", "failure"
# Sentences about a variable of the inventory.
OF_INVENTORY = re.compile(
    r"^(cuda|gateway|head_server|llama|model|monitoring|node_setup|preflight|rpc_worker)_\w*[.: ]"
)
# The sentence of a check that has printed its findings.
FOUND = re.compile(r"^(\d+) findings?\Z")
NO_REASON = "no reason given"
# The most lines of a program's output.
TAIL = 5
# Words of ansible-core before the message of an error.
WRAPPED = re.compile(
    r"^(Task failed: |Action failed: |Module failed: |Error rendering template: |Finalization of task args for '[^']*' "
    r"failed: |Error while (resolving|evaluating) [^:]*: |error while evaluating conditional \(.*?\): |The "
    r"(filter|lookup) "
    r"plugin '[^']*' failed: "
    r"|The conditional check '.*?' failed\. The error was: |The task includes an option with an undefined "
    r"variable\.\.? The error was: |An unhandled exception occurred while templating .*?original message: )",
    re.DOTALL,
)
# Words of ansible-core before an error of templating: the task did nothing.
BEFORE = re.compile(
    r"Finalization of task args|(?i:error while (resolving|evaluating))|undefined variable|conditional check|occurred "
    r"while templating"
)
# Words of ansible-core 2.18 after the message, and the message twice.
WHERE = re.compile(r"(?<!\s)\s*The error appears to be in .*", re.DOTALL)
TWICE = re.compile(r"^(.+)\. \1\Z", re.DOTALL)


def of(result: Any, name: str) -> Any:
    """host, task or result of a task's result: attributes that were private before ansible-core 2.19."""
    return getattr(result, name) if hasattr(result, name) else getattr(result, "_" + name)


def is_rescued(task: Any) -> bool:
    """Whether a failure of this task leads to a rescue: it is in its block, not in its rescue or always."""
    child, parent = task, task._parent
    while parent is not None:
        if getattr(parent, "rescue", None) and not any(
            one._uuid == child._uuid for one in parent.rescue + parent.always
        ):
            return True
        child, parent = parent, getattr(parent, "_parent", None)
    return False


def unwrapped(text: str) -> str:
    text = WHERE.sub("", text)
    while True:
        bare = WRAPPED.sub("", text, count=1)
        if bare == text:
            return TWICE.sub(r"\1", text.strip())
        text = bare


def failure_reason(result: Any) -> str:
    """The message of a failed task, or of the first of its items that failed, without line breaks.

    result: ansible_failed_result of a rescue. A node that only shares the failure of another one has none.
    """
    result = result or {}
    items = [item for item in result.get("results") or [] if isinstance(item, Mapping) and item.get("failed")]
    message = (items or [result])[0].get("msg") or result.get("msg") or ""
    return " ".join(unwrapped(str(message)).split()) or NO_REASON


class Failures:
    """The failures of a run, collected over hosts until they are shown."""

    def __init__(self) -> None:
        # {sentence: kind} of the run.
        self.said: dict[str, str] = {}
        self.waiting: dict[str, list[str | None]] = {}
        # Whether each contacted host answered the last time.
        self.answers: dict[str, bool] = {}

    def note(self, result: Any, unreachable: bool = False, failed: bool = False) -> None:
        """Record that a task ended on a host. A raw command may fail because of the login or on the host: the host
        counts as reached if it ever answered."""
        task, host = of(result, "task"), of(result, "host").get_name()
        delegated = (of(result, "result").get("_ansible_delegated_vars") or {}).get("ansible_delegated_host")
        if "localhost" in (host, delegated) or task.action.rpartition(".")[2] in ON_CONTROLLER:
            return
        if unreachable:
            self.answers[host] = False
        elif failed and task.action.rpartition(".")[2] == "raw":
            self.answers.setdefault(host, False)
        else:
            self.answers[host] = True

    def add(self, result: Any) -> None:
        task, host, returned = of(result, "task"), of(result, "host").get_name(), of(result, "result")
        name = result.task_name.partition(" : ")[2] or result.task_name
        action = task.resolved_action or task.action
        role = getattr(task, "_role", None)
        asserted = action.rpartition(".")[2] in REFUSE
        preflight = bool(role and role.get_name(include_role_fqcn=False) == "preflight")
        checks = preflight or "preflight" in task.get_path()
        items = [
            item for item in returned.get("results") or [] if isinstance(item, dict) and "ansible_loop_var" in item
        ]
        for one in [item for item in items if item.get("failed") or item.get("exception")] or [returned]:
            message = str(one.get("msg") or one.get("censored") or NO_REASON)
            before = BEFORE.search(message) is not None
            sentences = [line.strip() for line in unwrapped(message).split("\n") if line.strip()] or [NO_REASON]
            if before or asserted or preflight:
                # In other messages a line feed does not end a sentence.
                if before or not asserted:
                    sentences = ["; ".join(sentences)]
                if before and OURS not in message:
                    sentences = [f"{name}: {sentences[0]}"]
                for sentence in sentences:
                    kind = FAILURE if before else self._kind(sentence, host, checks)
                    self._add(sentence, None, kind)
                continue
            output = (
                "\n".join(str(one.get(key) or "") for key in ("stderr", "module_stderr")).strip().splitlines()[-TAIL:]
            )
            first = sentences[0] if action.startswith(OURS) else f"{name}: {sentences[0]}"
            self._add("\n".join([first] + sentences[1:][-TAIL:] + output), host, FAILURE)

    def _kind(self, sentence: str, host: str, preflight: bool) -> str:
        """The kind of a refusal. Before any host was contacted it is about the operator's input."""
        if preflight and not self.answers.get(host, True):
            return SILENT
        of_value = preflight and OF_INVENTORY.match(sentence) and not sentence.startswith(host + ":")
        return MISTAKE if of_value or not self.answers else FINDING

    def add_unreachable(self, result: Any) -> None:
        host = of(result, "host").get_name()
        reason = "; ".join(unwrapped(str(of(result, "result").get("msg"))).split("\n"))
        self._add(f"{host}: {reason}", None, SILENT)

    def _add(self, sentence: str, host: str | None, kind: str) -> None:
        if sentence not in self.said or sentence in self.waiting:
            self.said[sentence] = kind
            self.waiting.setdefault(sentence, []).append(host)

    def take(self) -> list[str]:
        """The lines that were not shown yet, with the names of their hosts unless the sentence has them."""
        lines = []
        for sentence, hosts in self.waiting.items():
            named = [host for host in dict.fromkeys(hosts) if host and not sentence.startswith(host + ":")]
            lines.append(f"{', '.join(named)}: {sentence}" if named else sentence)
        self.waiting = {}
        return [line for line in lines if not FOUND.match(line)]

    def of_kind(self, kind: str) -> list[str]:
        return [sentence for sentence, one in self.said.items() if one == kind]

    def findings(self) -> int:
        """The number of findings; a check that printed its own has one sentence with their number."""
        found = [(sentence, FOUND.match(sentence)) for sentence in self.of_kind(FINDING)]
        return sum(int(count.group(1)) if count else 1 for _sentence, count in found)
