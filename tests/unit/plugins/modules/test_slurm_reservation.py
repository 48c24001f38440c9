# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Module slurm_reservation over a fake scontrol, which prints what that of SLURM 22.05 printed."""

import os
import time
from pathlib import Path

import pytest

NODES = Path(__file__).resolve().parents[2] / "fixtures/slurm/show-node.txt"
# Without a reservation scontrol prints a sentence.
FAKE = """#!/bin/sh
cd "%(folder)s"
echo "$*" >>calls
case "$*" in
"-o show node") cat "%(nodes)s" ;;
"-o show reservation") cat reservation 2>/dev/null || echo "No reservations in the system" ;;
"create reservation ReservationName=llama_cluster "*" StartTime=now Duration=infinite "*)
    [ ! -e reservation ] || { echo "Reservation llama_cluster already exists" >&2; exit 1; } ;;
# SLURM 22.05 refuses a StartTime of one that has begun, and counts a Duration from its start.
"update ReservationName=llama_cluster Nodes="*" EndTime=now+365days") [ -e reservation ] || exit 1 ;;
"delete ReservationName=llama_cluster") rm reservation ;;
*) exit 9 ;;
esac
case "$*" in
*" Nodes="*)
    case "$*" in *Nodes=c2,c3*) nodes="c[2-3]" ;; *) nodes=c2 ;; esac
    echo "ReservationName=llama_cluster StartTime=1 EndTime=%(ends)d Duration=365-00:00:00 Nodes=$nodes NodeCnt=2" \\
        "CoreCnt=8 Features=(null) PartitionName=(null) Flags=IGNORE_JOBS,SPEC_NODES TRES=cpu=8 Users=root" >reservation
    echo "Reservation created: llama_cluster" ;;
esac
"""


@pytest.fixture(name="slurm")
def fixture_slurm(tmp_path, monkeypatch):
    def slurm(days=365):
        path = tmp_path / "bin/scontrol"
        path.parent.mkdir(exist_ok=True)
        path.write_text(FAKE % {"folder": tmp_path, "nodes": NODES, "ends": time.time() + days * 86400})
        path.chmod(0o755)
        return tmp_path

    monkeypatch.setenv("PATH", "%s:%s" % (tmp_path / "bin", os.environ["PATH"]))
    return slurm


def test_nodes_are_reserved_once(slurm, run):
    folder = slurm()
    given = {"shared": ["c2", "c3", "elsewhere"], "reserved": ["c2", "c3", "elsewhere"]}
    code, result = run(_ansible_check_mode=True, **given)
    assert code == 0 and result["changed"] and not (folder / "reservation").exists()
    code, result = run(**given)
    assert (code, result["changed"], result["scheduled"], result["slurm"]) == (0, True, ["c2", "c3"], "")
    assert result["diff"] == {"before": "", "after": "reserved: c2\nreserved: c3\n"}
    assert "Users=root Flags=IGNORE_JOBS" in (folder / "calls").read_text()
    assert run(**given)[1]["changed"] is False


def test_reservation_follows_the_inventory(slurm, run):
    folder = slurm()
    run(shared=["c2", "c3"], reserved=["c2", "c3"])
    assert run(shared=["c2", "c3"], reserved=["c2"])[1]["changed"]
    assert "Nodes=c2 " in (folder / "reservation").read_text()
    assert run(shared=["c2"])[1] | {"invocation": 0, "diff": 0} == {
        "changed": True,
        "scheduled": ["c2"],
        "slurm": "",
        "invocation": 0,
        "diff": 0,
    }
    assert not (folder / "reservation").exists()


def test_node_stays_reserved_until_released(slurm, run):
    folder = slurm()
    run(shared=["c2", "c3"], reserved=["c2"])
    result = run(shared=["c2", "c3"], reserved=["c3"], keep=True)[1]
    assert result["changed"] and result["diff"]["after"] == "reserved: c2\nreserved: c3\n"
    assert run(keep=True)[1]["changed"] is False
    assert run(shared=["c2"], reserved=["c2"])[1]["changed"]
    assert "delete" not in (folder / "calls").read_text(), "a job could start before it is made anew"


def test_reservation_that_ends_soon_is_renewed(slurm, run):
    slurm(days=100)
    given = {"shared": ["c2"], "reserved": ["c2"]}
    run(**given)
    slurm(days=365)
    assert run(**given)[1]["changed"] is True
    assert run(**given)[1]["changed"] is False


def test_without_slurm_only_a_wish_fails(tmp_path, monkeypatch, run):
    monkeypatch.setenv("PATH", str(tmp_path))
    code, result = run(shared=["c2"])
    assert code == 0 and not result["changed"] and "scontrol: it cannot be run" in result["slurm"]
    code, result = run(shared=["c2"], reserved=["c2"])
    assert code == 1 and result["msg"].startswith("slurm_reservation: scontrol: it cannot be run")
