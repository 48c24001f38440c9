# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The gateway in the output of status.yml. Private to the collection."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ...module_utils._node.units import units_of
from ...module_utils._text import printable


def gateway_lines(
    host: str, units: Sequence[Mapping[str, Any]], asked: Mapping[str, Any], verbose: bool = False
) -> list[str]:
    """units: llama_unit_info of the engine and nginx; asked: result of curl at the engine's status.json. verbose: also
    services that serve and have no queue."""
    known = {unit.name: unit for unit in units_of(units)}
    states = [
        f"{name} {known[unit].active_state if unit in known else 'absent'}"
        for name, unit in (("engine", "llama-gateway.service"), ("nginx", "nginx.service"))
    ]
    try:
        status = json.loads(asked.get("stdout") or "")
        services = sorted(status["services"].items())
        where = ", ".join(status.get("base_urls", []))
        lines = [f"gateway on {host}: {where or 'no address'}, {', '.join(states)}"]
        shown = [one for one in services if verbose or not _is_sound(one[1])]
        return lines + [f"  {_service(name, service)}" for name, service in shown]
    except (ValueError, KeyError, TypeError, AttributeError):
        reason = printable(" ".join(str(asked.get("stderr") or "no answer").split())[:200])
        return [f"gateway on {host}: {', '.join(states)}, which does not say what it knows ({reason})"]


def _is_sound(service: Mapping[str, Any]) -> bool:
    return not service.get("queue") and all(one["state"] == "ready" for one in service["endpoints"])


def _service(name: str, service: Mapping[str, Any]) -> str:
    endpoints = service["endpoints"]
    ready = [one for one in endpoints if one["state"] == "ready"]
    free = sum(one.get("free") or 0 for one in ready)
    slots = sum(one.get("slots") or 0 for one in ready)
    others = [f"{one['node']} {one['state']}" for one in endpoints if one["state"] != "ready"]
    words = [f"{service['state']}", "%d of %d slots free" % (free, slots), "%d waiting" % (service.get("queue") or 0)]
    return printable(f"{name}: {', '.join(words + others)}")
