# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A node is asked once in a run: what is known is not asked again, and what another run knew is not believed."""

import subprocess
import sys

from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils import _progress
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._known import merged, missing
from ansible_collections.thefermisea.llama_cluster.tests.unit.playbooks.simulation import COLLECTIONS

FIRST = merged({}, {"units": True, "files": ["/a"]}, {"units": [1], "files": {"/a": 1}}, "r1")


def test_what_is_known_is_not_asked_again():
    assert missing({}, {"units": True}, "r1") == {"units": True}
    assert missing(FIRST, {"units": True, "files": ["/a"]}, "r1") == {}
    assert missing(FIRST, {"units": True, "gpus": True}, "r1") == {"gpus": True}
    assert missing(FIRST, {"units": True}, "r1", again=True) == {"units": True}


def test_another_argument_is_another_question():
    first = {"of": {"b1": 1}, "releases": ["b1"]}
    build = merged(FIRST, {"build": {"prefix": "/x", "releases": ["b1"]}}, {"build": first}, "r1")
    assert missing(build, {"build": {"prefix": "/x", "releases": ["b1"]}}, "r1") == {}
    other = {"build": {"prefix": "/y", "releases": ["b1"]}}
    assert missing(build, other, "r1") == other
    # Only new builds are asked for.
    assert missing(build, {"build": {"prefix": "/x", "releases": ["b2", "b1"]}}, "r1") == {
        "build": {"prefix": "/x", "releases": ["b2"]}
    }
    second = {"of": {"b2": 2}, "releases": ["b1", "b2"]}
    both = merged(build, {"build": {"prefix": "/x", "releases": ["b2"]}}, {"build": second}, "r1")
    assert (both["units"], both["build"]) == ([1], {"of": {"b1": 1, "b2": 2}, "releases": ["b1", "b2"]})
    assert missing(both, {"build": {"prefix": "/x", "releases": ["b1", "b2"]}}, "r1") == {}


def test_of_a_list_only_new_entries_are_asked():
    assert missing(FIRST, {"files": ["/a", "/b"]}, "r1") == {"files": ["/b"]}
    both = merged(FIRST, {"files": ["/b"]}, {"files": {"/b": None}}, "r1")
    assert both["files"] == {"/a": 1, "/b": None}
    assert missing(both, {"files": ["/b", "/a"]}, "r1") == {}
    assert missing({}, {"files": []}, "r1") == missing(FIRST, {"plans": []}, "r1") == {}


def test_another_run_knows_nothing():
    """A cache of facts keeps them from run to run."""
    assert missing(FIRST, {"units": True}, "r2") == {"units": True}
    assert merged(FIRST, {"gpus": True}, {"gpus": []}, "r2") == {"gpus": [], "run": "r2", "asked": {"gpus": True}}


def test_the_name_of_a_file_forges_no_line(monkeypatch):
    shown = []
    monkeypatch.setattr(_progress.display, "display", lambda line, color: shown.append(line))
    _progress.Progress("node1", "m\x1b[2J").show("5 %\nno change")
    assert shown == ["node1: m?[2J 5 %?no change"]


def test_time_left_uses_the_mean_rate(monkeypatch):
    clock = [50.0]
    monkeypatch.setattr(_progress.time, "monotonic", lambda: clock[0])
    progress = _progress.Progress("node1", "compiling")
    assert progress.left(20, 100) is None
    clock[0] = 60.0
    assert progress.left(20, 100) is None
    clock[0] = 70.0
    assert progress.left(60, 100) == 20.0
    clock[0] = 80.0
    assert progress.left(80, 100) == 10.0
    clock[0] = 81.0
    assert repr(progress.left(80, 100)) == "10"


def test_a_line_is_shown_once(monkeypatch):
    shown = []
    monkeypatch.setattr(_progress.display, "display", lambda line, color: shown.append(line))
    progress = _progress.Progress("node1", "compiling")
    for text in ("5 %", "5 %", "6 %", "5 %"):
        progress.show(text)
    assert shown == ["node1: compiling 5 %", "node1: compiling 6 %", "node1: compiling 5 %"]


PROGRAM = """\
import gc, sys
from ansible.plugins.loader import filter_loader, init_plugin_loader
init_plugin_loader([sys.argv[1]])
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._warm import warm
warm()
before = set(sys.modules)
assert gc.get_freeze_count() > 10000
for name in ("memory_plan", "unit_files", "node_serving"):
    assert filter_loader.get("thefermisea.llama_cluster." + name)
assert set(sys.modules) == before, set(sys.modules) - before
"""


def test_filter_of_a_task_loads_nothing():
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, COLLECTIONS],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
