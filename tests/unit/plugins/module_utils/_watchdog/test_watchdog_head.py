# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

import copy
import itertools

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._watchdog import head as watchdog_head
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._watchdog import rounds
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._watchdog.actions import Probe, Repair, Serves

WORKERS = ("w1:50052", "w2:50052")
IDLE = {
    "health": 200,
    "slots": None,
    "counters": [0, 0, 0],
    "requests": 0,
    "total": 0,
    "sleeping": False,
    "silent": False,
}


def slot(processed=0, decoded=0, seed=1, task=1, prompt=600):
    return {"task": task, "seed": seed, "prompt": max(prompt, processed), "taken": processed, "decoded": decoded}


class Head:
    """A head on a clock of its own, sampled twice a second and asked how it is every second."""

    def __init__(self, serving=True, load=7.0, embeddings=False):
        self.judge = watchdog_head.HeadJudge(512)
        self.load = load
        self.now = 1000.0
        self.process = (42, 1)
        self.links = dict.fromkeys(WORKERS, "up")
        self.received = 0
        self.look = dict(IDLE) if serving else dict(IDLE, health=503, total=None)
        self.probe = None
        self.embeddings = embeddings
        self.resets = frozenset({"devcd1"})
        self.said = []
        self._look_at = 0
        if serving:
            self.step()
            assert isinstance(self.said.pop(0)[1], Serves)

    def step(self):
        if self.now - self._look_at >= 1:
            self._look_at = self.now
            self._looked = copy.deepcopy(dict(self.look, at=self.now))
        sample = {
            "now": self.now,
            "process": self.process,
            "age": self.load,
            "links": dict(self.links),
            "received": self.received,
            "look": self._looked,
            "settled": not self.judge.working
            and self._looked == dict(self.look, at=self._look_at)
            and set(self.links.values()) == {"up"},
            "probe": self.probe,
            "resets": self.resets,
        }
        for action in self.judge.decide(sample):
            self.said.append((self.now, action))
            if isinstance(action, Probe):
                before = self.probe or {"explained": 0, "errors": 0}
                seed = None if self.embeddings else 1000 + len(self.said)
                self.probe = dict(before, at=self.now, ended=None, silent=False, status=0, seed=seed)
            if isinstance(action, Repair):
                self.judge.repaired()
        self.now += 0.5

    def run(self, seconds, every=None):
        """Lets time pass; every() is called once a step. Returns what was decided meanwhile, [(seconds from here,
        action)]."""
        start, before = self.now, len(self.said)
        while self.now - start < seconds:
            if every:
                every()
            self.step()
        return [(moment - start, action) for moment, action in self.said[before:]]

    def answer(self, tokens=3, counted=True):
        """The probe's token arrives. counted: whether the server counts it."""
        if self.probe and self.probe["ended"] is None and self.now > self.probe["at"]:
            self.probe.update(ended=self.now, status=200, errors=0, explained=self.probe["explained"] + tokens)
            self.look["total"] += tokens if counted else 0
            self.look["counters"] = [self.look["counters"][0] + 1, self.look["total"], 0]
            self.received += 100

    def refuse(self, status=500):
        """The probe is answered by an error."""
        if self.probe and self.probe["ended"] is None:
            self.probe.update(ended=self.now, status=status, errors=self.probe["errors"] + 1 if status >= 500 else 0)

    def use(self, tokens=50):
        """Somebody's request comes and is done between two looks."""
        self.look["total"] += tokens
        self.look["counters"] = [self.look["counters"][0] + tokens, self.look["total"], 0]

    def work(self, **state):
        self.look.update(slots=[slot(**state)], requests=1)

    def rest(self):
        self.look.update(slots=None, requests=0)


def kinds(decisions):
    return [type(action) for _moment, action in decisions]


def repairs(decisions):
    return [(moment, action.reason) for moment, action in decisions if isinstance(action, Repair)]


@pytest.fixture(name="head")
def fixture_head():
    """A head that has just answered a token."""
    head = Head()
    assert kinds(head.run(3, head.answer)) == [Probe]
    return head


def test_first_answer_is_logged_once():
    head = Head(serving=False)
    assert head.run(60) == []
    head.look = dict(IDLE)
    decisions = head.run(5)
    assert kinds(decisions) == [Serves, Probe]
    assert decisions[0][1].seconds == 7.0


def test_head_older_than_watchdog_is_silent():
    head = Head(serving=False)
    head.look = dict(IDLE)
    head.judge.already_serves(head.process, 7.0)
    assert Serves not in kinds(head.run(5))


