# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Routes that an evaluation suggests, and routes.yml."""

import pytest
import yaml
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._text import Refusal
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._evaluate.suggest import routes_result, suggest
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._intent.check import intent_errors
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._reports.evaluation import wilson
from ansible_collections.thefermisea.llama_cluster.tests.unit.plugins.plugin_utils._evaluate.evaluations import (
    BEHIND,
    HOSTVARS,
    MODELS,
    SERVICES,
)

# Behind a gateway a name belongs to one service.
SOUND = {name: service for name, service in SERVICES.items() if name in ("chat", "off")}
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


# Answers that pass and their number, seconds of a solved task: the lab's real models, which solve nothing, and planted
# ones beside them.
SMOL, GEMMA = row("a", 0, 10, 40.0), row("c", 0, 10, 80.0)


@pytest.mark.parametrize("kind", ["fix", "1", "null", "on", "two_words", "all-2"])
def test_clear_winner_becomes_a_valid_inventory(kind):
    rows = [{**one, "kind": kind} for one in (row("a", 7, 8), row("c", 0, 8))]
    found = routes_result(suggest(rows, {"default": "A"}), {"default": "A"}, "llama_routes: {default: A}\n")
    shown = [line for line in found["diff"] if line[0] != "-" and not line.startswith(("+++", "@@"))]
    # The printed lines are the lines of the file.
    printed = yaml.safe_load("\n".join(line[1:] for line in shown))
    written = yaml.safe_load(found["text"])
    assert printed == written == {"llama_routes": {"default": "A", "tasks": {kind: "a"}}}
    assert intent_errors(SOUND, MODELS, BEHIND, HOSTVARS, written["llama_routes"], {}) == []


def test_models_that_solve_nothing_lead_to_no_route():
    (found,) = suggest([SMOL, GEMMA], {})
    assert found["model"] is None and found["reason"].startswith("not decided, keep no route: the intervals of a 0.0 %")


@pytest.mark.parametrize("n", [1, 8, 48])
def test_overlapping_intervals_lead_to_no_route(n):
    for best in range(n + 1):
        for other in range(best + 1):
            rows = [row("a", best, n), row("c", other, n)]
            overlap = rows[1]["pass_rate"][2] >= rows[0]["pass_rate"][1]
            (found,) = suggest(rows, {})
            assert (found["model"] is None) == overlap, (best, other)


def test_shared_name_gets_no_route():
    """A route to it would be a mistake of the inventory."""
    rows = [row("b of solo", 8, 8), row("b of many", 0, 8)]
    (found,) = suggest(rows, {"default": "a"}, {"b of solo", "b of many"})
    assert found["model"] is None
    assert found["reason"].startswith("not decided, keep a: b of solo passes 100.0 % (67.6 to 100.0), every other at ")
    assert found["reason"].endswith("but another service has its name: give one of them another one with names:")
