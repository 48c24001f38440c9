# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Decisions of the keeper over a queue that the tests move."""

import random

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._slurm import ask, keeper, state
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._slurm.actions import (
    Cancel,
    Drain,
    Say,
    Submit,
    Taken,
)
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._slurm.ask import Ended, Queued

OLD, NEW = "0" * 16, "1" * 16
SUBMIT = Submit("fast", "/scripts/run-14b.slurm")
NOW = 1_790_000_000


def service(**changes):
    given = {
        "wanted": True,
        "name": "llama-14b",
        "script": SUBMIT.script,
        "digest": NEW,
        "grace": 30,
        "log_dir": "/logs",
        "suffix": "14b",
        "record": {},
        "nodes": ["vasp-02"],
    }
    return state.Service(**{**given, **changes})


def config(*yields, **changes):
    return state.Config("llama", "/var/lib/keeper", list(yields), "", {"fast": service(**changes)})


def job(job_id=7, job_state="PENDING", digest=NEW, name="fast", **changes):
    given = {
        "job_id": job_id,
        "name": "llama-14b",
        "state": job_state,
        "reason": "Priority" if job_state == "PENDING" else "None",
        "start": None if job_state == "PENDING" else NOW - 100,
        "limit": 86400,
        "comment": f"llama_cluster:{name}:{digest}",
        "user": "llama",
        "partition": "gpu_ai",
        "qos": "ai",
        "nodes": "" if job_state == "PENDING" else "vasp-02",
        "planned": "",
        "submitted": NOW - 200,
    }
    return Queued(**{**given, **changes})


def running(job_id=7, **changes):
    return job(job_id, "RUNNING", **changes)


def vasp(job_id=90, job_state="RUNNING", **changes):
    given = {"comment": "", "user": "carol", "partition": "gpu_vasp", "qos": "vasp_priority"}
    return job(job_id, job_state, **{**given, **changes})


class Keeper:
    """The keeper with its state, over a queue that only tests change."""

    def __init__(self, *yields, **changes):
        self.config = config(*yields, **changes)
        self.state = {}
        self.now = float(NOW)

    def turn(self, *jobs, seconds=5.0, **seen):
        """The actions of a turn, without its words."""
        self.now += seconds
        looked = keeper.looked(self.state, jobs, self.now)
        self.unexplained = keeper.unexplained(looked)
        self.state, actions = keeper.decide(self.config, looked, keeper.Seen(list(jobs), **seen), self.now)
        self.words = [action.text for action in actions if isinstance(action, Say)]
        # The file keeps all of it.
        content = state.public(self.state, self.now, None)
        assert state.known_of(content) == self.state
        return [action for action in actions if not isinstance(action, Say)]

    def submit(self, job_id=7):
        """A turn that submits a job, and its answer."""
        assert self.turn() == [SUBMIT]
        self.state["fast"] = keeper.submitted(self.state["fast"], job_id)

    @property
    def known(self):
        return self.state["fast"]


def ended(job_state, job_id=7, **fields):
    return {"runs": {job_id: [Ended(job_id, job_state, start=NOW - 100, end=NOW, nodes="vasp-02", **fields)]}}


def test_wanted_service_gets_one_job():
    one = Keeper()
    one.submit()
    assert [one.turn(job()) for _turn in range(3)] == [[]] * 3
    assert [one.turn(running()) for _turn in range(3)] == [[]] * 3
    assert (one.known.job_id, one.known.state, one.known.nodes) == (7, "running", "vasp-02")


def test_job_is_found_without_notes():
    """After a kill between the submission and the notes, or with all notes lost."""
    one = Keeper()
    assert one.turn(job(12)) == []
    assert one.known.job_id == 12
    # Killed before the answer.
    two = Keeper()
    assert two.turn() == [SUBMIT] and two.known.submitting == two.now
    assert two.turn(job(12)) == []
    assert (two.known.job_id, two.known.submitting) == (12, None)