@pytest.mark.parametrize(("state", "within"), [("closed", 0.5), ("gone", 1.5)])
def test_a_lost_worker_is_a_fact(head, state, within):
    head.links["w2:50052"] = state
    (moment, action), *rest = [entry for entry in head.run(10) if isinstance(entry[1], Repair)]
    assert moment <= within
    assert action.fact and action.reason == "lost its connection to RPC worker w2:50052"
    assert not rest, "once is enough"


def test_worker_lost_before_watchdog_started():
    head = Head(serving=False)
    head.look = dict(IDLE)
    head.links["w2:50052"] = "closed"
    head.judge.already_serves(head.process, 7.0)
    assert repairs(head.run(10)) == [(0, "lost its connection to RPC worker w2:50052")]


def test_a_connection_that_never_was_is_not_lost():
    head = Head()
    head.links = dict.fromkeys(WORKERS, "gone")
    head.process = (43, 2)
    assert repairs(head.run(60, head.answer)) == []


def test_sleeping_head_is_not_probed(head):
    head.links = dict.fromkeys(WORKERS, "gone")
    head.look["sleeping"] = True
    assert head.run(1000) == []


def test_loading_head_is_kept():
    head = Head(serving=False)
    head.links = dict.fromkeys(WORKERS, "gone")
    assert head.run(4000) == []


def test_held_unit_is_not_judged(head):
    head.process = None
    head.links = dict.fromkeys(WORKERS, "gone")
    assert head.run(100) == []


def test_an_idle_head_is_asked_every_few_seconds(head):
    moments = [moment for moment, _action in head.run(60, head.answer)]
    assert [round(later - earlier) for earlier, later in zip(moments, moments[1:])] == [watchdog_head.PROBE_CLEAN] * (
        len(moments) - 1
    )
    assert len(moments) == 8


def asked(head):
    """Lets time pass until the head is asked for a token."""
    while not head.probe or head.probe["ended"] is not None:
        head.step()


def unanswered(head):
    """The probe gives up after five seconds."""
    if head.probe["ended"] is None and head.now - head.probe["at"] >= 5:
        head.probe.update(ended=head.now, silent=True)


def test_a_token_that_does_not_come(head):
    head.run(25, head.answer)
    asked(head)
    ((moment, reason),) = repairs(head.run(30, lambda: unanswered(head)))
    assert watchdog_head.LEAST - 1 <= moment <= watchdog_head.LEAST + 1
    assert reason == "it says that it is well, but nothing has moved for 10 s (its slowest step so far took 0.0 s)"


def test_first_token_has_two_minutes():
    head = Head()
    asked(head)
    assert repairs(head.run(110, lambda: unanswered(head))) == []
    assert len(repairs(head.run(20))) == 1


def test_token_behind_request_is_no_hang(head):
    head.run(25, head.answer)
    asked(head)
    # The probe waits behind somebody's prompt, gives up, and the prompt goes on and ends.
    head.work(processed=1)
    head.run(5)
    head.probe.update(ended=head.now, silent=True)

    def progress():
        head.received += 1

    assert head.run(60, progress) == []
    head.rest()
    head.use()
    assert head.run(300) == []


def test_a_refused_token_is_no_hang(head):
    assert set(kinds(head.run(100, lambda: head.refuse(400)))) == {Probe}


def test_repeated_token_errors_are_broken(head):
    head.run(20, head.answer)
    found = repairs(head.run(3600, head.refuse))
    assert [reason for _moment, reason in found] == [
        "it says that it is well, but has answered 500 to the last 3 requests for one token"
    ]
    assert found[0][0] <= 4 * watchdog_head.PROBE_CLEAN
    assert not [action for _moment, action in head.said if isinstance(action, Repair) and action.fact], (
        "a judgement, and limited as such"
    )


