# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Measures one cell after the other and prints the result of each; documented in plugins/modules/llama_bench.py."""

import itertools

from ansible.plugins.action import ActionBase

from ..module_utils._text import duration
from ..plugin_utils._progress import Progress


class ActionModule(ActionBase):
    _requires_connection = True

    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars)
        arguments = self._task.args
        given = (arguments.get("prompts"), arguments.get("depths", [0]), arguments.get("concurrency", [1]))
        # The module refuses anything that is not a list.
        cells = list(itertools.product(*(one if isinstance(one, list) else [one] for one in given)))
        progress = Progress(task_vars["inventory_hostname"], f"measuring {arguments.get('url')}")
        done = []
        for number, (prompt, depth, concurrency) in enumerate(cells):
            changes = {"prompts": [prompt], "depths": [depth], "concurrency": [concurrency]}
            if number:
                changes["warmup"] = 0
            answer = self._execute_module(
                module_name="thefermisea.llama_cluster.llama_bench",
                module_args=dict(arguments, **changes),
                task_vars=task_vars,
            )
            if answer.get("failed") or "cells" not in answer:
                return dict(result, **answer)
            done += answer["cells"]
            left = progress.left(number + 1, len(cells))
            progress.show(_line(done[-1], number + 1, len(cells)) + (f", {duration(left)} left" if left else ""))
        return dict(result, changed=False, cells=done, disturbed=any(one["others"] for one in done))


def _line(cell, number, count):
    """cell 2 of 4, long at 4096 tokens, 4 at a time: 31.2 tokens/s"""
    figures = cell["figures"]
    rate = figures["tokens_per_second"]
    text = "no answer" if rate is None else f"{rate:.1f} tokens/s"
    errors = ", %d of %d requests failed" % (figures["errors"], figures["requests"]) if figures["errors"] else ""
    words = "cell %d of %d, %s at %d tokens, %d at a time: %s%s"
    return words % (number, count, cell["prompt"], cell["depth"], cell["concurrency"], text, errors)
