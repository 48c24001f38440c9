# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The plan of one model for devices that need not exist. Private to the collection."""

from ._plan import context, plan, settings_for, slot_context
from ._plan_advice import nearest
from ._plan_context import allowed_context, way_out
from ._plan_devices import of_cards
from ._plan_lines import table


def what_if(shape, given):
    """given: the options of llama_plan. -> its result with devices."""
    slots = given["parallel"] or 1
    asked = dict(given, ctx_size=given["slot_ctx_size"] * slots, cache_type_k=given["cache_type"], cache_type_v=given["cache_type"])
    del asked["slot_ctx_size"]
    settings = settings_for(asked, given["build"])
    devices = of_cards([dict(device, node=device["node"] or device["name"]) for device in given["devices"]], given["margin_mib"])
    local = sum(device["node"] == devices[-1]["node"] for device in devices)
    planned = plan(shape, settings, devices, local, given["force_split"])
    advice = []
    allowed = allowed_context({}, shape, settings.build)
    if allowed and slot_context(shape, settings) > allowed:
        tokens = slot_context(shape, settings)
        advice.append("lower slot_ctx_size to %d, where llama-server caps each slot, or %s" % (allowed, way_out(shape, tokens, settings.build)))
    if not planned["fits"]:
        advice.extend(nearest(shape, settings, devices, local) or ["choose a smaller model, or more devices"])
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
    return dict({key: planned[key] for key in keys}, advice=advice, lines=table(described) + ["  %s" % words for words in advice])
