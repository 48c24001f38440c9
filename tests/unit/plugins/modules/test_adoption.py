# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module's wiring: check mode reaches every step, and what others could have written ends in one sentence."""

import json
import os

import pytest
from ansible.module_utils.testing import patch_module_args
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._adoption import steps as adoption_steps
from ansible_collections.thefermisea.llama_cluster.plugins.modules import adoption, adoption_info
from ansible_collections.thefermisea.llama_cluster.tests.unit.strangers import give_away

UNIT = "[Service]\nExecStart=/opt/llama.cpp/build/bin/rpc-server --host 0.0.0.0\n"
ADOPT = (("save", None, 2), ("stop", "head", 0), ("stop", "worker", 2), ("put_aside", None, 0), ("finish", None, 0))
UNDO = (("put_back", None, 2), ("start", "worker", 2), ("start", "head", 0), ("forget", None, 1))


@pytest.fixture(name="node")
def fixture_node(tmp_path, monkeypatch):
    """A node with a unit made by hand, which runs, and a worker that nohup left; nothing real is asked, stopped or
    ended."""
    (tmp_path / "system").mkdir()
    (tmp_path / "system/rpc.service").write_text(UNIT)
    (tmp_path / "build").mkdir()
    process = {
        "pid": 9471200,
        "kind": "worker",
        "executable": "/x/rpc-server",
        "argv": ["rpc-server"],
        "cwd": "/",
        "environment": {},
        "outputs": {},
    }

    def find(_units):
        names = ["rpc.service"] if (tmp_path / "system/rpc.service").exists() else []
        unit = {
            "kind": "worker",
            "path": "",
            "drop_ins": [],
            "unit_file_state": "enabled",
            "active": True,
            "main_pid": None,
            "process": None,
        }
        return {"units": [dict(unit, name=name) for name in names], "processes": [process] * len(names), "foreign": []}

    def touched(*arguments):
        node.touched.append(arguments)

    monkeypatch.setattr(adoption_steps, "find", find)
    monkeypatch.setattr(adoption_steps, "around", lambda _found: [])
    monkeypatch.setattr(adoption_steps.subprocess, "call", lambda *_arguments, **_options: 0)
    for name in ("systemctl", "end", "start_detached"):
        monkeypatch.setattr(adoption_steps, name, touched)
    monkeypatch.setattr(adoption.Adoption.__init__, "__defaults__", ((), False, str(tmp_path / "system")))
    node = type("Node", (), {"touched": [], "path": tmp_path})
    return node


@pytest.fixture(name="run")
def fixture_run(node, capsys):
    def run(module=adoption, **options):
        options = dict({"directory": str(node.path / "adopted"), "moved": [str(node.path / "build")]}, **options)
        with patch_module_args(options), pytest.raises(SystemExit) as stop:
            module.main()
        return stop.value.code, json.loads(capsys.readouterr().out)

    return run


def content(folder):
    return {
        str(path): os.readlink(str(path)) if path.is_symlink() else path.is_file() and path.read_bytes()
        for path in folder.rglob("*")
    }


def steps(run, wanted, check=True):
    for step, kind, actions in wanted:
        code, result = run(step=step, _ansible_check_mode=check, **({"kind": kind} if kind else {}))
        assert code == 0, result
        if check:
            assert (result["changed"], len(result["actions"])) == (actions > 0, actions), (step, result["actions"])


def test_adopt_in_check_mode_changes_nothing(run, node):
    before = content(node.path)
    steps(run, ADOPT)
    assert content(node.path) == before and node.touched == []


def test_undo_in_check_mode_changes_nothing(run, node, monkeypatch):
    monkeypatch.setattr(adoption_steps, "RETURNS", 0)
    steps(run, ADOPT, check=False)
    assert not (node.path / "system/rpc.service").exists() and (node.path / "build.by-hand").is_dir()
    before, touched = content(node.path), list(node.touched)
    steps(run, UNDO)
    assert content(node.path) == before and node.touched == touched


def test_a_record_of_somebody_else_is_one_sentence(run, node, monkeypatch):
    (node.path / "adopted").mkdir()
    give_away(node.path / "adopted")
    for module, options in ((adoption, {"step": "put_back"}), (adoption_info, {})):
        code, result = run(module, **options)
        assert code == 1 and "exception" not in result
        assert result["msg"].startswith(
            "%s: %s: it belongs to user id 4711, 0 is needed"
            % (module.__name__.rpartition(".")[2], node.path / "adopted")
        )
