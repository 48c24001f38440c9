# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Checks of a node before a deployment, from its facts. Private to the collection."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...module_utils._node import paths
from ...module_utils._node.units import Unit, units_of
from ...module_utils._settings import is_stopped
from .._intent.values import hidden
from .accounts import Account, account_refusals
from .gateway import answer_refusals, gateway_refusals
from .ports import port_conflicts, processes_of
from .reach import reach_refusals
from .trials import trial_refusals
from .units import KINDS, partial_refusals, unit_refusals

Instance = Mapping[str, Any]
FAMILIES = ("Debian", "RedHat")
# module_utils and modules are written for it.
OLDEST_PYTHON = (3, 9)


def node_refusals(
    facts: Mapping[str, Any],
    host: str,
    contact: Mapping[str, Any] | None = None,
    accounts: Sequence[Account] | None = None,
    services: Mapping[str, Any] | None = None,
    units: Mapping[str, Any] | None = None,
    trials: Mapping[str, Any] | None = None,
    gateway: Mapping[str, Any] | None = None,
    answers: Sequence[Mapping[str, Any]] | None = None,
    monitoring: Mapping[str, Any] | None = None,
) -> list[str]:
    """One sentence for each thing that is missing or in the way.

    facts: ansible_facts, with llama_node for all but contact. contact: what reach_refusals() needs; accounts: see
    account_refusals(); services: {address: on the fabric or '', heads, workers, ending: ids of processes that will have
    ended, leaving: units that will have made room, ends_trials: whether trials are in the way, changes: kinds
    of units that the run changes, places: {variable: path that units need}}; units: what
    unit_refusals() needs; trials: argument switch of trial_refusals();
    gateway, answers, monitoring: arguments of gateway_refusals(), answer_refusals() and monitoring_refusals(). None of
    them: the system.
    """
    if all(asked is None for asked in (contact, accounts, services, units, trials, gateway, answers, monitoring)):
        return _system(facts, host)
    found = []
    if contact is not None:
        found += reach_refusals(host, **contact)
    if accounts is not None:
        found += account_refusals(facts["llama_node"], host, accounts)
    if services is not None:
        found += _services(facts["llama_node"], host, services)
    if units is not None:
        found += unit_refusals(facts["llama_node"], host, **units)
    if trials is not None:
        found += trial_refusals(facts["llama_node"].get("trials", []), host, switch=trials)
    if gateway is not None:
        found += gateway_refusals(host, gateway, facts["llama_node"])
    if answers is not None:
        found += answer_refusals(host, answers)
    if monitoring is not None:
        found += monitoring_refusals(host, monitoring, facts["llama_node"])
    return found


def _system(facts: Mapping[str, Any], host: str) -> list[str]:
    if facts["service_mgr"] != "systemd":
        return [f"{host}: {facts['service_mgr']} is process 1, systemd is needed: services are systemd units"]
    if tuple(int(number) for number in facts["python_version"].split(".")[:2]) < OLDEST_PYTHON:
        return [
            f"{host}: Python {facts['python_version']} seen, 3.9 or newer is needed: set ansible_python_interpreter to "
            "one, such as /usr/bin/python3.11, and run bootstrap.yml"
        ]
    if facts["os_family"] not in FAMILIES:
        return [f"{host}: {facts['distribution']} seen, a distribution of the Debian or Red Hat family is needed"]
    return []


def _services(node: Mapping[str, Any], host: str, services: Mapping[str, Any]) -> list[str]:
    found = []
    address, addresses = services["address"], node["machine"]["addresses"]
    if address and address not in addresses:
        found.append(
            "%s: llama_fabric_address %s is on none of its interfaces, one of %s is needed: correct hosts.yml or bring "
            "the interface up" % (host, address, ", ".join(addresses))
        )
    heads, workers = services["heads"], services["workers"]
    if services.get("ends_trials", True):
        found += trial_refusals(node.get("trials", []), host, heads)
    # A stopped service needs no port now.
    wanted = [
        (f"llama_services.{one['service']}.{key}", one["address"], one["port"])
        for key, instances in (("port", heads), ("rpc_port", workers))
        for one in instances
        if not is_stopped(one)
    ]
    found += [
        "%s: %s leads to %s on %s, which units cannot see, a path outside /home, /root and /tmp is needed: choose "
        "another one, or mount it there with mount --bind instead of the link"
        % (variable, path, node["real"][path], host)
        for variable, path in services["places"].items()
        if hidden(node["real"][path])
    ]
    # A run that changes units of services frees their ports; another run needs none of them.
    managed = node["managed_processes"]
    free = {*services["ending"], *(processes_of(KINDS, managed) if services["changes"] else map(int, managed))}
    found += port_conflicts(wanted, node["listeners"], free, managed)
    units = units_of(node["units"])
    # Stopped units hold no port, but the name.
    wanted_names = {one["unit"] for one in (*heads, *workers)}
    taken = sorted(wanted_names & _foreign(units) - set(services["leaving"]))
    if taken:
        found.append(
            "%s/%s: an unmanaged unit on %s, a free name is needed: run adopt.yml, which takes it over and keeps it"
            % (paths.UNITS, ", ".join(taken), host)
        )
    return found + partial_refusals(host, units, heads, workers, services["changes"])


def _foreign(units: Sequence[Unit]) -> set[str]:
    return {unit.name for unit in units if unit.installed and not unit.managed}


EXTERNAL = "set monitoring_prometheus to external, which writes configuration and rules for it"


def monitoring_refusals(host: str, asked: Mapping[str, Any], node: Mapping[str, Any]) -> list[str]:
    """A sentence for each thing that is in the way.

    asked: prometheus: install or external, os_family, running: units of the packages that run, pids: their processes,
    managed: whether they run the collection's configuration, ports: {variable: port}, listen: the address, changes:
    kinds of services' units that the run changes before it; node: the fact llama_node with listeners.
    """
    if asked["prometheus"] == "external":
        return []
    if asked["os_family"] != "Debian":
        return [
            "monitoring_prometheus: install seen on %s of family %s, Debian or Ubuntu is needed, whose packages it "
            "takes: %s" % (host, asked["os_family"], EXTERNAL)
        ]
    if asked["running"] and not asked["managed"]:
        return [
            "monitoring_prometheus: install seen, and %s of somebody else runs on %s, none may: %s"
            % (asked["running"][0], host, EXTERNAL)
        ]
    wanted = [(name, asked["listen"], int(port)) for name, port in asked["ports"].items()]
    free = {*(asked["pids"] if asked["managed"] else ()), *processes_of(asked["changes"], node["managed_processes"])}
    return port_conflicts(wanted, node["listeners"], free, node["managed_processes"])
