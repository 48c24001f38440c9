# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The script of a job, which sbatch takes. Private to the collection."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ...module_utils._node import paths
from ...module_utils._slurm.job import MOST_BYTES, VARIABLE, comment, parse
from ...module_utils._text import Refusal, exact
from .._intent.builds import VISIBLE
from .._intent.jobs import jobs
from .._intent.records import Groups, HostVars, Models, Services
from .._units.files import digest, preset, process_words, templated
from .._units.sandbox import shader_cache

Job = Mapping[str, Any]
Instance = Mapping[str, Any]
END = "END_OF_THE_JOB"
WRITTEN = "written by the collection from the inventory"
# (key of the service, option of sbatch).
OPTIONS = (
    ("partition", "partition"),
    ("qos", "qos"),
    ("account", "account"),
    ("cpus", "cpus-per-task"),
    ("mem", "mem"),
    ("gres", "gres"),
    ("time", "time"),
)
# requeue: after a preemption and after the loss of a node. singleton: a second job of the name waits. NIL: NONE would
# run a login shell of the user, whose home may be on a share that hangs. propagate: the limits are slurmd's, not
# the submitting shell's.
ALWAYS = (
    "ntasks-per-node=1",
    "requeue",
    "open-mode=append",
    "dependency=singleton",
    "export=NIL",
    "propagate=NONE",
    "chdir=/",
)
SCRIPT = """\
#!/bin/bash
{options}

# The service {service} as a job of SLURM, {written}: change it there.
# To submit it: sbatch {path}

# An abort writes no core file.
ulimit -c 0
export PATH=/usr/local/bin:/usr/bin:/bin
{variable}=$(cat <<'{end}'
{job}
{end}
)
export {variable}
exec {program} slurm_batch
"""


def slurm_jobs(
    services: Services,
    models: Models,
    groups: Groups,
    hostvars: HostVars,
    models_dir: str,
    plan: Mapping[str, Any] | None = None,
) -> list[dict[str, Any]]:
    """The jobs of an inventory, each as Job.as_dict() returns it."""
    return [one.as_dict() for one in jobs(services, models, groups, hostvars, models_dir, plan)]


def slurm_scripts(wanted: Sequence[Job], hostvars: HostVars, templates: Mapping[str, str]) -> list[dict[str, str]]:
    """The scripts of jobs.

    wanted: of slurm_jobs(); hostvars: with the fact llama_node of each node, with `build` and the `files` of models;
    templates: texts of chat templates by service, or by router and model.
    -> [{service, path, content, digest}]
    """
    return [_script(one, hostvars, templates) for one in wanted]


def _script(job: Job, hostvars: HostVars, templates: Mapping[str, str]) -> dict[str, str]:
    head = job["head"]
    registry = {
        "directory": job["registry_dir"],
        "suffix": job["suffix"],
        "url": head["url"],
        "record": registry_record(job),
    }
    given: dict[str, Any] = {
        "service": job["service"],
        "user": job["user"],
        "grace": job["grace"],
        "log_dir": job["log_dir"],
        "state_dir": paths.JOBS,
        "registry": registry if job["registry_dir"] else None,
        "tasks": {
            node: _task(job, head["kind"] if item is head else "rpc", item, hostvars[node], templates)
            for node, item in zip(job["nodes"], [head, *job["workers"]], strict=True)
        },
    }
    files = _seen(hostvars[head["node"]])["files"]
    models = [*head["model_paths"], head["draft_path"]]
    changing = {
        "options": _options(job, ""),
        "builds": {node: _build(hostvars[node], item)[1] for node, item in _items(job)},
        "models": [files.get(model) for model in models if model],
    }
    mark = digest([given, changing])
    text = json.dumps({**given, "digest": mark}, indent=1, sort_keys=True)
    if len(text) > MOST_BYTES:
        raise Refusal(
            "llama_services.%s: a job of %s seen, at most %s are allowed: shorten the chat templates of its models"
            % (job["service"], exact(len(text)), exact(MOST_BYTES))
        )
    parse(text)
    content = SCRIPT.format(
        options="\n".join(_options(job, mark)),
        service=job["service"],
        written=WRITTEN,
        path=job["script"],
        variable=VARIABLE,
        job=text,
        end=END,
        program=paths.PROGRAM,
    )
    return {"service": job["service"], "path": job["script"], "content": content, "digest": mark}


