"""One call of the module for each cell, with a line of progress."""

from unittest import mock

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.action import llama_bench
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils import _progress

PROMPTS = [{"name": "short", "text": "a"}, {"name": "long", "text": "b"}]


@pytest.fixture(name="measure")
def fixture_measure(monkeypatch):
    """measure(answer, **arguments) -> (result, lines, what the module was asked)"""
    lines, asked = [], []
    monkeypatch.setattr(_progress.display, "display", lambda line, **_options: lines.append(line))

    def run(answer, **arguments):
        task = mock.MagicMock(args=dict({"url": "http://h:1", "prompts": PROMPTS}, **arguments), async_val=0)
        action = llama_bench.ActionModule(task, mock.MagicMock(), mock.MagicMock(), None, None, None)

        def module(module_args, **_options):
            asked.append(module_args)
            return answer(module_args)

        monkeypatch.setattr(action, "_execute_module", module)
        return action.run(task_vars={"inventory_hostname": "node1"}), lines, asked

    return run


def cell(asked, **figures):
    figures = dict({"tokens_per_second": 12.34, "errors": 0, "requests": 5}, **figures)
    many = None if asked.get("rate") else asked["concurrency"][0]
    one = {"prompt": asked["prompts"][0]["name"], "depth": asked["depths"][0], "concurrency": many, "others": 0}
    return {"cells": [dict(one, rate=asked.get("rate"), figures=figures)]}


def test_every_cell_is_one_call(measure):
    result, lines, asked = measure(cell, depths=[0, 4096], concurrency=[1, 4], warmup=2)
    assert len(result["cells"]) == 8 and (result["changed"], result["disturbed"]) == (False, False)
    assert [one["warmup"] for one in asked] == [2] + [0] * 7
    assert lines[1].startswith("node1: measuring http://h:1 cell 2 of 8, short at 0 tokens, 4 at a time: 12.3 tokens/s")


def test_a_rate_has_no_concurrency(measure):
    result, lines, asked = measure(
        lambda one: cell(one, tokens_per_second=None, errors=5), rate=0.5, concurrency=[1, 4]
    )
    assert len(result["cells"]) == len(asked) == 2
    assert lines[0].endswith("short at 0 tokens, 0.5 a second: no answer, 5 of 5 requests failed")


def test_a_refusal_ends_it(measure):
    refusal = {"failed": True, "msg": "llama_bench: http://h:1: no"}
    result, lines, asked = measure(lambda one: refusal if one["prompts"][0]["name"] == "long" else cell(one))
    assert (result["failed"], result["msg"], len(asked)) == (True, "llama_bench: http://h:1: no", 2)


def test_others_disturb_it(measure):
    def answer(asked):
        found = cell(asked)
        found["cells"][0]["others"] = 7
        return found

    assert measure(answer)[0]["disturbed"]
