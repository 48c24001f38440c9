# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The plan of one model for devices that need not exist. Private to the collection."""

from typing import Any

from .._model.memory import Shape
from .advice import nearest
from .context import allowed_context, way_out
from .devices import Device
from .entry import entry
from .place import ServicePlan, cache_words, context, plan, settings_for, slot_context
from .table import idle_workers, join, table
from .ways import split_cards, ways


def what_if(shape: Shape, given: dict[str, Any]) -> dict[str, Any]:
    """given: the options of llama_plan. -> its result with devices."""
    slots = given["parallel"] or 1
    asked = dict(
        given,
        ctx_size=given["slot_ctx_size"] * slots,
        cache_type_k=given["cache"],
        cache_type_v=given["cache"],
    )
    del asked["slot_ctx_size"]
    settings = settings_for(asked, given["build"])
    every, memory = split_cards(
        [dict(device, node=device["node"] or device["name"]) for device in given["devices"]], given["margin_mib"]
    )
    head = every[-1].node
    own = [device for device in every if device.node == head]
    # As in an inventory: llama.cpp computes on a head's main memory only where there is nothing else.
    local = 0 if len(own) < len(every) and own[0].kind == "main" else len(own)
    devices = every[: len(every) - len(own) + local]
    planned = plan(shape, settings, devices, local, given["force_split"])
    possible = ways(shape, settings, every, memory, planned, local)
    if possible.experts:
        shape, devices, planned = possible.experts
        every, local = devices, len(devices)
    described = ServicePlan(
        planned,
        service="plan",
        model=shape.name or shape.architecture,
        quant=shape.architecture if shape.name else "",
        source="header",
        problem=_nodes(every),
        ctx_size=context(shape, settings),
        slot_ctx_size=slot_context(shape, settings),
        cache_type=cache_words(settings),
        layers={},
        inputs=[],
    )
    advice: list[str] = []
    refused: list[str] = []
    allowed = allowed_context({}, shape, settings.build)
    if allowed and slot_context(shape, settings) > allowed:
        tokens = slot_context(shape, settings)
        advice.append(
            "lower slot_ctx_size to %d, where llama-server caps each slot, or %s"
            % (allowed, way_out(shape, tokens, settings.build))
        )
    # A row with experts has no layers either.
    without = [row for row in planned.devices if row.kind == "main" and not row.layers and not planned.cpu_moe]
    idle = sorted({row.node for row in without})
    if not planned.fits:
        more = nearest(shape, settings, devices, local) or ["choose a smaller model, or more devices"]
        last = devices[-1].node
        turned = sorted(every, key=lambda device: device.node == last)
        if not local and plan(shape, settings, turned, [device.node for device in turned].count(last)).fits:
            advice.append(f"give {last} last, without a GPU the head {head} holds no layers beside workers")
        advice.extend(more)
        refused.append(
            "it does not fit %s: %s"
            % ("1 device" if len(devices) == 1 else "%d devices" % len(devices), ", or ".join(advice))
        )
    elif idle:
        refused.append(idle_workers("nodes", described, idle))
    keys = ("fits", "topology", "reason", "devices", "host", "tensor_split")
    lines = table(described) + [f"  {words}" for words in possible.lines + (advice if planned.fits else [])]
    facts = planned.as_dict()
    return dict({key: facts[key] for key in keys}, advice=advice, refused=refused, lines=lines + _entry(shape, given))


def _entry(shape: Shape, given: dict[str, Any]) -> list[str]:
    """Lines with the model as an inventory would have it, where it was read from a source."""
    hub = f"{given['endpoint'].rstrip('/')}/{given['repo']}/resolve/{given['revision']}/"
    urls = given["urls"] or [hub + name for name in given["files"] or []]
    return ["for llama_models, to paste:", *entry(urls, shape.name, given["endpoint"])] if urls else []


def _nodes(devices: list[Device]) -> str:
    """Words for the nodes and which of them is the head."""
    names: list[str] = []
    for device in devices:
        if device.node not in names:
            names.append(device.node)
    sizes = {name: " + ".join(str(device.total_mib) for device in devices if device.node == name) for name in names}
    words = [f"{name} ({sizes[name]} MiB)" for name in names]
    return f"head {words[-1]}" + (
        f", worker{'s' if len(words) > 2 else ''} {join(words[:-1])}" if len(words) > 1 else ""
    )
