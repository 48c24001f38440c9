# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A memory plan as an operator reads it: one table. Private to the collection."""

import re
from collections.abc import Iterable, Sequence
from typing import Any

from .place import Plan, Row, ServicePlan, mib

# The mark of figures that are not read from the file.
_SOURCES = {
    "catalog": ", ESTIMATED from llama_models, its header was not read",
    "assumed": ", ESTIMATED from assumed figures in llama_models, its header was not read",
}
COLUMNS = ("node", "device", "layers", "weights", "KV", "compute", "margin", "total", "free")


def lines(planned: dict[str, Any], only: str = "") -> list[str]:
    """The result of memory_plan() as lines: per service a title, a row for each device (MiB), replicas in one table,
    and the buffers of the head. only: one service.

    A service that is planned as it was is one line.
    """
    found: list[str] = []
    problems: set[str] = set()
    if planned["uncounted"]:
        found.append(
            "note: %s not counted, some nodes are not part of this run: the memory of the others is shown as free"
            % join(planned["uncounted"])
        )
    for name in sorted(planned["services"]):
        job = ", as a job" + planned["jobs"][name] if name in planned["jobs"] else ""
        for parts in _replicas(planned["services"][name] if name == (only or name) else []):
            # A hub that does not answer is one problem, whatever it was asked for.
            problem = re.sub(r"^(\w+://[^/]+)/\S*: ", r"\1: ", parts[0].problem or "")
            if name in planned["unchanged"]:
                found.append(f"{_title(parts[0])}{job}, planned as before: {', '.join(map(_held, parts))}")
                continue
            title, *rows = table(*([one._replace(problem=None) for one in parts] if problem in problems else parts))
            found += [title + job, *rows]
            problems.add(problem)
    # A refused service has a sentence of its own.
    refused = {
        name
        for name in planned["unplanned"]
        for sentence in planned["refused"]
        if sentence.startswith(f"llama_services.{name}:")
    }
    found.extend(
        "%s: not planned, %s" % item
        for item in sorted(planned["unplanned"].items())
        if item[0] not in refused and item[0] == (only or item[0])
    )
    ports = ["%s %d" % item for item in sorted(planned["ports"].items()) if item[0] == (only or item[0])]
    return found + _about(only, planned) + ([f"ports, by the services' names: {', '.join(ports)}"] if ports else [])


def _replicas(plans: Iterable[dict[str, Any]]) -> list[list[ServicePlan]]:
    """The plans of a service, grouped by model."""
    found: dict[tuple[str, str], list[ServicePlan]] = {}
    for one in map(ServicePlan.of, plans):
        found.setdefault((one.model, one.quant), []).append(one)
    return list(found.values())


def _held(one: ServicePlan) -> str:
    """The layers by device."""
    found = ["%s %s" % tuple(_cells(row)[:3:2]) for row in one.plan.devices if not _beside_cards(row)]
    found += ["experts of %d layers in main memory" % one.plan.cpu_moe] if one.plan.cpu_moe else []
    return ", ".join(found)


def _about(only: str, planned: dict[str, Any]) -> list[str]:
    found, wanted = [], True
    for line in planned["sharing"]:
        if not line.startswith(" "):
            title = line.split()[0].rstrip(":")
            wanted = title not in planned["unchanged"] and title == (only or title)
        found.extend([line] if wanted else [])
    return found


