# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Prints plays, changes, whole lines of the collection's own tasks, and each mistake once."""

DOCUMENTATION = """
name: brief
type: stdout
author: The Fermi Sea (@thefermisea)
version_added: 0.1.0
short_description: A line per play, what changed, and each mistake in one sentence
description:
  - Prints a line per play with its duration and the tasks that changed something. Plays that changed nothing share a
    line, one for each minute of them.
  - Lines of M(thefermisea.llama_cluster.show_lines) and the progress of long work come through as they are.
  - A task that fails is one sentence for each line of its message, once for all hosts and items with that message. A
    failure that a rescue or C(ignore_errors) handles is not shown.
  - The last line reports whether anything was changed, and counts mistakes of the operator, hosts that could not be
    reached, findings and failures of tasks.
  - With C(-v) and more it is Ansible's own output, of the callback P(ansible.builtin.default#callback).
requirements:
  - C(stdout_callback = thefermisea.llama_cluster.brief) in C(ansible.cfg), or the environment variable
    C(ANSIBLE_STDOUT_CALLBACK)
extends_documentation_fragment:
  - default_callback
  - result_format_callback
"""

import os
import re
import time

from ansible import constants as C
from ansible import context
from ansible.plugins.callback.default import CallbackModule as Default

from ..module_utils._text import counted, duration, printable
from ..plugin_utils._reports.failures import FAILURE, MISTAKE, SILENT, Failures, is_rescued, of
from ..plugin_utils._warm import warm

HEALTH = "thefermisea.llama_cluster.llama_health"
SHOW_LINES = "thefermisea.llama_cluster.show_lines"
# Names of changed tasks that are shown at most.
NAMES = 3
# Ansible's warning on each node where root runs it for the first time: it made the directory, for root only.
USUAL = "Module remote_tmp "
# Seconds of plays that changed nothing, after which their line is printed: it shows that the run continues.
SILENCE = 60


def plain_lines(text, indent=""):
    """A text with its line feeds, and with nothing else that a terminal would act on."""
    return ("\n" + indent).join(printable(line.expandtabs().rstrip(), None) for line in text.split("\n"))


