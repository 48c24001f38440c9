# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A quant on trial, over simulated nodes (simulation.py): what each playbook does meanwhile and afterwards."""

import json
import time

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._node.trials import Trials
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._node.units import Unit
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._evaluate.result import evaluate_result
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._evaluate.store import write
from ansible_collections.thefermisea.llama_cluster.tests.unit.playbooks.simulation import (
    BRIEF,
    Simulation,
    deployment,
    once,
)

HEAD = "llama-head-chat.service"
TIMER = "etc/systemd/system/llama-trial-chat.timer"
TRIAL = ("-e", "service=chat quant=Q8_0 trial=12h")


@pytest.fixture(scope="module")
def deployed(tmp_path_factory):
    return deployment(tmp_path_factory, "deployed", **BRIEF)


@pytest.fixture(scope="module")
def on_trial(deployed, tmp_path_factory):
    """chat serves Q8_0 for twelve hours."""

    def make(folder):
        cluster = deployed.copy(folder)
        output = cluster.done("switch_model", *TRIAL)
        (folder / "output").write_text(output)

    return Simulation(once(tmp_path_factory, "on_trial", make), deployed.home)


@pytest.fixture
def cluster(on_trial, tmp_path):
    return on_trial.copy(tmp_path)


def serves(cluster):
    """The model of the head that runs, and of its unit."""
    found = []
    for folder in ("run", "etc/systemd/system"):
        arguments = json.loads((cluster.node("node1") / folder / HEAD).read_text())["arguments"]
        found.append(arguments[arguments.index("--model") + 1])
    return found


def trials(cluster):
    return [(one["quant"], one["state"]) for one in Trials(str(cluster.node("node1"))).report()]


def evaluated(cluster, quant, passed, at="2026-11-28T05:00:00Z"):
    """Keep the result of evaluate.yml, of 48 tasks."""
    tasks = [{"name": f"fix/{number}", "kind": "fix", "digest": "d"} for number in range(48)]
    common = {"completion_tokens": 9, "first_token_s": 0.1, "seconds": 1.0, "tokens_per_second": 9.0, "content": ""}
    answers = [{"key": one["name"], "model": "m", "task": one["name"], "sample": 0, **common} for one in tasks]
    verdicts = [
        {"answer": one["key"], "passes": number < passed, "compiles": True, "reason": "", "errors": {}, "lines": 9}
        for number, one in enumerate(answers)
    ]
    models = [{"name": "m", "asks": "m", "service": "chat", "model": "m", "quant": quant, "build": "b1", "sha256": []}]
    about = {"at": at, "judge": "rustc 1.63", "temperature": 0.0, "samples": 1, "models": models}
    found = evaluate_result(tasks, answers, [{**one, "clippy_warnings": None} for one in verdicts], about)
    for name, text in found["files"].items():
        write(str(cluster.folder / ".reports"), name, text)


def end_of(cluster):
    """Run the program that its timer starts, after a year."""
    root = cluster.node("node1")
    (root / "opt/models").mkdir(parents=True, exist_ok=True)
    (root / "opt/models/m.gguf").touch()  # simulated nodes have no models

    def run(*words):
        if words[0] == "restart":
            (root / "run" / HEAD).write_text((root / "etc/systemd/system" / HEAD).read_text())

    def look(names):
        return [Unit(names[0], active_state="active", stale=True)]

    return Trials(str(root), run, look, lambda: time.time() + 366 * 86400).revert("chat")


def test_trial_begins_after_the_new_model_responds(on_trial):
    output = (on_trial.folder / "output").read_text()
    assert serves(on_trial) == ["/opt/models/m8.gguf"] * 2 and trials(on_trial) == [("Q8_0", "running")]
    assert "chat: m8.gguf serves on trial until " in output
    assert "then F16 is back by itself, unless switch_model.yml -e service=chat -e keep=true is run before" in output
    assert "the inventory goes on saying F16, and site.yml and others refuse to run until then" in output
    assert on_trial.snapshots() == [["last.json"], ["last.json"]]


