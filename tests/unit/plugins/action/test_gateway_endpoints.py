# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The wait for a gateway, with given results of the module."""

from unittest import mock

import pytest
from ansible.errors import AnsibleConnectionFailure
from ansible_collections.thefermisea.llama_cluster.plugins.action import gateway_endpoints
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils import _progress

BUSY = {"changed": False, "waiting": ["embed on node1 has 2 running"], "reason": "", "endpoints": []}
DONE = {"changed": False, "waiting": [], "reason": "", "endpoints": []}
WROTE = dict(BUSY, changed=True, diff={"before": "", "after": "x"})


@pytest.fixture
def drain(monkeypatch):
    """drain(answers, timeout) -> (result, lines, the timeouts that the module was given)."""
    clock, lines, timeouts = [0.0], [], []
    monkeypatch.setattr(gateway_endpoints.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(_progress.display, "display", lambda line, **_options: lines.append(line))

    def run(answers, timeout=60):
        task = mock.MagicMock(args={"state": "draining", "timeout": timeout}, async_val=0, delegate_to="gw")
        action = gateway_endpoints.ActionModule(task, mock.MagicMock(), mock.MagicMock(), None, None, None)
        left = list(answers)

        def module(module_args, task_vars):
            timeouts.append(module_args["timeout"])
            answer = left.pop(0) if len(left) > 1 else left[0]
            if isinstance(answer, Exception):
                raise answer
            clock[0] += module_args["timeout"] if answer.get("waiting") else 0
            return dict(answer)

        monkeypatch.setattr(action, "_execute_module", module)
        return action.run(task_vars={"inventory_hostname": "node1"}), lines, timeouts

    return run


def test_running_requests_are_shown_every_ten_seconds(drain):
    result, lines, timeouts = drain([WROTE, BUSY, DONE])
    assert lines == [
        "gw: gateway: embed on node1 has 2 running, waiting 50 s more",
        "gw: gateway: embed on node1 has 2 running, waiting 40 s more",
    ]
    assert timeouts == [10, 10, 10]
    # Only the first call has written the file.
    assert (result["changed"], result["diff"], result["seconds"], result["waiting"]) == (True, WROTE["diff"], 20.0, [])


def test_wait_ends_with_its_timeout(drain):
    result, lines, timeouts = drain([BUSY], timeout=15)
    assert timeouts == [10, 5] and result["waiting"] and "failed" not in result
    assert lines[-1] == "gw: gateway: embed on node1 has 2 running, 15 s is over: go on nevertheless"


def test_no_wait_shows_no_line(drain):
    result, lines, timeouts = drain([WROTE], timeout=0)
    assert (lines, timeouts, result["changed"]) == ([], [0], True)


def test_stopped_engine_holds_nothing_up(drain):
    result, lines, _timeouts = drain([dict(DONE, changed=True, reason="[Errno 2] No such file or directory")])
    assert result["changed"] and "failed" not in result
    assert lines == ["gw: gateway: its engine does not answer ([Errno 2] No such file or directory): go on without it"]


def test_unreachable_gateway_holds_nothing_up(drain):
    result, lines, _timeouts = drain([AnsibleConnectionFailure("No route to host")])
    assert not result["changed"] and "failed" not in result and "unreachable" not in result
    assert lines == ["gw: gateway: not reached (No route to host): go on without it"]


def test_unwritable_file_fails(drain):
    result, _lines, _timeouts = drain([{"failed": True, "msg": "no space"}])
    assert (result["failed"], result["msg"]) == (True, "no space")
