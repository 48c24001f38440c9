# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Functions of module_utils/_plan*.py as filters; each is documented in a YAML file of its own name."""

from ansible.errors import AnsibleFilterError

from ..module_utils import _plan_cards, _plan_devices, _plan_inventory, _plan_lines
from ..module_utils._intent import IntentError


def _one_sentence(function):
    def filter_function(*args, **kwargs):
        try:
            return function(*args, **kwargs)
        except (IntentError, ValueError) as problem:
            raise AnsibleFilterError(str(problem)) from problem

    return filter_function


class FilterModule:
    def filters(self):
        return {
            "memory_plan": _one_sentence(_plan_inventory.memory_plan),
            "plan_stored": _plan_inventory.stored,
            "plan_lines": _plan_lines.lines,
            "plan_node_devices": _plan_devices.of_node,
            "plan_card_devices": _plan_devices.of_inventory,
            "plan_inventory_cards": _plan_cards.inventory_cards,
            "plan_cards": _one_sentence(_plan_cards.cards),
            "plan_card_errors": _plan_cards.card_errors,
        }
