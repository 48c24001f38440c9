# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The plan of one model for devices that need not exist. Private to the collection."""

from ._plan import context, plan, settings_for, slot_context
from ._plan_advice import nearest
from ._plan_devices import of_card
from ._plan_lines import table


def what_if(shape, given):
    """given: the options of llama_plan. -> its result with devices."""
    settings = settings_for(dict(given, cache_type_k=given["cache_type"], cache_type_v=given["cache_type"]), given["build"])
    devices = [of_card(device["node"] or device["name"], 0, device, given["margin_mib"]) for device in given["devices"]]
    planned = plan(shape, settings, devices, 1, given["force_split"])
    advice = []
    if slot_context(shape, settings) > (shape.context_length or slot_context(shape, settings)) and not shape.rope_scaling:
        advice.append("ctx_size %d for each request, the model was made for no more and has no rope scaling" % shape.context_length)
    if not planned["fits"]:
        advice.extend(nearest(shape, settings, devices, 1) or ["a smaller model, or more devices"])
    described = dict(
        planned,
        service="plan",
        model=shape.name or shape.architecture,
        quant=shape.architecture if shape.name else "",
        source="header",
        ctx_size=context(shape, settings),
        slot_ctx_size=slot_context(shape, settings),
        cache_type=settings.cache_type_k,
    )
    keys = ("fits", "topology", "reason", "devices", "host", "tensor_split")
    return dict({key: planned[key] for key in keys}, advice=advice, lines=table(described) + ["  choose %s" % words for words in advice])
