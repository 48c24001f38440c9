# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The jobs of an inventory beside what their keeper reports. Private to the collection."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...module_utils._settings import is_stopped
from .._intent import jobs as intent
from .._intent.records import Groups, HostVars, Job, Models, Services
from .table import nodes_of

Map = Mapping[str, Any]
# The states of a job in the table of status.yml.
STATES = {"pending": "waiting", "running": "loading", "completing": "ending"}


def jobs_seen(
    services: Services,
    models: Models,
    groups: Groups,
    hostvars: HostVars,
    models_dir: str,
    plan: Map | None = None,
    seen: Map | None = None,
) -> dict[str, Any]:
    """seen: result of module slurm_jobs, without `services` if the host did not respond.

    -> heads: {node: the heads whose jobs serve, as role acceptance verifies them: without a unit, with the job and its
    log}; scripts: {service: path}; nodes: {service: its nodes}; unmeasured: a sentence for each other job that is to
    run; refused: a sentence for each that is to be stopped and is not; rows: of the table of status.yml; keeper: why
    the keeper is not believed, or empty; logs: {node: the jobs with a part there, for node_history}.
    """
    jobs = intent.jobs(services, models, groups, hostvars, models_dir, plan)
    reported = seen or {}
    unknown = _unknown(reported, intent.hosts(groups)) if jobs else ""
    heads: dict[str, list[dict[str, Any]]] = {}
    unmeasured, refused, rows = [], [], []
    for job in jobs:
        entry = (reported.get("services") or {}).get(job.service) or {"state": "none"}
        words = unknown or (reported.get("sentences") or {}).get(job.service) or "its keeper does not know it"
        ready = entry["state"] == "running" and bool(entry.get("serves")) and not unknown
        rows.append(_row(job, entry, words, ready))
        if is_stopped(job.settings):
            if entry["state"] != "none":
                refused.append(
                    f"llama_services.{job.service}.state: stopped seen, and {words}, no job is needed: run site.yml, "
                    "which ends it"
                )
        elif ready:
            heads.setdefault(job.head.node, []).append(_head(job, entry["job_id"]))
        else:
            unmeasured.append(f"{job.service}: not measurable: {words}")
    return {
        "heads": heads,
        "scripts": {job.service: job.script for job in jobs},
        "nodes": {job.service: job.nodes for job in jobs},
        "unmeasured": unmeasured,
        "refused": refused,
        "rows": rows,
        "keeper": unknown,
        "logs": {node: [_logs(job) for job in jobs if node in job.nodes] for job in jobs for node in job.nodes},
    }


def _unknown(seen: Map, hosts: Sequence[str]) -> str:
    """Why nothing is known of the jobs, or empty."""
    if not isinstance(seen.get("services"), Mapping):
        return f"{', '.join(hosts) or 'no host of group llama_slurm'} did not respond"
    return str(seen.get("keeper") or "")


def _head(job: Job, job_id: int) -> dict[str, Any]:
    head = job.head
    return dict(
        head.as_dict(), unit="", job=job_id, user=job.user, log=f"{job.log_dir}/{job_id}/{head.kind}-{head.node}.log"
    )


def _logs(job: Job) -> dict[str, str]:
    return {
        "service": job.service,
        "name": job.name,
        "user": job.user,
        "log_dir": job.log_dir,
        "local_log_dir": job.local_log_dir,
    }


def _row(job: Job, entry: Map, words: str, ready: bool) -> list[Any]:
    """A row of status.status_lines()."""
    where = [job.service, nodes_of(job.head.as_dict())]
    if is_stopped(job.settings) and entry["state"] == "none":
        return [*where, "stopped", "", "", "", "", "as the inventory says"]
    state = "ready" if ready else "held" if entry.get("held") else STATES.get(entry["state"], "no job")
    return [*where, state, "", job.head.endpoint, "", "", words]
