# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""SLURM's configuration compared with the jobs of an inventory; a difference is shown as the line to write. Private to
the collection."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ...module_utils._slurm.ask import period, size
from ...module_utils._slurm.facts import has_gres
from ...module_utils._text import printable
from .script import Job

Facts = Mapping[str, Any]
# Errors of sbatch --test-only that end by themselves: nodes are down, drained or in use.
LATER = re.compile("not available now|busy|currently not available", re.IGNORECASE)


def slurm_refusals(
    seen: Facts, wanted: Sequence[Job], ids: Mapping[str, str], given: Mapping[str, Any]
) -> dict[str, list[str]]:
    """Sentences for all that keeps SLURM from running jobs, and for other differences from the inventory.

    seen: result of module slurm_jobs with its facts; wanted: of slurm_jobs(); ids: {node: number of the user there as a
    text, empty for none}; given: {host, user, qos, associations: variables of the inventory, registry_uids: of the
    gateway}. -> {refused, warnings}
    """
    host, user = given["host"], given["user"]
    if seen.get("config") is None:
        return {
            "refused": [
                f"{host}: no answer of SLURM seen ({printable(seen.get('slurm') or 'nothing')}), one of scontrol is "
                "needed: start slurmctld, and munge on this host"
            ],
            "warnings": [],
        }
    refused = [*_accounts(host, user, seen["uid"], ids, wanted, given["registry_uids"])]
    for job in wanted:
        refused += _places(job, seen)
    warnings: list[str] = [line for job in wanted for line in _partition(job, seen)]
    if seen["qos"] is not None and seen["associations"] is not None:
        for job in wanted:
            refused += _accounting(job, user, seen, given)
            warnings += _qos(job, seen["qos"], given["qos"])
        warnings += _preemption(seen["config"], given["qos"])
    return {"refused": list(dict.fromkeys(refused)), "warnings": list(dict.fromkeys(warnings))}


def slurm_script_refusals(tests: Sequence[Facts]) -> list[str]:
    """tests: results of sbatch --test-only, each with the script as its item. What ends by itself is no refusal."""
    return [
        "llama_services.%s: sbatch --test-only says %s, a job that SLURM takes is needed: correct its keys"
        % (one["item"]["service"], printable(" ".join(one["stderr"].split()) or "nothing", 300))
        for one in tests
        if one.get("rc", 0) and not LATER.search(one["stderr"])
    ]


def _accounts(
    host: str, user: str, uid: int | None, ids: Mapping[str, str], wanted: Sequence[Job], registry_uids: Sequence[Any]
) -> Iterator[str]:
    if uid is None:
        yield f"slurm_user: no account {user} seen on {host}, the user of the jobs is needed there: make it"
        return
    if uid == 0:
        yield f"slurm_user: {user} seen, which is root, an ordinary account is needed: choose another one"
    for node, text in ids.items():
        if text != str(uid):
            yield (
                f"slurm_user: {user} has {text or 'no account'} on {node} and {uid} on {host}, one number everywhere "
                f"is needed: make the account with useradd --uid {uid} {user}, or change it with usermod"
            )
    if any(job["registry_dir"] for job in wanted) and str(uid) not in map(str, registry_uids):
        numbers = ", ".join(map(str, [*registry_uids, uid]))
        yield (
            f"gateway_registry_uids: {uid} of {user} is not in it, the user who writes the files of jobs is needed: "
            f"write gateway_registry_uids: [{numbers}]"
        )


def _places(job: Job, seen: Facts) -> Iterator[str]:
    """Partition, nodes, cards, memory and time of a job."""
    entry, own = f"llama_services.{job['service']}", job["settings"]
    partitions, nodes = seen["partitions"] or {}, seen["nodes"] or {}
    partition = own.get("partition")
    if partition and partition not in partitions:
        yield (
            f"{entry}.partition: {partition} is not in SLURM: write PartitionName={partition} "
            f"Nodes={','.join(job['nodes'])} State=UP into slurm.conf"
        )
    for node in job["nodes"]:
        facts = nodes.get(node)
        if facts is None:
            yield f"{entry}: {node} is no node of SLURM, its NodeName is needed: name it in hosts.yml as SLURM does"
            continue
        if partition in partitions and partition not in facts.get("Partitions", "").split(","):
            line = f"PartitionName={partition} Nodes={','.join(job['nodes'])}"
            yield f"{entry}.partition: {node} is not in {partition}: write {line} into slurm.conf"
        if own.get("gres") and not has_gres(facts.get("Gres", ""), own["gres"]):
            there = printable(facts.get("Gres") or "nothing", 60)
            yield (
                f"{entry}.gres: {there} seen on {node}, {own['gres']} is needed: "
                f"write NodeName={node} Gres={own['gres']} into slurm.conf, and gres.conf, or correct the key"
            )
        memory = facts.get("RealMemory", "")
        if own.get("mem") and memory.isdigit() and size(own["mem"]) > int(memory) << 20:
            yield f"{entry}.mem: {own['mem']} seen, at most {memory}M is allowed, the RealMemory of {node}: lower it"
    limit = period((partitions.get(partition) or {}).get("MaxTime", ""))
    if limit and period(own.get("time", "")) > limit:
        yield (
            f"{entry}.time: {own['time']} seen, at most {partitions[partition]['MaxTime']} is allowed, the MaxTime of "
            f"{partition}: lower it"
        )