def test_unanswered_submission_is_awaited():
    one = Keeper()
    assert one.turn() == [SUBMIT]
    assert [one.turn() for _turn in range(5)] == [[]] * 5
    # It was lost.
    assert one.turn(seconds=10) == [SUBMIT]


def test_job_of_another_service_is_none():
    one = Keeper()
    assert one.turn(vasp(user="llama", name="x")) == [SUBMIT]
    assert one.turn(job(8, name="other"), seconds=60) == [SUBMIT, Cancel("other", 8, True)]


@pytest.mark.parametrize("job_state", ["SUSPENDED", "CONFIGURING", "COMPLETING", "REQUEUE_HOLD"])
def test_every_living_state_counts(job_state):
    one = Keeper()
    assert one.turn(job(7, job_state)) == []


def test_failed_jobs_wait_longer_and_longer():
    one, waits = Keeper(), []
    one.submit(1)
    for number in range(1, 9):
        one.turn(running(number, start=int(one.now)), seconds=0)
        crashed = {number: [Ended(number, "FAILED", exit_code=1, start=int(one.now), end=int(one.now))]}
        began = one.now
        while one.turn(seconds=0 if one.now == began else 1, runs=crashed) != [SUBMIT]:
            one.now += one.now == began
        waits.append(one.now - began)
        one.state["fast"] = keeper.submitted(one.known, number + 1)
    assert waits == [0, 10, 30, 60, 120, 300, 600, 600]
    assert one.known.last["words"] == "crashed (exit code 1)" and one.known.failures == 8


def test_job_that_served_is_followed_at_once():
    one = Keeper()
    one.state = {"fast": state.Known(failures=5)}
    one.turn(running())
    one.turn(running(), ready=frozenset([7]))
    assert one.known.serves
    one.turn(running(), ready=frozenset([7]), seconds=keeper.PROVEN)
    assert one.turn(**ended("FAILED", exit_code=1)) == [SUBMIT]
    assert (one.known.failures, one.known.last["code"]) == (0, "crashed")


def test_jobs_killed_soon_after_they_serve_wait():
    """A request that needs more memory than SLURM gives ends each of them."""
    one, waits = Keeper(), []
    for number in range(1, 5):
        one.turn(running(number), ready=frozenset([number]), seconds=0)
        killed = {number: [Ended(number, "OUT_OF_MEMORY", start=int(one.now), end=int(one.now) + 10)]}
        one.turn(running(number), seconds=10)
        began = one.now
        while one.turn(seconds=int(one.now > began), runs=killed) != [SUBMIT]:
            one.now += one.now == began
        waits.append(one.now - began)
        one.state["fast"] = keeper.submitted(one.known, number + 1)
    assert waits == [0, 10, 30, 60]


def test_job_with_another_script_is_followed_at_once():
    one = Keeper()
    one.state = {"fast": state.Known(failures=5)}
    one.turn(running(digest=OLD))
    assert one.turn(**ended("FAILED", exit_code=1)) == [SUBMIT]
    assert (one.known.failures, one.known.last["digest"]) == (0, OLD)


def test_short_service_between_looks_counts():
    one = Keeper()
    one.state = {"fast": state.Known(failures=5)}
    one.turn(running())
    since = one.now + 5 - keeper.PROVEN
    assert one.turn(served={7: since}, **ended("FAILED", exit_code=1)) == [SUBMIT]
    assert one.known.failures == 0
    one.turn(running(8))
    one.turn(served={8: one.now}, runs={8: [Ended(8, "FAILED", exit_code=1, start=NOW - 100, end=NOW)]})
    assert one.known.failures == 1


def test_accounting_is_awaited():
    one = Keeper()
    one.turn(running())
    assert one.turn() == [] and one.unexplained == [7]
    assert one.turn(runs={7: [Ended(7, "RUNNING", start=NOW - 100)]}) == []
    assert one.turn(**ended("FAILED", exit_code=3)) == [SUBMIT]


def test_without_accounting_the_queue_counts():
    one = Keeper()
    one.turn(running())
    dead = running()._replace(state="CANCELLED")
    assert one.turn(dead) == []
    assert one.turn(dead, seconds=70) == []
    assert one.known.held["by"] == "scancel"


