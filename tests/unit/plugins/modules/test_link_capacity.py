# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The step of each state."""

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._text import Refusal
from ansible_collections.thefermisea.llama_cluster.plugins.modules import link_capacity

WAY = {"address": "10.1.0.2", "port": 50098, "peer": "10.1.0.1"}
CAPACITY = {"gbit_per_second": 62.1, "retransmits": 12}


@pytest.fixture(name="run")
def fixture_run(run, monkeypatch):
    """stepped(**options) -> (exit code, result, steps)"""

    def stepped(**options):
        steps = []
        for name in ("serve", "measure", "end"):

            def step(*arguments, name=name):
                steps.append((name, *arguments))
                if options.get("port") == 9:
                    raise Refusal("iperf3: not found")
                return CAPACITY

            monkeypatch.setattr(link_capacity, name, step)
        return *run(**options), steps

    return stepped


@pytest.mark.parametrize(
    ("options", "step", "found"),
    [
        (dict(WAY, state="serving", seconds=30), ("serve", "10.1.0.2", 50098, "10.1.0.1", 30), {}),
        (dict(WAY, state="measured"), ("measure", "10.1.0.1", "10.1.0.2", 50098, 10, False), CAPACITY),
        (dict(WAY, state="measured", reverse=True), ("measure", "10.1.0.1", "10.1.0.2", 50098, 10, True), CAPACITY),
        ({"state": "absent"}, ("end",), {}),
    ],
)
def test_each_state_is_a_step(run, options, step, found):
    code, result, steps = run(**options)
    assert (code, steps, result["changed"]) == (0, [step], False)
    assert {name: value for name, value in result.items() if name in CAPACITY} == found


def test_check_mode_takes_no_step(run):
    code, _result, steps = run(_ansible_check_mode=True, state="measured", **WAY)
    assert (code, steps) == (0, [])


def test_a_refusal_is_the_message(run):
    code, result, _steps = run(state="serving", **dict(WAY, port=9))
    assert (code, result["msg"]) == (1, "link_capacity: iperf3: not found")


def test_missing_address_is_refused(run):
    code, result, steps = run(state="measured")
    assert (code, steps) == (1, []) and "address" in result["msg"]
