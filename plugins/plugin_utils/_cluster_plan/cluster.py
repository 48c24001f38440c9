# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An inventory and the devices of its nodes, as the planner reads them, and what becomes of a service. Private to the
collection."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ...module_utils._model.companion import Companion
from ...module_utils._model.memory import Settings, Shape
from ...module_utils._plan.devices import Device
from ...module_utils._plan.full_prompt import Measured, measured
from ...module_utils._plan.place import Case, Row, ServicePlan, settings_for
from ...module_utils._plan.stored import kept
from ...module_utils._plan.table import join
from ...module_utils._settings import resolved, value
from ...module_utils._text import Refusal
from .._intent.builds import builds_of, dialect_of, entry_of, extra_types
from .._intent.check import weights
from .._intent.hosts import expand
from .._intent.models import are_local, files_of
from .._intent.records import Groups, Models, Services
from .._intent.records import Settings as Entry
from .._intent.routers import quants
from .estimate import estimate

Place = tuple[str, str]  # node and device
Claims = dict[Place, dict[str, int]]  # MiB by service
Beside = Mapping[Place, Mapping[str, int | None]]  # MiB that other services and processes have
ON_ITS_NODE = "its file is on the disk of its node, which plan.yml does not contact: site.yml plans it there"


class Misfit(NamedTuple):
    """A server that does not fit. words: what its own entry could say instead."""

    name: str
    case: Case
    described: ServicePlan
    words: list[str]
    beside: Beside

    def shortage(self) -> str:
        """The needed and free memory of the device that lacks most."""
        rows, shared = self.described.plan.devices, self._shared()

        def lack(row: Row) -> int:
            return row.total_mib + shared.get((row.node, row.device), 0) - (row.free_mib or 0)

        small = [row for row in rows if lack(row) > 0]
        worst = max(small or rows, key=lack)
        more = shared.get((worst.node, worst.device), 0)
        others = [
            "%s%s" % (other, " (%d MiB)" % size if size else "")
            for other, size in self.beside.get((worst.node, worst.device), {}).items()
        ]
        return "%d MiB are needed on %s of %s%s and %d MiB are there%s%s" % (
            worst.total_mib,
            worst.device,
            worst.node,
            ", %d MiB more in its main memory, which is the same memory," % more if more else "",
            worst.free_mib or 0,
            " beside %s" % join(others) if others else "",
            ", the worst of %d devices that are too small" % len(small) if len(small) > 1 else "",
        )

    def _shared(self) -> dict[Place, int]:
        """{the head's card that works in its main memory: MiB of it that the head has there beside the card's share}"""
        devices, found = self.case.devices, self.described.plan
        host = sum(found.host.values()) + sum(row.total_mib for row in found.devices[len(devices) :])
        own = [card for card in devices[len(devices) - self.case.local :] if card.unified]
        return {(card.node, card.device): max(0, host - card.spare_mib) for card in own[:1]}


@dataclass
class Placed:
    """The result for a service. rows: what it claims; shapes: {(node, model): the whole model}, if it generates text;
    why: it is not planned; rendered: layers per node without a plan; cards: {node: what names them in the
    environment of units}, None if it may use all."""

    name: str
    parts: list[ServicePlan] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    shapes: dict[tuple[str, str], Shape] = field(default_factory=dict)
    misfits: list[Misfit] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    why: str = ""
    uncounted: bool = False
    rendered: dict[str, Any] = field(default_factory=dict)
    cards: dict[str, list[str]] | None = None