def test_without_any_answer_it_goes_on():
    one = Keeper()
    one.turn(running())
    assert one.turn() == []
    assert one.turn(seconds=70) == [SUBMIT]
    assert one.known.last["code"] == "unknown"


def test_scancel_of_a_person_holds():
    one = Keeper()
    one.turn(running())
    assert one.turn(**ended("CANCELLED", by_uid=0)) == []
    assert one.known.held == {"by": "root", "at": one.now}
    assert [one.turn(seconds=1000) for _turn in range(3)] == [[]] * 3
    assert "llama-jobs resume fast" in "".join(one.words) or one.known.held
    assert one.turn(resume={"fast": {"by": "bob", "at": 1.0}}) == [Taken("fast", "resume"), SUBMIT]
    assert one.known.held is None


def test_resume_waits_for_a_job_that_ends():
    one = Keeper()
    one.turn(running())
    bob = {"fast": {"by": "bob", "at": 1.0}}
    assert one.turn(job(7, "COMPLETING"), resume=bob) == []
    # SLURM does not say yet how it ended.
    assert one.turn(resume=bob) == []
    assert one.turn(resume=bob, **ended("CANCELLED", by_uid=0)) == []
    assert one.known.held
    assert one.turn(resume=bob) == [Taken("fast", "resume"), SUBMIT]


def test_scancel_while_the_keeper_was_down_holds():
    one = Keeper()
    one.submit()
    assert one.turn(seconds=9000, **ended("CANCELLED", by_uid=0)) == []
    assert one.known.held["by"] == "root"


def test_held_service_ends_its_jobs():
    one = Keeper()
    one.turn(running())
    request = {"fast": {"by": "bob", "at": 5.0}}
    assert one.turn(running(), hold=request) == [Taken("fast", "hold"), Drain("fast", 7)]
    assert one.turn(running()) == []
    assert one.turn(**ended("COMPLETED")) == []
    assert (one.known.last["code"], one.known.last["words"]) == ("drained", "held by bob")
    assert one.known.failures == 0
    assert state.sentence(one.known, one.now).startswith("held by bob since ")


def test_job_submitted_while_held_stays():
    one = Keeper()
    one.turn(job(7), hold={"fast": {"by": "bob", "at": 5.0}})
    assert one.turn(**ended("CANCELLED", by_uid=0)) == []
    assert one.turn(job(8)) == [] and one.turn(running(8)) == []


def test_changed_digest_replaces_a_waiting_job():
    one = Keeper()
    assert one.turn(job(digest=OLD)) == [Cancel("fast", 7, True)]
    assert one.turn(job(digest=OLD)) == []
    assert one.turn(**ended("CANCELLED", by_uid=0)) == [SUBMIT]
    assert (one.known.held, one.known.last["code"]) == (None, "replaced")


def test_changed_digest_drains_a_running_job():
    one = Keeper()
    assert one.turn(running(digest=OLD)) == [Drain("fast", 7)]
    assert one.turn(running(digest=OLD), seconds=80) == []
    assert one.turn(running(digest=OLD), seconds=10) == [Cancel("fast", 7, False)]
    assert one.turn(running(digest=OLD), seconds=10) == []
    assert one.turn(job(7, "COMPLETING", digest=OLD), seconds=100) == []
    assert one.turn(**ended("COMPLETED")) == [SUBMIT]
    assert one.known.last["code"] == "replaced"


def test_job_that_starts_before_its_cancellation_drains():
    one = Keeper()
    assert one.turn(job(digest=OLD)) == [Cancel("fast", 7, True)]
    assert one.turn(running(digest=OLD)) == [Drain("fast", 7)]


def test_request_that_did_not_arrive_is_repeated():
    one = Keeper()
    assert one.turn(running(digest=OLD)) == [Drain("fast", 7)]
    one.state["fast"] = keeper.failed(one.known, 7)
    assert one.turn(running(digest=OLD)) == [Drain("fast", 7)]


