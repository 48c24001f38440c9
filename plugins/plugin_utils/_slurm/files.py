# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The files of the host that submits jobs: scripts, and the configuration of their keeper. Private to the
collection."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ...module_utils._node import paths
from ...module_utils._plan.stored import stored
from ...module_utils._settings import is_stopped
from .._intent.records import HostVars
from .script import WRITTEN, Instance, Job, registry_record, slurm_scripts


def slurm_files(
    wanted: Sequence[Job], hostvars: HostVars, templates: Mapping[str, str], settings: Mapping[str, Any]
) -> dict[str, Any]:
    """The scripts of jobs, and the files that node_files writes for them.

    wanted, hostvars, templates: as for slurm_scripts(), none to end all jobs; settings: {user, yield_to, qos,
    associations, made: of slurm_made(), by earlier runs, services: the only ones whose scripts change, empty for all,
    config: the present configuration}. -> {scripts: of slurm_scripts(), files: entries}
    """
    only, kept = settings.get("services") or [], (settings.get("config") or {}).get("services", {})
    changing = [job for job in wanted if not only or job["service"] in only]
    scripts = slurm_scripts(changing, hostvars, templates)
    written, made = [script["path"] for script in scripts], settings["made"]
    config = {
        "user": settings["user"],
        "directory": paths.KEEPER,
        "partitions_yield": list(settings["yield_to"]),
        "registry_dir": next((job["registry_dir"] for job in wanted), made.get("registry_dir", "")),
        "services": {name: one for name, one in kept.items() if only and name not in only}
        | {
            job["service"]: {
                "wanted": not is_stopped(job["settings"]),
                "name": job["name"],
                "script": script["path"],
                "digest": script["digest"],
                "grace": job["grace"],
                "log_dir": job["log_dir"],
                "suffix": job["suffix"],
                "record": registry_record(job),
                "nodes": job["nodes"],
            }
            for job, script in zip(changing, scripts, strict=True)
        },
        "compared": _compared(wanted, settings),
    }
    # A script of this name that the operators wrote stays.
    files = [{"path": one["path"], "content": one["content"], "mode": "0755", "mark": WRITTEN} for one in scripts]
    files.append({"path": paths.KEEPER_CONFIG, "content": _text(config)})
    gone = [] if only else [path for path in made.get("scripts", []) if path not in written]
    return {"scripts": scripts, "files": files + [{"path": path, "state": "absent"} for path in gone]}


def _compared(wanted: Sequence[Job], settings: Mapping[str, Any]) -> dict[str, Any]:
    """For the doctor, who compares SLURM with it. Of a QoS that the inventory does not write only GraceTime counts."""
    own = [(job, job["settings"]) for job in wanted]
    named = [
        {"user": settings["user"], "account": one["account"], "qos": [one["qos"]] if one.get("qos") else []}
        for _job, one in own
        if one.get("account")
    ]
    return {
        "qos": {
            **{one["qos"]: {"grace_time": job["grace"]} for job, one in own if one.get("qos")},
            **settings.get("qos", {}),
        },
        "associations": [*settings.get("associations", []), *named],
        "gres": [
            {"service": job["service"], "nodes": job["nodes"], "gres": one["gres"]}
            for job, one in own
            if one.get("gres")
        ],
    }


def slurm_made(wanted: Sequence[Job], created: Mapping[str, Any], made: Mapping[str, Any]) -> str:
    """The record of what the role made, for its removal: {user, registry_dir, scripts, qos, associations}. created: of
    module slurm_accounting; made: the record of earlier runs."""
    found: dict[str, Any] = {"scripts": sorted(job["script"] for job in wanted)}
    found.update({name: wanted[0][name] for name in ("user", "registry_dir")})
    for name in ("qos", "associations"):
        entries = [*made.get(name, []), *created.get(name, [])]
        found[name] = [entry for number, entry in enumerate(entries) if entry not in entries[:number]]
    return _text(found)


def slurm_plans(heads: Sequence[Instance], plans: Mapping[str, Any]) -> list[dict[str, str]]:
    """The files with the plans of heads, which the next run reads. plans: services of memory_plan()."""
    return [
        {"path": paths.PLANS.replace("*", head["service"]), "content": _text(stored(plans[head["service"]]))}
        for head in heads
        if plans.get(head["service"])
    ]


def _text(given: Any) -> str:
    return json.dumps(given, indent=4, sort_keys=True, separators=(",", ": ")) + "\n"