class CallbackModule(Default):
    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "stdout"
    CALLBACK_NAME = "thefermisea.llama_cluster.brief"

    def __init__(self):
        super().__init__()
        warm()
        if self._display.verbosity:
            # Otherwise each method would have to check for it.
            self.__class__ = Default
            return
        self.begun = time.monotonic()
        self.play_name = None
        self.play_begun = self.begun
        # {id of a task that changed something: its name}, of this play and of all.
        self.play_changes = {}
        self.changes = {}
        # Plays that changed nothing and have not been shown yet, and since when.
        self.unchanged = []
        self.silent_since = self.begun
        self.failures = Failures()
        self.warned = set()
        # Whether every contacted service has answered, None before the first one.
        self.verified = None
        self.diff_of = None
        # Has the variables of -e.
        self.manager = None

    def show(self, text, color=None):
        """Prints a text that may come from elsewhere: lines after the first one are indented, so it forges none."""
        self._display.display(plain_lines(text, "  "), color=color)

    # Plays

    def v2_playbook_on_play_start(self, play):
        self.end_play()
        self.manager = play.get_variable_manager()
        # A play of only localhost is a short check.
        self.play_name = None if play.hosts == ["localhost"] else play.get_name().strip()

    def end_play(self):
        self.show_failures()
        if not self.unchanged:
            self.silent_since = self.play_begun
        took = time.monotonic() - self.play_begun
        self.play_begun += took
        line = f"{self.play_name or 'localhost'} {duration(int(took))}"
        if self.play_changes:
            self.show_unchanged()
            names = list(self.play_changes.values())
            more = ["%d more" % (len(names) - NAMES)] if len(names) > NAMES else []
            self.show(f"{line}: {len(names)} changed ({', '.join(names[:NAMES] + more)})", color=C.COLOR_CHANGED)
            self.play_changes = {}
        elif self.play_name and took >= 1:
            self.unchanged.append(line)
            if self.play_begun - self.silent_since >= SILENCE:
                self.show_unchanged()

    def show_unchanged(self):
        if self.unchanged:
            self.show(f"{', '.join(self.unchanged)}: no change")
            self.unchanged = []

    # Tasks

    def v2_playbook_on_task_start(self, task, is_conditional):
        self.show_failures()

    def v2_playbook_on_handler_task_start(self, task):
        self.show_failures()

    def v2_runner_on_ok(self, result):
        task, returned = of(result, "task"), of(result, "result")
        self.warn(result)
        self.failures.note(result)
        if returned.get("changed"):
            self.changed(result)
        if task.action == SHOW_LINES:
            self.show_lines(returned)
        if task.action in C._ACTION_DEBUG:
            self.show_unchanged()
            self.show(str(returned["msg"]) if "msg" in returned else self._dump_results(returned))
        role = getattr(task, "_role", None)
        if (
            task.action == HEALTH
            and task.args.get("deep")
            and role
            and role.get_name(include_role_fqcn=False) == "acceptance"
        ):
            self.verified = self.verified is not False and returned.get("answer") is not None

    def show_lines(self, returned):
        for line in [line for one in returned.get("results", [returned]) for line in one.get("lines", [])]:
            self.show_unchanged()
            self._display.display(line)

    def changed(self, result):
        name = result.task_name.partition(" : ")[2] or result.task_name
        self.play_changes[of(result, "task")._uuid] = name
        self.changes[of(result, "task")._uuid] = name

    def v2_runner_on_failed(self, result, ignore_errors=False):
        self.warn(result)
        if of(result, "result").get("changed"):
            self.changed(result)
        if of(result, "task").action == SHOW_LINES:
            self.show_lines(of(result, "result"))
        if not ignore_errors and not is_rescued(of(result, "task")):
            self.failures.add(result)
        self.failures.note(result, failed=True)

    def v2_runner_on_unreachable(self, result):
        self.failures.note(result, unreachable=True)
        if not of(result, "task").ignore_unreachable:
            self.failures.add_unreachable(result)

    def show_failures(self):
        for line in self.failures.take():
            # If nothing was changed at all, only the sentences are shown.
            if self.changes:
                self.show_unchanged()
            self.unchanged = []
            self.show(line, color=C.COLOR_ERROR)

    def warn(self, result):
        for text in map(str, of(result, "result").get("warnings") or []):
            if text not in self.warned and not text.startswith(USUAL):
                self.warned.add(text)
                self.show_unchanged()
                # A warning that show_lines prints once for all nodes already names the nodes.
                task = of(result, "task")
                of_host = "" if task.run_once and task.action == SHOW_LINES else f"{of(result, 'host')}: "
                self.show(f"warning: {of_host}{text}", color=C.COLOR_WARN)

    def v2_on_file_diff(self, result):
        # Each host has a diff of its own.
        self._last_task_banner, self.diff_of = None, f"{of(result, 'host')}: {result.task_name}"
        super().v2_on_file_diff(result)

    def _get_diff(self, difflist):
        diffs = difflist if isinstance(difflist, list) else [difflist]
        return super()._get_diff(
            [
                {key: plain_lines(value) if isinstance(value, str) else value for key, value in diff.items()}
                for diff in diffs
            ]
        )

    def _print_task_banner(self, task):
        self.show_unchanged()
        self.show(self.diff_of)

    def _not_shown(self, *_arguments, **_named):
        """An event without output."""

    v2_playbook_on_start = v2_playbook_on_include = v2_runner_retry = _not_shown
    v2_playbook_on_no_hosts_matched = v2_playbook_on_no_hosts_remaining = _not_shown
    v2_runner_on_skipped = v2_runner_item_on_ok = v2_runner_item_on_failed = v2_runner_item_on_skipped = _not_shown
    v2_runner_on_async_poll = v2_runner_on_async_ok = v2_runner_on_async_failed = _not_shown

    # The end

    def v2_playbook_on_stats(self, stats):
        self.end_play()
        took = duration(int(time.monotonic() - self.begun))
        if self.failures.said:
            self.show(self.why_stopped(), color=C.COLOR_ERROR)
        elif context.CLIARGS["check"]:
            self.show(
                "check mode: %s would change something, %s"
                % (counted(len(self.changes), "task") if self.changes else "no task", took)
            )
        else:
            done = f"{len(self.changes)} changed" if self.changes else "no change"
            self.show(f"{done}, {'verified in ' if self.verified else ''}{took}", color=C.COLOR_OK)

    def why_stopped(self):
        mistakes, silent, failures = (len(self.failures.of_kind(kind)) for kind in (MISTAKE, SILENT, FAILURE))
        findings = self.failures.findings()
        parts = []
        if mistakes:
            given = self.given()
            parts.append(counted(mistakes, "mistake") + (" in " + given if given else ""))
        parts += [counted(silent, "host") + " could not be reached"] if silent else []
        parts += [counted(findings, "finding")] if findings else []
        parts += [counted(failures, "failure")] if failures else []
        if self.changes and not context.CLIARGS["check"]:
            became = f"{counted(len(self.changes), 'task')} had changed something"
        elif failures and not context.CLIARGS["check"]:
            became = "no task before had changed anything"
        else:
            became = "nothing was changed"
        # A run with findings went on to its end.
        stopped = "stopped: " if mistakes or silent or failures else ""
        return stopped + ", ".join(parts + [became]) + ("; -v shows more" if failures else "")

    def given(self):
        """The sources of an operator's mistakes: the inventory as named, and -e or --tags if a sentence names them."""
        below = os.getcwd() + os.sep
        sources = [source for source in context.CLIARGS["inventory"] if "," in source or os.path.exists(source)]
        inventory = ", ".join(source[len(below) :] if source.startswith(below) else source for source in sources)
        words = {word for sentence in self.failures.of_kind(MISTAKE) for word in re.findall(r"[\w./-]+", sentence)}
        words |= {part for word in words for part in word.split(".")}
        # A value counts only if it is a word, not a number or a switch.
        extra = any(
            name in words or (len(str(value)) > 2 and str(value) in words)
            for name, value in self.manager.extra_vars.items()
        )
        return " or ".join(filter(None, [inventory, "-e" if extra else "", "--tags" if "tags" in words else ""]))
