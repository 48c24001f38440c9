# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Functions of module_utils (intent, changes, units, drills, reports) as filters, each documented in a YAML file of its name."""

from ansible.errors import AnsibleFilterError

from ..module_utils import _changes, _clients, _drill, _firewalld, _intent, _intent_check, _reach, _report, _room, _sandbox, _systemd_escape, _upgrade
from ..plugin_utils import _variables


def _one_sentence(function):
    def filter_function(*args, **kwargs):
        try:
            return function(*args, **kwargs)
        except (_intent.IntentError, ValueError) as problem:
            raise AnsibleFilterError(str(problem)) from problem

    return filter_function


class FilterModule:
    def filters(self):
        return {
            "intent_errors": _intent_check.errors,
            "undefined_variables": _variables.undefined_variables,
            "unknown_variables": _variables.unknown_variables,
            "undeployable": _intent_check.undeployable,
            "hopeless": _one_sentence(_intent_check.hopeless),
            "port_conflicts": _intent_check.port_conflicts,
            "rpc_instances": _one_sentence(_intent.rpc_instances),
            "rpc_access": _one_sentence(_intent.rpc_access),
            "head_instances": _one_sentence(_intent.head_instances),
            "unit_sandbox": _sandbox.unit_sandbox,
            "systemd_escape": _one_sentence(_systemd_escape.systemd_escape),
            "model_items": _one_sentence(_intent.model_items),
            "quant_way": _room.way,
            "model_fan_out": _intent.fan_out,
            "wanted_units": _one_sentence(_changes.wanted_units),
            "unit_changes": _changes.unit_changes,
            "units_idle": _changes.idle,
            "deployed_heads": _changes.deployed_heads,
            "deployed_workers": _changes.deployed_workers,
            "upgrade_rates": _upgrade.rates,
            "upgrade_too_slow": _upgrade.too_slow,
            "upgrade_speed_lines": _upgrade.speed_lines,
            "acceptance_report": _report.acceptance,
            "acceptance_lines": _report.acceptance_lines,
            "firewalld_changes": _firewalld.changes,
            "firewalld_stopped_changes": _firewalld.stopped_changes,
            "client_access": _one_sentence(_clients.access),
            "client_refusals": _clients.refusals,
            "drill_noticed": _drill.noticed,
            "drill_phases": _drill.phases,
            "drill_lines": _drill.lines,
            "status_lines": _report.status_lines,
            "did_you_mean": _intent.near,
            "reach_refusals": _reach.refusals,
        }