def test_preempted_job_stays_in_the_queue():
    one = Keeper()
    one.turn(running())
    assert one.turn(job(reason="BeginTime"), others=[vasp(start=NOW + 1)], **ended("REQUEUED")) == []
    assert one.known.last["words"] == "preempted by job 90 of vasp_priority"
    assert (one.known.state, one.known.failures, one.known.serves) == ("pending", 0, False)
    assert one.turn(running()) == []


def test_requeue_between_two_looks_is_seen():
    one = Keeper()
    one.turn(running(), ready=frozenset([7]))
    assert one.turn(running(start=NOW + 3), others=[vasp(start=NOW + 1)], **ended("REQUEUED")) == []
    assert (one.known.last["code"], one.known.served, one.known.started) == ("preempted", None, NOW + 3)


def test_taker_is_looked_for_some_time():
    one = Keeper()
    one.turn(running())
    assert one.turn(job(), **ended("REQUEUED")) == [] and one.known.last is None
    one.turn(job(), seconds=30, **ended("REQUEUED"))
    assert one.known.last["code"] == "requeued"


def test_lost_worker_is_no_preemption():
    one = Keeper()
    one.turn(running())
    one.turn(job(), **ended("REQUEUED", step_code=75))
    assert one.known.last["code"] == "lost_worker"


def test_requeued_run_that_still_ends_is_one():
    """SLURM shows it as completing, with the start of its next run."""
    one = Keeper()
    one.turn(running())
    end = ended("REQUEUED", step_code=75)
    one.turn(running(state="COMPLETING", start=NOW + 3), **end)
    assert (one.known.state, one.known.last, one.unexplained) == ("completing", None, [])
    one.turn(job(), **end)
    assert one.known.last["code"] == "lost_worker"
    one.turn(running(start=NOW + 9), **end)
    assert one.unexplained == [] and one.known.started == NOW + 9


def test_late_accounting_shows_no_earlier_run():
    one = Keeper()
    one.turn(running(start=NOW + 500))
    assert one.turn(**ended("REQUEUED")) == [] and one.unexplained == [7]


def test_next_job_waits_before_the_time_is_over():
    one = Keeper()
    one.turn(running(limit=300), seconds=0)
    assert one.turn(running(limit=300), seconds=45) == []
    assert one.turn(running(limit=300), seconds=10) == [SUBMIT]
    one.state["fast"] = keeper.submitted(one.known, 8)
    assert one.turn(running(limit=300), job(8)) == []
    assert one.known.job_id == 7
    ends = {"runs": {7: [Ended(7, "COMPLETED", start=NOW - 100, end=NOW + 80, limit=300)]}}
    assert one.turn(job(8), **ends) == []
    assert (one.known.job_id, one.known.last["code"], one.known.held) == (8, "walltime", None)
    assert one.turn(running(8)) == []


def test_scancel_of_the_next_job_holds():
    one = Keeper()
    one.turn(running(limit=200), seconds=0)
    one.state["fast"] = keeper.submitted(one.known, 8)
    assert one.turn(running(limit=200), job(8)) == [] and one.known.next_job == 8
    cancelled = {"runs": {8: [Ended(8, "CANCELLED", by_uid=0)]}}
    assert one.turn(running(limit=200), **cancelled) == [Drain("fast", 7)]
    assert one.known.held["by"] == "root"


def test_next_job_that_fails_is_tried_later():
    one = Keeper()
    one.state = {"fast": state.Known(failures=1)}
    assert one.turn(running(limit=200), seconds=0) == [SUBMIT]
    one.state["fast"] = keeper.submitted(one.known, 8)
    failed = {"runs": {8: [Ended(8, "FAILED", exit_code=1)]}}
    assert one.turn(running(limit=200), **failed) == []
    assert one.turn(running(limit=200), seconds=9) == []
    assert one.turn(running(limit=200), seconds=2) == [SUBMIT]


