# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

import json

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._reports.logs import log_lines
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._reports.numbers import numbers_refused
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._reports.results import Results
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._reports.switch import switch_refused


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


@pytest.mark.parametrize(
    "name, values",
    [
        ("requests", ["x", "", "0", "-1", "1.5", "1e3", "\u0663", None, [3], True]),
        ("minutes", ["1h", "0", "0.0", "nan", "inf", ".5"]),
        ("first_token", ["2s", "-1"]),
        ("concurrency", ["1,x", "0", "1,,2", "1 2"]),
        ("depths", ["4k", ","]),
    ],
)
def test_value_that_is_no_number_is_refused(name, values):
    for value in values:
        (found,) = numbers_refused({name: value}, "tune")
        assert found.startswith(f"tune: {name} ") and found.endswith(f" needed: correct -e {name}=")


def test_sentence_has_value_and_need():
    assert numbers_refused({"requests": "x", "loss": "5", "depths": "4k"}, "benchmark") == [
        "benchmark: requests 'x' seen, a whole number of 1 or more is needed: correct -e requests=",
        "benchmark: depths '4k' seen, whole numbers of 0 or more with commas are needed: correct -e depths=",
    ]


@pytest.mark.parametrize(
    "given",
    [
        {"requests": "3", "max_tokens": 64, "minutes": "0.5", "first_token": "0", "loss": 5.5},
        {"concurrency": "1,4", "depths": 0},
        {},
    ],
)
def test_numbers_are_taken(given):
    assert numbers_refused(given, "tune") == []


def line(at, text="", unit="llama-head-chat.service", folded=0):
    return {"at": at, "unit": unit, "text": text, "folded": folded}


def test_hosts_are_merged_by_the_microsecond():
    said = {
        "node1": {"lines": [line(1795292605.766978, "one"), line(1795292605.766980, "three")], "more": False},
        "node22": {"lines": [line(1795292605.766979, "two", "llama-watchdog.service")], "more": True},
    }
    hostvars = {host: {"logs_said": log} for host, log in said.items()}
    assert log_lines(hostvars, ["node1", "gone", "node22"], ["node1", "node22"]) == [
        "times are UTC, by each host's own clock",
        "2026-11-21 20:23:25.766978  node1   llama-head-chat  one",
        "2026-11-21 20:23:25.766979  node22  llama-watchdog   two",
        "2026-11-21 20:23:25.766980  node1   llama-head-chat  three",
        "node22: older lines are left out, the newest are shown: -e lines=NUMBER shows more",
        "gone: could not be asked, its lines are missing",
    ]


def test_what_was_counted_is_explained():
    lines = [line(0.5, folded=1), line(1, folded=37), line(2, "x\x1b[2J")]
    shown = log_lines({"n": {"logs_said": {"lines": lines, "more": False}}}, ["n"], ["n"])
    assert [one.rpartition("  ")[2] for one in shown[1:4]] == ["(1 line)", "(37 lines)", "x?[2J"]
    assert shown[4:] == ["(NUMBER lines): what servers write while all is well, -e all=true shows it"]


def test_empty_log_and_missing_host_are_named():
    hostvars = {"n": {"logs_said": {"lines": [], "more": False}}}
    assert log_lines(hostvars, ["n"], ["n"])[1:] == ["no managed unit logged anything in this time"]
    assert log_lines({}, ["n"], [])[1:] == ["n: could not be asked, its lines are missing"]


SERVICES = {
    "chat": {"model": "m", "quant": "F16", "primary": True},
    "fast": {"models": {"m": "F16"}},
    "off": {"model": "m", "quant": "F16", "state": "stopped"},
    "embed": {"model": "m", "quant": "F16"},
}
UNITS = {node: ["llama-head-embed.service"] for node in ("node1", "node2")}
UNITS["node1"] = [*UNITS["node1"], "llama-head.service"]
MODELS = {"m": {"quants": {"F16": {}, "Q8_0": {}}}}


@pytest.mark.parametrize(
    ("given", "refused"),
    [
        ({}, "no service given, one of chat, fast, off, embed is needed: add -e service=NAME"),
        ({"service": "chta"}, "service chta seen, one of chat, fast, off, embed is needed, did you mean chat?"),
        ({"service": "fast"}, "service fast seen, which is a router"),
        ({"service": "off"}, "llama_services.off.state stopped seen"),
        ({"service": "chat"}, "no quant given, one of F16, Q8_0 of m is needed: add -e quant=QUANT"),
        ({"service": "chat", "quant": "Q8"}, "quant Q8 seen, one of F16, Q8_0 of m is needed, did you mean Q8_0?"),
        ({"service": "chat", "quant": "Q8_0", "retire": "now"}, "retire now seen"),
        ({"service": "chat", "quant": "Q8_0", "trial": "12"}, "trial 12 seen, a whole number"),
        ({"service": "chat", "quant": "F16", "trial": "12h"}, "quant F16 seen, as llama_services.chat.quant has it"),
        ({"service": "chat", "quant": "Q8_0", "trial": "12h", "retire": "after"}, "trial 12h seen with retire"),
        ({"service": "chat", "quant": "Q8_0", "trial": "12h", "park": "node2"}, "trial 12h seen with park"),
        ({"service": "embed", "quant": "Q8_0", "park": "node2"}, "park node2 seen, and embed has replicas on node1,"),
        ({"service": "chat", "quant": "Q8_0", "park": "node2", "retire": "first"}, ""),
        ({"service": "chat", "quant": "Q8_0", "trial": "90m"}, ""),
    ],
)
def test_first_reason_against_a_switch(given, refused):
    found = switch_refused(SERVICES, MODELS, given, UNITS)
    assert found.startswith("switch_model: " + refused) if refused else found == ""
