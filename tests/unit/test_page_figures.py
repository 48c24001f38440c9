# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Pages name the figures of the code."""

from pathlib import Path

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._judge import judge, sandbox
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._node import backoff
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._slurm import keeper, logs, pump, reasons, task
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._evaluate import plan, questions, suggest, tasks

DOCS = Path(__file__).resolve().parents[2] / "docs"
SLURM = [
    f"until {task.HEAD_LEFT} seconds before the GraceTime is over",
    f"{reasons.EARLY} seconds before its time limit a job drains",
    f"each server, up to {pump.MOST_LOG >> 20} MiB. The newest {logs.KEPT} jobs per service stay",
    f"jobs that served less than a minute the keeper waits, up to {backoff.DELAYS[-1] // 60} minutes",
    f"each reason comes {keeper.ACCOUNTING} s late",
]
EVALUATION = [
    f"one core, {sandbox.TASKS} tasks, {sandbox.MEMORY >> 30} GiB",
    f"{judge.COMPILE_CPU} s of CPU to compile, {judge.RUN_CPU} s to run, {judge.MOST_OUTPUT >> 10} KiB of output",
    f"of about {plan.ABOUT} tokens",
    f"at temperature {questions.WARM}",
    f"(default: {tasks.DEFAULT_TOKENS})",
]


@pytest.mark.parametrize(("page", "sentences"), [("slurm", SLURM), ("evaluation", EVALUATION)])
def test_page_has_the_figures_of_the_code(page, sentences):
    text = " ".join((DOCS / (page + ".md")).read_text().split())
    assert [sentence for sentence in sentences if sentence not in text] == []
    assert (keeper.PROVEN, suggest.FASTER, suggest.LEAST) == (60, 0.5, 8)
