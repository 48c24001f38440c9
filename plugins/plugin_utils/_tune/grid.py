# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The candidates for a service's settings: what is deployed, and what differs from it along some axes. Each is the
inventory's services with its change, planned and checked as any other. Private to the collection."""

from __future__ import annotations

import itertools
from collections import ChainMap
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, cast

from ...module_utils._bench.variant import LOOPBACK
from ...module_utils._settings import WORKER_KEYS, caches, context, effective, resolved, value
from ...module_utils._text import Refusal
from .._cluster_plan.plan import memory_plan
from .._intent.check_services import service_errors
from .._intent.inventory import Inventory
from .._intent.models import model_items
from .._intent.ports import ports
from .._intent.records import Groups, HostVars, Models, Services, Settings
from .._intent.rules import SHORT
from .._intent.tuned import alike
from .._intent.values import did_you_mean
from .race import BASELINE, COMBINED

Map = Mapping[str, Any]
# Combinations of all values are raced at once where they are no more than this.
PRODUCT = 24
# The most axes whose winners are combined.
WINNERS = 4
# Keys that depend on the workers.
OF_WORKERS = ("workers", "tensor_split", "force_split", *WORKER_KEYS)
# The part of its plan that a head may need at most.
ROOM = 1.1
# The first port that a worker on the loopback may have.
RPC_PORT = 50052


class Known(NamedTuple):
    """models, groups, hostvars: as Ansible has them; the others as memory_plan() takes them."""

    models: Models
    groups: Groups
    hostvars: HostVars
    nodes: Mapping[str, Map]
    headers: Sequence[dict[str, Any]]
    builds: Map
    previous: Sequence[dict[str, Any]]

    def plan(self, services: Services) -> dict[str, Any]:
        return memory_plan(services, self.models, self.groups, self.nodes, self.headers, self.builds, self.previous)


class Deployed(NamedTuple):
    """A service, from which the values of axes follow. service: with what its model's entry says; part: its plan, if
    there is one; node: what is known of its head."""

    service: Settings
    part: Map
    node: Map

    @property
    def rows(self) -> Sequence[Map]:
        return self.part.get("devices") or []

    @property
    def cards(self) -> Sequence[Map]:
        """The cards of its head's node."""
        return [one for one in self.node.get("devices") or [] if one["kind"] == "GPU"]

    @property
    def computes_on_cpu(self) -> bool:
        return any(row["kind"] == "main" for row in self.rows) or not self.rows

    @property
    def workers(self) -> bool:
        return bool(self.service.get("workers"))


Changes = list[dict[str, Any]]


def _parallel(one: Deployed) -> Changes:
    """Slots keep their size."""
    now, total = value(one.service, "parallel"), context(one.service) or one.part.get("ctx_size")
    found: Changes = [{"parallel": slots} for slots in (1, 2, 3, 4, 8) if slots != now]
    if "slot_ctx_size" in one.service or one.service.get("kv_unified"):
        return found
    slot = total // now if total else 0
    return [dict(each, ctx_size=slot * each["parallel"]) for each in found] if slot else []


