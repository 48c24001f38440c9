# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

import json
import time

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._node import snapshot
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._node.snapshot import Snapshots
from ansible_collections.thefermisea.llama_cluster.plugins.modules import llama_snapshot


@pytest.fixture(name="run")
def fixture_run(tmp_path, monkeypatch, run):
    """Runs the module over the scripts of jobs below a directory."""
    config = tmp_path / "etc/llama-cluster/jobs.json"
    config.parent.mkdir(parents=True)
    (tmp_path / "share").mkdir()
    (tmp_path / "share/run.slurm").write_text("old")
    config.write_text(json.dumps({"services": {"deep": {"script": "/share/run.slurm"}}}))
    monkeypatch.setattr(llama_snapshot, "SHARE", 5.0)
    monkeypatch.setattr(
        llama_snapshot,
        "Snapshots",
        lambda *_given, jobs: Snapshots(str(tmp_path / "kept"), root=str(tmp_path), jobs=jobs),
    )
    return lambda **arguments: run(jobs=True, **arguments)[1]


def test_script_of_a_job_is_restored(run, tmp_path):
    assert run(state="opened", id="one")["open"]["scripts"] == {"deep": "/share/run.slurm"}
    (tmp_path / "share/run.slurm").write_text("new")
    result = run(state="restored", id="one")
    assert result["restored"] == ["share/run.slurm"] and (tmp_path / "share/run.slurm").read_text() == "old"
    assert result["diff"][0]["before"] == "new"
    assert "holds no snapshot two" in run(state="restored", id="two")["msg"]


def test_share_that_hangs_is_named(run, monkeypatch):
    monkeypatch.setattr(llama_snapshot, "SHARE", 0.5)
    monkeypatch.setattr(snapshot.Snapshots, "look", lambda _self: time.sleep(60))
    began = time.monotonic()
    assert "no answer for 0 s seen from slurm_script_dir" in run(state="looked")["msg"]
    assert time.monotonic() - began < 20
