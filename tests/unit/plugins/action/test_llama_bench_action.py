"""One call of the module and one line of progress for each cell."""

from unittest import mock

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.action import llama_bench
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils import _progress

PROMPTS = [{"name": "short", "text": "a"}, {"name": "long", "text": "b"}]


@pytest.fixture(name="measure")
def fixture_measure(monkeypatch):
    """measure(answer, **arguments) -> (result, lines, arguments of the module)"""
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
    one = {"prompt": asked["prompts"][0]["name"], "depth": asked["depths"][0], "concurrency": asked["concurrency"][0]}
    return {"cells": [dict(one, others=0, figures=figures)]}


def test_every_cell_is_one_call(measure):
    result, lines, asked = measure(cell, depths=[0, 4096], concurrency=[1, 4], warmup=2)
    assert len(result["cells"]) == 8 and (result["changed"], result["disturbed"]) == (False, False)
    assert [one["warmup"] for one in asked] == [2] + [0] * 7
    assert lines[1].startswith("node1: measuring http://h:1 cell 2 of 8, short at 0 tokens, 4 at a time: 12.3 tokens/s")


def test_failed_requests_are_counted(measure):
    _result, lines, _asked = measure(lambda one: cell(one, tokens_per_second=None, errors=5))
    assert "short at 0 tokens, 1 at a time: no answer, 5 of 5 requests failed" in lines[0]


def test_refusal_ends_the_run(measure):
    refusal = {"failed": True, "msg": "llama_bench: http://h:1: no"}
    result, lines, asked = measure(lambda one: refusal if one["prompts"][0]["name"] == "long" else cell(one))
    assert (result["failed"], result["msg"], len(asked)) == (True, "llama_bench: http://h:1: no", 2)


def test_tokens_of_others_disturb(measure):
    def answer(asked):
        found = cell(asked)
        found["cells"][0]["others"] = 7
        return found

    assert measure(answer)[0]["disturbed"]
