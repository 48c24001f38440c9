# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules of all roles: Prometheus' own tool accepts them and runs their tests, each alert has a test, a section of
docs/monitoring.md and the texts that an operator needs at night."""

import json
import os
import re
import subprocess
from pathlib import Path

import pytest
import yaml
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._monitoring import dropped
from ansible_collections.thefermisea.llama_cluster.tests.unit import observed, rule_series

RUNBOOK = "https://github.com/thefermisea/ansible-llama-cluster/blob/main/docs/monitoring.md#"
# Only these page.
PAGES = {"LlamaModelWithoutEndpoint", "LlamaRepairLoop", "LlamaGatewayDown"}
ALERTS = sorted(observed.alerts().items())
NAMES = [name for name, _rule in ALERTS]


def expectations(alert):
    """[[expected alert]] of all tests that name it."""
    return [
        expected["exp_alerts"]
        for test in rule_series.tests()
        for expected in test.get("alert_rule_test", [])
        if expected["alertname"] == alert
    ]


def ran(*arguments):
    done = subprocess.run(
        [observed.promtool(), *map(str, arguments)],
        env={**os.environ, "GOGC": "800"},
        check=False,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    return done.returncode, done.stdout


@pytest.mark.parametrize("found", dropped.rules(), ids=lambda found: found.role)
def test_prometheus_accepts_the_rules(found):
    code, output = ran("check", "rules", "--lint-fatal", found.path)
    assert code == 0, output


@pytest.mark.parametrize("path", rule_series.FILES, ids=lambda path: path.stem)
def test_rules_do_what_their_tests_say(path, tmp_path):
    content = rule_series.load(path)
    tests = rule_series.side_by_side(content["tests"])
    (tmp_path / "test.yml").write_text(json.dumps(dict(content, tests=tests)))
    code, output = ran("test", "rules", tmp_path / "test.yml")
    assert code == 0, output


@pytest.mark.parametrize("name", NAMES)
def test_alert_is_tested_both_ways(name):
    expected = expectations(name)
    assert [alerts for alerts in expected if alerts], "no test in which %s fires" % name
    assert [] in expected, "no test in which %s does not fire" % name


def test_healthy_series_check_all_alerts():
    """Healthy runs ask for whatever fires, so that a new alert is among it."""
    healthy = [test for test in rule_series.tests() if test["name"].startswith("no alert:")]
    assert len(healthy) >= 10
    for test in healthy:
        (asked,) = test["promql_expr_test"]
        assert asked["expr"] == 'count_over_time(ALERTS{alertstate="firing"}[2h])' and asked["exp_samples"] == []


@pytest.mark.parametrize("name,rule", ALERTS, ids=NAMES)
def test_alert_has_all_texts(name, rule):
    assert re.fullmatch(r"Llama([A-Z][a-z]+)+", name)
    assert rule["labels"] == {"severity": "page" if name in PAGES else "notice"}
    texts = rule["annotations"]
    assert sorted(texts) == ["description", "runbook_url", "summary"]
    # One sentence: what and where, a colon, what to do next.
    assert re.fullmatch(r"[^\n]+: [^\n]+[^.]\.", texts["description"]) and ". " not in texts["description"]
    assert not texts["summary"].endswith(".") and len(texts["summary"]) < 90
    assert texts["runbook_url"] == RUNBOOK + name.lower()


def test_rules_see_one_node_or_service():
    """Tests that run side by side do not see each other."""
    contents = map(rule_series.load, rule_series.FILES)
    shared = [one for one in contents if len(rule_series.side_by_side(one["tests"])) < len(one["tests"])]
    files = {path for one in shared for path in one["rule_files"]}
    assert files
    rules = [group["rules"] for path in files for group in yaml.safe_load(Path(path).read_text())["groups"]]
    for expression in [rule["expr"] for group in rules for rule in group]:
        for operation in re.findall(
            r"\b(?:max|min|sum|count|avg|group|stddev|stdvar|topk|bottomk|quantile|count_values)\b *([^(]*\([^)]*\))",
            expression,
        ):
            assert re.match(r"by \(.*\b(node|service)\b", operation), expression
        for word, labels in re.findall(r"\b(on|ignoring) *\(([^)]*)\)", expression):
            assert bool({"node", "service"} & set(re.findall(r"\w+", labels))) == (word == "on"), expression
        assert not re.search(r"\b(absent|absent_over_time|scalar|vector)\b", expression)


def test_rules_ask_for_what_is_there():
    rules = [rule for group in observed.groups() for rule in group["rules"]]
    assert [(rule.get("alert") or rule["record"], observed.unknown(rule["expr"])) for rule in rules] == [
        (rule.get("alert") or rule["record"], set()) for rule in rules
    ]


def test_names_in_a_query_are_found():
    query = 'sum by (llama_x) (rate(llama_slots{a="llama_b"}[5m])) > bool 1e9 * up offset 5m and on (a) node_load1 == 1'
    assert observed.named(query) == {"llama_slots", "up", "node_load1"}
    assert observed.unknown(query) == {"node_load1"}
    assert observed.unknown("histogram_quantile(0.5, llama_gateway_seconds_bucket) + llama_nothing_total") == {
        "llama_nothing_total"
    }
