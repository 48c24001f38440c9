# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A node is asked once in a run: what is known is not asked again, and what another run knew is not believed."""

from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._known import merged, missing

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
