# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is kept of a service's plan on its head, and what an earlier run kept. Private to the collection."""

import base64
import json
from typing import Any, Dict, Iterable, List, Mapping

from .place import ServicePlan


def stored(plans: Iterable[Mapping[str, Any]]) -> List[Dict[str, Any]]:
    """What a service's plan was made for and what it says, and nothing that changes from run to run."""
    found = []
    for one in plans:
        devices = [{key: value for key, value in device.items() if key != "free_mib"} for device in one["devices"]]
        found.append(dict({key: value for key, value in one.items() if key != "problem"}, devices=devices))
    return found


def kept(read: Mapping[str, Any]) -> List[ServicePlan]:
    """An earlier plan, content: JSON in base64; [] where there is none, or none of this version's."""
    try:
        found = [ServicePlan.of(one) for one in json.loads(base64.b64decode(read.get("content") or "").decode("utf-8"))]
        return found if found[0].inputs and found[0].plan.counts else []
    except (ValueError, KeyError, IndexError, TypeError):
        return []
