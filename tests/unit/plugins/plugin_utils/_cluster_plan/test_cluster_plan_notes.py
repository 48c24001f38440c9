# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lines on full prompts below the tables of a plan."""

import base64
import json

from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._plan.full_prompt import NOT_KNOWN, record
from ansible_collections.thefermisea.llama_cluster.tests.unit.mixture import (
    SERVICE,
    planned,
)
from ansible_collections.thefermisea.llama_cluster.tests.unit.three_nodes import kept

SERVICES = {
    "chat": dict(SERVICE, model="big", cards=[]),
    "code": dict(SERVICE, model="big", port=8001, cards=[]),
    "embed": dict(SERVICE, model="big", port=8002, cards=[], embeddings=True),
}


def read(plan):
    """The kept plan and measurement of `chat`."""
    inputs = plan["services"]["chat"][0]["inputs"]
    found = record({"tokens": 3686, "seconds": 36.86, "measured_at": "2026-11-24T05:00:00Z"}, inputs)
    (one,) = [one for one in kept(plan) if one["item"] == "chat"]
    return [dict(one, prompt=base64.b64encode(json.dumps(found).encode()).decode())]


def test_of_whom_nothing_is_known_is_one_line():
    assert "chat, code: " + NOT_KNOWN in planned(services=SERVICES)["lines"]


def test_what_is_known_has_line_of_its_own():
    first = planned(services=SERVICES)
    assert planned(services=SERVICES, previous=read(first))["unchanged"] == ["chat"]
    said = "chat: a full prompt of 4096 tokens takes about 40 s at 100.0 tokens/s (measured 2026-11-24)"
    # Planned as before: that is one line.
    assert said not in planned(services=SERVICES, previous=read(first))["lines"]
    (other,) = read(first)
    plan = json.loads(base64.b64decode(other["content"]))
    plan[0]["source"] = "catalog"
    changed = dict(other, content=base64.b64encode(json.dumps(plan).encode()).decode())
    lines = planned(services=SERVICES, previous=[changed])["lines"]
    assert said in lines and "code: " + NOT_KNOWN in lines


def test_measurement_with_other_settings_is_ignored():
    first = planned(services=SERVICES)
    services = dict(SERVICES, chat=dict(SERVICES["chat"], slot_ctx_size=8192))
    assert "chat, code: " + NOT_KNOWN in planned(services=services, previous=read(first))["lines"]