class Cluster:
    """Nothing of it changes while services are placed."""

    def __init__(
        self,
        services: Services,
        models: Models,
        groups: Groups,
        nodes: Mapping[str, Mapping[str, Any]],
        headers: Iterable[dict[str, Any]],
        builds: Mapping[str, Any] | None,
        previous: Iterable[dict[str, Any]],
        complete: bool,
    ) -> None:
        self.models, self.groups, self.nodes = models, groups, nodes
        self.complete, self.builds = complete, builds_of({"llama_builds": builds})
        self.services: dict[str, Entry] = {}
        for name, one in services.items():
            entry = resolved(one, models.get(one.get("model", "")))
            # A build for the CPU sees no card.
            self.services[name] = {"cards": [], **entry} if self.needs_no_card(entry) else entry
        self.devices = {node: [Device(**device) for device in facts["devices"]] for node, facts in nodes.items()}
        self.headers = {(one["item"]["model"], one["item"]["quant"]): one for one in headers}
        self.previous: dict[tuple[str, str], list[ServicePlan]] = {}  # by service and the head's node
        self.measured: dict[tuple[str, str], Measured | None] = {}
        for one in previous:
            plans = kept(one)
            if plans:
                self.previous[one["item"], plans[0].node] = plans
                self.measured[one["item"], plans[0].node] = measured(one)

    def needs_no_card(self, service: Entry) -> bool:
        """Whether the build of a service is for the CPU."""
        return entry_of(service, self.builds).get("accelerator") == "cpu"

    def heads(self, name: str) -> list[str]:
        return expand(self.services[name]["head"], self.groups)

    def workers(self, name: str) -> list[str]:
        return expand(self.services[name].get("workers", ""), self.groups)

    def hosts(self, name: str) -> list[str]:
        return self.heads(name) + self.workers(name)

    def title(self, name: str, node: str) -> str:
        return f"{name} on {node}" if len(self.heads(name)) > 1 else name

    def earlier(self, name: str, nodes: Iterable[str]) -> list[ServicePlan]:
        """The kept plans of a service on the nodes of these heads."""
        return [part for node in dict.fromkeys(nodes) for part in self.previous.get((name, node), [])]

    def same(self, name: str) -> list[ServicePlan]:
        """The plans of its models from an earlier run."""
        wanted = quants(self.services[name])
        return [part for part in self.earlier(name, self.heads(name)) if part.quant == wanted.get(part.model)]

    def build(self, service: Entry) -> str:
        return dialect_of(entry_of(service, self.builds))

    def settings(self, service: Entry) -> Settings:
        return settings_for(service, self.build(service), extra_types(service, self.builds))

    def load_mode(self, service: Entry, node: str) -> str:
        """How a server reads its weights: where its card works in main memory not by way of the page cache."""
        unified = service.get("cards") != [] and any(device.unified for device in self.devices.get(node, ()))
        mode = str(value(service, "load_mode"))
        return "dio" if mode == "auto" and unified else mode

    def shape(self, model: str, quant: str) -> tuple[Shape, str]:
        """-> (Shape, header, catalog or assumed). Errors: Refusal."""
        known = self.headers.get((model, quant), {})
        if known.get("shape"):
            return Shape.of(known["shape"]), "header"
        size = weights(self.models[model], quant)[0]
        facts = self.models[model].get("header")
        if size and facts:
            return estimate(facts, size), "assumed" if facts.get("assumed") else "catalog"
        raise self._unread(model, quant, f"its header was not read and llama_models.{model} has no header")

    def companion(self, model: str, name: str) -> Companion:
        """The needs of a file beside a model. Errors: Refusal."""
        known = self.headers.get((model, name), {})
        if known.get("companion"):
            return Companion(**known["companion"])
        seen = "a model seen, the file of a projector or adapter is needed: correct it in llama_models"
        raise Refusal(seen) if known.get("shape") else self._unread(model, name, "its header was not read")

    def _unread(self, model: str, name: str, words: str) -> Refusal:
        urls = files_of(self.models[model], name).get("urls")
        if self.complete and urls and are_local(urls):
            return Refusal(ON_ITS_NODE)
        return Refusal(self.headers.get((model, name), {}).get("msg") or words)


class View(NamedTuple):
    """The devices that a service may use, beside what others have claimed."""

    cluster: Cluster
    devices: Mapping[str, list[Device]]
    claims: Claims

    def of(self, nodes: Iterable[str]) -> list[Device]:
        return [self._claimed(device) for node in nodes for device in self.devices[node]]

    def main(self, node: str) -> Device | None:
        """The main memory of a node, where it is known."""
        main = self.cluster.nodes[node].get("main")
        return self._claimed(Device(**main)) if main else None

    def _claimed(self, device: Device) -> Device:
        """Main memory, and a card that works there, are one, but for what only one of them can use."""
        shared = [Device(**one) for one in self.cluster.nodes[device.node]["devices"] if one.get("unified")]
        found = self._claims(device)
        if device.unified:
            found += sum(self._claims(other) for other in shared if other.device != device.device)
            found += max(0, self._claims(device._replace(device="main")) - device.spare_mib)
        elif device.kind == "main":
            found += sum(max(0, self._claims(card) - card.own_mib) for card in shared)
        return device._replace(claimed_mib=found)

    def _claims(self, device: Device) -> int:
        return sum(self.claims.get((device.node, device.device), {}).values())

    def beside(self, devices: Iterable[Device]) -> Beside:
        """The memory of other services and unmanaged processes by device."""
        places = {(one.node, one.device): one.others for one in devices}
        return {place: {**dict(sorted(self.claims.get(place, {}).items())), **own} for place, own in places.items()}


def claim(claims: Claims, name: str, rows: Iterable[Row]) -> None:
    for row in rows:
        if row.total_mib:
            claims.setdefault((row.node, row.device), {})[name] = row.total_mib
