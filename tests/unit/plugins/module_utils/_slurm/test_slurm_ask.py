# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""SLURM's answers in the form of 22.05; molecule/slurm has a real one."""

import os
import time
from pathlib import Path

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._slurm import ask, hostlist
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._text import Refusal

DIGEST = "0123456789abcdef"


def row(*fields):
    return ask.SEPARATOR.join(map(str, fields)) + "\n"


def queued(*fields):
    return ask.parse_queue(row(*fields))[0]


def command(tmp_path, monkeypatch, name, text):
    """A program of a command's name on PATH."""
    path = tmp_path / name
    path.write_text("#!/bin/sh\n" + text)
    path.chmod(0o755)
    monkeypatch.setenv("PATH", "%s:%s" % (tmp_path, os.environ["PATH"]))


def test_pending_job_of_the_queue():
    comment = "llama_cluster:reasoning:" + DIGEST
    fields = (
        12,
        "PENDING",
        "Priority",
        1790000000,
        "1-00:00:00",
        1780000000,
        "alice",
        "gpu",
        "ai",
        "",
        "(null)",
        "c[1-2]",
        "llama-72b",
    )
    one = queued(*fields, comment)
    assert (one.job_id, one.state, one.start, one.ends, one.planned) == (12, "PENDING", 1790000000, None, "c[1-2]")
    assert (one.service, one.digest, one.alive) == ("reasoning", DIGEST, True)


def test_reason_none_is_no_reason():
    fields = (12, "PENDING", "None", 1790000000, "2:00", 3, "alice", "gpu", "ai", "", "(null)", "(null)", "x", "")
    assert queued(*fields).reason == "" and queued(*fields[:2], "BeginTime", *fields[3:]).reason == "BeginTime"


@pytest.mark.parametrize("comment", ["(null)", "", "llama_cluster:a", "llama_cluster:a:b:c", "other:a:" + DIGEST])
def test_other_jobs_are_no_service(comment):
    fields = (1, "RUNNING", "None", 1, "2:00", 3, "alice", "gpu", "ai", "c1", "(null)", "(null)", "x")
    assert queued(*fields, comment).service == ""


def test_time_of_a_running_job():
    fields = (1, "RUNNING", "None", 1000, "2:00", 3, "alice", "gpu", "ai", "c1", "(null)", "(null)", "x", "")
    assert queued(*fields).ends == 1120
    assert queued(*fields[:4], "UNLIMITED", *fields[5:]).ends is None


def test_damaged_rows_are_left_out():
    assert ask.parse_queue("\n12\nslurm_load_jobs error\n" + row(*["x"] * 14)) == []


def test_texts_of_other_users_are_not_read(tmp_path, monkeypatch):
    command(tmp_path, monkeypatch, "squeue", 'for word; do :; done; printf "%s\\n" "$word" | tr -d "%"\n')
    assert ask.everybody() == []
    shown = ask.run(["squeue", ask.OTHERS]).strip().split(ask.SEPARATOR)
    assert not set(shown) & {"j", "k"} and len(shown) == 12


@pytest.mark.parametrize("text", ["\u00b2", "\u0663", "9" * 5000, "-1", "1e9", " 1", "", "1\n"])
def test_odd_numbers_are_none(text):
    assert ask.moment(text) is None and ask.period(text) == 0 and ask.period(f"{text}-0:00") in (0, ask.period("0:00"))
    assert ask.parse_queue(row(text, *["x"] * 13)) == ask.parse_queue(row(text, *["x"] * 11), texts=False) == []
    assert ask.parse_runs(row(text, *["x"] * 14)) == []
    fields = (7, "CANCELLED by " + text, text + ":" + text, *[text] * 12)
    (one,) = ask.parse_runs(row(*fields)) if "\n" not in text else [ask.Ended(7, "CANCELLED")]
    assert (one.job_id, one.state, one.by_uid, one.exit_code, one.limit) == (7, "CANCELLED", None, 0, None)
    assert hostlist.nodes(f"a[{text}-{text}]") != []


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        *(("90", 5400), ("10:00", 600), ("00:00:30", 30), ("24:00:00", 86400), ("7-00", 604800), ("1-02:03", 93780)),
        *(("1-00:00:01", 86401), ("UNLIMITED", 0), ("", 0), ("x", 0), ("1:2:3:4", 0)),
    ],
)
def test_times_of_slurm_have_seconds(text, seconds):
    """As sbatch, sacctmgr, squeue and slurm.conf have them."""
    assert ask.period(text) == seconds


def test_endless_time_limit_is_none():
    assert ask.period("99999999999-00:00:00") == 0 and ask.period("365-00:00:00") == 365 * 86400


@pytest.mark.parametrize("state", ["CANCELLED", "COMPLETED", "FAILED", "TIMEOUT", "PREEMPTED", "OUT_OF_MEMORY"])
def test_final_states_are_not_alive(state):
    assert not queued(1, state, "None", 1, "2:00", 3, "alice", "gpu", "ai", "c1", "(null)", "(null)", "x", "").alive


def run_row(job_id, state="RUNNING", code="0:0", rss="", start=1000, end="Unknown"):
    return row(job_id, state, code, "200G", rss, 900, 900, start, end, 1440, "c[1-2]", "ai", "gpu", "alice", "x")


