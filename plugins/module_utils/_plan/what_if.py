# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The plan of one model for devices that need not exist. Private to the collection."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .._model.memory import Shape
from .context import allowed_context, way_out
from .devices import Device, main_memory, of_cards
from .place import Case, ServicePlan, cache_words, context, settings_for, slot_context
from .suggest import fewest_experts, nearest
from .table import idle_workers, join, table


def what_if(shape: Shape, given: dict[str, Any]) -> dict[str, Any]:
    """given: the options of llama_plan. -> its result with devices."""
    tokens = given["slot_ctx_size"] * (given["parallel"] or 1)
    asked = {key: value for key, value in given.items() if key != "slot_ctx_size"}
    asked.update(ctx_size=tokens, cache_type_k=given["cache"], cache_type_v=given["cache"])
    settings = settings_for(asked, given["build"])
    described = [dict(device, node=device["node"] or device["name"]) for device in given["devices"]]
    every = of_cards(described, given["margin_mib"])
    with_cards = {device.node for device in every if device.kind == "GPU"}
    mains = [one for one in described if one.get("main") and one["node"] in with_cards]
    memory = [main_memory(one["node"], one, given["margin_mib"]) for one in mains]
    head = every[-1].node
    own = [device for device in every if device.node == head]
    # As in an inventory: llama.cpp computes on a head's main memory only where there is nothing else.
    local = 0 if len(own) < len(every) and own[0].kind == "main" else len(own)
    case = Case(shape, settings, every[: len(every) - len(own) + local], local)
    planned = case.plan(given["force_split"])
    experts = None if planned.fits else fewest_experts(case, every, memory)
    if experts:
        case, planned = experts
        every = case.devices
    tokens = slot_context(shape, settings)
    described_plan = ServicePlan(
        planned,
        service="plan",
        model=shape.name or shape.architecture,
        quant=shape.architecture if shape.name else "",
        source="header",
        problem=_nodes(every),
        ctx_size=context(shape, settings),
        slot_ctx_size=tokens,
        cache_type=cache_words(settings),
        layers={},
        inputs=[],
    )
    advice: list[str] = []
    refused: list[str] = []
    allowed = allowed_context({}, shape, settings.build)
    if allowed and tokens > allowed:
        advice.append(
            "lower slot_ctx_size to %d, where llama-server caps each slot, or %s"
            % (allowed, way_out(shape, tokens, settings.build))
        )
    # A row with experts has no layers either.
    idle = sorted(
        {row.node for row in planned.devices if row.kind == "main" and not row.layers and not planned.cpu_moe}
    )
    if not planned.fits:
        last = case.devices[-1].node
        turned = sorted(every, key=lambda device: device.node == last)
        count = [device.node for device in turned].count(last)
        if not case.local and case._replace(devices=turned, local=count).plan().fits:
            advice.append(f"give {last} last, without a GPU the head {head} holds no layers beside workers")
        advice.extend(nearest(case) or ["choose a smaller model, or more devices"])
        size = "1 device" if len(case.devices) == 1 else "%d devices" % len(case.devices)
        refused.append(f"it does not fit {size}: {', or '.join(advice)}")
    elif idle:
        refused.append(idle_workers("nodes", described_plan, idle))
    facts = planned.as_dict()
    keys = ("fits", "topology", "reason", "devices", "host", "tensor_split")
    lines = table(described_plan) + [f"  {words}" for words in (advice if planned.fits else [])]
    return dict({key: facts[key] for key in keys}, advice=advice, refused=refused, lines=lines)


def _nodes(devices: Sequence[Device]) -> str:
    """Words for the nodes and which of them is the head."""
    names = list(dict.fromkeys(device.node for device in devices))
    sizes = {name: " + ".join(str(device.total_mib) for device in devices if device.node == name) for name in names}
    words = [f"{name} ({sizes[name]} MiB)" for name in names]
    return f"head {words[-1]}" + (
        f", worker{'s' if len(words) > 2 else ''} {join(words[:-1])}" if len(words) > 1 else ""
    )
