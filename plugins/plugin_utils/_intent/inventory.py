# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The inventory as one typed record, made once. Private to the collection."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from . import gateway
from .builds import builds_of
from .records import Groups, HostVars, Models, Services, Settings
from .services import placed


@dataclass(frozen=True)
class Inventory:
    """services, models, routes, api_keys: the variables llama_*; groups, hostvars: as Ansible has them."""

    services: Services
    models: Models
    groups: Groups
    hostvars: HostVars
    routes: Mapping[str, Any] = field(default_factory=dict)
    api_keys: Mapping[str, Any] = field(default_factory=dict)

    @property
    def nodes(self) -> list[str]:
        return list(self.groups.get("llama_nodes") or [])

    @property
    def fronts(self) -> list[str]:
        """The hosts of the gateway."""
        return gateway.hosts(self.groups)

    @cached_property
    def hosts(self) -> list[str]:
        """Nodes, and the gateway's hosts, which may be others."""
        return gateway.all_hosts(self.groups)

    @cached_property
    def builds(self) -> Mapping[str, Any]:
        """llama_builds, which is the same for all nodes."""
        return builds_of(self.hostvars[self.nodes[0]] if self.nodes else {})

    def names(self) -> Iterator[tuple[str, Settings, str]]:
        """(service, its entry, a name) for each name by which clients ask for what it serves."""
        for name, one in self.services.items():
            for _model, known in gateway.names(one, self.models):
                yield name, one, known

    def claims(self, host: str) -> dict[int, str]:
        """{port of a host: the entry of a service that has it there}"""
        found = gateway.claims(placed(self.services, self.groups), host, self.services, self.groups)
        return {port: f"llama_services.{entry}" for port, entry in found.items()}
