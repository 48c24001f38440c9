# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from datetime import datetime
from pathlib import Path

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._slurm import ask, reasons
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._slurm.ask import Ended
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._slurm.reasons import Why

FIXTURES = Path(__file__).resolve().parents[3] / "fixtures/slurm"


def ended(state, **fields):
    return Ended(**{"job_id": 7, "state": state, "start": 1000, "end": 2000, "nodes": "c[1-2]", **fields})


VASP = Ended(9, "RUNNING", submitted=1990, start=2001, nodes="c[2-3]", qos="vasp_priority")


@pytest.mark.parametrize(
    "one, given, code, words",
    [
        (ended("PREEMPTED"), {}, "preempted", "preempted"),
        (ended("REQUEUED"), {"taker": VASP}, "preempted", "preempted by job 9 of vasp_priority"),
        (ended("REQUEUED"), {}, "requeued", "requeued, and SLURM shows no job that took its nodes"),
        (ended("REQUEUED", step_code=75), {"taker": VASP}, "lost_worker", "a worker was lost or did not come up"),
        (ended("CANCELLED", by_uid=2000), {}, "cancelled", "cancelled by uid2000"),
        (ended("CANCELLED", by_uid=2000), {"asked": Why("replaced", "new")}, "replaced", "new"),
        (ended("COMPLETED"), {"asked": Why("drained", "held by bob")}, "drained", "held by bob"),
        (ended("COMPLETED"), {}, "drained", "ended after a drain"),
        (ended("COMPLETED", limit=1120), {}, "walltime", "its time was over (18 min 40 s)"),
        (ended("TIMEOUT"), {"asked": Why("replaced", "new")}, "replaced", "new"),
        (ended("NODE_FAIL"), {}, "node_failure", "a node failed (c[1-2])"),
        (
            ended("OUT_OF_MEMORY", req_mem="1G", max_rss="1000M"),
            {},
            "out_of_memory",
            "out of memory: 1000M used by a task, 1G requested on 2 nodes",
        ),
        (
            ended("FAILED", signal=9, req_mem="1G", max_rss="1000M"),
            {},
            "out_of_memory",
            "out of memory: 1000M used by a task, 1G requested on 2 nodes",
        ),
        (ended("FAILED", signal=9, req_mem="1G", max_rss="10M"), {}, "crashed", "crashed (signal 9)"),
        (ended("FAILED", exit_code=139), {}, "crashed", "crashed (signal 11)"),
        (ended("FAILED", exit_code=11, step_code=11), {}, "crashed", "crashed (signal 11)"),
        (ended("FAILED", nodes="", reason="BadConstraints"), {}, "crashed", "SLURM could not run it (BadConstraints)"),
        (ended("FAILED", step_signal=6), {}, "crashed", "crashed (signal 6)"),
        (
            ended("FAILED", exit_code=1),
            {},
            "crashed",
            "crashed (exit code 1)",
        ),
    ],
)
def test_why_a_job_ended(one, given, code, words):
    assert reasons.why(one, name=lambda uid: "uid%d" % uid, **given)[:2] == (code, words)


def test_person_who_cancelled_is_named():
    assert reasons.why(ended("CANCELLED", by_uid=2000), name=lambda _uid: "ann by night").by == "ann by night"
    assert reasons.why(ended("CANCELLED")).by == ""


def test_real_rows_of_sacct():
    """tests/unit/fixtures/slurm has them from SLURM 22.05."""
    header, *rows = (FIXTURES / "sacct.txt").read_text().splitlines()
    columns = header.split("|")
    text = ""
    for row in rows:
        fields = dict(zip(columns, row.split("|"), strict=True), TimelimitRaw="")
        for name in ("Submit", "Eligible", "Start", "End"):
            moment = fields[name]
            fields[name] = str(int(datetime.fromisoformat(moment).timestamp())) if moment.startswith("2") else moment
        text += ask.SEPARATOR.join(fields[name] for name in ask.RUNS.split(",")) + "\n"
    runs = ask.parse_runs(text)
    found = {}
    for run in runs:
        found.setdefault(run.job_id, []).append(reasons.why(run, reasons.preempting(run, runs)))
    codes = {job_id: [why.code for why in several] for job_id, several in found.items()}
    assert codes == {
        **{4: ["crashed"], 5: ["preempted", "cancelled"], 7: ["drained"], 8: ["cancelled"], 9: ["drained"]},
        **{10: ["crashed"], 11: ["walltime"], 12: ["drained"], 13: ["node_failure", "cancelled"]},
        **{14: ["out_of_memory"], 15: ["out_of_memory"]},
    }
    assert found[5][0].words == "preempted by job 7 of vasp_priority"
    assert found[14][0].words == "out of memory: 417668K used by a task, 50M requested"
    assert found[5][1].words == "cancelled by root"


@pytest.mark.parametrize(
    "fields",
    [
        {"start": 1900},  # before
        {"start": 2100},  # long after
        {"nodes": "c3"},
        {"submitted": 2001},
        {"job_id": 7},
        {"start": None},
    ],
)
def test_other_jobs_have_not_preempted(fields):
    assert reasons.preempting(ended("REQUEUED"), [VASP._replace(**fields)]) is None


def test_first_job_on_the_nodes_has_preempted():
    later = VASP._replace(job_id=8, start=2002)
    assert reasons.preempting(ended("REQUEUED"), [later, VASP]) == VASP
    assert reasons.preempting(ended("CANCELLED"), [VASP]) is None


def test_unknown_user_is_a_number():
    assert (reasons.user_name(0), reasons.user_name(3999999999)) == ("root", "user id 3999999999")
