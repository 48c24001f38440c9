# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

import json
import os
import time

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._slurm import facts, state
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._slurm.state import Known
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._text import Refusal

NOW = time.mktime((2026, 11, 27, 14, 0, 0, 0, 0, -1))
DIGEST = "0123456789abcdef"
WAITS = Known(wanted=True, job_id=4711, state="pending", reason="Priority", expected=int(NOW) + 300, digest=DIGEST)
RUNS = Known(wanted=True, job_id=4711, state="running", nodes="vasp-02", started=int(NOW) - 3600, digest=DIGEST)
SERVICE = {
    **{"wanted": True, "name": "llama-14b", "script": "/s/run.slurm", "digest": DIGEST, "grace": 30, "log_dir": "/l"},
    **{"suffix": "14b", "record": {}, "nodes": ["vasp-02"], "partition": ""},
}
CONFIG = {
    **{"version": 1, "user": "llama", "directory": "/var/lib/llama-cluster-jobs", "partitions_yield": []},
    **{"registry_dir": "", "services": {"fast": SERVICE}},
}


def test_configuration_of_the_role():
    config = state.config_of(json.dumps(CONFIG))
    assert (config.user, config.services["fast"].nodes) == ("llama", ["vasp-02"])


@pytest.mark.parametrize(
    "changes",
    [
        {"user": "root"},
        {"user": "-x"},
        {"directory": "relative"},
        {"partitions_yield": ["a b"]},
        {"registry_dir": 7},
        {"services": []},
        {"services": {"fast": {}}},
        {"services": {"../x": SERVICE}},
        {"services": {"fast": {**SERVICE, "script": "x\ny"}}},
        {"services": {"fast": {**SERVICE, "grace": 0}}},
        {"services": {"fast": {**SERVICE, "nodes": []}}},
        {"services": {"s%d" % number: SERVICE for number in range(300)}},
    ],
)
def test_unusable_configurations_are_refused(changes):
    with pytest.raises(Refusal, match="--tags slurm"):
        state.config_of(json.dumps({**CONFIG, **changes}))
    with pytest.raises(Refusal):
        state.config_of("[" * 100000)


@pytest.mark.parametrize(
    "known, away, words",
    [
        (WAITS, None, "job 4711 waits (Priority), expected 14:05"),
        (WAITS._replace(expected=None), None, "job 4711 waits (Priority)"),
        (WAITS._replace(expected=int(NOW) + 86400), None, "job 4711 waits (Priority), expected Sat 14:00"),
        (WAITS, NOW - 60, "SLURM has not responded since 13:59, job 4711 was pending then"),
        (RUNS, None, "job 4711 runs on vasp-02 since 13:00, and does not serve yet"),
        (RUNS._replace(served=True), None, "job 4711 runs on vasp-02 since 13:00, and does not serve now"),
        (RUNS._replace(serves=True), None, "job 4711 runs on vasp-02 since 13:00, and serves"),
        (RUNS._replace(asked={"4711": {"at": NOW}}), None, "job 4711 runs on vasp-02 since 13:00, and ends"),
        (RUNS._replace(state="completing"), None, "job 4711 runs on vasp-02 since 13:00, and ends"),
        (Known(wanted=True, held={"by": "bob", "at": NOW}), None, "held by bob since 14:00, see llama-jobs resume"),
        (Known(wanted=True), None, "no job, the next one is about to be submitted"),
        (Known(wanted=True, open=[{"job_id": 7, "since": 1}]), None, "job 7 has ended, SLURM has not said why yet"),
        (
            Known(wanted=True, next_submit=NOW + 60, failures=2, last={"words": "crashed", "code": "x", "at": NOW}),
            None,
            "no job, the next one is submitted at 14:01 (the last one: crashed)",
        ),
    ],
)
def test_job_in_words(known, away, words):
    assert state.sentence(known, NOW, away) == words


@pytest.mark.parametrize(
    "known, seconds",
    [
        (WAITS, 300),
        (WAITS._replace(expected=None), 60),
        (WAITS._replace(expected=int(NOW) - 9), 60),
        (WAITS._replace(expected=int(NOW) + 2), 5),
        (WAITS._replace(expected=int(NOW) + 86400), 600),
        (Known(held={"by": "bob", "at": NOW}), 600),
        (Known(next_submit=NOW + 30), 30),
    ],
)
def test_clients_come_back_later(known, seconds):
    assert state.retry_after(known, NOW) == seconds


def test_state_is_read_as_it_was_written(tmp_path):
    known = RUNS._replace(
        held={"by": "bob", "at": 5.0},
        last={"job_id": 7, "code": "crashed", "words": "crashed", "at": 6.0},
        asked={"8": {"code": "replaced", "words": "x", "how": "drain", "at": 7.0}},
        open=[{"job_id": 9, "since": 8.0, "started": None, "served": 7.0, "requeued": False}],
        window={"partition": "gpu_vasp", "node": "vasp-02", "at": 9},
    )
    state.write(str(tmp_path), state.public({"fast": known}, NOW, None), durable=True)
    content = state.read(str(tmp_path))
    assert state.known_of(content) == {"fast": known} and content["slurm"] == {"state": "ok", "since": None}
    assert oct(os.stat(tmp_path / "state.json").st_mode)[-3:] == "644"


