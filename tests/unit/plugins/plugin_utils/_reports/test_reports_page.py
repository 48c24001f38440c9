# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The page: one file that loads nothing, whatever names services and files have."""

import html.parser
import json
import re
import sys

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._text import Refusal
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._reports.page import RUNS, line_chart
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._reports.page import page as page_of
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._reports.results import Results

NAMESPACE = "http://www.w3.org/2000/svg"
# Text that would act as markup, a style or a script.
EVIL = "<img src=x onerror=alert(1)>'\"&</style></script></svg>]]>--><b>{{ 7 * 7 }}"
VOID = ("meta", "br")


def criterion(**changes):
    found = {"name": "throughput", "verdict": "met", "value": "fast", "evidence": "benchmark", "needed": ""}
    return {**found, "measured_at": "2026-11-26T10:00:00Z", **changes}


def reading(**changes):
    texts = ("service", "metric", "target", "meant", "evidence", "value")
    return dict(dict.fromkeys(texts, "x"), noted="critical", judged="not measured", measured_at=None, **changes)


def result(**changes):
    figures = {"tokens_per_second": 12.7, "first_token": 0.8, "measured_at": "2026-11-26T10:00:00Z", "model": "or1"}
    found = {"measured_at": "2026-11-26T10:00:00Z", "criteria": [criterion()], "readings": [reading()]}
    return dict(dict(found, format=1, kind="report", figures={"chat": figures}), **changes)


def benchmark(day, service="chat", rate=11.0, first=0.9, concurrency=1):
    figures = {"request_tokens_per_second": {"p50": rate}, "time_to_first_token": {"p50": first}}
    cells = [
        {"concurrency": 5, "depth": 0, "figures": {"request_tokens_per_second": {"p50": 99.9}}},
        {"concurrency": concurrency, "depth": 0, "figures": figures},
    ]
    found = {"format": 1, "kind": "benchmark", "service": service, "model": "or1", "quant": "Q8_0", "cells": cells}
    return json.dumps(dict(found, measured_at=day, fingerprint={"build": {"release": "b11434"}}))


def at(day):
    return "2026-10-%02dT08:00:00Z" % day


KEPT = {"a": benchmark(at(1)), "b": benchmark(at(2), "embed", None), "c": benchmark(at(3), "code", 30.0)}


def page(result, texts):
    return page_of(result, Results(texts))


class Markup(html.parser.HTMLParser):
    """The tags of a page, whether they close in order, its texts, and what it would load or run."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.loads, self.runs, self.texts = [], [], [], [], []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.loads += [value for name, value in attrs if name in ("src", "href", "xlink:href", "data", "action")]
        self.runs += [name for name, _value in attrs if name.startswith("on")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)


def test_it_loads_and_runs_nothing():
    text = page(result(), KEPT)
    assert set(re.findall(r"\w+://[^\s\"'<)]+", text)) == {NAMESPACE}
    seen = Markup(text)
    assert seen.loads == [] and seen.runs == []
    assert not {"script", "link", "img", "iframe", "object", "embed", "base", "form"} & set(seen.tags)
    assert seen.tags.count("style") == 1 and seen.tags.count("svg") == 2
    assert not re.search(r"url\(|@import|javascript:", text)


def test_whatever_comes_from_elsewhere_is_text():
    evil = result(
        criteria=[criterion(name=EVIL, value=EVIL, evidence=EVIL, needed=EVIL, verdict=EVIL, measured_at=EVIL)],
        readings=[{**reading(), "service": EVIL, "metric": EVIL, "value": EVIL, "meant": EVIL, "noted": EVIL}],
        figures={EVIL: {**result()["figures"]["chat"], "model": EVIL}},
    )
    seen = Markup(page(evil, {**KEPT, "e": benchmark(at(4), EVIL)}))
    assert not {"img", "b", "script"} & set(seen.tags) and seen.runs == []
    # As many tags of each kind as a harmless page with as many series has.
    tame = result(figures={"x": result()["figures"]["chat"]})
    assert sorted(seen.tags) == sorted(Markup(page(tame, {**KEPT, "e": benchmark(at(4), "x")})).tags)
    assert sum(EVIL in text for text in seen.texts) >= 5


def rows(text, title):
    """The cells of the table below a heading of runs."""
    table = text.partition("<h2>%s</h2>" % title)[2].partition("<table>")[2].partition("</table>")[0]
    return [re.findall(r"<td[^>]*>(.*?)</td>", row) for row in table.splitlines()[2:]]


def test_runs_stand_beside_each_other_the_newest_first():
    found = rows(page(result(), KEPT), "Tokens/s")
    assert [(row[0], row[1], row[2], row[3]) for row in found] == [
        ("2026-11-26T10:00:00Z", "chat", "12.7", "verify"),
        ("2026-10-03T08:00:00Z", "code", "30.0", "benchmark"),
        ("2026-10-01T08:00:00Z", "chat", "11.0", "benchmark"),
    ]
    assert found[1][4:] == ["or1 Q8_0", "b11434"]
    first = rows(page(result(), KEPT), "Time to first token")
    assert [row[2] for row in first] == ["0.800", "0.900", "0.900", "0.900"]


def test_figures_of_a_benchmark_count_once():
    later = result()["figures"]["chat"]
    taken = result(figures={"chat": {**later, "measured_at": at(1), "tokens_per_second": 11.0}})
    assert [row[3] for row in rows(page(taken, KEPT), "Tokens/s")] == ["benchmark", "benchmark"]


def test_earlier_reports_are_runs_too():
    earlier = result(measured_at=at(9), figures={"chat": {**result()["figures"]["chat"], "measured_at": at(9)}})
    found = rows(
        page(result(), {"verify/latest.json": json.dumps(earlier), "verify/x.json": json.dumps(earlier)}), "Tokens/s"
    )
    assert [row[0] for row in found] == ["2026-11-26T10:00:00Z", at(9)]


def test_of_many_runs_the_newest_are_shown():
    kept = {str(day): benchmark("2026-%02d-%02dT08:00:00Z" % (1 + day // 28, 1 + day % 28)) for day in range(60)}
    assert len(rows(page(result(), kept), "Tokens/s")) == RUNS


def test_nothing_measured_is_said_and_draws_nothing():
    text = page(result(figures={}), {})
    assert text.count("Not measured yet.") == 2 and "<svg" not in text


# Charts


def test_a_chart_has_what_it_is_of():
    svg = line_chart("Tokens <s>", ["10-01", "10-02"], {"a <b>": [1.0, None], "c": [2.0, 3.0]})
    assert svg.startswith('<svg role="img" aria-label="Tokens &lt;s&gt;" ')
    assert svg.count('class="dot ') == 3 and "a &lt;b&gt;" in svg and "10-02" in svg
    assert not re.search(r"<script|<style|<!--| id=", svg)


def test_missing_pygal_leaves_the_figures(monkeypatch):
    monkeypatch.setitem(sys.modules, "pygal", None)
    with pytest.raises(Refusal, match="^pygal: not there for this Ansible's Python, 3.1.3 is needed"):
        line_chart("x", ["1"], {"a": [1.0]})
    text = page(result(), KEPT)
    assert "<svg" not in text and text.count("pygal: not there") == 2
    assert len(rows(text, "Tokens/s")) == 3
