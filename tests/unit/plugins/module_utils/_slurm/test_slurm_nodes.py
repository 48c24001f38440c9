# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Fake commands that print what the commands of SLURM 22.05 print; scenario slurm runs the real ones."""

import json
import os

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._slurm import ask, nodes
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._text import Refusal

SHOWN = (
    "NodeName=vasp-02 Arch=x86_64 CoresPerSocket=4  CPUAlloc=0 CPUTot=4 CPULoad=0.45 AvailableFeatures=(null) "
    "Gres=gpu:2 NodeAddr=vasp-02 NodeHostName=vasp-02 Version=22.05.8 RealMemory=8000 AllocMem=0 State=%s "
    "ThreadsPerCore=1 Partitions=gpu  BootTime=1795800000 CfgTRES=cpu=4,mem=8000M,billing=4 AllocTRES= "
    "ExtSensorsTemp=n/s%s\n"
)
DRAINED_BY_US = " Reason=llama_cluster: maintenance [root@1795813200]"
DRAINED_BY_ALICE = " Reason=card 1 is dead [alice@1795813200]"
# squeue -o of ask.QUEUE.
COMMENT = "llama_cluster:fast:0123456789abcdef"
MINE = "\x1f".join(
    ("4711", "RUNNING", "None", "1", "2", "0", "llama", "gpu_ai", "ai", "vasp-02", "", "", "llama-14b", COMMENT)
)
FAKE = """#!/usr/bin/python3
import json, os, sys
with open({calls!r}, "a") as stream:
    stream.write(json.dumps([os.path.basename(sys.argv[0])] + sys.argv[1:]) + "\\n")
said = json.load(open({said!r}))
words = " ".join(sys.argv[1:])
if "scancel" in sys.argv[0]:
    said["mine"] = ""
    json.dump(said, open({said!r}, "w"))
elif "show node" in words:
    sys.stdout.write(said["node"])
elif "--nodelist" in words:
    sys.stdout.write(said["others"])
elif "squeue" in sys.argv[0]:
    sys.stdout.write(said["mine"])
"""


@pytest.fixture(name="slurm")
def fixture_slurm(tmp_path, monkeypatch):
    """set(**what the fake commands print) -> the calls so far."""
    calls, said = tmp_path / "calls", tmp_path / "said"
    calls.write_text("")
    for name in ("scontrol", "squeue", "scancel"):
        (tmp_path / name).write_text(FAKE.format(calls=str(calls), said=str(said)))
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path) + ":" + os.environ["PATH"])

    def shows(state, reason="", mine="", others=""):
        said.write_text(json.dumps({"node": SHOWN % (state, reason), "mine": mine, "others": others}))
        return lambda: [line for line in map(json.loads, calls.read_text().splitlines()) if line[1] != "-h"]

    return shows


def drained(**options):
    return nodes.drain("vasp-02", "llama", ["fast"], 5, sleep=lambda _seconds: None, **options)


@pytest.mark.parametrize(
    "state, reason, seen",
    [
        ("IDLE", "", (False, "", False)),
        ("MIXED+DRAIN", DRAINED_BY_US, (True, "llama_cluster: maintenance", True)),
        ("IDLE+DRAIN", DRAINED_BY_ALICE, (True, "card 1 is dead", False)),
        ("DOWN*+DRAIN", " Reason=Not responding [slurm@1795813200] Comment=x", (True, "Not responding", False)),
        ("DOWN*", " Reason=Not responding [slurm@1795813200]", (False, "Not responding", False)),
        ("MIXED+NOT_RESPONDING", "", (False, "", False)),
        ("IDLE", DRAINED_BY_US, (False, "llama_cluster: maintenance", False)),
    ],
)
def test_state_and_reason_of_a_node(state, reason, seen):
    found = nodes.parse(SHOWN % (state, reason))
    assert (found.drained, found.reason, found.by_us) == seen


def test_node_is_drained_before_its_job_ends(slurm):
    calls = slurm("MIXED", mine=MINE + "\n", others="4711 RUNNING llama\n4712 RUNNING alice\n4713 PENDING bob\n")
    assert drained() == {
        **{"changed": True, "reason": nodes.REASON, "left": []},
        "others": ["job 4712 of alice runs on vasp-02"],
    }
    assert [line[:3] for line in calls()] == [
        ["scontrol", "-o", "show"],
        ["scontrol", "update", "nodename=vasp-02"],
        ["scancel", "--signal=USR1", "--user=llama"],
    ]


def test_drained_node_keeps_its_reason(slurm):
    calls = slurm("IDLE+DRAIN", DRAINED_BY_ALICE)
    assert drained() == {"changed": False, "reason": "card 1 is dead", "others": [], "left": []}
    assert [line[1] for line in calls()] == ["-o"]


def test_check_mode_drains_nothing(slurm):
    calls = slurm("MIXED", mine=MINE + "\n")
    assert drained(check=True)["changed"] and [line[1] for line in calls()] == ["-o"]


@pytest.mark.parametrize("comment", ["", "llama_cluster:reasoning:0123456789abcdef", "x"])
def test_other_jobs_of_the_user_go_on(slurm, comment):
    calls = slurm("MIXED", mine=MINE.replace(COMMENT, comment) + "\n")
    drained()
    assert "scancel" not in str(calls())


def test_job_that_stays_is_named(slurm, monkeypatch):
    slurm("MIXED", mine=MINE + "\n")
    monkeypatch.setattr(nodes, "_running", lambda _user: ask.parse_queue(MINE))
    assert nodes.drain("vasp-02", "llama", ["fast"], 0)["left"] == ["job 4711 of llama has not ended in 0 s"]


@pytest.mark.parametrize(
    "state, reason, changed, stays",
    [
        ("IDLE+DRAIN", DRAINED_BY_US, True, ""),
        ("IDLE+DRAIN", DRAINED_BY_ALICE, False, "card 1 is dead"),
        ("IDLE", "", False, ""),
    ],
)
def test_only_our_drain_is_undone(slurm, state, reason, changed, stays):
    calls = slurm(state, reason)
    assert nodes.resume("vasp-02") == {"changed": changed, "reason": stays}
    assert (["scontrol", "update", "nodename=vasp-02", "state=resume"] in calls()) is changed


def test_jobs_need_a_user():
    with pytest.raises(Refusal, match="slurm_user is needed"):
        nodes.apply({"state": "drained", "node": "n", "user": "", "services": [], "timeout": 1}, False)
