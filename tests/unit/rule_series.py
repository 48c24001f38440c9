# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests of rules for promtool, made of tests/unit/rules/ROLE-NAME.yml.

Each test there has `parts`, things that are well for two hours and more, and `series`, what is otherwise: {series:
values, null for one that is missing}.
"""

import functools
import itertools
import re
from pathlib import Path

import yaml
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._monitoring import dropped

FILES = sorted((Path(__file__).parent / "rules").glob("*.yml"))
PARTS = {
    "node": {
        'up{job="llama_sampler", node="%(node)s", instance="%(node)s:9754"}': "1x2000",
        'llama_sampler_info{node="%(node)s", version="1"}': "1x2000",
        'llama_sampler_timestamp_seconds{node="%(node)s"}': "0+5x2000",
        'llama_node_held{node="%(node)s"}': "0x2000",
        'llama_watchdog_alive{node="%(node)s"}': "1x2000",
        'llama_clock_synchronized{node="%(node)s"}': "1x2000",
        'llama_sampler_cards_hung{node="%(node)s"}': "0x2000",
        'llama_fabric_up{node="%(node)s", interface="eth1"}': "1x2000",
        'llama_fabric_errors_total{node="%(node)s", interface="eth1"}': "2x2000",
        'llama_disk_free_bytes{node="%(node)s", path="/models"}': "500000000000x2000",
        'llama_disk_size_bytes{node="%(node)s", path="/models"}': "1000000000000x2000",
    },
    "card": {
        'llama_gpu_utilization_ratio{node="%(node)s", gpu="0"}': "0.9x2000",
        'llama_gpu_foreign_processes{node="%(node)s", gpu="0"}': "0x2000",
        'llama_gpu_ecc_uncorrected_total{node="%(node)s", gpu="0"}': "0x2000",
        'llama_gpu_throttled{node="%(node)s", gpu="0", reason="sw_power_cap"}': "1x2000",
    },
    "unit": {
        'llama_unit_%s{node="%%(node)s", unit="%%(unit)s", service="%%(service)s", role="%%(role)s"}' % name: values
        for name, values in (("wanted", "1x2000"), ("restarts_total", "0x2000"), ("started_seconds", "0x2000"))
    },
}


def part(words):
    """`node n1`, `card n1` or `unit n1 llama-head-chat.service head chat` -> {series: values}."""
    kind, *given = words.split()
    fields = dict(zip(("node", "unit", "role", "service"), [*given, ""], strict=False))
    return {series % fields: values for series, values in PARTS[kind].items()}


def expanded(test):
    """A test as promtool reads it."""
    series = {}
    for words in test.get("parts", ()):
        series.update(part(words))
    series.update(test.get("series", {}))
    content = {key: value for key, value in test.items() if key not in ("parts", "series")}
    shown = [{"series": name, "values": values} for name, values in series.items() if values is not None]
    return dict(content, input_series=shown)


@functools.cache
def load(path):
    """The content of a file for promtool."""
    content = yaml.load(path.read_text(), Loader=yaml.CSafeLoader)
    roles = [dropped.ROLES / role / "observed/rules.yml" for role in content.pop("roles")]
    return dict(content, rule_files=list(map(str, roles)), tests=[expanded(test) for test in content["tests"]])


def asked(test):
    """A key of what a test asks beside its series; a test has its own where it wants alerts."""
    checks = test.get("promql_expr_test", [])
    own = test["name"] if "alert_rule_test" in test or any(one["exp_samples"] for one in checks) else ""
    return own, str({key: value for key, value in test.items() if key not in ("name", "input_series")})


def side_by_side(tests):
    """The tests, with those that want no alert at the same time as one, in which nodes and services of each have other
    names: promtool takes time for each time that it runs a rule, little for each series."""
    shown = []
    for _asked, same in itertools.groupby(sorted(tests, key=asked), key=asked):
        together = list(same)
        series = [
            {**one, "series": re.sub(r'\b(node|service)="([^"]*)"', r'\1="\2-%d"' % number, one["series"])}
            for number, test in enumerate(together)
            for one in test["input_series"]
        ]
        name = "; ".join(test["name"] for test in together)
        shown.append(together[0] if len(together) == 1 else dict(together[0], name=name, input_series=series))
    return shown


def tests():
    return [test for path in FILES for test in load(path)["tests"]]