def test_a_second_run_changes_nothing(cluster):
    before = cluster.files("etc"), cluster.files("var")
    output = cluster.done("switch_model", *TRIAL)
    assert "changed=0" in output and "changed=1" not in output
    assert (cluster.files("etc"), cluster.files("var")) == before
    assert not any(event.split()[1] in ("configure", "stopped", "started") for event in cluster.events)


def test_end_restores_and_no_run_undoes_it(deployed, cluster):
    record = end_of(cluster)
    assert (record["state"], record["reason"]) == ("reverted", "") and serves(cluster) == ["/opt/models/m.gguf"] * 2
    assert cluster.configuration() == deployed.configuration()
    assert "chat: the trial of Q8_0 on node1 was not kept, reverted to F16 at " in cluster.done("status")
    cluster.done("site")
    assert serves(cluster) == ["/opt/models/m.gguf"] * 2
    output = cluster.refused("switch_model", "-e", "service=chat keep=true")
    assert "llama_services.chat: the trial of Q8_0 seen to have ended at " in output
    assert "on node1, one that runs is needed to keep it: switch with -e quant=Q8_0" in output
    # For good, and the note goes.
    cluster.done("switch_model", "-e", "service=chat quant=Q8_0")
    assert serves(cluster) == ["/opt/models/m8.gguf"] * 2 and trials(cluster) == []


def test_kept_quant_stays(cluster):
    before = serves(cluster)
    output = cluster.done("switch_model", "-e", "service=chat keep=true", "--check")
    assert trials(cluster) == [("Q8_0", "running")]
    assert "chat: check mode, Q8_0 stays on trial" in output
    output = cluster.done("switch_model", "-e", "service=chat keep=true")
    assert "chat: Q8_0 is kept, its trial is over" in output
    assert "the inventory says F16: set the quant of llama_services.chat to Q8_0 there, or the next site" in output
    assert trials(cluster) == [] and not (cluster.node("node1") / TIMER).exists() and serves(cluster) == before
    output = cluster.done("switch_model", "-e", "service=chat keep=true")
    assert "chat: not on trial, nothing is to be kept" in output and cluster.events == []


def test_switch_back_ends_the_trial(deployed, cluster):
    cluster.done("switch_model", "-e", "service=chat quant=F16")
    assert trials(cluster) == [] and serves(cluster) == ["/opt/models/m.gguf"] * 2
    assert cluster.configuration() == deployed.configuration()


def test_rollback_ends_the_trial(deployed, cluster):
    cluster.done("rollback")
    assert trials(cluster) == [] and serves(cluster) == ["/opt/models/m.gguf"] * 2
    assert cluster.configuration() == deployed.configuration()


@pytest.mark.parametrize(
    ("playbook", "arguments"),
    [
        ("switch_model", "service=chat quant=Q8_0"),
        ("switch_model", "service=chat quant=Q4_X"),
        ("maintenance", "node=node1"),
    ],
)
def test_other_changes_are_refused_meanwhile(cluster, playbook, arguments):
    before = cluster.files()
    output = cluster.refused(playbook, "-e", arguments)
    assert "llama_services.chat: on trial with Q8_0 on node1 until " in output
    assert "or go back with switch_model.yml -e service=chat -e quant=F16" in output
    assert cluster.files() == before and cluster.events == []


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ("quant=Q8_0 trial=12", "switch_model: trial 12 seen, a whole number of minutes, hours or days is needed"),
        ("quant=Q8_0 trial=0h", "switch_model: trial 0h seen, a whole number of minutes, hours or days is needed"),
        ("quant=Q8_0 trial=12h retire=after", "switch_model: trial 12h seen with retire, the old model is needed on"),
        ("quant=Q8_0 trial=12h park=node2", "switch_model: trial 12h seen with park, the old model is needed on"),
        ("quant=F16 trial=12h", "switch_model: quant F16 seen, as llama_services.chat.quant has it, another one is"),
        ("quant=Q8_0 evaluation=true", "switch_model: evaluation seen without trial, which it judges, one is needed"),
        ("keep=true quant=Q8_0", "switch_model: keep seen with quant, only keep is needed to end a trial"),
        ("keep=true service=chta", "switch_model: service chta seen, one of chat is needed, did you mean chat?"),
    ],
)
def test_impossible_trial_is_refused_before_any_change(deployed, tmp_path, arguments, sentence):
    cluster = deployed.copy(tmp_path)
    before = cluster.files()
    assert sentence in cluster.refused("switch_model", "-e", "service=chat " + arguments)
    assert cluster.files() == before and cluster.events == []


