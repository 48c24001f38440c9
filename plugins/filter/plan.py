# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Functions of the memory plan as filters; each is documented in a YAML file of its own name."""

from ansible.errors import AnsibleFilterError

from ..module_utils._plan import devices, table
from ..module_utils._text import Refusal
from ..plugin_utils._cluster_plan import cards, plan


def _one_sentence(function):
    def filter_function(*args, **kwargs):
        try:
            return function(*args, **kwargs)
        except Refusal as problem:
            raise AnsibleFilterError(str(problem)) from problem

    return filter_function


class FilterModule:
    def filters(self):
        return {
            "memory_plan": _one_sentence(plan.memory_plan),
            "plan_stored": plan.stored,
            "plan_lines": table.lines,
            "plan_node_devices": lambda *given, **named: devices.as_dicts(devices.of_node(*given, **named)),
            "plan_card_devices": lambda *given, **named: devices.as_dicts(devices.of_inventory(*given, **named)),
            "plan_inventory_cards": cards.inventory_cards,
            "plan_cards": _one_sentence(cards.cards),
            "plan_card_errors": cards.card_errors,
        }
