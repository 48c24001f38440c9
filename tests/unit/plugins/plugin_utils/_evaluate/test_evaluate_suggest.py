# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Routes that an evaluation suggests, and routes.yml."""

import pytest
import yaml
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._text import Refusal
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._evaluate.suggest import routes_result, suggest
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._reports.evaluation import wilson

ROUTES = {"default": "big", "tasks": {"analyze": "big"}}
TO_SMALL = [{"kind": "fix", "model": "small", "reason": ""}]


def row(model, passed, n, seconds=10.0, kind="fix"):
    found = {"model": model, "kind": kind, "n": n, "passed": passed, "pass_rate": wilson(passed, n)}
    return {**found, "seconds_per_solved": seconds if passed else None}


@pytest.mark.parametrize(
    ("rows", "model", "reason"),
    [
        ([row("big", 8, 8), row("small", 1, 8)], "big", "passes 100.0 % (67.6 to 100.0), every other at most 47.1 %"),
        ([row("big", 40, 96), row("small", 70, 96, 99.0)], "small", "passes 72.9 %"),
        ([row("big", 8, 8), row("small", 5, 8)], None, "not decided, keep big: the intervals of big 100.0 %"),
        ([row("big", 7, 8, 20.0), row("small", 7, 8, 10.0)], "small", "is as good as big within its interval, 10.0 s"),
        ([row("big", 7, 8, 19.9), row("small", 7, 8, 10.0)], None, "not decided, keep big"),
        # Few answers are alike by chance, and one that solves nothing is no slower one.
        ([row("big", 3, 3, 90.0), row("small", 3, 3, 1.0)], None, "not decided, keep big"),
        ([row("big", 0, 8), row("small", 1, 8)], None, "not decided, keep big"),
        # Intervals that touch are not the same quality.
        ([row("big", 8, 8, 90.0), row("small", 4, 8, 1.0)], None, "not decided, keep big"),
        ([row("big", 8, 8)], None, "not decided, keep big: only big was evaluated"),
    ],
)
def test_route_needs_parted_intervals_or_half_the_time(rows, model, reason):
    (found,) = suggest([*rows, row("big", 0, 8, kind="all")], ROUTES)
    assert (found["kind"], found["model"]) == ("fix", model) and found["reason"].startswith(reason)


def test_all_others_have_to_be_worse():
    (found,) = suggest([row("big", 8, 8), row("small", 1, 8), row("mid", 7, 8)], {})
    assert found["model"] is None and found["reason"].startswith("not decided, keep no route: ")


def test_diff_adds_the_route_to_its_file():
    text = "llama_routes: {default: big, tasks: {analyze: big}}\n"
    found = routes_result(TO_SMALL, ROUTES, text)
    assert (found["changed"], found["refused"]) == (True, "")
    assert [line for line in found["diff"] if line[:1] in "+-"][2:] == ["+    fix: small"]
    assert yaml.safe_load(found["text"]) == {
        "llama_routes": {"default": "big", "tasks": {"analyze": "big", "fix": "small"}}
    }
    again = routes_result(TO_SMALL, yaml.safe_load(found["text"])["llama_routes"], found["text"])
    assert (again["changed"], again["text"], again["diff"]) == (False, found["text"], [])


def test_first_routes_make_the_file():
    found = routes_result(TO_SMALL, {})
    assert found["refused"] == "" and yaml.safe_load(found["text"]) == {"llama_routes": {"tasks": {"fix": "small"}}}


@pytest.mark.parametrize("text", ["", "llama_routes: {default: other}\n"])
def test_routes_of_another_file_are_not_overridden(text):
    found = routes_result(TO_SMALL, ROUTES, text)
    assert found["changed"] and "fix: big there, small suggested" in found["refused"]
    assert found["diff"]


def test_present_route_changes_nothing():
    found = routes_result([{"kind": "fix", "model": "big", "reason": ""}], ROUTES)
    assert (found["changed"], found["refused"], found["text"], found["diff"]) == (False, "", "", [])


@pytest.mark.parametrize("text", ["{", "- one", "llama_models: {}", "text"])
def test_file_of_other_content_is_refused(text):
    with pytest.raises(Refusal, match=r"group_vars/all/routes.yml"):
        routes_result(TO_SMALL, ROUTES, text)
