# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Records made of the inventory's entries: services with their nodes, heads, workers, models. Private to the
collection.

Filters hand out as_dict(): playbooks and templates see its keys.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...module_utils._node.units import unit_name
from ...module_utils._settings import kind_of

# As Ansible has them.
Groups = Mapping[str, Sequence[str]]
HostVars = Mapping[str, Mapping[str, Any]]
# As the inventory has them: an entry of llama_services, all of them, and llama_models.
Settings = Mapping[str, Any]
Services = Mapping[str, Settings]
Models = Mapping[str, Mapping[str, Any]]


def url(address: str, port: int) -> str:
    """The URL of a head."""
    return "http://%s:%d" % (address, port)


class Record:
    def as_dict(self) -> dict[str, Any]:
        return dict(vars(self))


@dataclass(frozen=True)
class Build(Record):
    """An entry of llama_builds as a node runs it.

    release: the name of its directory, of all that goes into it. version: a tag, or the beginning of a commit or
    digest. number: whose command line it has, None for the newest. by_cards: whether it is compiled for the cards of
    the nodes; asks_cards: whether these say anything of it.
    """

    name: str
    release: str
    version: str
    number: int | None
    accelerator: str
    architectures: list[str]
    by_cards: bool
    asks_cards: bool
    # By git, empty where `source`, an address or a file of the controller, is an archive.
    repository: str
    commit: str
    source: str
    source_sha256: str
    cuda_home: str
    rdma: bool
    cmake_options: dict[str, str]


@dataclass(frozen=True)
class Service(Record):
    """A service that systemd or SLURM runs.

    heads: each a replica where there are several, one where it has workers. port: of its endpoints. settings: its entry
    in llama_services.
    """

    name: str
    heads: list[str]
    workers: list[str]
    port: int
    settings: Settings

    @property
    def kind(self) -> str:
        """The kind of its serving units: head or router."""
        return "router" if kind_of(self.settings) == "router" else "head"

    @property
    def primary(self) -> bool:
        """Whether its units have the short names. Routers have none."""
        return bool(self.settings.get("primary")) and self.kind == "head"

    @property
    def head_unit(self) -> str:
        return unit_name(self.kind, self.name, self.primary)

    @property
    def worker_unit(self) -> str:
        return unit_name("rpc", self.name, self.primary)


@dataclass(frozen=True)
class Share(Record):
    """The share of a worker in a head. layers: that it holds, None where neither a plan nor the inventory says it.
    build: the release that it runs."""

    node: str
    unit: str
    endpoint: str
    layers: int | None
    build: str