def test_runs_of_a_requeued_job():
    text = (
        run_row(7, "REQUEUED", end=1100)
        + run_row("7.batch", "CANCELLED", "0:15", "2000K")
        + run_row("7.0", "FAILED", "75:0", "1.5M")
        + run_row(7, "CANCELLED by 2000", start=1300, end=1400)
    )
    first, second = ask.parse_runs(text)
    assert (first.state, first.step_code, first.max_rss, first.over) == ("REQUEUED", 75, "2000K", True)
    assert (second.state, second.by_uid, second.step_code) == ("CANCELLED", 2000, 0)
    assert (second.limit, second.nodes, second.qos) == (86400, "c[1-2]", "ai")


def test_running_job_is_not_over():
    (one,) = ask.parse_runs(run_row(7))
    assert (one.over, one.end, one.start) == (False, None, 1000)


@pytest.mark.parametrize(
    "text, names",
    [
        ("", []),
        ("ctl", ["ctl"]),
        ("vasp-[01-03,07],ctl", ["vasp-01", "vasp-02", "vasp-03", "vasp-07", "ctl"]),
        ("r[1-2]n[3-4]", ["r1n3", "r1n4", "r2n3", "r2n4"]),
        ("a[1", ["a", "1"]),
    ],
)
def test_names_of_a_list_of_nodes(text, names):
    assert hostlist.nodes(text) == names


def test_lists_of_nodes_are_bounded():
    assert len(hostlist.nodes("a[0-999999999]")) <= hostlist.MOST + 1
    assert len(hostlist.nodes("a[0-9999]b[0-9999]c[0-9999]")) <= hostlist.MOST + 1
    for text in ("a[" + "0-9999," * 5_000 + "1]", "a[0-9999]," * 5_000, "a[" * 50_000, "a[1]" * 20_000):
        assert len(hostlist.nodes(text)) <= hostlist.MOST


def test_squeue_is_asked_in_its_own_form(tmp_path, monkeypatch):
    monkeypatch.setenv("SQUEUE_FORMAT", "%i")
    command(tmp_path, monkeypatch, "squeue", 'echo "$@" >&2; env | grep -E "SQUEUE|TIME_FORMAT" >&2; exit 1\n')
    with pytest.raises(Refusal, match="--states=all --user=alice") as refusal:
        ask.jobs("alice")
    assert "SLURM_TIME_FORMAT=%s" in str(refusal.value) and "SQUEUE_FORMAT" not in str(refusal.value)


@pytest.mark.parametrize(
    "said, code",
    [
        ("slurm_load_jobs error: Unable to contact slurm controller (connect failure)", ask.AWAY),
        ("sbatch: error: Batch job submission failed: Socket timed out on send/recv operation", ask.AWAY),
        ("sbatch: error: Batch job submission failed: Invalid account or account/partition combination", ask.REFUSED),
    ],
)
def test_errors_tell_absence_from_refusal(tmp_path, monkeypatch, said, code):
    command(tmp_path, monkeypatch, "sbatch", 'echo "%s" >&2; exit 1\n' % said)
    with pytest.raises(Refusal) as refusal:
        ask.submit("/a/script")
    assert refusal.value.code == code


def test_killed_command_is_absence(tmp_path, monkeypatch):
    command(tmp_path, monkeypatch, "sbatch", "kill -TERM $$\n")
    with pytest.raises(Refusal, match="exit status -15") as refusal:
        ask.submit("/a/script")
    assert refusal.value.code == ask.AWAY


def test_missing_command_is_absence(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Refusal) as refusal:
        ask.jobs("alice")
    assert refusal.value.code == ask.AWAY


def test_command_that_hangs_is_ended(tmp_path, monkeypatch):
    command(tmp_path, monkeypatch, "scontrol", "sleep 60 & echo $! > %s/child; wait\n" % tmp_path)
    began = time.monotonic()
    with pytest.raises(Refusal) as refusal:
        ask.run(["scontrol"], seconds=0.5)
    assert refusal.value.code == ask.AWAY and time.monotonic() - began < 5
    # Its children are ended with it.
    child = int((tmp_path / "child").read_text())
    for _try in range(50):
        stat = Path("/proc/%d/stat" % child)
        if not stat.exists() or stat.read_text().split()[2] == "Z":
            break
        time.sleep(0.1)
    else:
        pytest.fail("the child lives")


@pytest.mark.parametrize("text", ["yes", "head -c 5000000 /dev/zero"])
def test_output_is_bounded(tmp_path, monkeypatch, text):
    command(tmp_path, monkeypatch, "squeue", text + "\n")
    with pytest.raises(Refusal, match="fewer are needed"):
        ask.jobs("alice")


@pytest.mark.parametrize("said, number", [("4711", 4711), ("4711;lab", 4711)])
def test_submission_returns_the_number(tmp_path, monkeypatch, said, number):
    command(tmp_path, monkeypatch, "sbatch", "echo '%s'\n" % said)
    assert ask.submit("/a/script") == number


def test_keys_of_scontrol(tmp_path, monkeypatch):
    command(tmp_path, monkeypatch, "scontrol", 'echo "JobId=7 PreemptTime=1790000000 EndTime=Unknown Command=(null)"\n')
    seen = ask.show_job(7)
    assert (ask.moment(seen["PreemptTime"]), ask.moment(seen["EndTime"])) == (1790000000, None)


@pytest.mark.parametrize(
    "text, number", [("12345K", 12345 << 10), ("1.50G", 1.5 * 2**30), ("200Gn", 200 << 30), ("", 0)]
)
def test_sizes(text, number):
    assert ask.size(text) == number
