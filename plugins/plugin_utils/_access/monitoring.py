# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Checks of a host of Prometheus. Private to the collection."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .ports import port_conflicts, processes_of

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
