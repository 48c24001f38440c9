# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every rule of the doctor on its own evidence, on what is well, and on the evidence of the others."""

import json
import re
from pathlib import Path

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._doctor import evidence, judge
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._doctor import cluster

# Output of llama-doctor --json on deployed nodes of a lab.
RECORDED = Path(__file__).resolve().parents[3] / "fixtures/doctor"
RULES = cluster.load()
NAMES = [rule["name"] for rule in RULES]
KEYS = set(cluster.JUDGED) | {"name", "drills", "seen", "fixture", "healthy"}


LINE = {
    "at": 1795548339.5,
    "over": False,
    "current": True,
    "stopping": False,
}
UNIT = {
    "name": "llama-head-chat.service",
    "unit": "llama-head-chat.service",
    "service": "chat",
    "kind": "head",
    "role": "head",
    "managed": True,
    "enabled": True,
    "active_state": "active",
    "is_measured": False,
    "stale": False,
    "failed_in_a_row": 0,
}
# Defaults of lines and units in fixtures.
DEFAULTS = {"lines": LINE, "units": UNIT}


def shown(fixture, rule):
    """A fixture as evidence: of node1, or of all nodes."""
    filled = {
        key: [dict(DEFAULTS[key], **one) for one in value] if key in DEFAULTS else value
        for key, value in fixture.items()
    }
    return dict({"node": "node1", "at": 1795548400.0, "is_held": False}, scope=rule.get("scope"), **filled)


def found_in(rule, fixture):
    return [one for one in judge.judge([rule], shown(fixture, rule)) if one["rule"] == rule["name"]]


def test_rule_names_are_unique():
    assert len(set(NAMES)) == len(NAMES) >= 50


@pytest.mark.parametrize("rule", RULES, ids=NAMES)
def test_rule_is_well_formed(rule):
    assert set(rule) <= KEYS
    assert rule["severity"] in judge.SEVERITIES
    for condition in rule["when"]:
        assert set(condition) - {"path"} <= set(judge.OPERATORS), condition
        assert len(condition) >= 2, condition
    fields = [one for key in ("sentence", "cause", "fix", "command") for one in judge.FIELD.findall(rule[key])]
    assert {form for _path, form in fields} <= set(judge.FORMS)
    assert not rule["sentence"].endswith(".")


@pytest.mark.parametrize("rule", RULES, ids=NAMES)
def test_rule_finds_its_fault(rule):
    (finding,) = found_in(rule, rule["fixture"])
    assert finding["severity"] == rule["severity"] or finding["severity"] == "notice"
    for key in ("sentence", "cause", "fix", "command"):
        assert finding[key] and not re.search(r"[{}]|\bunknown\b", finding[key].replace("ps -eo", "")), finding[key]


@pytest.mark.parametrize("rule", RULES, ids=NAMES)
def test_rule_ignores_healthy_evidence(rule):
    assert found_in(rule, rule["healthy"]) == []
    assert judge.judge([rule], {"scope": rule.get("scope")}) == []


@pytest.mark.parametrize("rule", RULES, ids=NAMES)
def test_rule_ignores_healthy_evidence_of_others(rule):
    wrong = {other["name"]: found_in(rule, other["healthy"]) for other in RULES if other["name"] != rule["name"]}
    assert {name: [one["sentence"] for one in found] for name, found in wrong.items() if found} == {}


@pytest.mark.parametrize("recorded", sorted(RECORDED.glob("*.json")), ids=lambda path: path.stem)
def test_recorded_healthy_nodes_have_no_findings(recorded):
    seen = json.loads(recorded.read_text())
    assert seen["units"] and seen["lines"] and not seen["failed"]
    assert [one["sentence"] for one in judge.judge(RULES, seen)] == []


def test_lines_for_rules_are_kept():
    wanted = re.compile("|".join("(?:%s)" % one for one in evidence.patterns(RULES)))
    for rule in RULES:
        for line in rule["fixture"].get("lines", ()):
            assert line["by"] != "server" or wanted.search(line["text"]), rule["name"]


@pytest.mark.parametrize("rule", RULES, ids=NAMES)
def test_fields_of_commands_are_unquoted(rule):
    """The judge quotes fields itself."""
    command = rule.get("command", "")
    outside = re.sub(r"'[^']*'|\"[^\"]*\"", "", command)
    assert re.findall(r"\{[^}]+\}", outside) == re.findall(r"\{[^}]+\}", command)