def test_duplicates_are_cancelled():
    one = Keeper()
    assert one.turn(job(7), job(8)) == [Cancel("fast", 8, True)]
    two = Keeper()
    assert two.turn(running(7), job(8)) == [Cancel("fast", 8, True)]
    assert two.turn(running(7), job(9, digest=OLD)) == [Cancel("fast", 9, True)]


def test_job_of_an_older_name_gives_way():
    one = Keeper()
    assert one.turn(running(7, digest=OLD, name="fast"), job(8)) == [Drain("fast", 7)]
    assert one.turn(running(8)) == []


def test_unwanted_service_ends():
    one = Keeper(wanted=False)
    assert one.turn(running()) == [Drain("fast", 7)]
    assert one.turn(**ended("COMPLETED")) == []
    assert state.sentence(one.known, one.now) == "no job, and none is wanted"


def test_service_that_left_the_inventory_ends():
    one = Keeper()
    one.turn(running())
    one.config = one.config._replace(services={})
    assert one.turn(running()) == [Drain("fast", 7)]
    # It has the grace time of its script.
    assert one.turn(running(), seconds=80) == []
    assert one.turn(running(), seconds=15) == [Cancel("fast", 7, False)]
    assert one.turn() == []
    assert one.known.wanted is False
    assert one.turn(**ended("COMPLETED")) == [] and one.state == {}


def test_it_gives_way_to_partitions():
    one = Keeper("dev", "gpu_vasp")
    assert one.turn(running(), others=[running()]) == []
    assert one.turn(running(), others=[vasp(job_state="PENDING")]) == [Drain("fast", 7)]
    assert one.turn(others=[vasp(partition="normal,gpu_vasp")], **ended("COMPLETED")) == []
    assert state.sentence(one.known, one.now) == "no job, it gives way to jobs of partition gpu_vasp"
    assert one.turn() == [SUBMIT]


def test_it_gives_way_to_no_held_job():
    one = Keeper("gpu_vasp")
    held = [vasp(job_state="PENDING", reason=reason) for reason in ("JobHeldUser", "JobHeldAdmin")]
    assert one.turn(running(), others=held) == []
    assert one.turn(running(), others=[*held, vasp(91, "PENDING")]) == [Drain("fast", 7)]


def test_refused_submission_is_tried_later():
    one = Keeper()
    assert one.turn() == [SUBMIT]
    one.state["fast"] = keeper.refused(one.known, "not submitted: no association", one.now)
    assert (one.turn(seconds=29), one.turn(seconds=2)) == ([], [SUBMIT])
    assert one.known.last["code"] == "refused"
    assert "no association" in state.sentence(one.known._replace(next_submit=one.now + 60), one.now)


def test_window_ahead():
    one = Keeper()
    wants = vasp(91, "PENDING", start=NOW + 3600, planned="vasp-[01-02]")
    later = vasp(92, "PENDING", start=NOW + 7200, planned="vasp-02")
    elsewhere = vasp(93, "PENDING", start=NOW + 60, planned="vasp-03")
    one.turn(running(), others=[later, wants, elsewhere, job(7, start=NOW + 9, planned="vasp-02", comment="")])
    assert one.known.window == {"partition": "gpu_vasp", "node": "vasp-02", "at": NOW + 3600}
    assert state.ahead(one.known, NOW).startswith("a job of partition gpu_vasp wants vasp-02 at ")
    assert state.ahead(one.known, NOW + 4000) == ""