def table(*parts: ServicePlan) -> list[str]:
    """The lines of the plans of one model, one for each replica."""
    one = parts[0]
    rows = [COLUMNS] + [_cells(row) for part in parts for row in part.plan.devices]
    widths = [max(len(row[column]) for row in rows) for column in range(len(COLUMNS))]
    found = [_title(one)]
    if one.problem:
        found.append(f"  {one.problem}")
    for row in rows:
        cells = [
            cell.ljust(width) if column < 3 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths))
        ]
        found.append("  " + "  ".join(cells).rstrip())
    found.append("  MiB" + ("" if len(parts) == 1 else f"; {len(parts)} replicas"))
    for part in parts:
        first, *more = _verdict(part.plan)
        if len(parts) == 1:
            found[-1] += "; " + first
        else:
            found.append(f"  {part.node}: {first}")
        found.extend(("  " if len(parts) == 1 else "    ") + line for line in more)
    draft = [entry for entry in one.inputs if isinstance(entry, list) and entry[:1] == ["draft"]]
    if draft:
        found.append(_draft_words(*draft[0][1:]))
    for entry in [entry for entry in one.inputs if isinstance(entry, list)]:
        if entry[:1] == ["mmproj"]:
            found.append("  with its projector, %d MiB" % mib(entry[1] + entry[2]))
        elif entry[:1] == ["lora"]:
            found.append("  with its adapter %s, %d MiB" % (entry[1], mib(entry[2])))
    if one.unplanned:
        found.append(f"  not planned: {' '.join(one.unplanned)}")
    return found


def _draft_words(*given: str) -> str:
    """given: the model and the quant that draft, or a type."""
    if len(given) > 1:
        return f"  with its draft model {' '.join(given)}, f16 KV cache"
    return f"  drafts by {given[0]}: no weights, the logits of what is checked at once are in compute"


def _verdict(plan: Plan) -> list[str]:
    found = [f"{plan.topology}, {plan.reason}" if plan.fits else "does not fit"]
    if plan.fits and plan.topology == "split":
        found.append(f"--tensor-split {','.join(map(str, plan.tensor_split))}")
    if plan.cpu_moe:
        found.append(experts_words(plan))
    if any(plan.host.values()):
        found.append(
            "main memory of the head: %d MiB of weights and %d MiB of buffers"
            % (plan.host["weights_mib"], plan.host["kv_mib"] + plan.host["compute_mib"])
        )
    return found


def _beside_cards(row: Row) -> bool:
    """Whether it is main memory beside the GPUs of a head, which has a row for what it keeps."""
    return row.kind == "main" and not row.layers


def experts_words(plan: Plan) -> str:
    """How many layers keep their experts in main memory, and what that makes of the weights."""
    kept = sum(row.weights_mib for row in plan.devices if row.kind == "main")
    return "experts of %d of %d layers in main memory: %d MiB of weights on the GPUs, %d MiB there" % (
        plan.cpu_moe,
        sum(plan.counts),
        sum(row.weights_mib for row in plan.devices) - kept,
        kept,
    )


def _title(one: ServicePlan) -> str:
    model = " ".join(word for word in (one.model, one.quant) if word)
    return f"{one.service}: {model}, {context_words(one)}{_SOURCES.get(one.source, '')}"


def _cells(row: Row) -> list[str]:
    place = "-" if not row.layers else "%s-%s (%d)" % (row.first_layer, row.last_layer, row.layers)
    # A kept plan has no free memory.
    sizes = [row.weights_mib, row.kv_mib, row.compute_mib, row.margin_mib, row.total_mib, row.free_mib]
    return [row.node, row.device, place] + ["-" if size is None else str(size) for size in sizes]


def idle_workers(entry: str, plan: ServicePlan, idle: Sequence[str]) -> str:
    return (
        "%s: %s would hold no layers, since the GPUs hold all of %s %s, and each worker needs one: leave %s out of %s"
        % (
            entry,
            join(idle),
            plan.model,
            plan.quant,
            "it" if len(idle) == 1 else "them",
            entry.rsplit(".", 1)[-1],
        )
    )


def context_words(plan: ServicePlan) -> str:
    """The context of a described plan, as each request has it."""
    slots = plan.ctx_size // plan.slot_ctx_size
    return "%d tokens a slot%s of %s KV cache" % (
        plan.slot_ctx_size,
        " (%d slots)" % slots if slots > 1 else "",
        plan.cache_type,
    )


def join(names: Sequence[str]) -> str:
    return " and ".join([", ".join(names[:-1])] * (len(names) > 1) + list(names[-1:]))
