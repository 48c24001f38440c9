"""The parts of a long prompt, with the answers of the module given."""

from unittest import mock

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.action import llama_long_prompt
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils import _progress


@pytest.fixture
def fill(monkeypatch):
    """fill(answers, timeout) -> (result, lines, what the module was asked); each part takes ten seconds."""
    clock, lines, asked = [0.0], [], []
    monkeypatch.setattr(llama_long_prompt.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(_progress.display, "display", lambda line, **_options: lines.append(line))

    def run(answer, timeout=3600):
        task = mock.MagicMock(
            args={"url": "http://127.0.0.1:1", "unit": "llama-head-chat.service", "timeout": timeout}, async_val=0
        )
        action = llama_long_prompt.ActionModule(task, mock.MagicMock(), mock.MagicMock(), None, None, None)

        def module(module_args, **_options):
            asked.append(module_args)
            clock[0] += 10
            return answer(module_args["part"])

        monkeypatch.setattr(action, "_execute_module", module)
        return action.run(task_vars={"inventory_hostname": "node1"}), lines, asked

    return run


def part(number):
    return {"state": "ready", "reason": "", "tokens": 368 * number, "whole": 3680, "slot": 4096, "seconds": 9.5}


def test_ten_parts_with_a_line_each(fill):
    result, lines, asked = fill(part)
    assert (result["tokens"], result["slot"], result["seconds"], result["changed"]) == (3680, 4096, 95.0, False)
    assert result["said"] == "3680 of the 4096 tokens of a slot read in 1 min 35 s"
    assert lines[0] == "node1: llama-head-chat.service has read 368 of 3680 tokens"
    assert lines[4] == "node1: llama-head-chat.service has read 1840 of 3680 tokens, 50 s left"
    assert [one["part"] for one in asked] == list(range(1, 11)) and asked[3]["timeout"] == 3570


def test_time_that_is_over_is_said(fill):
    result, _lines, asked = fill(part, timeout=25)
    assert len(asked) == 3
    assert result["said"] == "1104 of the 4096 tokens of a slot read in 28 s, then given up: its 25 s are over"


def test_others_come_first(fill):
    busy = dict(part(0), state="busy", reason="1 of 1 slots work")
    result, _lines, _asked = fill(lambda number: part(number) if number < 3 else busy)
    assert result["said"] == "736 of the 4096 tokens of a slot read in 19 s, then given up: 1 of 1 slots work"
    result, _lines, _asked = fill(lambda number: busy)
    assert result["said"] == "not read, then given up: 1 of 1 slots work"


def test_what_fails_ends_it(fill):
    result, _lines, asked = fill(lambda number: {"failed": True, "msg": "http://127.0.0.1:1: a prompt of 368 tokens"})
    assert result["failed"] and len(asked) == 1