class Slurm:
    """A queue with one node, on which all may happen; jobs of one name run one at a time, as with singleton."""

    def __init__(self, chance):
        self.chance, self.jobs, self.runs, self.number = chance, {}, {}, 0

    def submit(self, digest):
        self.number += 1
        self.jobs[self.number] = job(self.number, digest=digest)
        return self.number

    def end(self, job_id, job_state, now, **fields):
        one = self.jobs.pop(job_id)
        run = Ended(job_id, job_state, start=one.start, end=int(now), **fields)
        self.runs.setdefault(job_id, []).append(run)

    def happen(self, now):
        """An event of SLURM, or of a person."""
        event = self.chance.choice(["start", "crash", "preempt", "person", "complete", "nothing", "by_hand"])
        active = [one for one in self.jobs.values() if not one.waits]
        waiting = [one for one in self.jobs.values() if one.waits]
        if event == "start" and waiting and not active:
            one = waiting[0]
            limit = self.chance.choice([100, 9000])
            self.jobs[one.job_id] = one._replace(state="RUNNING", start=int(now), limit=limit, nodes="vasp-02")
        elif event == "crash" and active:
            self.end(active[0].job_id, "FAILED", now, exit_code=1)
        elif event == "complete" and active:
            self.end(active[0].job_id, "COMPLETED", now)
        elif event == "person" and self.jobs:
            self.end(self.chance.choice(list(self.jobs)), "CANCELLED", now, by_uid=0)
        elif event == "by_hand":
            self.submit(NEW)
        elif event == "preempt" and active:
            one = active[0]
            self.end(one.job_id, "PREEMPTED", now)
            self.jobs[one.job_id] = one._replace(state="PENDING", start=None, nodes="")


@pytest.mark.parametrize("seed", range(20))
def test_random_events_leave_one_job(seed):
    """Kills between any two steps, lost answers and lost requests included."""
    chance = random.Random(seed)
    slurm, one = Slurm(chance), Keeper()
    for _event in range(200):
        slurm.happen(one.now)
        if chance.random() < 0.1:
            one.config = config(digest=chance.choice([OLD, NEW]))
        resume = {"fast": {"by": "bob", "at": 1.0}} if chance.random() < 0.1 else {}
        kept = dict(one.state)
        runs = dict(slurm.runs) if chance.random() < 0.8 else {}
        actions = one.turn(*slurm.jobs.values(), seconds=chance.choice([1, 5, 40]), runs=runs, resume=resume)
        if chance.random() < 0.1:
            # Killed before its notes.
            one.state = kept
            continue
        for action in actions:
            act(slurm, one, action, chance)
            if chance.random() < 0.05:
                break
    # Then all is quiet, and what was lost is made up for.
    for _turn in range(60):
        actions = one.turn(
            *slurm.jobs.values(), seconds=30, runs=dict(slurm.runs), resume={"fast": {"by": "bob", "at": 1.0}}
        )
        for action in actions:
            act(slurm, one, action, None)
        for each in list(slurm.jobs.values()):
            if each.ends and each.ends < one.now:
                slurm.end(each.job_id, "TIMEOUT", one.now)
        waiting = [each for each in slurm.jobs.values() if each.waits]
        if waiting and len(waiting) == len(slurm.jobs):
            slurm.jobs[waiting[0].job_id] = running(waiting[0].job_id, digest=waiting[0].digest, limit=None)
    assert len(slurm.jobs) == 1
    left = next(iter(slurm.jobs.values()))
    assert (left.digest, left.state, one.known.job_id) == (one.config.services["fast"].digest, "RUNNING", left.job_id)


def act(slurm, one, action, chance):
    """Does what the keeper wants, or loses it."""
    lost = chance is not None and chance.random() < 0.1
    if isinstance(action, Submit):
        number = slurm.submit(one.config.services["fast"].digest)
        if not lost:
            one.state["fast"] = keeper.submitted(one.known, number)
    elif isinstance(action, (Cancel, Drain)) and action.job_id in slurm.jobs and not lost:
        drained = isinstance(action, Drain)
        if drained or slurm.jobs[action.job_id].waits or not action.pending:
            slurm.end(action.job_id, "COMPLETED" if drained else "CANCELLED", one.now, by_uid=0)


def test_at_most_one_submission_is_open():
    """With answers that never come, no second job is submitted within the time that SLURM may need."""
    one = Keeper()
    times = []
    for _turn in range(100):
        times += [one.now] if one.turn(seconds=1) else []
    assert all(later - earlier > keeper.SETTLE for earlier, later in zip(times, times[1:]))


def test_states_of_the_queue_are_known():
    assert not ask.FINAL & ask.WAITING
