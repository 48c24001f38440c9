# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Functions of intent, units, access and reports as filters, each documented in a YAML file of its name."""

from ansible.errors import AnsibleFilterError

from ..module_utils._text import Refusal
from ..plugin_utils._access import clients, firewalld, node, reach
from ..plugin_utils._cluster_plan import room
from ..plugin_utils._intent import check, models, services, values, variables
from ..plugin_utils._reports import drill, speed, status
from ..plugin_utils._units import changes, files, refusals, sandbox, systemd_escape


def _one_sentence(function):
    def filter_function(*args, **kwargs):
        try:
            return function(*args, **kwargs)
        except Refusal as problem:
            raise AnsibleFilterError(str(problem)) from problem

    return filter_function


def _as_dicts(function):
    """Records end here: playbooks and templates see dicts."""
    return _one_sentence(lambda *args: [record.as_dict() for record in function(*args)])


class FilterModule:
    def filters(self):
        return {
            "intent_errors": check.errors,
            "undefined_variables": variables.undefined_variables,
            "unknown_variables": variables.unknown_variables,
            "undeployable": check.undeployable,
            "hopeless": _one_sentence(check.hopeless),
            "node_refusals": node.node_refusals,
            "rpc_instances": _as_dicts(services.rpc_instances),
            "rpc_access": _one_sentence(services.rpc_access),
            "head_instances": _as_dicts(services.head_instances),
            "unit_sandbox": sandbox.unit_sandbox,
            "unit_files": files.unit_files,
            "unit_refusals": refusals.unit_refusals,
            "systemd_escape": _one_sentence(systemd_escape.systemd_escape),
            "model_items": _as_dicts(models.model_items),
            "quant_way": room.way,
            "model_fan_out": models.fan_out,
            "wanted_units": _one_sentence(changes.wanted_units),
            "unit_changes": changes.unit_changes,
            "deployed_heads": changes.deployed_heads,
            "deployed_workers": changes.deployed_workers,
            "upgrade_rates": speed.rates,
            "upgrade_too_slow": speed.too_slow,
            "firewalld_changes": firewalld.changes,
            "firewalld_stopped_changes": firewalld.stopped_changes,
            "client_access": _one_sentence(clients.access),
            "client_refusals": clients.refusals,
            "drill_noticed": drill.noticed,
            "drill_phases": drill.phases,
            "drill_lines": drill.lines,
            "status_lines": status.status_lines,
            "did_you_mean": values.near,
            "reach_refusals": reach.refusals,
        }
