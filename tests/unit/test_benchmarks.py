# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the soak calls a leak, what the drill table calls a failure, what the
benchmark of runs calls a change, and what that of one card makes of its rounds."""

import argparse
import copy
import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"


def load(path):
    spec = importlib.util.spec_from_file_location(path.replace("/", "_"), BENCHMARKS / (path + ".py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


soak, table, runs = load("recovery/soak"), load("recovery/table"), load("runs/run")
card = load("card/report")
NODE = {
    "processes": [["systemd", 37, 11.8], ["llama-server --model m", 30, 100.0]],
    "files": ["/run/llama-cluster/served"],
    "mounts": 38,
    "journal_mib": 16.0,
}


BACKOFF = "/run/llama-cluster/backoff"


def nodes(**of_node2):
    seen = {node: copy.deepcopy(NODE) for node in soak.UNITS}
    seen["node2"].update(of_node2)
    return seen


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"processes": NODE["processes"] + [["sleep 600", 3, 1.0]]}, "node2: 1 more process sleep 600"),
        ({"processes": [["systemd", 38, 11.8], NODE["processes"][1]]}, "node2: systemd has 38 descriptors, 37 before"),
        ({"processes": [["systemd", 37, 16.0], NODE["processes"][1]]}, "node2: systemd has 16.0 MiB, 11.8 before"),
        ({"files": NODE["files"] + ["/tmp/systemd-private-#"]}, "node2: 1 more of file /tmp/systemd-private-#"),
        (
            {"files": [*NODE["files"], *soak.MADE_ONCE, BACKOFF + "/llama-rpc-chat.service"]},
            "node2: 1 more of file /run/llama-cluster/backoff/llama-rpc-chat.service",
        ),
        ({"files": NODE["files"] + 2 * [BACKOFF]}, "node2: 1 more of file /run/llama-cluster/backoff"),
        ({"mounts": 39}, "node2: 39 mounts, 38 before"),
        ({"journal_mib": 200.0}, "node2: the journal grew by 184 MiB in 100 cycles"),
    ],
)
def test_what_is_left_behind_is_found(change, sentence):
    assert soak.leaked(nodes(), nodes(**change), 100) == [sentence]


def test_what_came_back_as_it_was_is_no_leak():
    assert soak.leaked(nodes(), nodes(), 100) == []
    # A process that is missing is the recovery's business; one that needs a little more is none's.
    assert soak.leaked(nodes(), nodes(processes=[["systemd", 37, 13.0]], journal_mib=80.0), 100) == []
    # The directory of what is counted about runs that end early, whenever it was made.
    made = nodes(files=NODE["files"] + [BACKOFF])
    assert soak.leaked(nodes(), made, 100) == soak.leaked(made, made, 100) == []


def test_the_distribution_by_what_was_killed():
    done = [{"victims": ("node1", "node2"), "generating": True, "seconds": seconds} for seconds in (2.0, 4.0, 3.0)]
    done += [
        {"victims": ("node2", "node3"), "generating": False, "seconds": 9.5},
        {"victims": ("node1",), "generating": False, "seconds": None},
    ]
    assert soak.summary(done)[1:] == [
        "all                                       5   2.00    3.50   9.50   9.50",
        "head and worker, generating               3   2.00    3.00   4.00   4.00",
        "both workers, idle                        1   9.50    9.50   9.50   9.50",
    ]


def test_a_seed_repeats_its_cycles(monkeypatch, tmp_path, capsys):
    killed = []

    def cycle(victims, generating):
        killed.append((victims, generating))
        return {"victims": victims, "generating": generating, "seconds": 3.0}

    monkeypatch.setattr(soak, "cycle", cycle)
    monkeypatch.setattr(soak, "look", nodes)
    monkeypatch.setattr(soak, "CACHE", tmp_path)
    monkeypatch.setattr(soak.time, "sleep", lambda seconds: None)
    for name in ("wait_until_ready", "lend_library"):
        monkeypatch.setattr(soak, name, lambda: None)
    monkeypatch.setattr(soak, "on", lambda *words, **_text: "")
    monkeypatch.setattr(soak.sys, "argv", ["soak.py", "--cycles", "5", "--seed", "7"])
    assert soak.main() is False
    assert "leaked: nothing\nsoak: 5 of 5 recovered" in capsys.readouterr().out
    assert soak.main() is False
    assert len(killed) == 2 * (5 + soak.SETTLED_AFTER) and killed[:8] == killed[8:]
    monkeypatch.setattr(
        soak, "cycle", lambda victims, generating: {"victims": victims, "generating": generating, "seconds": None}
    )
    assert soak.main() is True


def test_what_is_counted_of_runs_that_ended_early_is_gone_before_each_look(monkeypatch, tmp_path):
    """By the unit's words: a start within ten seconds of the one before leaves the file, any other one removes it."""
    unit = (BENCHMARKS.parents[1] / "roles/rpc_worker/templates/llama-rpc.service.j2").read_text()
    (early,) = re.findall(r'-newermt "(\d+) seconds ago".*; else rm -f backoff/%n; fi', unit)
    done = []
    monkeypatch.setattr(soak, "look", lambda: done.append("look") or nodes())
    monkeypatch.setattr(soak, "CACHE", tmp_path)
    monkeypatch.setattr(soak.time, "sleep", done.append)
    monkeypatch.setattr(
        soak,
        "cycle",
        lambda victims, generating: (
            done.append(victims) or {"victims": victims, "generating": generating, "seconds": 3.0}
        ),
    )
    assert soak.run(argparse.Namespace(cycles=5, seed=7)) is False
    looks = [place for place, one in enumerate(done) if one == "look"]
    assert len(looks) == 2
    for look in looks:
        lasted, victims, _pause, settled = done[look - 4 : look]
        assert lasted > int(early) and victims == ("node1", "node2", "node3") and settled == soak.SETTLE


