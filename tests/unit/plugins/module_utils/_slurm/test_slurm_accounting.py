# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Changes of the accounting; molecule/slurm makes them in a real one."""

from datetime import datetime
from pathlib import Path

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._slurm import accounting, ask, reasons, report
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._slurm.accounting import Association, Found
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._slurm.ask import Ended
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._slurm.reasons import Why
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._text import Refusal

QOS = {
    "ai_opportunistic": {"priority": 100, "grace_time": 30, "preempt_mode": "requeue"},
    "vasp_priority": {"priority": 1000, "preempt": ["ai_opportunistic"]},
}
ASSOCIATIONS = [{"user": "ai", "account": "lab", "qos": ["ai_opportunistic"]}]
EMPTY = Found(
    "lab", {"normal": {"priority": 0, "grace_time": 0, "preempt": [], "preempt_mode": "cluster"}}, frozenset(), ()
)
THERE = Found(
    "lab",
    accounting.parse_qos(
        "normal|0|00:00:00||cluster\n"
        "ai_opportunistic|100|00:00:30||requeue\n"
        "vasp_priority|1000|00:00:00|ai_opportunistic|cluster\n"
    ),
    frozenset(["root", "lab"]),
    accounting.parse_associations("lab|root|||normal\nlab|lab|||normal\nlab|lab|ai||ai_opportunistic,normal\n", "lab"),
)


def present(found, qos=None, associations=None):
    return accounting.present(found, *accounting.wanted(QOS if qos is None else qos, associations or ASSOCIATIONS))


def test_nothing_changes_twice():
    changes = present(THERE)
    assert (changes.calls, changes.before, changes.after) == ([], [], [])
    assert changes.created == {"qos": [], "associations": []}


def test_all_is_made():
    changes = present(EMPTY)
    assert [" ".join(call) for call in changes.calls] == [
        "sacctmgr -i add qos ai_opportunistic",
        "sacctmgr -i add qos vasp_priority",
        "sacctmgr -i modify qos where Name=ai_opportunistic set Priority=100 GraceTime=30 PreemptMode=requeue",
        "sacctmgr -i modify qos where Name=vasp_priority set Priority=1000 Preempt=ai_opportunistic",
        "sacctmgr -i add account lab Cluster=lab",
        "sacctmgr -i add user ai Account=lab Cluster=lab QOS=ai_opportunistic",
    ]
    assert changes.created == {"qos": list(QOS), "associations": [{"user": "ai", "account": "lab"}]}


def test_only_what_differs_changes():
    changes = present(THERE, {"ai_opportunistic": {"grace_time": 60, "priority": 100}, "normal": {}})
    assert [" ".join(call) for call in changes.calls] == [
        "sacctmgr -i modify qos where Name=ai_opportunistic set GraceTime=60"
    ]
    assert (changes.before, changes.after) == (
        ["qos ai_opportunistic: GraceTime=30"],
        ["qos ai_opportunistic: GraceTime=60"],
    )


def test_other_qos_of_a_user_stay():
    changes = present(THERE, {}, [{"user": "ai", "account": "lab", "qos": ["vasp_priority"]}])
    (call,) = changes.calls
    assert " ".join(call) == ("sacctmgr -i modify user where Name=ai Account=lab Cluster=lab set QOS+=vasp_priority")
    assert changes.after == ["user ai of account lab: QOS=ai_opportunistic,normal,vasp_priority"]
    assert changes.created["associations"] == []


def test_preempted_qos_are_emptied():
    changes = present(THERE, {"vasp_priority": {"preempt": []}})
    assert changes.calls[0][-1] == "Preempt="


def test_only_named_ones_are_removed():
    changes = accounting.absent(
        THERE, ["ai_opportunistic", "gone"], [Association("ai", "lab"), Association("bob", "lab")]
    )
    assert [" ".join(call) for call in changes.calls] == [
        "sacctmgr -i delete user where Name=ai Account=lab Cluster=lab",
        "sacctmgr -i delete qos where Name=ai_opportunistic",
    ]
    assert accounting.absent(EMPTY, ["ai_opportunistic"], [Association("ai", "lab")]).calls == []


def test_associations_of_other_clusters_are_others():
    assert accounting.parse_associations("other|lab|ai||normal\nlab|lab|ai|gpu|normal\n", "lab") == ()


@pytest.mark.parametrize(
    "qos, associations",
    [
        ({"a b": {}}, []),
        ({"a": 7}, []),
        ({"a": {"priority": "high"}}, []),
        ({"a": {"grace_time": -1}}, []),
        ({"a": {"preempt": "b"}}, []),
        ({"a": {"preempt_mode": "maybe"}}, []),
        ({"a": {"maxjobs": 1}}, []),
        ({}, [{"user": "a", "account": "b,c"}]),
        ({}, [{"user": "a", "account": "b", "qos": ["-x"]}]),
    ],
)
def test_unknown_forms_are_refused(qos, associations):
    with pytest.raises(Refusal, match="needed"):
        accounting.wanted(qos, associations)


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
