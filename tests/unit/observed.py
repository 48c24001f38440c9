# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The metrics that rules and dashboards may use, and the files of roles, for tests."""

import functools
import os
import re
from pathlib import Path

import pytest
import yaml
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._exporter import metrics
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._monitoring import dropped

CACHE = Path(os.environ.get("LLAMA_CLUSTER_CACHE", os.path.expanduser("~/.cache/llama-cluster")))
# Metrics of the gateway's engine.
COUNTED = """
    llama_gateway_requests_total llama_gateway_seconds llama_gateway_first_byte_seconds llama_gateway_queue_seconds
    llama_gateway_queued llama_gateway_in_flight llama_gateway_endpoint_state llama_gateway_retries_total
    llama_gateway_fallbacks_total llama_gateway_names_unknown_total llama_gateway_context_refused_total
"""
METRICS = {*metrics.METRICS, *COUNTED.split()}


def promtool():
    found = CACHE / "files/prometheus/promtool"
    if not found.exists():
        pytest.skip("promtool is needed: run tests/lab/prometheus.sh")
    return str(found)


@functools.cache
def groups():
    """Groups of rules of all roles."""
    return [group for found in dropped.rules() for group in yaml.safe_load(found.path.read_text())["groups"]]


def alerts():
    """{name: rule}"""
    return {rule["alert"]: rule for group in groups() for rule in group["rules"] if "alert" in rule}


@functools.cache
def recorded():
    """Names that recording rules make."""
    return {rule["record"] for group in groups() for rule in group["rules"] if "record" in rule}


# Words of a query that are no metrics. A function is known by its parenthesis.
WORDS = {"and", "or", "unless", "bool", "offset", "by", "on", "without", "ignoring", "group_left", "group_right"}


def named(query):
    """Metrics that a query names, without the suffixes of a histogram. Not what stands in labels, strings, or by()."""
    bare = re.sub(
        r'"[^"]*"|\{[^}]*\}|\[[^]]*\]|\b(by|on|without|ignoring|group_left|group_right) *\([^)]*\)', " ", query
    )
    names = set(re.findall(r"(?<![\w.$])([a-zA-Z_:][\w:]*)(?! *\(|[\w:])", bare)) - WORDS
    return {re.sub(r"_(bucket|sum|count)$", "", name) if name.startswith("llama_") else name for name in names}


def unknown(query):
    """Metrics that a query names and nothing has. Prometheus itself has two."""
    known = METRICS | recorded() | {"up", "ALERTS"}
    return {name for name in named(query) - known if not name.startswith("llamacpp:")}