def _slot_ctx_size(one: Deployed) -> Changes:
    total = context(one.service) or one.part.get("ctx_size")
    slot = total // caches(one.service) if total else 0
    name, slots = ("slot_ctx_size", 1) if "ctx_size" not in one.service else ("ctx_size", caches(one.service))
    return [{name: size * slots} for size in (slot // 2, slot * 2) if size >= 256]


def _batch_size(one: Deployed) -> Changes:
    least = value(one.service, "ubatch_size") or 0
    return _others("batch_size", effective(one.service, "batch_size"), (512, 1024, 2048, 4096), least)


def _ubatch_size(one: Deployed) -> Changes:
    most = effective(one.service, "batch_size")
    sizes = [size for size in (128, 256, 512, 1024, 2048) if size <= most]
    return _others("ubatch_size", effective(one.service, "ubatch_size"), sizes)


def _cache(one: Deployed) -> Changes:
    now = {effective(one.service, key) for key in SHORT["cache"]}
    return [{"cache": kind} for kind in ("f16", "q8_0", "q4_0") if now != {kind}]


def _threads(one: Deployed) -> Changes:
    """Around one for each physical core: half of them, and the logical ones."""
    cores, physical = one.node.get("cores") or 0, one.node.get("physical_cores") or one.node.get("cores") or 0
    now = one.service.get("threads") or physical
    return _others("threads", now, sorted({physical // 2, physical, cores}), 1) if one.computes_on_cpu else []


def _flash_attn(one: Deployed) -> Changes:
    # auto is on, wherever what computes has it.
    return [{"flash_attn": "on" if effective(one.service, "flash_attn") == "off" else "off"}]


def _tensor_split(one: Deployed) -> Changes:
    """A layer more on one device of the split and one less on the next."""
    layers = {node: count for node, count in (one.part.get("layers") or {}).items() if count}
    found: Changes = []
    for more, less in [pair for both in itertools.pairwise(layers) for pair in (both, both[::-1])]:
        if one.workers and layers[less] > 1 and value(one.service, "split_mode") == "layer":
            found.append({"tensor_split": dict(layers, **{more: layers[more] + 1, less: layers[less] - 1})})
    return found


def _split_mode(one: Deployed) -> Changes:
    """The other one, where there are several cards or workers."""
    head = one.part.get("node")
    devices = [row for row in one.rows if row["kind"] == "GPU" or row["node"] != head]
    now = value(one.service, "split_mode")
    return [{"split_mode": mode} for mode in ("layer", "tensor") if mode != now] if len(devices) > 1 else []


def _cpu_moe(one: Deployed) -> Changes:
    now = one.part.get("cpu_moe") or 0
    if not now or isinstance(now, str):
        return []
    return [{"cpu_moe": layers} for layers in (now - 2, now - 1, now + 1) if layers > 0]


def _draft(one: Deployed) -> Changes:
    """Speculation without a model, and none where there is some."""
    draft = one.service.get("draft")
    if one.service.get("embeddings") or one.service.get("reranking"):
        return []
    found: Changes = [{"draft": False}] if draft else []
    # ngram-mod changed answers at temperature 0, this one did not.
    if not draft or draft.get("type") != "ngram-simple":
        found.append({"draft": {"type": "ngram-simple"}})
    return found


class Axis(NamedTuple):
    """goals: those for which it is raced if no axes are named; none of what changes answers or contexts is, nor what is
    experimental in llama.cpp."""

    name: str
    changes: Callable[[Deployed], Changes]
    goals: tuple[str, ...]


EVERY = ("single", "total", "prompt")
AXES = (
    Axis("threads", _threads, EVERY),
    Axis("flash_attn", _flash_attn, EVERY),
    Axis("ubatch_size", _ubatch_size, ("total", "prompt")),
    Axis("batch_size", _batch_size, ("prompt",)),
    Axis("parallel", _parallel, ("total",)),
    Axis("tensor_split", _tensor_split, EVERY),
    Axis("cpu_moe", _cpu_moe, EVERY),
    Axis("draft", _draft, ("single", "total")),
    Axis("split_mode", _split_mode, ()),
    Axis("slot_ctx_size", _slot_ctx_size, ()),
    Axis("cache", _cache, ()),
)
PLACEMENT = "placement"


def tune_candidates(
    services: Services,
    name: str,
    models: Models,
    groups: Groups,
    hostvars: HostVars,
    nodes: Mapping[str, Map],
    headers: Iterable[dict[str, Any]],
    builds: Map,
    previous: Iterable[dict[str, Any]],
    axes: Sequence[str] = (),
    goal: str = "single",
    combine: Sequence[Map] = (),
    quants: Sequence[Map] = (),
    node: str = "",
) -> list[dict[str, Any]]:
    """-> [{name, axis, changes: {key: value}, services: all of them with the change, plan: of memory_plan() for these,
    why: it is refused, empty if it is not, restarts_workers, most_mib: what its head may need at most, None where it is
    not known}], what is deployed first

    axes: names of AXES or placement, none for those that make sense for the goal; combine: as tune_round() returns it;
    quants: results of llama_plan for tune_quants(), of which placement takes those whose file is there; node: that of
    the replica which is measured, empty for the first one.
    """
    there = [dict(one) for one in quants if one.get("shape")]
    known = Known(models, groups, hostvars, nodes, [*headers, *there], builds or {}, list(previous))
    for wrong in [axis for axis in axes if axis not in (*(one.name for one in AXES), PLACEMENT)]:
        named = [one.name for one in AXES] + [PLACEMENT]
        step = did_you_mean(wrong, named, f", one of {', '.join(named)} is needed: name one of these")
        raise Refusal(f"tune: axes {wrong} seen{step}")
    plan = known.plan(services)
    entry = services[name]
    parts = plan["services"].get(name, [])
    part: Map = next((one for one in parts if one["node"] == node), next(iter(parts), {}))
    head = node or part.get("node") or next(iter(nodes), "")
    deployed = Deployed(resolved(entry, models.get(entry["model"])), part, nodes.get(head, {}))
    wanted = {one.name: one.changes(deployed) for one in AXES if (one.name in axes if axes else goal in one.goals)}
    wanted = {axis: changes for axis, changes in wanted.items() if changes}
    changed: list[tuple[str, dict[str, Any]]] = [("", {})]
    changed += _products(wanted) or [(axis, one) for axis, some in wanted.items() for one in some]
    changed += _combinations(combine)
    found = [_candidate(services, name, _named(one), axis, one, known, plan) for axis, one in changed]
    if PLACEMENT in axes:
        placed = {
            title: _planned({**services, name: single}, name, known, plan)
            for title, single in _placements(entry, head, deployed)
        }
        placed["RPC on loopback"] = _on_loopback(services, name, known, plan, head, deployed)
        for one in there:
            other = {**services, name: {**entry, "quant": one["item"]["quant"]}}
            placed[f"quant {one['item']['quant']}"] = _planned(other, name, known, plan)
        placement = {"axis": PLACEMENT, "changes": {}, "restarts_workers": False}
        found += [{"name": title, **placement, **one} for title, one in placed.items()]
    if goal == "total" and all((value(one["services"][name], "parallel") or 1) == 1 for one in found):
        raise Refusal(
            f"tune: goal total seen, a candidate with several slots is needed: set parallel of {name}, add parallel "
            "to axes, or run with -e goal=single"
        )
    return found


def tune_quants(
    services: Services, name: str, models: Models, host: str, groups: Groups, models_dir: str
) -> list[dict[str, Any]]:
    """-> [of model_items()] for the other quants of a service's model."""
    entry = services[name]
    found: list[dict[str, Any]] = []
    for quant in models[entry["model"]]["quants"]:
        other = {name: dict(entry, quant=quant)} if quant != entry["quant"] else {}
        items = model_items(other, models, host, groups, models_dir)
        found += [item.as_dict() for item in items if (item.model, item.quant) == (entry["model"], quant)]
    return found


def _products(wanted: Mapping[str, Changes]) -> list[tuple[str, dict[str, Any]]]:
    """All combinations, if they are few."""
    several = [[{}, *changes] for changes in wanted.values()]
    count = 1
    for one in several:
        count *= len(one)
    if len(several) < 2 or count > PRODUCT:
        return []
    every = [{key: value for one in some for key, value in one.items()} for some in itertools.product(*several)]
    return [(COMBINED, one) for one in sorted(every, key=len) if one]


def _combinations(combine: Sequence[Map]) -> list[tuple[str, dict[str, Any]]]:
    """Two and more together of the changes that won."""
    best = [dict(one["changes"]) for one in combine[:WINNERS]]
    return [
        (COMBINED, {key: value for one in some for key, value in one.items()})
        for count in range(2, len(best) + 1)
        for some in itertools.combinations(best, count)
    ]


def _others(key: str, now: Any, values: Iterable[int], least: int = 1) -> Changes:
    return [{key: one} for one in values if one != now and one >= least]


def _named(changes: Map) -> str:
    return ", ".join(f"{key} {_shown(one)}" for key, one in changes.items()) or BASELINE


def _shown(one: Any) -> str:
    if isinstance(one, Mapping):
        return " ".join(f"{key}={each}" for key, each in one.items()) if "type" not in one else str(one["type"])
    return "none" if one is False else str(one)


def changed_entry(entry: Settings, changes: Map) -> dict[str, Any]:
    """An entry of llama_services with other values; keys that say the same otherwise are dropped."""
    gone = {other for key in changes for other in alike(key)}
    return {**{key: one for key, one in entry.items() if key not in gone}, **changes}


def _candidate(
    services: Services, name: str, title: str, axis: str, changes: Map, known: Known, plan: Map
) -> dict[str, Any]:
    changed = dict(services, **{name: changed_entry(services[name], changes)})
    return {
        "name": title,
        "axis": axis,
        "changes": dict(changes),
        "restarts_workers": "threads" in changes and bool(services[name].get("workers")),
        **_planned(changed, name, known, plan),
    }


def _planned(services: Services, name: str, known: Known, before: Map, allowed: str = "") -> dict[str, Any]:
    """A candidate is refused for what the deployed services are not. allowed: the beginning of a mistake that does not
    count here, or empty."""
    entry = f"llama_services.{name}"
    refused = service_errors(Inventory(services, known.models, known.groups, known.hostvars), name)
    refused = [one for one in refused if not (allowed and one.startswith(f"{entry}.{allowed}"))]
    plan: dict[str, Any] = {}
    if not refused:
        plan = known.plan(services)
        refused = [one for one in plan["refused"] if one not in before["refused"]]
        if name in plan["unplanned"] and name not in before["unplanned"]:
            refused.append(f"{entry}: {plan['unplanned'][name]}")
    part = next(iter(plan.get("services", {}).get(name, [])), None)
    rows = [row["total_mib"] for row in part["devices"] if row["node"] == part["node"]] if part else []
    return {
        "services": services,
        "plan": plan,
        "why": "; ".join(one.removeprefix(entry + ".") for one in refused),
        "most_mib": round(ROOM * sum(rows)) if rows else None,
    }


def _placements(entry: Settings, head: str, deployed: Deployed) -> list[tuple[str, dict[str, Any]]]:
    """A split service on only its head's node, and with only its first worker."""
    if not deployed.workers:
        return []
    first = [node for node, count in (deployed.part.get("layers") or {}).items() if node != head]
    found = [(f"only {head}", _single(entry, deployed))]
    if first[1:]:
        fewer = {key: one for key, one in entry.items() if key != "tensor_split"}
        found.append((f"worker {first[0]}", dict(fewer, workers=first[0], force_split=True)))
    return found


def _single(entry: Settings, deployed: Deployed) -> dict[str, Any]:
    """An entry without workers. One device has no mode."""
    gone = OF_WORKERS if len(deployed.cards) > 1 else (*OF_WORKERS, "split_mode")
    return {key: one for key, one in entry.items() if key not in gone}


def _on_loopback(
    services: Services, name: str, known: Known, plan: Map, head: str, deployed: Deployed
) -> dict[str, Any]:
    """The whole model on a worker of its head's node: the cost of RPC without a network."""
    entry = dict(_single(services[name], deployed), head=head, workers=head)
    taken = {*ports(services).values(), *(one.get("rpc_port") for one in services.values())}
    entry["rpc_port"] = next(port for port in itertools.count(RPC_PORT) if port not in taken)
    if not deployed.cards:
        # A processor computes with the threads of a head without workers: a worker's own number is another one.
        entry.pop("cards", None)
        share = plan["threads"].get(name, {}).get(head)
        threads = share or deployed.node.get("physical_cores") or deployed.node.get("cores")
        entry = {**({"threads": threads} if threads else {}), **entry}
    beside = known._replace(hostvars=on_loopback(known.hostvars, head))
    return _planned({**services, name: entry}, name, beside, plan, f"workers: {head} is its head too")


def on_loopback(hostvars: HostVars, node: str) -> HostVars:
    """hostvars of an inventory whose heads reach workers of a node on its loopback."""
    # ChainMap changes only its first map, and looks values up when they are needed.
    own = ChainMap({"llama_fabric_address": LOOPBACK}, cast(dict[str, Any], hostvars[node]))
    return ChainMap({node: own}, cast(dict[str, Any], hostvars))
