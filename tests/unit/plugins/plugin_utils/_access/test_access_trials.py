# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a service on trial stands in the way of."""

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._access.node import node_refusals
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._access.trials import trial_refusals

RUNS = {"service": "chat", "quant": "Q8_0", "was": "Q4_K_M", "until": "2026-11-24T08:00:12Z"}
RUNS.update(state="running", at="", reason="")
ENDED = dict(RUNS, state="reverted", at="2026-11-24T08:00:13Z")
HEAD = {"service": "chat", "quant": "Q8_0"}
IN_THE_WAY = (
    "llama_services.chat: on trial with Q8_0 on node1 until 2026-11-24 08:00 UTC seen, none on trial is needed for "
    "this run: keep that with switch_model.yml -e service=chat -e keep=true, or go back with switch_model.yml -e "
    "service=chat -e quant=Q4_K_M"
)


@pytest.mark.parametrize(
    ("switch", "goes"),
    [
        (None, False),
        ({}, False),
        # Once more, for good, back, on trial back, another one, another service.
        ({"service": "chat", "quant": "Q8_0", "trial": "12h"}, True),
        ({"service": "chat", "quant": "Q8_0", "trial": ""}, False),
        ({"service": "chat", "quant": "Q4_K_M", "trial": ""}, True),
        ({"service": "chat", "quant": "Q4_K_M", "trial": "12h"}, False),
        ({"service": "chat", "quant": "Q6_K", "trial": ""}, False),
        ({"service": "other", "quant": "Q8_0", "trial": "12h"}, False),
    ],
)
def test_a_trial_may_go_on_or_back_and_nothing_else_may_begin(switch, goes):
    assert trial_refusals([RUNS], "node1", switch=switch) == ([] if goes else [IN_THE_WAY])


def test_what_was_not_kept_does_not_come_back_by_itself():
    assert trial_refusals([ENDED], "node1", [HEAD]) == [
        "llama_services.chat.quant: Q8_0 seen, whose trial on node1 ended at 2026-11-24 08:00 UTC and was not kept, "
        "Q4_K_M is needed: set it so, or switch for good with switch_model.yml -e service=chat -e quant=Q8_0"
    ]
    assert trial_refusals([ENDED], "node1", [dict(HEAD, quant="Q4_K_M"), dict(HEAD, service="other")]) == []
    assert trial_refusals([dict(ENDED, state="failed")], "node1", [HEAD]) == []


def test_preflight_and_maintenance_ask():
    node = {"machine": {"addresses": []}, "units": [], "listeners": "", "service_pids": [], "trials": [RUNS]}
    services = {"address": "", "heads": [], "workers": [], "ending": [], "leaving": []}
    assert node_refusals({"llama_node": node}, "node1", services=services) == [IN_THE_WAY]
    assert node_refusals({"llama_node": node}, "node1", trials={}) == [IN_THE_WAY]
    # verify.yml changes nothing, and proves what is on trial too.
    assert node_refusals({"llama_node": node}, "node1", services=dict(services, ends_trials=False)) == []
    assert node_refusals({"llama_node": dict(node, trials=[])}, "node1", services=services, trials={}) == []