def test_trial_needs_the_quant_of_the_inventory(deployed, tmp_path):
    cluster = deployed.copy(tmp_path)
    cluster.done("switch_model", "-e", "service=chat quant=Q8_0")
    before = cluster.files()
    assert (
        "llama_services.chat.quant: F16 seen, the quant that serves (m8.gguf) is needed during a trial"
        in cluster.refused("switch_model", "-e", "service=chat quant=Q4_X trial=12h")
    )
    assert cluster.files() == before and cluster.events == []


@pytest.mark.parametrize(
    ("fault", "sentence"),
    [
        (
            "unproved",
            "/opt/models/m.gguf: not as its record says on node1, the verified model is needed when the trial",
        ),
        (
            "old-programs",
            "programs/trial.py: missing on node1, it is needed to end a trial: run site.yml --tags node first",
        ),
    ],
)
def test_trial_needs_old_model_and_program(deployed, tmp_path, fault, sentence):
    cluster = deployed.copy(tmp_path)
    (cluster.node("node1") / fault).touch()
    assert sentence in cluster.refused("switch_model", *TRIAL)
    assert cluster.events == []


def test_model_that_fails_starts_no_trial(deployed, tmp_path):
    cluster = deployed.copy(tmp_path)
    assert "the old one serves again" in cluster.refused("switch_model", "-e", "service=chat quant=Q4_X trial=12h")
    assert trials(cluster) == [] and cluster.configuration() == deployed.configuration()


JUDGED = ("-e", "service=chat keep=true evaluation=true")


def test_worse_quant_on_trial_is_not_kept(cluster):
    evaluated(cluster, "F16", 30)
    evaluated(cluster, "Q8_0", 29, "2026-11-28T06:00:00Z")
    before = cluster.files()
    output = cluster.refused("switch_model", *JUDGED)
    assert "llama_services.chat: 29 of 48 answers that pass with Q8_0 seen, the 30 of F16 to the same tasks" in output
    assert (trials(cluster), cluster.events) == ([("Q8_0", "running")], []) and cluster.files() == before
    cluster.done("switch_model", "-e", "service=chat keep=true")
    assert trials(cluster) == []


def test_equal_quant_on_trial_is_kept(cluster):
    evaluated(cluster, "F16", 30)
    evaluated(cluster, "Q8_0", 30, "2026-11-28T06:00:00Z")
    output = cluster.done("switch_model", *JUDGED)
    assert "chat: 30 of 48 answers pass with Q8_0, 30 with F16 (+0.0 points, " in output
    assert "chat: Q8_0 is kept, its trial is over" in output and trials(cluster) == []


def test_trial_without_its_evaluation_is_not_kept(cluster):
    evaluated(cluster, "F16", 30)
    output = cluster.refused("switch_model", *JUDGED)
    assert "llama_services.chat: no evaluation of Q8_0 by the tasks" in output
    assert trials(cluster) == [("Q8_0", "running")]


def test_judged_trial_needs_an_evaluation_before(deployed, tmp_path):
    cluster = deployed.copy(tmp_path)
    before = cluster.files()
    arguments = ("-e", "service=chat quant=Q8_0 trial=12h evaluation=true")
    output = cluster.refused("switch_model", *arguments)
    assert "no evaluation of F16 seen, one is needed to compare with: run evaluate.yml -e models=chat" in output
    assert cluster.files() == before and cluster.events == []
    evaluated(cluster, "F16", 30)
    output = cluster.done("switch_model", *arguments)
    assert "chat: 30 of 48 answers pass with F16: run evaluate.yml -e models=chat during the trial" in output
    assert "unless switch_model.yml -e service=chat -e keep=true -e evaluation=true is run before that" in output
    assert trials(cluster) == [("Q8_0", "running")]
