# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The batch part with its tasks as real processes; stand-ins for SLURM's commands print what the real ones print."""

import json
import os
import re
import signal
import time
from pathlib import Path

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._slurm import ask, reasons
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._text import Refusal
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils.programs import slurm_batch
from ansible_collections.thefermisea.llama_cluster.tests.unit.slurm_tasks import Cluster, get, tree, wait_for

FIXTURES = Path(__file__).resolve().parents[3] / "fixtures/slurm"
REQUEUE = "requeue 4711"


@pytest.fixture(name="cluster")
def fixture_cluster(tmp_path):
    made = []

    def make(**options):
        made.append(Cluster(tmp_path, **options))
        return made[-1]

    yield make
    for one in made:
        one.close()


def signal_tasks(cluster, number):
    """As SLURM does at a preemption: the batch part gets nothing."""
    for pid in (cluster.slurm / "pids").read_text().split():
        os.kill(int(pid), number)


def test_preempted_job_is_started_again(cluster):
    one = cluster(workers=1)
    job = one.start("slurm_batch", SLURM_RESTART_COUNT="2", SLURM_CPUS_PER_TASK="4")
    wait_for((one.folder / "logs/4711/served-2").exists)
    one.shows(preempted=int(time.time()))
    signal_tasks(one, signal.SIGTERM)
    wait_for(lambda: REQUEUE in one.calls("scontrol"))
    assert job.poll() is None, "it waits for SLURM to end it"
    job.send_signal(signal.SIGTERM)
    assert job.wait(5) == 0
    words = one.output(job)
    assert (one.folder / "output-0").stat().st_mode & 0o137 == 0
    assert f"job 4711: start 3 of service chat on n1, n2, digest {one.job()['digest']}" in words
    assert words.splitlines()[-1].endswith("job 4711: preempted: starts again")
    assert one.calls("srun") == [
        "--ntasks-per-node=1 --kill-on-bad-exit=0 --wait=20 --cpus-per-task=4 --export=ALL "
        "/opt/llama-cluster/bin/llama-program slurm_task"
    ]


def test_old_logs_of_its_name_are_removed(cluster, tmp_path):
    one = cluster()
    (tmp_path / "own").mkdir()
    for number in range(4650, 4712):
        (tmp_path / f"own/llama-chat-{number}.log").touch()
    shown = (one.slurm / "shown").read_text().rstrip("\n")
    (one.slurm / "shown").write_text(f"{shown} StdOut={tmp_path}/own/llama-chat-4711.log\n")
    one.start("slurm_batch")
    wait_for(lambda: len(os.listdir(tmp_path / "own")) == 50)
    assert not (tmp_path / "own/llama-chat-4661.log").exists()


def test_cancelled_job_ends(cluster):
    """Its batch part gets SIGTERM too."""
    one = cluster()
    job = one.start("slurm_batch")
    one.serves()
    job.send_signal(signal.SIGTERM)
    time.sleep(0.3)
    assert job.poll() is None, "it waits for its tasks"
    signal_tasks(one, signal.SIGTERM)
    assert job.wait(10) == 0
    assert one.output(job).splitlines()[-1].endswith("job 4711: cancelled")
    assert REQUEUE not in one.calls("scontrol")


def test_earlier_preemption_does_not_count(cluster):
    one = cluster()
    job = one.start("slurm_batch")
    one.serves()
    one.shows(preempted=int(time.time()) - 3600)
    signal_tasks(one, signal.SIGUSR1)
    assert job.wait(10) == 0
    assert one.output(job).splitlines()[-1].endswith("job 4711: ended after a drain")
    assert REQUEUE not in one.calls("scontrol")


def test_job_that_slurm_has_requeued_itself(cluster):
    """For a node that failed: PreemptTime is gone by then."""
    one = cluster()
    job = one.start("slurm_batch", SLURM_RESTART_COUNT="1")
    wait_for((one.folder / "logs/4711/served-1").exists)
    one.shows(restarts=2)
    signal_tasks(one, signal.SIGTERM)
    assert job.wait(10) == 0
    assert "job 4711: requeued by SLURM: a node failed" in one.output(job)
    assert REQUEUE not in one.calls("scontrol")


def test_crash_ends_the_job_with_its_code(cluster):
    one = cluster(workers=1)
    job = one.start("slurm_batch")
    one.serves()
    with pytest.raises(OSError):
        get(one.port, "/crash?3")
    assert job.wait(15) == 3
    assert one.output(job).splitlines()[-1].endswith("job 4711: crashed (exit code 3)")
    assert REQUEUE not in one.calls("scontrol")


def test_lost_worker_starts_the_job_again(cluster):
    one = cluster(workers=1)
    job = one.start("slurm_batch")
    one.serves()
    time.sleep(1)
    (rpc,) = [pid for pid in tree(job.pid) if "stand_in_rpc" in Path(f"/proc/{pid}/cmdline").read_text()]
    os.kill(rpc, signal.SIGKILL)
    wait_for(lambda: REQUEUE in one.calls("scontrol"))
    job.send_signal(signal.SIGTERM)
    assert job.wait(5) == 75
    assert "a worker was lost or did not come up: starts again" in one.output(job)


