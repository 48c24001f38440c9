# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which device of which node holds which layers."""

from __future__ import annotations

DOCUMENTATION = r"""
name: plan
author: The Fermi Sea (@thefermisea)
version_added: 0.1.0
short_description: "Internal: Memory plans"
description:
  - Several filters for the playbooks and roles of this collection. They carry no promise.
options:
  _input:
    description: See the function of plugin_utils that the filter calls.
    type: raw
    required: true
"""

EXAMPLES = r"""
"""

RETURN = r"""
_value:
  description: See the function of plugin_utils that the filter calls.
  type: raw
"""

from ..module_utils._plan.devices import as_dicts, of_node
from ..module_utils._plan.vulkan import of_vulkan
from ..plugin_utils._cluster_plan.cards import plan_cards
from ..plugin_utils._cluster_plan.plan import memory_plan
from ..plugin_utils._filters import with_sentences
from ..plugin_utils._tune.grid import tune_candidates, tune_quants
from ..plugin_utils._tune.race import tune_measured, tune_round
from ..plugin_utils._tune.result import tune_result
from ..plugin_utils._tune.start import tune_lines, tune_minutes, tune_start


def plan_devices(*args, **kwargs):
    return as_dicts(of_node(*args, **kwargs))


def plan_vulkan_devices(*args, **kwargs):
    return as_dicts(of_vulkan(*args, **kwargs))


class FilterModule:
    def filters(self):
        return with_sentences(
            memory_plan,
            plan_cards,
            plan_devices,
            plan_vulkan_devices,
            tune_candidates,
            tune_lines,
            tune_measured,
            tune_minutes,
            tune_quants,
            tune_result,
            tune_round,
            tune_start,
        )
