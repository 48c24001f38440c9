# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._slurm import report
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._slurm.ask import Ended
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._text import Refusal

SINCE, NOW = 10_000, 20_000
NAMES = {"llama-14b": "fast", "llama-72b": "reasoning"}


def run(state, start, end, **fields):
    return Ended(
        **{"job_id": 7, "state": state, "start": start, "end": end, "nodes": "vasp-02", "name": "llama-14b"}, **fields
    )


def vasp(job_id, submitted, start, **fields):
    given = {"submitted": submitted, "start": start, "nodes": "vasp-[01-02]", "qos": "vasp_priority"}
    return Ended(job_id, "COMPLETED", **{**given, **fields})


@pytest.mark.parametrize("text, seconds", [("7d", 604800), ("12h", 43200), ("30m", 1800)])
def test_times_of_reports(text, seconds):
    assert report.seconds_of(text) == seconds


@pytest.mark.parametrize("text", ["", "7", "0d", "-1d", "7w", "99999d", "7d\n"])
def test_other_times_are_refused(text):
    with pytest.raises(Refusal, match="--since"):
        report.seconds_of(text)


def test_cycles_of_preemption():
    own = [
        run("REQUEUED", 9_000, 11_000),  # began before
        run("PREEMPTED", 12_000, 13_000),
        run("REQUEUED", 14_000, 14_100, step_code=75),  # lost a worker
        run("CANCELLED", None, 15_000),  # never ran
        run("REQUEUED", 15_000, 15_100),  # by a person
        run("RUNNING", 19_000, None),
    ]
    own.append(run("COMPLETED", 1, 2)._replace(name="other"))
    others = [vasp(90, 10_970, 11_001), vasp(91, 12_000, 13_002, eligible=12_990), vasp(92, 14_000, 14_101)]
    fast, reasoning = report.rows(own, others, NAMES, SINCE, NOW)
    assert (fast.service, fast.seconds, fast.runs, fast.preemptions) == ("fast", 1000 + 1000 + 100 + 100 + 1000, 5, 2)
    assert [(wait.job_id, wait.seconds) for wait in fast.waits] == [(90, 31), (91, 12)]
    assert reasoning == report.Row("reasoning", 0.0, 0, 0, [])


def test_report_in_lines():
    rows = report.rows([run("REQUEUED", 10_000, 13_600)], [vasp(90, 13_570, 13_601)], NAMES, SINCE, NOW)
    first, fast, wait, other = report.lines(rows, SINCE)
    assert first.startswith("since ") and other == "reasoning: ran 0.00 h (0 s) in 0 runs, 0 preemptions"
    assert fast == "fast: ran 1.00 h (3600 s) in 1 runs, 1 preemptions, longest wait 31 s"
    assert wait.endswith(" job 90 of vasp_priority waited 31 s")
