# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The plan of a service as a file on its head. Private to the collection."""

import base64
import json
from collections.abc import Iterable, Mapping
from typing import Any

from .._model.memory import Settings, Shape
from .devices import Device
from .place import ServicePlan

LATER = Settings._fields.index("swa_full")


def stored(plans: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """A service's plan and its inputs, without values that change from run to run."""
    found = []
    for one in plans:
        devices = [{key: value for key, value in device.items() if key != "free_mib"} for device in one["devices"]]
        found.append(dict({key: value for key, value in one.items() if key != "problem"}, devices=devices))
    return found


def inputs_of(shape: Shape, settings: Settings, devices: Iterable[Device]) -> list[Any]:
    """The inputs of a plan beside the names: a kept plan is valid while they are equal."""
    # Later settings count only if they are used: plans of earlier versions stay valid.
    later = [name for name in Settings._fields[LATER:] if getattr(settings, name)]
    places = [[device.node, device.device, device.total_mib, device.margin_mib] for device in devices]
    return [sum(shape.block_bytes), [*settings[:LATER], *later], places]


def unchanged(planned: Iterable[ServicePlan], earlier: Iterable[ServicePlan]) -> bool:
    """Whether a service's plans are those that an earlier run kept."""
    now, before = (json.dumps(stored(one.as_dict() for one in plans), sort_keys=True) for plans in (planned, earlier))
    return now == before


def kept(read: Mapping[str, Any]) -> list[ServicePlan]:
    """An earlier plan, content: JSON in base64; [] without one, or if another version made it."""
    try:
        found = [ServicePlan.of(one) for one in json.loads(base64.b64decode(read.get("content") or "").decode("utf-8"))]
        return found if found[0].inputs and found[0].plan.counts else []
    except (ValueError, KeyError, IndexError, TypeError):
        return []