def registry_record(job: Job) -> dict[str, Any]:
    """The constant fields of a job's file in a registry."""
    return {**job["head"]["registry"], "build": job["head"]["build"] or None}


def _options(job: Job, mark: str) -> list[str]:
    nodes, own = job["nodes"], job["settings"]
    found = [f"job-name={job['name']}", f"comment={comment(job['service'], mark)}"]
    found += [f"{option}={own[key]}" for key, option in OPTIONS if key in own]
    found += [f"nodelist={','.join(nodes)}", f"nodes={len(nodes)}", *ALWAYS]
    # Local, so that a share that hangs holds no job.
    return [f"#SBATCH --{one}" for one in [*found, f"output={job['local_log_dir']}/%x-%j.log"]]


def _items(job: Job) -> list[tuple[str, Instance]]:
    """[(node, its head or worker)]"""
    return list(zip(job["nodes"], [job["head"], *job["workers"]], strict=True))


def _task(
    job: Job, role: str, item: Instance, facts: Mapping[str, Any], templates: Mapping[str, str]
) -> dict[str, Any]:
    variables = "rpc_worker" if role == "rpc" else "head_server"
    numa = facts.get(f"{variables}_numa_node")
    process = {
        "environment": facts.get(f"{variables}_environment") or {},
        "numa_node": "" if numa is None else str(numa),
    }
    words = process_words(role, item, process, f"{paths.BUILDS}/releases/{_build(facts, item)[0]}")
    # CUDA's cache is below HOME, which is on a share elsewhere.
    environment = {"HOME": paths.JOBS, "CUDA_CACHE_PATH": f"{paths.JOBS}/cuda"}
    if item.get("accelerator") == "vulkan":
        environment |= shader_cache(f"{paths.JOBS}/shaders")
    environment |= words["environment"]
    cache = f"{paths.JOBS}/rpc-{job['service']}" if role == "rpc" and item["cache"] else ""
    environment.update({"LLAMA_CACHE": cache} if cache else {})
    if "gres" in job["settings"] and item["cards"] != []:
        # SLURM gives the job its cards.
        for name in VISIBLE.values():
            environment.pop(name, None)
    return {
        "role": role,
        "argv": words["argv"],
        "environment": environment,
        "address": item["address"],
        "port": item["port"],
        "files": {} if role == "rpc" else _files(item, templates),
        "cache": cache,
        "endpoints": item.get("rpc_endpoints", []),
        "build": _build(facts, item)[0],
        "ubatch": item.get("ubatch_size", 0),
        "embeddings": item.get("serves", "text") != "text",
        "reranking": item.get("serves") == "scores",
    }


def _files(head: Instance, templates: Mapping[str, str]) -> dict[str, str | None]:
    """The files that a head's arguments name."""
    found: dict[str, str | None] = {
        paths.TEMPLATES.replace("*", one["service"]): templates[one["service"]] for one in templated(head)
    }
    if head["models"]:
        found[paths.PRESETS.replace("*", head["service"])] = preset(head["models"])
        found[paths.NO_MODELS] = None
    return found


def _seen(facts: Mapping[str, Any]) -> Mapping[str, Any]:
    found: Mapping[str, Any] = facts["ansible_facts"]["llama_node"]
    return found


def _build(facts: Mapping[str, Any], item: Instance) -> tuple[str, str | None]:
    """-> (the release, the digest of its build.json); a build that check mode has not installed has none"""
    seen = _seen(facts)["build"]["of"].get(item["build"]) or {}
    return seen.get("current_build") or item["build"], seen.get("build_sha256")