def test_nothing_in_a_state_is_believed(tmp_path):
    """The user whose jobs they are could write anything."""
    hostile = {
        **{"wanted": "yes", "held": {"by": ["x"], "at": 1}, "job_id": "7", "state": "\x1b[2Jx" * 1000, "ends": True},
        **{"last": {"code": 1, "words": "a", "at": "b"}, "asked": {"x": {"at": 1}, "7": {}}, "open": [{"job_id": -1}]},
        **{"window": {"partition": "a", "node": "b", "at": 1e300}, "failures": 1.5, "unknown": 1},
    }
    content = state.public({}, NOW, None)
    content["services"] = {"fast": hostile, "../x": {}}
    (tmp_path / "state.json").write_text(json.dumps(content))
    ((name, known),) = state.known_of(state.read(str(tmp_path))).items()
    assert (name, known._replace(state="")) == ("fast", Known(state=""))
    assert known.state.isprintable() and len(known.state) < 400
    assert facts.sentences(state.read(str(tmp_path)), NOW)


FOREIGN = [None, True, -1, 1 << 70, 0.5, float("nan"), float("inf"), "", "x", "a\nb", "\ud800", "x" * 70000, [], {}]


def test_damaged_values_end_in_words(tmp_path):
    good = state.public({"fast": RUNS._replace(held={"by": "b", "at": 1.0})}, NOW, NOW - 1)
    places = [(name,) for name in good] + [("slurm", "since"), ("slurm", "state"), ("services", "fast")]
    places += [("services", "fast", field) for field in Known._fields]
    places += [
        ("services", "fast", field, key) for field in ("held", "last", "window") for key in ("at", "by", "words")
    ]
    for place in places:
        for value in FOREIGN:
            content = json.loads(json.dumps(good))
            inner = content
            for key in place[:-1]:
                inner = inner[key] if isinstance(inner.get(key), dict) else {}
            inner[place[-1]] = value
            (tmp_path / "state.json").write_text(json.dumps(content))
            seen = state.read(str(tmp_path))
            words = facts.sentences(seen, NOW)
            assert all(text.isprintable() and len(text) < 2000 for text in words.values()), (place, value)
            facts.unsettled({"fast": DIGEST}, seen, str(tmp_path), 0.0, NOW)
            for known in state.known_of(seen).values():
                assert 5 <= state.retry_after(known, NOW) <= 600


@pytest.mark.parametrize(
    "text", ["", "x", "[]", "{}", '{"at": {}}', "[" * 100000, '{"at": 1, "slurm": 1, "services": 2}']
)
def test_damaged_state_is_none(tmp_path, text):
    (tmp_path / "state.json").write_text(text)
    assert state.read(str(tmp_path)) == {}


def test_linked_state_is_none(tmp_path):
    state.write(str(tmp_path), state.public({}, NOW, None), durable=False)
    (tmp_path / "state.json").rename(tmp_path / "other.json")
    (tmp_path / "state.json").symlink_to(tmp_path / "other.json")
    assert state.read(str(tmp_path)) == {}


def test_requests_of_persons(tmp_path):
    folder = str(tmp_path)
    state.request(folder, "fast", "hold", "bob", NOW)
    assert state.requests(folder, "hold") == {"fast": {"by": "bob", "at": NOW}}
    state.request(folder, "fast", "resume", "bob", NOW)
    assert (state.requests(folder, "hold"), list(state.requests(folder, "resume"))) == ({}, ["fast"])
    (tmp_path / "other.hold").write_text('{"by": 7, "at": 1}')
    (tmp_path / "open.hold").write_text('{"by": "x", "at": 1}')
    (tmp_path / "open.hold").chmod(0o666)
    (tmp_path / "link.hold").symlink_to(tmp_path / "fast.resume")
    assert state.requests(folder, "hold") == {}


@pytest.mark.parametrize(
    "known, left",
    [
        (WAITS, []),
        (WAITS._replace(digest="f" * 16), ["fast"]),
        # SLURM has not looked at it.
        (WAITS._replace(reason="None"), ["fast"]),
        (RUNS, ["fast"]),
        (RUNS._replace(serves=True), []),
        (RUNS._replace(serves=True, asked={"4711": {"at": NOW}}), ["fast"]),
        (Known(wanted=True), ["fast"]),
        (Known(wanted=True, held={"by": "bob", "at": 1.0}), []),
        (Known(wanted=True, yields="gpu_vasp"), []),
    ],
)
def test_jobs_settle(tmp_path, known, left):
    content = state.public({"fast": known}, NOW, None)
    assert facts.unsettled({"fast": DIGEST}, content, str(tmp_path), NOW - 60, NOW) == left


def test_old_state_settles_nothing(tmp_path):
    content = state.public({"fast": WAITS}, NOW, None)
    wanted = {"fast": DIGEST, "new": DIGEST}
    assert facts.unsettled(wanted, content, str(tmp_path), NOW - 60, NOW) == ["new"]
    assert facts.unsettled(wanted, content, str(tmp_path), NOW - 60, NOW + 200) == ["fast", "new"]
    # Written before the configuration.
    assert facts.unsettled(wanted, content, str(tmp_path), NOW + 1, NOW + 2) == ["fast", "new"]
    (tmp_path / "fast.resume").touch()
    assert facts.unsettled({"fast": DIGEST}, content, str(tmp_path), NOW - 60, NOW) == ["fast"]


def test_job_that_ended_by_its_fault():
    last = {"job_id": 4711, "code": "crashed", "words": "exit code 1", "at": NOW}
    ended = RUNS._replace(last=last, failures=1)
    served = RUNS._replace(serves=True, last=last)
    preempted = served._replace(last={**last, "code": "preempted"})
    former = ended._replace(last={**last, "digest": "f" * 16})
    seen = {"fast": ended, "deep": served, "other": ended, "new": WAITS, "back": preempted, "old": former}
    content = state.public(seen, NOW, None)
    wanted = dict.fromkeys(("fast", "deep", "new", "back", "old"), DIGEST)
    assert facts.ended(wanted, content, NOW - 1) == {"fast": "exit code 1", "deep": "exit code 1"}
    assert facts.ended(wanted, content, NOW + 1) == {}
    assert facts.ended(wanted, {}, NOW) == {}
