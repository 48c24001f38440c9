# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What made by hand serves here, and what of it is adopted already. Private to the collection."""

import os
from collections.abc import Sequence
from typing import Any

from .._node import paths
from .connected import clients_of
from .handmade import around, describe, find, pids, url, words
from .steps import ASIDE, Adoption, Record


def look(directory: str, moved: Sequence[str] = (), unit_dir: str = paths.UNITS) -> dict[str, Any]:
    """What serves by hand, what would be done with it, and what is recorded -> result of adoption_info, see there.
    Errors: Refusal."""
    adoption = Adoption(directory, moved, unit_dir=unit_dir)
    record = adoption.read()
    found = find(unit_dir)
    beside = around(found)
    units = [
        {
            "name": unit["name"],
            "kind": unit["kind"],
            "active": unit["active"],
            "enabled": unit["unit_file_state"],
            "serves": describe(unit["process"]) if unit["process"] else None,
        }
        for unit in found["units"]
    ]
    processes = [
        {"pid": process["pid"], "kind": process["kind"], "serves": describe(process)} for process in found["processes"]
    ]
    lines = [
        f"{unit['name']} ({unit['enabled'] or 'no state'}): {words(unit['kind'], unit['serves'])}" for unit in units
    ]
    lines += [
        "process %d, in no unit: %s" % (process["pid"], words(process["kind"], process["serves"]))
        for process in processes
    ]
    if units or processes:
        lines += [
            f"{path}: a directory, moved to {path + ASIDE}"
            for path in moved
            if os.path.isdir(path) and not os.path.islink(path)
        ]
        lines += [f"{path}: left alone, copied to {directory}" for path in beside]
        lines += ["process %d: left alone, %s" % (process["pid"], process["why"]) for process in found["foreign"]]
    heads = [one["serves"]["port"] for one in units + processes if one["kind"] == "head" and one["serves"]]
    return {
        "units": units,
        "processes": processes,
        "clients": clients_of([port for port in heads if port]),
        "pids": pids(found),
        "around": beside,
        "foreign": [{"pid": process["pid"], "owner": process["foreign"]} for process in found["foreign"]],
        "lines": lines,
        "recorded": None
        if record is None
        else {"created": record["created"], "finished": record["finished"], "heads": recorded_heads(record)},
    }


def recorded_heads(record: Record) -> list[dict[str, Any]]:
    """The recorded heads that ran: where they answer and over which workers."""
    served = [(unit["name"], unit["kind"], unit["serves"]) for unit in record["units"]]
    served += [("process %d" % process["pid"], process["kind"], process["serves"]) for process in record["processes"]]
    return [
        {"name": name, "url": url(serves), "rpc_endpoints": serves["rpc"], "model": serves["model"]}
        for name, kind, serves in served
        if kind == "head" and serves and serves["port"]
    ]
