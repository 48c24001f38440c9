# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

import json

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._reports.results import Results


def kept(day, kind="benchmark", **fields):
    return json.dumps({"format": 1, "kind": kind, "measured_at": "2026-11-%02dT08:00:00Z" % day, **fields})


def days(results):
    return [int(one["measured_at"][8:10]) for one in results]


def test_newest_result_is_by_its_time():
    results = Results({"a": kept(20, service="chat"), "b": kept(3, service="chat"), "c": kept(21, service="other")})
    assert days(results.history("benchmark", "chat")) == [3, 20]
    assert days([results.latest("benchmark", "chat")]) == [20]
    assert days(results.history("benchmark")) == [3, 20, 21]


def test_what_is_kept_twice_counts_once():
    results = Results(
        {"latest-chat.json": kept(3, service="chat"), "20261103T080000Z-chat.json": kept(3, service="chat")}
    )
    assert days(results.history("benchmark")) == [3]


def test_a_replica_has_results_of_its_own():
    results = Results(
        {"a": kept(3, service="chat", label="chat.node1"), "b": kept(4, service="chat", label="chat.node2")}
    )
    assert days([results.latest("benchmark", "chat.node1")]) == [3]
    assert results.latest("benchmark", "chat") is None


@pytest.mark.parametrize(
    "text",
    [
        *("", "[1", "[1]", "null", "[" * 100000),
        kept(3, kind="verify", measured_at="yesterday"),
        kept(3, kind="verify", measured_at=None),
    ],
)
def test_unreadable_results_are_named(text):
    results = Results({"reports/x.json": text, "a": kept(3)})
    assert results.unreadable == ["reports/x.json"] and days(results.history("benchmark")) == [3]


@pytest.mark.parametrize(
    "text",
    [
        # An older version, another program's file, and a later format.
        json.dumps({"service": "chat", "state": "ready"}),
        kept(3, kind="coverage"),
        kept(3, format=2),
    ],
)
def test_other_files_are_left_out(text):
    results = Results({"a": text})
    assert results.history("benchmark") == []
