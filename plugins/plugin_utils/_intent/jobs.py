# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The services that SLURM runs as jobs, and the settings of the host that submits them. Private to the collection."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...module_utils._settings import is_stopped, value
from . import gateway
from .builds import entry_of
from .records import Groups, HostVars, Job, Models, Service, Services
from .services import head_instances, managed, rpc_instances

GROUP = "llama_slurm"
# The defaults of the variables slurm_*, which only the host that submits has.
DEFAULTS: dict[str, Any] = {
    "slurm_user": "",
    "slurm_scripts": {},
    "slurm_script_dir": "/cluster/shared/scripts/llama-cpp",
    "slurm_log_dir": "/cluster/shared/ai/logs",
    "slurm_local_log_dir": "/scratch/ai/logs",
    "slurm_qos": {},
    "slurm_associations": [],
    "slurm_yield_to": [],
    "slurm_reserve": False,
}


def hosts(groups: Groups) -> list[str]:
    return list(groups.get(GROUP) or [])


def setting(name: str, facts: Mapping[str, Any]) -> Any:
    """A variable slurm_*, as the host that submits has it."""
    found = facts.get(name)
    return DEFAULTS[name] if found is None else found


def script_path(service: str, facts: Mapping[str, Any]) -> str:
    name = setting("slurm_scripts", facts).get(service, f"run-{service}.slurm")
    return f"{setting('slurm_script_dir', facts)}/{name}"


def jobs(
    services: Services,
    models: Models,
    groups: Groups,
    hostvars: HostVars,
    models_dir: str,
    plan: Mapping[str, Any] | None = None,
) -> list[Job]:
    """The jobs of an inventory, by service. plan: as for head_instances()."""
    wanted = managed(services, groups, "slurm")
    facts = hostvars[hosts(groups)[0]] if wanted else {}
    fronts = gateway.hosts(groups)
    registry = hostvars[fronts[0]].get("gateway_registry_dir") if wanted and fronts else ""
    found = []
    for service in wanted:
        # Ports without a number depend on all services.
        one = {service.name: {**service.settings, "port": service.port}}
        (head,) = head_instances(one, models, service.heads[0], groups, hostvars, models_dir, plan, "slurm")
        workers = [
            worker for node in service.workers for worker in rpc_instances(one, node, groups, hostvars, plan, "slurm")
        ]
        found.append(
            Job(
                service=service.name,
                name=value(service.settings, "job_name") or f"llama-{service.name}",
                script=script_path(service.name, facts),
                user=str(setting("slurm_user", facts)),
                grace=value(service.settings, "grace"),
                log_dir=str(setting("slurm_log_dir", facts)),
                local_log_dir=str(setting("slurm_local_log_dir", facts)),
                registry_dir=str(registry or ""),
                suffix=str((facts.get("gateway_registry_suffix") or {}).get(service.name, service.name)),
                head=head,
                workers=workers,
                settings=service.settings,
            )
        )
    return found


def on_cards(service: Service, node: Mapping[str, Any], builds: Mapping[str, Any]) -> bool:
    """Whether a service may use a card of a node. node: its variables."""
    described = node.get("llama_devices") or []
    if described and all(card.get("main") for card in described):
        return False
    return value(service.settings, "cards") != [] and entry_of(service.settings, builds).get("accelerator") != "cpu"


def slurm_shared(services: Services, groups: Groups, hostvars: HostVars, reserve: bool) -> dict[str, Any]:
    """The nodes whose cards units use, for module slurm_reservation.

    -> units: {node: services}; reserved: those that are reserved as a whole: a node of a job stays SLURM's.
    """
    units: dict[str, list[str]] = {}
    for one in managed(services, groups):
        for node in dict.fromkeys([*one.heads, *one.workers]):
            if not is_stopped(one.settings) and on_cards(one, hostvars[node], hostvars[node].get("llama_builds") or {}):
                units.setdefault(node, []).append(one.name)
    taken = {node for one in managed(services, groups, "slurm") for node in (*one.heads, *one.workers)}
    return {"units": units, "reserved": [node for node in units if reserve and node not in taken]}
