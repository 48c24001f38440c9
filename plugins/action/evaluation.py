# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Has answers judged, and writes the result; documented in plugins/modules/evaluation.py.

Texts of models stay in this process and in the store: in a variable one could become a template.
"""

import datetime
import os

from ansible.plugins.action import ActionBase

from ..module_utils._text import Refusal
from ..plugin_utils._evaluate.judging import Verdicts, answers_of
from ..plugin_utils._evaluate.questions import temperature_of
from ..plugin_utils._evaluate.result import evaluate_result
from ..plugin_utils._evaluate.store import Store, write
from ..plugin_utils._evaluate.tasks import chosen, load
from ..plugin_utils._progress import Progress


class ActionModule(ActionBase):
    _requires_connection = True

    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars)
        self._vars = task_vars
        plan = self._task.args["plan"]
        store = Store(plan["store"])
        try:
            tasks = chosen(load(plan["directories"]), plan["tasks"])
            if self._task.args.get("asked") is None:
                self._require_judge(tasks)
                return result
            answers = answers_of(store, tasks, plan)
            verdicts = Verdicts(store, tasks, self._judge)
            self._verdicts(verdicts, [one for own in answers.values() for one in own])
            found = self._found(plan, tasks, answers, verdicts)
            for name, text in found["files"].items():
                write(os.path.dirname(plan["store"]), name, text)
        except Refusal as refusal:
            return dict(result, failed=True, msg=str(refusal))
        asked = self._task.args["asked"]
        summary = "asked %d, judged %d" % (sum(int(one.get("asked", 0)) for one in asked), verdicts.new)
        kept = f"kept as {os.path.join(os.path.dirname(plan['store']), next(iter(found['files'])))}"
        silent = [_silent(one) for one in asked if int(one.get("missing", 0))]
        any_answer = any(answers.values())
        return dict(
            result,
            changed=bool(verdicts.new),
            lines=[*silent, summary, *(found["lines"] if any_answer else []), *([kept] if any_answer else [])],
            refused=[] if any_answer else ["evaluate: no answer seen, one is needed: look at the services, status.yml"],
            routes={name: found[name] for name in ("text", "diff", "changed", "refused")},
        )

    def _verdicts(self, verdicts, answers):
        progress = Progress(self._task.delegate_to, "judging")
        unique = list({one["key"]: one for one in answers}.values())
        for left in verdicts.steps(unique):
            progress.show(f"{len(unique) - left} of {len(unique)}")

    def _require_judge(self, tasks):
        programs = [task for task in tasks if task["judge"] != "checklist"]
        if self._task.delegate_to != "localhost" and any(task["dir"] for task in programs):
            names = ", ".join(task["name"] for task in programs if task["dir"])
            raise Refusal(
                f"acceptance_judge_host: {self._task.delegate_to} seen, localhost is needed for tasks that a command "
                f"judges ({names}): change it, or leave them out with -e tasks="
            )
        if programs:
            self._judge([], [])

    def _judge(self, tasks, answers):
        found = self._execute_module(
            module_name="thefermisea.llama_cluster.llama_judge",
            module_args={"tasks": tasks, "answers": answers, "image": self._task.args["image"]},
            task_vars=self._vars,
        )
        if found.get("failed") or "verdicts" not in found:
            raise Refusal(str(found.get("msg") or "llama_judge: no verdict"))
        return found

    def _found(self, plan, tasks, answers, verdicts):
        # Two models of the same files have the same answers, each counts.
        own = [(f"{name} {one['key']}", one) for name, ones in answers.items() for one in ones]
        judged = verdicts.found
        about = {
            "at": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "judge": verdicts.by,
            "samples": int(plan["samples"]),
            "temperature": temperature_of(int(plan["samples"])),
            "routes": self._task.args["routes"],
            "models": plan["models"],
        }
        return evaluate_result(
            tasks,
            [{**one, "key": key} for key, one in own],
            [{**judged[one["key"]], "answer": key} for key, one in own],
            about,
            self._task.args["routes_text"],
        )


def _silent(asked):
    """A model that has not answered everything."""
    total = int(asked["asked"]) + int(asked["missing"])
    return "%s: %d of %d questions not answered: %s" % (
        asked["item"]["name"],
        asked["missing"],
        total,
        asked["reason"] or "the run ended",
    )
