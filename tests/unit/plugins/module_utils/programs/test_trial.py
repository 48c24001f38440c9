# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""When the end of a trial is due, for whom it waits, and what it says."""

import json
import os

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._node.trials import TOLD, Trials
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils.programs import trial

# 2026-11-24 08:00:00 UTC.
END = 1795507200


class Clock:
    def __init__(self, now):
        self.now = now

    def __call__(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds


@pytest.fixture(name="node")
def fixture_node(tmp_path):
    """trials(now, **record) -> the trials of a node, at a time."""

    def make(now, **more):
        folder = tmp_path / "var/lib/llama-cluster"
        folder.mkdir(parents=True, exist_ok=True)
        record = dict(dict.fromkeys((*TOLD, "model"), ""), service="chat", quant="Q8_0", was="Q4_K_M", files={})
        record.update(until="2026-11-24T08:00:00Z", state="running", **more)
        (folder / "trial-chat.json").write_text(json.dumps(record))
        return Trials(str(tmp_path), clock=Clock(now))

    return make


@pytest.mark.parametrize(
    ("now", "due", "slept"),
    [
        (END - 43200, False, 0),
        (END - trial.NEAR - 1, False, 0),
        (END - trial.NEAR, True, trial.NEAR),
        (END - 0.5, True, 0.5),
        (END, True, 0),
        (END + 86400, True, 0),
    ],
)
def test_it_is_due_at_its_end_and_a_near_end_is_waited_for(node, now, due, slept):
    trials = node(now)
    assert trial.is_due("chat", trials, trials.clock.sleep) == due
    assert trials.clock.now - now == slept


def test_the_units_of_a_trial_that_is_over_may_go(node, tmp_path):
    trials = node(END - 43200)
    os.unlink(tmp_path / "var/lib/llama-cluster/trial-chat.json")
    assert trial.is_due("chat", trials, pytest.fail)


def test_a_switch_under_way_is_waited_for(tmp_path, capsys):
    opened, waits = tmp_path / "open.json", []
    opened.touch()

    def sleep(seconds):
        waits.append(seconds)
        if len(waits) == 3:
            opened.unlink()

    trial.wait_for_others("chat", str(opened), sleep)
    assert waits == [trial.STEP] * 3
    assert capsys.readouterr().out == "chat: its trial is over, and waits for the switch that is under way\n"
    trial.wait_for_others("chat", str(opened), pytest.fail)
    assert capsys.readouterr().out == ""


def test_a_run_that_died_holds_it_up_for_an_hour(tmp_path, capsys):
    opened, waits = tmp_path / "open.json", []
    opened.touch()
    trial.wait_for_others("chat", str(opened), waits.append)
    assert sum(waits) == trial.LONG
    assert "more than an hour ago is waited for no longer" in capsys.readouterr().out


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
def test_the_journal_has_what_it_did(more, text):
    told = {"service": "chat", "quant": "Q8_0", "was": "Q4_K_M", "until": "T", "at": "T", "reason": ""}
    assert trial.said(dict(told, **more)) == text


def test_it_needs_a_service():
    assert trial.main([]) == "usage: trial SERVICE"
