# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._watchdog.worker import WorkerJudge

QUIET = {"process": (7, 1), "state": "S", "waiting": 0, "serving": 0, "head": None}


class Worker:
    def __init__(self):
        self.judge = WorkerJudge()
        self.now = 50.0

    def run(self, seconds, **sample):
        """[(seconds from here, reason)] of what was decided while the sample stayed the same."""
        start, said = self.now, []
        while self.now - start < seconds:
            for repair in self.judge.decide(dict(QUIET, now=self.now, **sample)):
                said.append((self.now - start, repair.reason, repair.fact))
                self.judge.repaired()
            self.now += 1
        return said


@pytest.fixture(name="worker")
def fixture_worker():
    one = Worker()
    one.run(5)
    return one


def test_healthy_workers_are_kept(worker):
    assert worker.run(3600) == []
    assert worker.run(3600, state="R", serving=1) == []


@pytest.mark.parametrize("state", ["T", "t"])
def test_a_stopped_process(worker, state):
    assert worker.run(5, state=state, serving=1) == [(3, "its process has been stopped for 3 s", True)]


def test_a_short_stop_is_nothing(worker):
    for _time in range(5):
        assert worker.run(3, state="T") == []
        assert worker.run(1) == []


def test_a_process_that_waits_for_a_disk(worker):
    assert worker.run(60, state="D") == []
    assert worker.run(2, state="D")[0][1] == "its process has waited for a disk or a driver for 60 s"


def test_waiting_client_is_not_served(worker):
    assert worker.run(7, waiting=1) == [(5, "a head has waited for it for 5 s while it served no other", False)]


def test_somebody_waits_while_the_head_is_served(worker):
    assert worker.run(600, waiting=2, serving=1, head=True) == []
    assert worker.run(600, waiting=2, serving=1, head=None) == [], (
        "where the head cannot be seen, nothing is known of it"
    )


def test_the_connection_of_a_head_that_is_gone(worker):
    assert worker.run(4, waiting=1, serving=1, head=False) == []
    assert worker.run(1, waiting=1, serving=1, head=True) == []
    ((moment, reason, fact),) = worker.run(7, waiting=1, serving=1, head=False)
    assert (moment, fact) == (5, False)
    assert reason == "its connection is to a head that is gone, and a new one has waited for 5 s"


@pytest.mark.parametrize(
    ("seconds", "sample"),
    [
        (3, {"state": "T"}),
        (60, {"state": "D"}),
        (5, {"waiting": 1}),
        (5, {"waiting": 1, "serving": 1, "head": False}),
    ],
)
def test_late_round_decides(worker, seconds, sample):
    """No round falls on the second itself."""
    start = worker.now
    while not worker.judge.decide(dict(QUIET, now=worker.now, **sample)):
        assert worker.now - start < seconds
        worker.now += 0.7
    assert worker.now - start > seconds


def test_a_unit_that_is_not_to_be_touched(worker):
    assert worker.run(100, process=None, state="T", waiting=1) == []


def test_new_process_counts_anew(worker):
    assert worker.run(3, state="T") == []
    assert worker.run(3, state="T", process=(8, 2)) == []
    worker.now += 100
    assert worker.run(3, state="T", process=(8, 2)) == []


@pytest.mark.parametrize(("pause", "facts"), [(5, [True]), (5.5, [])])
def test_one_repair_per_state(worker, pause, facts):
    sample = dict(QUIET, state="T", waiting=1)
    assert worker.judge.decide(dict(sample, now=worker.now)) == []
    assert [repair.fact for repair in worker.judge.decide(dict(sample, now=worker.now + pause))] == facts
