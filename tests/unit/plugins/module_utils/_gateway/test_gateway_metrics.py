# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._exporter.exposition import parse
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._gateway import metrics
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._gateway.metrics import Counts
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._gateway.replicas import Fleet

FIELDS = {"service": "chat", "status": 200, "seconds": 1.5, "ttfb": 0.2, "queued": 0.0, "tries": 1, "fallback": None}


def page(counts):
    """{(name, labels in order): value}"""
    found = parse(counts.text(Fleet()))
    return {(one.name, *(one.labels[key] for key in sorted(one.labels))): one.value for one in found}


def test_requests_by_service_and_status():
    counts = Counts()
    counts.ended(FIELDS)
    counts.ended(dict(FIELDS, status=503))
    counts.ended(dict(FIELDS, service=None, status=401))
    # A client that left before anything was answered.
    counts.ended(dict(FIELDS, status=None, ttfb=None))
    found = page(counts)
    assert found["llama_gateway_requests_total", "200", "chat"] == 1
    assert found["llama_gateway_requests_total", "503", "chat"] == 1
    assert found["llama_gateway_requests_total", "401", ""] == 1
    assert found["llama_gateway_requests_total", "499", "chat"] == 1
    assert found["llama_gateway_seconds_count", "chat"] == 3
    assert found["llama_gateway_first_byte_seconds_count", "chat"] == 2


@pytest.mark.parametrize(
    ("seconds", "below"), [(0.0, 0.05), (0.05, 0.05), (0.051, 0.1), (1800.0, 1800.0), (1800.1, None)]
)
def test_a_time_counts_in_its_bucket_and_in_those_above(seconds, below):
    counts = Counts()
    counts.ended(dict(FIELDS, seconds=seconds))
    found = page(counts)
    buckets = {bound: found["llama_gateway_seconds_bucket", "%g" % bound, "chat"] for bound in metrics.BOUNDS}
    assert buckets == {bound: int(below is not None and bound >= below) for bound in metrics.BOUNDS}
    assert found["llama_gateway_seconds_bucket", "+Inf", "chat"] == 1
    assert found["llama_gateway_seconds_sum", "chat"] == seconds


def test_names_that_nothing_serves_are_counted_and_bounded():
    counts = Counts()
    for number in range(2 * metrics.NAMES):
        counts.unknown("name-%d" % number)
    counts.unknown("name-0")
    found = {key[1]: value for key, value in page(counts).items() if key[0] == "llama_gateway_names_unknown_total"}
    assert found["name-0"] == 2 and found[metrics.OTHER] == metrics.NAMES
    assert len(found) == metrics.NAMES + 1
