"""The wait for a head's requests, with given results of llama_health."""

from unittest import mock

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.action import llama_drain
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils import _progress

BUSY = {"state": "busy", "reason": "1 of 1 slots work"}
IDLE = {"state": "ready", "reason": "it is idle"}


@pytest.fixture
def drain(monkeypatch):
    """drain(answers, timeout, check) -> (result, lines); time passes only while it sleeps."""
    clock, lines = [0.0], []
    monkeypatch.setattr(llama_drain.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(llama_drain.time, "sleep", lambda seconds: clock.__setitem__(0, clock[0] + seconds))
    monkeypatch.setattr(_progress.display, "display", lambda line, **_options: lines.append(line))

    def run(answers, timeout=60, check=False):
        task = mock.MagicMock(
            args={"url": "http://127.0.0.1:1", "unit": "llama-head-chat.service", "timeout": timeout},
            check_mode=check,
            async_val=0,
        )
        action = llama_drain.ActionModule(task, mock.MagicMock(), mock.MagicMock(), None, None, None)
        left = iter(answers)
        last = []

        def health(**_options):
            last[:] = [next(left, last[0] if last else None)]
            return last[0]

        monkeypatch.setattr(action, "_execute_module", health)
        return action.run(task_vars={"inventory_hostname": "node1"}), lines

    return run


def test_idle_head_is_drained_at_once(drain):
    result, lines = drain([IDLE])
    assert (result["drained"], result["seconds"], result["changed"], lines) == (True, 0.0, False, [])


def test_wait_is_shown_every_ten_seconds(drain):
    result, lines = drain([BUSY] * 8 + [IDLE])
    assert result["drained"] and result["seconds"] == 16.0
    assert lines == [
        "node1: llama-head-chat.service 1 of 1 slots work, waiting 1 min 00 s more",
        "node1: llama-head-chat.service 1 of 1 slots work, waiting 50 s more",
    ]


def test_drain_ends_with_its_timeout(drain):
    result, lines = drain([BUSY], timeout=5)
    assert not result["drained"] and result["seconds"] == 5.0 and "failed" not in result
    assert lines[0] == "node1: llama-head-chat.service 1 of 1 slots work, waiting 5 s more"
    assert lines[-1] == "node1: llama-head-chat.service 1 of 1 slots work, 5 s is over: stopped nevertheless"


def test_check_mode_does_not_wait(drain):
    result, lines = drain([BUSY], check=True)
    assert (result["drained"], result["seconds"], lines) == (False, 0.0, [])


def test_failed_probe_fails(drain):
    result, _lines = drain(
        [{"failed": True, "msg": "llama_health: unit llama-head-chat.service does not exist on this node"}]
    )
    assert result["failed"] and result["msg"].startswith("llama_health: unit")