def _accounting(job: Job, user: str, seen: Facts, given: Mapping[str, Any]) -> Iterator[str]:
    own, entry = job["settings"], f"llama_services.{job['service']}"
    qos, account = own.get("qos"), own.get("account")
    if qos and qos not in {*seen["qos"], *given["qos"]}:
        yield (
            f"{entry}.qos: {qos} is not in SLURM: write it in slurm_qos, or run sacctmgr add qos {qos} "
            f"GraceTime={job['grace']} PreemptMode=requeue"
        )
    known = [*seen["associations"], *given["associations"]]
    matching = [
        one
        for one in known
        if one.get("user") == user
        and account in (None, one.get("account"))
        and (not qos or qos in (one.get("qos") or []))
    ]
    if not matching:
        words = " ".join(
            [f"account={account or 'ACCOUNT'}", *([f"qos+={qos}"] if qos else [])],
        )
        yield (
            f"slurm_user: {user} has no association for {entry}"
            f"{' with account ' + account if account else ''}{' with QoS ' + qos if qos else ''}, one is needed: write "
            f"it in slurm_associations, or run sacctmgr add user {user} {words}"
        )


def _qos(job: Job, seen: Mapping[str, Facts], written: Mapping[str, Any]) -> Iterator[str]:
    """The QoS of a job, as it will be. written: by the inventory, which the role has SLURM have."""
    name = job["settings"].get("qos")
    known = {one: {**(seen.get(one) or {}), **(written.get(one) or {})} for one in (*seen, *written)}
    own = known.get(name)
    if own is None:
        return
    there, mode = own.get("grace_time"), own.get("preempt_mode", "cluster")
    if name not in written and there is not None and there != job["grace"]:
        yield (
            f"llama_services.{job['service']}.grace: {job['grace']} seen, the GraceTime of QoS {name} is {there}: run "
            f"sacctmgr modify qos {name} set GraceTime={job['grace']}, or change the key"
        )
    if name not in written and mode not in ("cluster", "requeue"):
        yield (
            f"llama_services.{job['service']}.qos: PreemptMode {mode} of {name} seen, requeue is needed, so that its "
            f"preempted jobs keep their place: run sacctmgr modify qos {name} set PreemptMode=requeue"
        )
    for other, values in sorted(known.items()):
        mine, less = own.get("priority", 0), values.get("priority", 0)
        if name in (values.get("preempt") or []) and less < mine:
            yield (
                f"llama_services.{job['service']}.qos: priority {mine} of {name} seen, {less} of {other}, which "
                f"preempts it, so a preempted job starts first: run sacctmgr modify qos {other} set "
                f"Priority={mine + 1}, or write both in slurm_qos"
            )


def _partition(job: Job, seen: Facts) -> Iterator[str]:
    """Keys of a partition that count where partitions preempt; with preempt/qos SLURM does not look at them."""
    name, partitions = job["settings"].get("partition"), seen["partitions"] or {}
    own = partitions.get(name)
    if own is None or seen["config"].get("PreemptType") != "preempt/partition_prio":
        return
    entry = f"llama_services.{job['service']}.partition"
    for key, wanted in (("GraceTime", str(job["grace"])), ("PreemptMode", "REQUEUE")):
        if own.get(key) != wanted:
            yield (
                f"{entry}: {key}={own.get(key)} of {name} seen, {wanted} is needed: write PartitionName={name} "
                f"{key}={wanted} into slurm.conf"
            )
    tier = _tier(own)
    shared = {
        one
        for node in job["nodes"]
        for one in (seen["nodes"] or {}).get(node, {}).get("Partitions", "").split(",")
        if one in partitions and one != name
    }
    if shared and all(_tier(partitions[one]) <= tier for one in shared):
        yield (
            f"{entry}: PriorityTier={tier} of {name} seen, and no more of {', '.join(sorted(shared))} on its nodes, so "
            "that nothing preempts its jobs: write a higher PriorityTier for these into slurm.conf"
        )


def _tier(partition: Facts) -> int:
    text = str(partition.get("PriorityTier") or "")
    return int(text) if text.isdigit() else 0


def _preemption(config: Facts, qos: Mapping[str, Any]) -> Iterator[str]:
    """SLURM's own configuration is read only."""
    if not any(one.get("preempt") for one in qos.values()):
        return
    kind, mode = str(config.get("PreemptType") or ""), str(config.get("PreemptMode") or "")
    if kind != "preempt/qos":
        yield f"slurm.conf: PreemptType={kind} seen, QoS preempt nothing with it: write PreemptType=preempt/qos"
    if "REQUEUE" not in mode.upper():
        yield f"slurm.conf: PreemptMode={mode} seen, preempted jobs do not come back with it: write PreemptMode=REQUEUE"