@dataclass(frozen=True)
class Served(Record):
    """A model of a router. service: the router's name with its own, for its template. args: of the llama-server that
    the router starts for it, but for where it listens."""

    service: str
    model: str
    quant: str
    aliases: list[str]
    model_path: str
    layers: dict[str, int]
    tensor_split: list[int] | None
    ubatch_size: int
    # On the controller; empty for none.
    chat_template_file: str
    # As of a head.
    mmproj_path: str = ""
    lora_paths: dict[str, str] = field(default_factory=dict)
    serves: str = "text"
    args: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Head(Record):
    """A llama-server of a node; the only one of its service, or a replica. A router has models, and no model of its
    own; models_max: how many of them are loaded at a time, None where the plan that decides it is missing.

    tensor_split is in llama.cpp's device order: RPC devices in --rpc order, then the head's own. Counts are layers; the
    last device's count includes the output layer, which llama.cpp counts as one more item. Only the memory plan sets
    it: None without a plan. layers: as in the plan, else as in the inventory, with the head's own. cpu_moe: how many
    layers keep their experts in main memory, or all; None where the plan that decides it is missing.
    """

    service: str
    # node: host name. label: the name shown to operators. Neither is part of the digest.
    node: str
    label: str
    unit: str
    primary: bool
    # started or stopped; no part of the unit's digest.
    state: str
    address: str
    port: int
    model: str
    quant: str
    aliases: list[str]
    model_path: str
    shares: list[Share]
    layers: dict[str, int]
    tensor_split: list[int] | None
    cpu_moe: int | str | None
    memory_max: str
    # UUIDs of those that it sees, None for all of the node's; "" is one that this run does not know.
    cards: list[str] | None
    # Tokens of a micro-batch.
    ubatch_size: int
    # On the controller; empty for none.
    chat_template_file: str
    # The release of its build, what that computes on, and whether it speaks RPC over RDMA.
    build: str
    accelerator: str
    rdma: bool
    # Whether the build itself has to say which flags it has: no table knows it, or the inventory has words of its own.
    asks_build: bool
    # Empty for none.
    api_key_file: str
    # The record of its file in a registry of endpoints.
    registry: dict[str, Any]
    # The NUMA policy: bind, interleave, none, the number of one of them, or empty for the policy of its node.
    numa: str = ""
    # The paths of its draft model and its projector, empty for none, and of its adapters by name.
    draft_path: str = ""
    mmproj_path: str = ""
    lora_paths: dict[str, str] = field(default_factory=dict)
    # text, embeddings or scores; of a router text.
    serves: str = "text"
    # Arguments of llama-server.
    args: list[str] = field(default_factory=list)
    # The models of a router.
    models: list[Served] = field(default_factory=list)
    models_max: int | None = 0

    @property
    def kind(self) -> str:
        """The kind of its unit: head or router."""
        return "router" if self.models else "head"

    @property
    def model_paths(self) -> list[str]:
        """The files of its models, with those beside them but for a draft model's."""
        served: Sequence[Served | Head] = self.models or [self]
        found = [[one.model_path, one.mmproj_path, *one.lora_paths.values()] for one in served]
        return [path for paths in found for path in paths if path]

    @property
    def url(self) -> str:
        return url(self.address, self.port)

    @property
    def endpoint(self) -> str:
        """The base URL for clients."""
        return self.url + "/v1"

    @property
    def workers(self) -> list[str]:
        return [share.node for share in self.shares]

    @property
    def rpc_endpoints(self) -> list[str]:
        return [share.endpoint for share in self.shares]

    def as_dict(self) -> dict[str, Any]:
        names = ("kind", "model_paths", "url", "endpoint", "workers", "rpc_endpoints")
        derived = {name: getattr(self, name) for name in names}
        parts = {name: [one.as_dict() for one in getattr(self, name)] for name in ("shares", "models")}
        return dict(vars(self), **parts, **derived)


@dataclass(frozen=True)
class Worker(Record):
    """An RPC server of a node. head_address: where its head comes from; head_url: where that one answers."""

    service: str
    unit: str
    primary: bool
    # started or stopped; no part of the unit's digest.
    state: str
    address: str
    port: int
    head_address: str
    head_url: str
    # 0 leaves llama.cpp's own.
    threads: int
    memory_max: str
    # UUIDs of those that it sees, None for all of the node's; "" is one that this run does not know.
    cards: list[str] | None
    # Whether it keeps the tensors that it receives.
    cache: bool
    # The release of its build, what that computes on, and whether it speaks RPC over RDMA.
    build: str
    accelerator: str
    rdma: bool
    # Arguments of ggml-rpc-server.
    args: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Job(Record):
    """A service as a job of SLURM. name: the job's; script: the path of its file; user: whose job it is; grace: seconds
    between SIGTERM and its end; registry_dir: empty for none; suffix: of its file there."""

    service: str
    name: str
    script: str
    user: str
    grace: int
    # Shared, for logs of tasks; and local, for the script's own.
    log_dir: str
    local_log_dir: str
    registry_dir: str
    suffix: str
    head: Head
    workers: list[Worker]
    # Its entry in llama_services.
    settings: Settings

    @property
    def nodes(self) -> list[str]:
        """The head's first: SLURM runs the script on the first node."""
        return [self.head.node, *self.head.workers]

    def as_dict(self) -> dict[str, Any]:
        return dict(
            vars(self),
            nodes=self.nodes,
            head=self.head.as_dict(),
            workers=[one.as_dict() for one in self.workers],
            settings=dict(self.settings),
        )


@dataclass(frozen=True)
class ModelItem(Record):
    """A model that a node holds. dest: the path of its (first) file."""

    model: str
    quant: str
    dest: str
    urls: list[str]
    repo: str
    revision: str
    files: list[str]
    sha256: list[str]
