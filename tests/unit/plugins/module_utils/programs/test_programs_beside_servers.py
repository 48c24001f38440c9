# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

import os
import pwd
import socket

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._llama import handshake
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils.programs import backoff, trial, wait_for_workers
from ansible_collections.thefermisea.llama_cluster.tests.unit.rpc_workers import Worker

UNIT = "llama-head-chat.service"


class Unit:
    """A unit that systemd restarts, on a clock that only waits move."""

    def __init__(self, folder):
        self.folders = {"folder": str(folder / "backoff"), "served": str(folder / "served")}
        os.makedirs(self.folders["served"])
        self.now = 1000.0
        self.restarts = 0

    def _sleep(self, seconds):
        self.now += seconds

    def clock(self):
        return self.now

    def start(self, long=backoff.LONG):
        """Seconds that the start waited."""
        before = self.now
        backoff.start(UNIT, self.restarts, long, sleep=self._sleep, clock=self.clock, **self.folders)
        return self.now - before

    def end(self, served=False, after=1.0):
        if served:
            with open(os.path.join(self.folders["served"], UNIT), "w"):
                pass
        self.now += after
        self.restarts += 1

    def fail(self, times):
        """Waits of the starts after that many failed loads."""
        waits = []
        for _run in range(times):
            self.end()
            waits.append(self.start())
        return waits


@pytest.fixture(name="unit")
def fixture_unit(tmp_path):
    unit = Unit(tmp_path)
    assert unit.start() == 0
    return unit


def test_loads_that_fail_wait_longer_and_longer(unit):
    assert unit.fail(9) == [0, 10, 30, 60, 120, 300, 600, 600, 600]


def test_a_run_that_served_starts_at_once(unit):
    assert unit.fail(4)[-1] == 60
    unit.end(served=True)
    assert unit.start() == 0
    assert unit.fail(2) == [0, 10], "the mark of the run before only counts for that run"


def test_manual_start_is_immediate(unit):
    assert unit.fail(5)[-1] == 120
    unit.end()
    unit.restarts = 0
    assert unit.start() == 0
    assert unit.fail(2) == [0, 10]


def test_interrupted_wait_is_no_run(unit):
    unit.fail(3)
    unit.end()

    class Cut(Exception):
        pass

    def cut(_seconds):
        raise Cut

    with pytest.raises(Cut):
        backoff.start(UNIT, unit.restarts, sleep=cut, clock=unit.clock, **unit.folders)
    assert unit.start() == 60, "as long as before, not longer"


def test_a_run_of_an_hour_served(unit):
    unit.fail(4)
    unit.end(after=3600)
    assert unit.start() == 0


def test_a_worker_that_lasted_starts_at_once(unit):
    """A worker's run is never marked as one that served: an early end will repeat, a late one may
    not."""
    waits = []
    for after in (1, 1, 1, 11, 1, 1):
        unit.end(after=after)
        waits.append(unit.start(10))
    assert waits == [0, 10, 30, 0, 0, 10]


def test_unit_sets_good_run(monkeypatch):
    started = []
    monkeypatch.setattr(backoff, "restarts_of", lambda unit: 3)
    monkeypatch.setattr(backoff, "start", lambda *arguments: started.append(arguments))
    assert (backoff.main(["start", UNIT]), backoff.main(["start", UNIT, "10"])) == (0, 0)
    assert started == [(UNIT, 3, backoff.LONG), (UNIT, 3, 10)]
    assert backoff.main(["start"]).startswith("usage")


@pytest.mark.parametrize(("text", "count"), [("NRestarts=4", 4), ("NRestarts=", 0), ("", 0)])
def test_systemds_count_of_restarts(monkeypatch, text, count):
    monkeypatch.setattr(backoff, "systemctl_show", lambda _names, _properties: "Id=%s\n%s\n" % (UNIT, text))
    assert backoff.restarts_of(UNIT) == count


