# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Asks what the store lacks, in slices of half a minute, and keeps the answers of each at once; documented in
plugins/modules/llama_ask.py."""

from ansible.errors import AnsibleConnectionFailure
from ansible.plugins.action import ActionBase

from ..module_utils._text import Refusal, duration
from ..plugin_utils._evaluate.plan import cost, foretold
from ..plugin_utils._evaluate.questions import questions
from ..plugin_utils._evaluate.store import Store
from ..plugin_utils._evaluate.tasks import chosen, load
from ..plugin_utils._progress import Progress

# The keys of the module's questions.
SENT = ("key", "prompt", "max_tokens", "temperature", "seed")
# Questions of a slice; errors in a row after which a model is asked no more.
SLICE, ERRORS = 50, 3


class ActionModule(ActionBase):
    _requires_connection = True

    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars)
        arguments = self._task.args
        if "plan" not in arguments:
            return dict(result, **self._execute_module(task_vars=task_vars))
        plan, about = arguments["plan"], arguments["about"]
        store = Store(plan["store"])
        try:
            tasks = chosen(load(plan["directories"]), plan["tasks"])
        except Refusal as refusal:
            return dict(result, failed=True, msg=str(refusal))
        left = [one for one in questions(tasks, about, int(plan["samples"])) if not store.answer(one["key"])]
        progress = Progress(self._task.delegate_to or task_vars["inventory_hostname"], f"asking {about['name']}")
        total, kept, errors, reason = len(left), [], 0, ""
        while left and errors < ERRORS and not self._task.check_mode:
            answers, reason = self._slice(left[: SLICE if kept else 1], task_vars)
            if not answers:
                break
            by_key = {one["key"]: one for one in left}
            for answer in answers:
                question = by_key.pop(answer["key"])
                reason = answer.pop("error") or ""
                errors = errors + 1 if reason else 0
                if not reason:
                    more = {"model": about["name"], **{name: question[name] for name in ("task", "sample")}}
                    try:
                        store.keep_answer({**answer, **more})
                    except Refusal as refusal:
                        return dict(result, failed=True, msg=str(refusal))
                    kept.append(answer)
            left = list(by_key.values())
            self._show(progress, about, kept, total, len(left))
        result.update(changed=bool(kept), asked=len(kept), missing=total - len(kept), reason=reason)
        return result

    def _slice(self, wanted, task_vars):
        """-> (answers, why there are no answers)"""
        arguments = {name: value for name, value in self._task.args.items() if name not in ("plan", "about")}
        arguments["questions"] = [{name: one[name] for name in SENT} for one in wanted]
        try:
            found = self._execute_module(
                module_name="thefermisea.llama_cluster.llama_ask", module_args=arguments, task_vars=task_vars
            )
        except AnsibleConnectionFailure as error:
            return [], f"its host is not reached ({error})"
        if found.get("failed") or "answers" not in found:
            return [], str(found.get("msg") or "the module did not answer").removeprefix("llama_ask: ")
        asked = {one["key"] for one in wanted}
        return list({one["key"]: one for one in found["answers"] if one["key"] in asked}.values()), ""

    @staticmethod
    def _show(progress, about, kept, total, left):
        tokens, speed = foretold(kept)
        if not speed:
            return
        if len(kept) == 1 and left and not about["speed"]:
            progress.show(cost({**about, "left": left, "tokens": tokens, "speed": speed}).partition(": ")[2])
        words = f", {duration(left * tokens / speed)} left" if left else ""
        progress.show(f"{total - left} of {total}, {speed:.1f} tokens/s{words}")