def test_hanging_scontrol_holds_no_job(cluster):
    one = cluster()
    (one.slurm / "hangs").touch()
    job = one.start("slurm_batch")
    wait_for(lambda: "the end of its time is not known" in one.output(job))
    one.serves()
    (one.slurm / "hangs").unlink()
    signal_tasks(one, signal.SIGTERM)
    assert job.wait(10) == 0


# The decision


class Batch(slurm_batch.Batch):
    def __init__(self, monkeypatch, restarts=0, shown=()):
        environment = {"SLURM_JOB_ID": "4711", "SLURM_RESTART_COUNT": str(restarts)}
        super().__init__(None, environment)
        self.said, self.shown, self.ran, self.refused = [], list(shown), [], []
        self.say = self.said.append
        self.clock = 1000.0
        monkeypatch.setattr(slurm_batch.time, "monotonic", lambda: self.clock)
        monkeypatch.setattr(slurm_batch.time, "sleep", self.sleep)
        monkeypatch.setattr(slurm_batch.ask, "show_job", lambda _job_id: self.answer(self.shown))
        monkeypatch.setattr(slurm_batch.ask, "run", lambda words: self.ran.append(words) or self.answer(self.refused))

    def sleep(self, seconds):
        self.clock += seconds

    def answer(self, answers):
        found = answers.pop(0) if len(answers) > 1 else answers[0] if answers else {}
        if isinstance(found, Exception):
            self.clock += ask.SECONDS
            raise found
        return found


AWAY = Refusal("scontrol: no answer in time", ask.AWAY)
REFUSED = Refusal("scontrol: SLURM reports 'Invalid job id specified'", ask.REFUSED)


@pytest.mark.parametrize(
    ("shown", "preempted"),
    [
        ({"PreemptTime": "2000", "StartTime": "1000"}, True),
        ({"PreemptTime": "500", "StartTime": "1000"}, False),
        ({"PreemptTime": "None", "StartTime": "1000"}, False),
        ({}, False),
    ],
)
def test_whether_slurm_has_preempted_the_job(shown, preempted):
    assert slurm_batch.is_preempted(shown) is preempted


@pytest.mark.parametrize(("answers", "seen"), [([AWAY, AWAY, {"a": "b"}], {"a": "b"}), ([AWAY], {}), ([REFUSED], {})])
def test_slurm_is_asked_for_a_while(monkeypatch, answers, seen):
    batch = Batch(monkeypatch, shown=answers)
    assert batch._shown() == seen
    assert batch.clock <= 1000 + slurm_batch.SEEN + ask.SECONDS + slurm_batch.PAUSE
    assert len(batch.said) == (not seen)


@pytest.mark.parametrize(("name", "preempted"), [("preempting", True), ("running", False), ("cancelled", False)])
def test_preemption_in_slurms_own_words(name, preempted):
    """As SLURM 22.05 has printed them, but for its times."""
    text = (FIXTURES / f"show-job-{name}.txt").read_text()
    moments = {found: str(int(time.mktime(time.strptime(found, "%Y-%m-%dT%H:%M:%S")))) for found in stamps(text)}
    for found, moment in moments.items():
        text = text.replace(found, moment)
    shown = dict(word.partition("=")[::2] for word in text.split())
    assert slurm_batch.is_preempted(shown) is preempted


def stamps(text):
    return re.findall(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", text)


def test_requeue_waits_for_slurm_to_come_back(monkeypatch):
    batch = Batch(monkeypatch)
    batch.refused = [AWAY, AWAY, ""]
    assert batch._requeue(0) == 0
    assert len(batch.ran) == 3 and batch.said == []
    batch.refused = [AWAY]
    assert batch._requeue(0) == 75
    assert "the job ends" in batch.said[0]


def test_refused_requeue_ends_the_job(monkeypatch):
    batch = Batch(monkeypatch)
    batch.refused = [REFUSED]
    assert batch._requeue(0) == 75 and len(batch.ran) == 1


@pytest.mark.parametrize(("restarts", "lasted", "again"), [(0, 1, True), (2, 1, True), (3, 1, False), (9, 600, True)])
def test_job_that_keeps_losing_workers_ends(monkeypatch, restarts, lasted, again):
    batch = Batch(monkeypatch, restarts)
    batch._started -= lasted
    assert batch._may_again() is again


def test_end_of_its_time_is_named(monkeypatch):
    batch = Batch(monkeypatch)
    batch._started, batch._ends_at = int(time.time()) - 500, int(time.time()) + 100
    assert batch._why(0, False).code == reasons.WALLTIME
    batch._ends_at, batch._terms = int(time.time()) + 10, 1
    assert batch._why(143, False).code == reasons.WALLTIME


# Its user


def test_job_of_another_user_is_refused(cluster):
    one = cluster()
    job = one.start("slurm_batch", LLAMA_JOB=json.dumps(dict(one.job(), user="someone")))
    assert job.wait(5) == 1
    assert re.search(r"LLAMA_JOB.user: \w+ seen, someone is needed: run sbatch as someone", one.output(job))


def test_missing_job_is_refused(cluster):
    job = cluster().start("slurm_batch", LLAMA_JOB="")
    assert job.wait(5) == 1
