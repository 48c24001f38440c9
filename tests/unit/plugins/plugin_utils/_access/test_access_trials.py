# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Refusals because of trials, and the services as trials change them."""

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._access.node import node_refusals
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._access.trials import (
    services_on_trial,
    trial_refusals,
)

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
def test_trial_may_continue_or_be_undone(switch, goes):
    assert trial_refusals([RUNS], "node1", switch=switch) == ([] if goes else [IN_THE_WAY])


def test_quant_that_was_not_kept_is_refused():
    assert trial_refusals([ENDED], "node1", [HEAD]) == [
        "llama_services.chat.quant: Q8_0 seen, whose trial on node1 ended at 2026-11-24 08:00 UTC and was not kept, "
        "Q4_K_M is needed: set it so, or switch for good with switch_model.yml -e service=chat -e quant=Q8_0"
    ]
    assert trial_refusals([ENDED], "node1", [dict(HEAD, quant="Q4_K_M"), dict(HEAD, service="other")]) == []
    assert trial_refusals([dict(ENDED, state="failed")], "node1", [HEAD]) == []


def test_preflight_and_maintenance_ask():
    node = {"machine": {"addresses": []}, "units": [], "listeners": "", "managed_processes": {}, "trials": [RUNS]}
    services = {"address": "", "heads": [], "workers": [], "ending": [], "changes": [], "places": {}, "leaving": []}
    assert node_refusals({"llama_node": node}, "node1", services=services) == [IN_THE_WAY]
    assert node_refusals({"llama_node": node}, "node1", trials={}) == [IN_THE_WAY]
    # verify.yml changes nothing, and proves what is on trial too.
    assert node_refusals({"llama_node": node}, "node1", services=dict(services, ends_trials=False)) == []
    assert node_refusals({"llama_node": dict(node, trials=[])}, "node1", services=services, trials={}) == []


SERVICES = {"chat": {"model": "m", "quant": "Q4_K_M", "port": 8000}, "router": {"models": [{"model": "m"}]}}
MODELS = {"m": {"quants": {"Q4_K_M": {}, "Q8_0": {}}}}
NOW = "2026-11-23T20:00:00Z"


def nodes(**trials):
    return {name: {"heads": ["chat"], "trials": said} for name, said in trials.items()}


def test_services_have_the_quant_on_trial():
    found = services_on_trial(SERVICES, MODELS, nodes(node1=[RUNS]), NOW)
    assert found == {
        "services": dict(SERVICES, chat={"model": "m", "quant": "Q8_0", "port": 8000}),
        "lines": [
            "chat: on trial with Q8_0 until 2026-11-24 08:00 UTC, planned and judged by that, the inventory says Q4_K_M"
        ],
        "refused": [],
    }
    assert SERVICES["chat"]["quant"] == "Q4_K_M"


@pytest.mark.parametrize(
    "given",
    [
        nodes(node1=[]),
        nodes(node1=[ENDED]),
        # Without its head.
        {"node1": {"heads": ["chat"], "trials": []}, "node2": {"heads": [], "trials": [RUNS]}},
        {"node1": {"heads": ["router"], "trials": [dict(RUNS, service="router")]}},
        # Not in the inventory.
        {"node1": {"heads": [], "trials": [dict(RUNS, service="gone")]}},
    ],
)
def test_other_trials_change_nothing(given):
    assert services_on_trial(SERVICES, MODELS, given, NOW) == {"services": SERVICES, "lines": [], "refused": []}


def test_replicas_have_to_agree():
    found = services_on_trial(SERVICES, MODELS, nodes(node1=[RUNS], node2=[ENDED]), NOW)
    assert (found["services"], found["lines"]) == (SERVICES, [])
    assert found["refused"] == [
        "llama_services.chat: Q8_0 on node1, Q4_K_M on node2 seen, some of it on trial, one quant on all of its heads "
        "is needed: keep that with switch_model.yml -e service=chat -e keep=true, or go back with switch_model.yml -e "
        "service=chat -e quant=Q4_K_M"
    ]
    assert services_on_trial(SERVICES, MODELS, nodes(node1=[RUNS], node2=[RUNS]), NOW)["refused"] == []


def test_quant_on_trial_needs_a_source():
    found = services_on_trial(SERVICES, {"m": {"quants": {"Q4_K_M": {}}}}, nodes(node1=[RUNS]), NOW)
    assert found["services"] == SERVICES
    assert found["refused"] == [
        "llama_models.m.quants: Q8_0 missing, which chat has on trial until 2026-11-24 08:00 UTC, its source is needed "
        "to plan it: add it again, or go back with switch_model.yml -e service=chat -e quant=Q4_K_M"
    ]


@pytest.mark.parametrize(("now", "late"), [("2026-11-24T08:00:12Z", False), ("2026-11-24T08:00:13Z", True)])
def test_overdue_trial_is_reported(now, late):
    (line,) = services_on_trial(SERVICES, MODELS, nodes(node1=[RUNS]), now)["lines"]
    assert (", which is over: see journalctl -t llama-trial on node1, " in line) is late
