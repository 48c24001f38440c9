# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The catalogue of role drill, its script and its page name the same things."""

import ast
import re
import subprocess
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
VARS = yaml.safe_load((ROOT / "roles/drill/vars/main.yml").read_text())
CATALOG = VARS["__drill_catalog"]
SCRIPT = ROOT / "roles/drill/files/break.sh"
GATEWAY = (ROOT / "roles/drill/files/gateway.sh").read_text()
# As the comment above the catalogue has them.
KEYS = {"where", "action", "kind", "generate", "held", "patience", "restart_head", "says", "needs", "what", "may_fail"}
# Done from the controller.
ELSEWHERE = {"power"}


def cases():
    """The cases of the script."""
    return [
        case
        for group in re.findall(r"^    ((?:break|undo)/[^)]*)\)", SCRIPT.read_text(), re.MULTILINE)
        for case in group.split(" | ")
    ]


@pytest.mark.parametrize("name", CATALOG)
def test_a_drill_is_explained_and_can_be_done(name):
    drill = CATALOG[name]
    assert "`%s`" % name in (ROOT / "docs/measuring.md").read_text()
    # Words with a comma end at it in {}, and what follows would be a key.
    assert set(drill) <= KEYS and all(drill.values())
    assert drill["kind"] in ("restart", "start", "away", "firewall", "soak", "gateway")
    assert set(drill.get("needs", [])) <= set(VARS["__drill_needs"])
    if drill["kind"] == "gateway":
        assert drill["where"] == "head" and drill["action"] == "kill" or "    break/%s)" % drill["action"] in GATEWAY
    elif drill["kind"] != "soak":
        assert drill["where"] in ("head", "worker", "workers", "both")
        assert drill["action"] in ELSEWHERE or {"break/" + drill["action"], "undo/" + drill["action"]} <= set(cases())
    # A fault that stays is waited for on one node, and taken away from there on.
    assert drill.get("held") in (None, "head", "worker")
    assert (drill["kind"] in ("start", "away")) == ("held" in drill)


def test_tasks_need_no_worker_for_delegation():
    """ansible-core 2.19 and newer want the delegate_to of a skipped task, too."""
    delegated = [
        (path.name, line.strip())
        for path in (ROOT / "roles/drill/tasks").glob("*.yml")
        for line in path.read_text().splitlines()
        if "delegate_to:" in line and re.search(r"workers *(\[0\]|\| *first *[}|])", line)
    ]
    assert delegated == []


def test_every_fault_is_made_and_taken_away():
    """By break.sh on a unit of its own, or in a complete drill: docs/measuring.md says which."""
    page = " ".join((ROOT / "docs/measuring.md").read_text().split())
    (said,) = re.findall(
        r"`make test` runs (.*?) completely, .*? `make bench WHAT=recovery` runs the others completely", page
    )
    program = ast.parse((ROOT / "molecule/drill/tests/test_drill.py").read_text())
    (whole,) = [
        ast.literal_eval(node.value)
        for node in program.body
        if isinstance(node, ast.Assign) and node.targets[0].id == "WHOLE"
    ]
    assert re.findall("`([a-z_]+)`", said) == whole
    done = {"%s/%s" % (what, CATALOG[name]["action"]) for name in whole for what in ("break", "undo")}
    for node in ast.walk(ast.parse((ROOT / "molecule/node_setup/tests/test_break.py").read_text())):
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "script":
            what, action = (getattr(argument, "value", None) for argument in node.args)
            # Without a constant it is the parameter of its test.
            done.update("%s/%s" % (what, one) for one in ([action] if action else ["cut_off", "gone"]))
    assert done == set(cases())


def test_the_script_refuses_what_it_does_not_know():
    done = subprocess.run(
        ["bash", str(SCRIPT), "break", "hearts"],
        env={"PATH": "/usr/bin:/bin", "UNIT": "x.service"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (1, "x.service: no action break/hearts\n")


@pytest.mark.parametrize("linked", [False, True])
def test_damaged_copy_reads_no_other_file(tmp_path, linked):
    """The script with stubs for systemd, below a directory of the test's."""
    script = tmp_path / "break.sh"
    script.write_text(SCRIPT.read_text().replace("=/run/", "=%s/run/" % tmp_path))
    stub = tmp_path / "systemctl"
    stub.write_text("#!/bin/sh\ncase $* in *MainPID*) exec sleep 0;; esac\n")
    stub.chmod(0o755)
    (tmp_path / "secret").write_text("precious")
    (tmp_path / "m.gguf").symlink_to("secret") if linked else (tmp_path / "m.gguf").write_text("weights")
    environment = {"PATH": "%s:/usr/bin:/bin" % tmp_path, "UNIT": "x.service", "MODEL": str(tmp_path / "m.gguf")}
    done = subprocess.run(
        ["bash", str(script), "break", "damage"], env=environment, capture_output=True, text=True, check=False
    )
    copy = tmp_path / "run/llama-drill/damaged.gguf"
    if linked:
        assert "is a link or cannot be read" in done.stderr and not copy.exists()
    else:
        assert (copy.read_text(), copy.stat().st_mode & 0o777) == ("weights", 0o600), done.stderr