def test_failing_head_is_probed(head):
    head.run(25, head.answer)
    head.use()
    head.run(5)
    steps = itertools.count()

    def fail():
        """Somebody's request every two seconds, at work for one of them, and no token ever."""
        step = next(steps)
        head.work(task=step // 4, processed=64) if step % 4 < 2 else head.rest()
        head.refuse()

    found = repairs(head.run(3600, fail))
    assert len(found) == 1 and "has answered 500 to the last 3 requests" in found[0][1]
    assert found[0][0] <= watchdog_head.PROBE_USED + 60


def test_abandoned_prompt_stays_in_cache(head):
    head.run(25, head.answer)
    for taken in (2048, 4096):
        head.work(processed=taken, prompt=9000)
        head.run(2)
    head.rest()
    assert head.run(800, head.answer) == []


def test_only_errors_in_a_row_count(head):
    answers = itertools.cycle(
        [head.refuse, head.refuse, head.answer, head.refuse, head.refuse, lambda: head.refuse(400)]
    )

    def step():
        if head.probe["ended"] is None:
            next(answers)()

    assert set(kinds(head.run(600, step))) == {Probe}


def test_used_cache_is_kept_fifteen_minutes(head):
    head.run(25, head.answer)
    head.use()
    decisions = head.run(1000, head.answer)
    assert decisions and decisions[0][0] >= watchdog_head.PROBE_USED
    assert [round(later[0] - earlier[0]) for earlier, later in zip(decisions, decisions[1:])] == [
        watchdog_head.PROBE_CLEAN
    ] * (len(decisions) - 1)


def test_reset_card_is_probed_although_used(head):
    head.run(25, head.answer)
    head.use()
    head.run(5)
    head.resets |= {"devcd2"}
    found = repairs(head.run(60, head.refuse))
    assert len(found) == 1 and "has answered 500 to the last 3 requests" in found[0][1]
    assert found[0][0] <= 4 * watchdog_head.PROBE_CLEAN


def test_reset_of_another_program_ends_no_head(head):
    head.run(25, head.answer)
    head.use()
    head.run(5)
    head.resets = frozenset({"devcd2"})
    assert set(kinds(head.run(60, head.answer))) == {Probe}
    head.use()
    # The kernel removes a dump after some minutes.
    head.resets = frozenset()
    assert head.run(60, head.answer) == []


def test_dumps_of_cards_are_resets(tmp_path):
    for name, driver in (("devcd1", "amdgpu"), ("devcd2", "iwlwifi"), ("devcd3", "xe")):
        (tmp_path / name / "failing_device").mkdir(parents=True)
        (tmp_path / name / "failing_device/driver").symlink_to("/nowhere/drivers/" + driver)
    (tmp_path / "disabled").write_text("0\n")
    assert rounds.card_resets(str(tmp_path)) == {"devcd1", "devcd3"}
    assert rounds.card_resets(str(tmp_path / "none")) == frozenset()


def test_each_use_counts_anew(head):
    head.run(25, head.answer)
    for _use in range(3):
        head.use()
        assert head.run(800, head.answer) == []
    assert kinds(head.run(110, head.answer))[:1] == [Probe]


def test_a_use_while_it_is_asked_is_seen(head):
    head.run(25, head.answer)
    asked(head)
    head.use()
    head.step()
    head.answer()
    assert head.run(800, head.answer) == []


def test_a_cache_of_before_the_watchdog_is_somebodys():
    head = Head(serving=False)
    head.look = dict(IDLE, total=400, counters=[3, 400, 0])
    assert kinds(head.run(800, head.answer)) == [Serves]


def test_no_probe_without_counters():
    head = Head(serving=False)
    head.look = dict(IDLE, total=None, counters=[None] * 3)
    assert kinds(head.run(2000)) == [Serves]


def test_unknown_head_has_two_minutes(head):
    head.work()
    ((moment, reason),) = repairs(head.run(200))
    assert watchdog_head.UNKNOWN <= moment <= watchdog_head.UNKNOWN + 1.5
    assert "nothing has moved for 120 s" in reason


def test_a_head_that_generates_and_stalls(head):
    head.work(decoded=1)

    def generate():
        head.work(decoded=head.look["slots"][0]["decoded"] + 1)

    assert head.run(30, generate) == []
    ((moment, _reason),) = repairs(head.run(30))
    assert watchdog_head.LEAST - 1 <= moment <= watchdog_head.LEAST + 1


def every(seconds, what):
    """A function that calls what() every so many seconds, when called twice a second."""
    calls = [0]

    def step():
        calls[0] += 1
        if calls[0] % int(seconds * 2) == 0:
            what()

    return step


@pytest.mark.parametrize("pace", [15, 60, 110])
def test_moving_long_prompt_is_no_hang(head, pace):
    head.work()

    def step():
        head.received += 1

    assert head.run(4 * 3600, every(pace, step)) == []


class Prompt:
    """A long prompt that moves every so many seconds, a batch of four micro-batches at a time; what is taken is shown
    before it is computed."""

    def __init__(self, head, seconds, taken=2048):
        self.head, self.seconds = head, seconds
        self.taken, self.steps, self.due = taken, 0, head.now + seconds
        head.work(processed=taken)

    def __call__(self):
        if self.head.now >= self.due:
            self.due += self.seconds
            self.steps += 1
            self.head.received += 1
            if self.steps % 4 == 0:
                self.taken += 2048
                self.head.work(processed=self.taken)


def test_the_deadline_is_learned_from_a_full_batch(head):
    prompt = Prompt(head, 5)
    assert head.run(19, prompt) == []
    assert head.judge.deadline() == watchdog_head.UNKNOWN, "what was taken is not yet computed"
    assert head.run(100, prompt) == []
    ((moment, _reason),) = repairs(head.run(60))
    assert 4 * 5 - 6 <= moment <= 4 * 5 + 2, "four times its slowest step so far"
    # The next process has to be learned anew.
    head.process = (43, 2)
    head.rest()
    head.run(2, head.answer)
    head.work()
    assert repairs(head.run(100)) == []


def test_slowest_step_sets_patience(head):
    assert head.run(400, Prompt(head, 40)) == []
    assert 40 <= head.judge.slowest <= 42
    assert repairs(head.run(100)) == []
    assert repairs(head.run(80))


def test_older_prompt_sets_no_patience():
    head = Head(serving=False)
    head.judge.already_serves(head.process, 7.0)
    head.look = dict(IDLE, total=100)
    prompt = Prompt(head, 1, taken=20480)
    head.run(3, prompt)
    prompt.seconds = 100
    head.run(2, prompt)
    assert repairs(head.run(300, prompt)) == []


def test_used_head_keeps_cache(head):
    head.use()
    probes = [moment for moment, action in head.run(1000, head.answer) if isinstance(action, Probe)]
    assert probes[0] == 900.5
    assert 6.5 < probes[1] - probes[0] < 9


def test_a_short_prompt_teaches_nothing(head):
    head.work(processed=511)
    head.run(2)
    head.work(processed=511, decoded=1)
    head.run(2)
    head.work(task=2)
    assert repairs(head.run(100)) == []


def test_only_own_request_has_ten_seconds(head):
    head.run(25, head.answer)
    asked(head)
    head.work(seed=head.probe["seed"], prompt=2)
    head.run(5)
    head.probe.update(ended=head.now, silent=True)
    ((moment, _reason),) = repairs(head.run(60))
    assert moment <= watchdog_head.LEAST - 5 + 1.5


def test_own_embedding_has_ten_seconds():
    """It has no seed in /slots: another one is as long, but for the probe's answer."""
    head = Head(embeddings=True)
    head.run(25, head.answer)
    asked(head)
    head.work(seed=4294967295, prompt=2)
    head.run(5)
    head.probe.update(ended=head.now, silent=True)
    ((moment, _reason),) = repairs(head.run(60))
    assert moment <= watchdog_head.LEAST - 5 + 1.5


@pytest.mark.parametrize(
    ("text", "own"), [({"prompt": 2}, True), ({"prompt": 9}, False), ({"prompt": 2, "decoded": 1}, False)]
)
def test_other_embeddings_are_use(text, own):
    head = Head(embeddings=True)
    head.run(25, head.answer)
    asked(head)
    for taken in (0, 2):
        head.work(seed=4294967295, processed=taken, **text)
        head.run(2)
    head.rest()
    assert (kinds(head.run(60, head.answer)) != []) is own


def test_uncounted_embeddings_are_no_use():
    """A probe only explains tokens that the server counts."""
    head = Head(embeddings=True)
    probes = head.run(60, lambda: head.answer(counted=False))
    assert kinds(probes) == [Probe] * len(probes) and len(probes) >= 8
    head.use()
    assert kinds(head.run(watchdog_head.PROBE_USED - 10, lambda: head.answer(counted=False))) == []


@pytest.mark.parametrize("moment", ["after the probe", "beside the probe"])
def test_request_with_probe_seed_is_timed(head, moment):
    head.run(25, head.answer)
    asked(head)
    if moment == "after the probe":
        head.answer()
        head.step()
        head.work(seed=head.probe["seed"], prompt=2)
    else:
        # Its client has read the seed in /slots.
        head.work(seed=head.probe["seed"], prompt=9)
    ((moment, _reason),) = repairs(head.run(300))
    assert moment >= watchdog_head.UNKNOWN - 1


@pytest.mark.parametrize(("load", "least"), [(7, 10), (100, 10), (600, 60), (36000, 120)])
def test_slow_load_extends_patience(load, least):
    head = Head(load=load)
    head.run(3, head.answer)
    head.work(decoded=1)

    def generate():
        head.work(decoded=head.look["slots"][0]["decoded"] + 1)

    assert head.run(30, generate) == []
    # A network that is away for a while and comes back.
    assert repairs(head.run(least - 3)) == []
    assert repairs(head.run(30, generate)) == []
    ((moment, _reason),) = repairs(head.run(500))
    assert least - 1 <= moment <= 4 * least + 1


def test_the_load_is_known_to_the_next_watchdog(head):
    judge = watchdog_head.HeadJudge(512)
    judge.already_serves(head.process, 600.0)
    judge._knows_prompts = True
    assert judge.deadline() == 60


def test_silent_server_is_judged_as_busy(head):
    head.look = dict(IDLE, health=None, counters=None, total=None, silent=True)
    ((moment, _reason),) = repairs(head.run(200))
    assert moment >= watchdog_head.UNKNOWN


def test_idle_time_is_no_step(head):
    head.use()
    head.run(600, head.answer)
    head.work(processed=600)
    head.run(3)
    head.received += 1
    head.run(1)
    assert head.judge.slowest < 5


def test_time_that_stood_still_counts_for_nothing(head):
    head.work(decoded=1)
    head.run(5)
    head.now += 3600
    assert repairs(head.run(8)) == []
    assert head.judge.slowest < watchdog_head.GAP


def blind(now, **more):
    """A sample of a head without a look."""
    sample = {
        "now": now,
        "process": (42, 1),
        "age": now,
        "links": dict.fromkeys(WORKERS, "up"),
        "received": None,
        "look": None,
        "settled": False,
        "probe": None,
        "resets": frozenset(),
    }
    return dict(sample, **more)


def test_first_judgement_is_of_connections():
    judge = watchdog_head.HeadJudge(512)
    assert judge.working, "it has to be looked at"
    judge.already_serves((42, 1), 7.0)
    assert [judge.decide(blind(now)) for now in (1.0, 1.5, 2.0)] == [[], [], []]
    links = dict.fromkeys(WORKERS, "gone")
    assert judge.decide(blind(2.5, links=links)) == [], "the next look tells whether it sleeps"
    (repair,) = judge.decide(blind(3.0, links=dict(links, **{"w2:50052": "closed"})))
    assert repair.fact
    assert watchdog_head.HeadJudge(512).decide(blind(1.0)) == [], "it may still load"


def test_lost_worker_needs_later_sample():
    judge = watchdog_head.HeadJudge(512)
    judge.already_serves((42, 1), 7.0)
    judge.decide(blind(1.0, look=dict(IDLE, at=1.0)))
    gone = dict.fromkeys(WORKERS, "gone")
    assert judge.decide(blind(1.5, look=dict(IDLE, at=1.0), links=gone)) == []
    assert judge.decide(blind(2.0, look=dict(IDLE, at=1.5), links=gone)) == []
    (repair,) = judge.decide(blind(2.5, look=dict(IDLE, at=2.0), links=gone))
    assert repair.reason == "lost its connection to RPC worker w1:50052"


@pytest.mark.parametrize(("pause", "repaired"), [(5.0, True), (5.5, False)])
def test_samples_five_seconds_apart_are_joined(pause, repaired):
    """Progress during a longer pause is unknown."""
    judge = watchdog_head.HeadJudge(512)
    judge.already_serves((42, 1), 7.0)
    busy = dict(IDLE, slots=[slot()], requests=1)
    now, said = 1.0, []
    while now < 140:
        said += judge.decide(blind(now, look=dict(busy, at=now), received=0))
        now += pause
    assert bool(said) is repaired


@pytest.mark.parametrize(("errors", "repaired"), [(2, False), (3, True)])
def test_probe_errors_break_head(errors, repaired):
    judge = watchdog_head.HeadJudge(512)
    judge.already_serves((42, 1), 7.0)
    probe = {"at": 1.0, "ended": 1.5, "silent": False, "status": 500, "errors": errors, "seed": 7, "explained": 0}
    found = judge.decide(blind(2.0, look=dict(IDLE, at=2.0), probe=probe))
    assert bool([one for one in found if isinstance(one, Repair) and not one.fact]) is repaired
