# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Services with n_gpu_layers, together with all others of the inventory."""

import json

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._intent import services as intent_services
from ansible_collections.thefermisea.llama_cluster.tests.unit.mixture import (
    DENSE,
    GROUPS,
    MODELS,
    SERVICE,
    planned,
)

HOSTVARS = {"node1": {"ansible_host": "10.0.0.1"}}
BLOCKS = DENSE.block_count


def big(cards=(32510,), **keys):
    return planned(cards=cards, model="big", **keys)


def rows(plan, name="chat"):
    return {row["device"]: row for row in plan["services"][name][0]["devices"]}


def command_line(plan, **keys):
    services = {"chat": dict(SERVICE, model="big", **keys)}
    (head,) = intent_services.head_instances(
        services, MODELS, "node1", GROUPS, HOSTVARS, "/opt/models", json.loads(json.dumps(plan))
    )
    return head.args


def test_plan_and_command_line_say_the_same():
    plan = big(n_gpu_layers=20)
    found = rows(plan)
    assert plan["refused"] == [] and found["GPU0"]["layers"] == 19 and found["main"]["layers"] == BLOCKS - 19
    args = command_line(plan, n_gpu_layers=20)
    assert args[args.index("--n-gpu-layers") + 1] == "20" and "--tensor-split" not in args
    two = big(cards=(8000, 8000), n_gpu_layers=20)
    args = command_line(two, n_gpu_layers=20)
    assert sum(map(int, args[args.index("--tensor-split") + 1].split(","))) == 20


@pytest.mark.parametrize("keys", [{}, {"n_gpu_layers": "auto"}])
def test_auto_is_all_of_them(keys):
    plan = big(**keys)
    assert list(rows(plan)) == ["GPU0"] and rows(plan)["GPU0"]["layers"] == BLOCKS
    args = command_line(plan, **keys)
    assert args[args.index("--n-gpu-layers") + 1] == "999"
    assert rows(big(n_gpu_layers=BLOCKS + 1)) == rows(plan)


def test_layers_in_main_memory_are_claimed():
    services = {
        "chat": dict(SERVICE, model="big", n_gpu_layers=20),
        "other": dict(SERVICE, model="big", port=8001, cards=[]),
    }
    plan = planned(services=services)
    assert rows(plan, "other")["main"]["free_mib"] == 257000 - rows(plan)["main"]["total_mib"]
    assert plan["sharing"] == ["other shares main memory with chat, all of them fit"]


def test_the_most_layers_that_fit_are_advised():
    (sentence,) = big(cards=(8000,), n_gpu_layers=60)["refused"]
    number = int(sentence.split("lower n_gpu_layers to ")[1].split(",")[0])
    assert big(cards=(8000,), n_gpu_layers=number)["refused"] == []
    assert big(cards=(8000,), n_gpu_layers=number + 1)["refused"] != []


def test_memory_max_must_hold_layers():
    row = rows(big(n_gpu_layers=20))["main"]
    needed = row["total_mib"] - row["margin_mib"]
    assert big(n_gpu_layers=20, memory_max="%dM" % needed)["refused"] == []
    (sentence,) = big(n_gpu_layers=20, memory_max="%dM" % (needed - 1))["refused"]
    assert sentence.startswith("llama_services.chat.memory_max: ")