@pytest.mark.parametrize(
    ("results", "status", "wanted"),
    [
        (["recovered", "recovered"], 0, 0),
        (["recovered", "failed"], 0, 1),
        (["recovered"], 2, 1),
        ([], 0, 1),
        (None, 1, 1),
    ],
)
def test_the_drill_table_fails_with_a_drill(monkeypatch, tmp_path, capsys, results, status, wanted):
    monkeypatch.setattr(table, "CACHE", tmp_path)
    monkeypatch.setattr(table.sys, "argv", ["table.py", "--fast-only"])
    report = tmp_path / "reports" / ("llama-lab%d" % table.SLOT) / "drill-chat.json"
    report.parent.mkdir(parents=True)

    def run(_command, **_options):
        if results is not None:
            drills = [
                {"drill": "drill%d" % number, "result": result, "reason": "why"}
                for number, result in enumerate(results)
            ]
            report.write_text(json.dumps({"drills": drills}))
        return status

    monkeypatch.setattr(table.subprocess, "call", run)
    assert table.main() == wanted
    assert ("recovery: drill.yml failed" in capsys.readouterr().err) == bool(wanted)


def test_what_the_soak_lends_runs_without_the_rest(tmp_path):
    for name in soak.LENT:
        path = tmp_path / "llama_cluster" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        source = BENCHMARKS.parents[1] / "plugins/module_utils" / name
        path.write_text(source.read_text() if source.exists() else "")
    command = [sys.executable, "-I", "-c"]
    code = "import sys; sys.path.insert(0, %r); from llama_cluster._serving import recovery" % str(tmp_path)
    subprocess.run([*command, code], check=True)


def test_a_run_that_changed_something_is_no_run_to_measure():
    shown = [
        "Configure 4 s: no change\nno change, verified in 12 s\n",
        "Heads 4 s: 1 changed (Write)\n1 changed, 12 s\n",
    ]
    assert [runs.changed(one) for one in [*shown, "node1 : ok=2 changed=0\n", ""]] == [False, True, True, True]


def on_card(rate, read=1000.0, used_mib=9000, answer=(1, 2), freed_s=0.2, planned=(8000.0,)):
    """What a start of a variant has given."""
    return {
        "short": {"request_tokens_per_second": {"p50": rate}, "time_to_first_token": {"p50": 0.02}},
        "long": {"server": {"prompt_tokens_per_second": {"p50": read}}},
        "ceiling": 400.0,
        "load_s": 2.0,
        "answer": list(answer),
        "card": {"utilization": 90, "power_w": 500.4},
        "planned_mib": list(planned),
        "used_mib": used_mib,
        "freed_s": freed_s,
    }


def test_what_rpc_costs_is_compared_round_by_round():
    names = [variant.name for variant in card.VARIANTS]
    rounds = [
        dict(zip(names, (on_card(200.0), on_card(150.0, 800.0), on_card(100.0, answer=(1, 3))), strict=True)),
        dict(zip(names, (on_card(100.0), on_card(80.0, 800.0), on_card(50.0, freed_s=None)), strict=True)),
    ]
    lines = [line.strip("| ").split(" | ") for line in card.tables(rounds)]
    assert lines[3] == [
        names[1],
        "109.5",
        "0.775 (0.750 to 0.800)",
        "27 %",
        "800",
        "0.800 (0.800 to 0.800)",
        "20.0",
        "2.0",
    ]
    # A head without layers has a process on the card too.
    assert lines[9] == [names[1], "8000", "9000", "500", "90 %", "500", "0.2", "the same"]
    assert lines[10][-2:] == ["inf", "another"]


def test_without_a_card_its_memory_is_left_open():
    blind = dict(on_card(200.0, used_mib=None, freed_s=None), card={"utilization": None, "power_w": None}, ceiling=None)
    lines = list(card.tables([{variant.name: blind for variant in card.VARIANTS}]))
    assert lines[2].split(" | ")[3] == "-" and lines[8] == "| one process | 8000 | - | - | - | - | - | the same |"