def test_a_count_that_cannot_be_had_is_none(monkeypatch):
    monkeypatch.setattr(backoff, "systemctl_show", lambda _names, _properties: "")
    assert backoff.restarts_of(UNIT) == 0

    def refuse(_names, _properties):
        raise backoff.Refusal("no systemd")

    monkeypatch.setattr(backoff, "systemctl_show", refuse)
    assert backoff.restarts_of(UNIT) == 0


def test_a_damaged_state_is_none(unit):
    unit.fail(4)
    with open(os.path.join(unit.folders["folder"], UNIT), "w") as stream:
        stream.write("{")
    assert unit.start() == 0


def test_state_is_protected(unit, tmp_path):
    before = os.umask(0)
    try:
        backoff.write(UNIT, {"failures": 1, "started": None}, str(tmp_path / "state"))
    finally:
        os.umask(before)
    assert (tmp_path / "state").stat().st_mode & 0o777 == 0o755


def test_wait_is_reported(unit, capsys, monkeypatch, tmp_path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(tmp_path / "notify"))
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        unit.fail(3)
        notices = [systemd.recv(1000).decode() for _message in range(4)]
    assert notices[2:] == ["STATUS=waits 30 s: 3 runs in a row ended before they served", "STATUS="]
    assert "'systemctl restart %s' starts it now" % UNIT in capsys.readouterr().out


@pytest.fixture(name="worker")
def fixture_worker():
    workers = []

    def make(*arguments):
        workers.append(Worker(*arguments))
        return workers[-1]

    yield make
    for one in workers:
        one.close()


def test_the_release_names_the_build(worker, capsys):
    assert wait_for_workers.main(["--build", "b11434-cpu-5f27b0c4", worker(handshake.NEW).endpoint]) == 0
    assert capsys.readouterr().out == ""
    assert (
        wait_for_workers.main(
            [
                "--build",
                "b11434",
                worker(handshake.NEW).endpoint,
                worker(handshake.NEW, (5, 1, 0)).endpoint,
            ]
        )
        == 0
    )
    assert "different llama.cpp builds: 127.0.0.1" in capsys.readouterr().out


def test_it_gives_up_what_it_does_not_need(worker, monkeypatch):
    entry, done = pwd.getpwuid(os.getuid()), []
    for name in ("setgroups", "setgid", "setuid"):
        monkeypatch.setattr(wait_for_workers.os, name, lambda value, name=name: done.append((name, value)))
    monkeypatch.setattr(wait_for_workers, "wait_for_rules", lambda announce: done.append("rules"))
    assert wait_for_workers.main(["--user", entry.pw_name, "--build", "b11434", worker(handshake.NEW).endpoint]) == 0
    assert done == ["rules", ("setgroups", []), ("setgid", entry.pw_gid), ("setuid", entry.pw_uid)], (
        "the user last: then nothing else may be changed"
    )


def test_head_waits_for_firewall_rules(tmp_path):
    loaded, said = tmp_path / "loaded", []
    wait_for_workers.wait_for_rules(
        said.append, lambda _seconds: loaded.touch() if said else None, ["test", "-e", str(loaded)]
    )
    assert len(said) == 1 and "llama-firewall" in said[0]
    wait_for_workers.wait_for_rules(said.append, None, ["true"])
    assert len(said) == 1, "nothing is said where they are there"


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ({"state": "reverted"}, "chat: the trial of Q8_0 was not kept until T: Q4_K_M is back"),
        (
            {"state": "reverted", "reason": "llama-head-chat.service did not run then"},
            "chat: the trial of Q8_0 was not kept until T: Q4_K_M is back, llama-head-chat.service did not run then",
        ),
        (
            {"state": "failed", "reason": "/opt/models/m.gguf is gone"},
            "chat: the trial of Q8_0 was not kept until T, and Q4_K_M cannot come back: /opt/models/m.gguf is gone",
        ),
    ],
)
def test_outcome_for_the_journal(more, text):
    record = {"service": "chat", "quant": "Q8_0", "was": "Q4_K_M", "until": "T", "at": "T", "reason": ""}
    assert trial.outcome(dict(record, **more)) == text


def test_usage_without_a_service():
    assert trial.main([]) == "usage: trial SERVICE"
