# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The rules of the doctor, evidence of all nodes together, and its report. Private to the collection."""

import os
import shlex
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ansible.module_utils.common.yaml import yaml_load

from ...module_utils._doctor import explain, judge
from .._monitoring import dropped

Evidence = Mapping[str, Any]
# The exit statuses of llama-doctor.
NOTHING, FOUND, NOT_LOOKED = 0, 1, 2


def cluster_evidence(nodes: Mapping[str, Evidence]) -> dict[str, Any]:
    """{scope, services, clocks} from the evidence of nodes."""
    return {
        "scope": "cluster",
        "services": _builds(nodes),
        "clocks": [{"node": node, "ahead": abs(seen["ahead"])} for node, seen in nodes.items() if "ahead" in seen],
    }


def _builds(nodes: Mapping[str, Evidence]) -> list[dict[str, Any]]:
    """The builds of each head and its workers."""
    workers = {
        unit["endpoint"]: (node, unit["build"])
        for node, seen in nodes.items()
        for unit in seen.get("units") or ()
        if unit["kind"] == "rpc" and unit["active_state"] == "active"
    }
    found = []
    for node, seen in nodes.items():
        for unit in seen.get("units") or ():
            if unit["kind"] != "head" or unit["active_state"] != "active":
                continue
            where = [(node, unit["build"])] + [workers[one] for one in unit["rpc_endpoints"] if one in workers]
            builds: dict[str, list[str]] = defaultdict(list)
            for place, build in where:
                if build:
                    builds[build].append(place)
            text = ", ".join(f"{build} on {' and '.join(sorted(set(at)))}" for build, at in sorted(builds.items()))
            found.append({"service": unit["service"], "node": node, "build_count": len(builds), "text": text})
    return found


def _given(inventories: Iterable[str]) -> str:
    """The -i options of ansible-playbook."""
    below = os.getcwd() + os.sep
    return " ".join(
        "-i " + shlex.quote(one[len(below) :] if one.startswith(below) else one) for one in map(str, inventories)
    )


def doctor_report(
    hostvars: Mapping[str, Any], hosts: Iterable[str], explained: str = "", inventories: Iterable[str] = ()
) -> dict[str, Any]:
    """{lines, code, end, findings, failed, nodes} from module llama_doctor's results, registered as doctor_node. hosts:
    all that were to be checked. explained: a unit whose failure is shown instead. inventories: of this run, for the
    commands of findings."""
    given = _given(inventories)
    nodes: dict[str, Evidence] = {}
    findings: list[dict[str, Any]] = []
    failed: dict[str, str] = {}
    events: list[dict[str, Any]] = []
    since = 0.0
    for host in hosts:
        result = (hostvars.get(host) or {}).get("doctor_node") or {}
        if "evidence" not in result and "events" not in result:
            failed[host] = str(result.get("msg") or "it was not reached")
            continue
        # By the names of the inventory.
        events += [dict(event, node=host) for event in result.get("events") or ()]
        since = result.get("since") or since
        if "evidence" in result:
            nodes[host] = result["evidence"]
            findings += result["findings"]
            failed.update({f"{host}: {what}": why for what, why in result["evidence"]["failed"].items()})
    if explained:
        lines = explain.timeline_of(explained, events, since) + judge.lines_of([], failed)
        return {"lines": lines, "code": NOTHING, "findings": [], "failed": failed, "nodes": {}}
    findings += judge.judge(doctor_rules("cluster"), cluster_evidence(nodes))
    findings.sort(key=judge.order)
    for one in findings:
        one["command"] = one["command"].replace("-i inventories/mine", given) if given else one["command"]
    code = FOUND if judge.needed(findings) else NOT_LOOKED if failed else NOTHING
    end = judge.end_of(findings, max((seen["at"] for seen in nodes.values()), default=since) - since)
    return {
        # The last task of a failed run prints its end.
        "lines": judge.lines_of(findings, failed) + ([end] if code == NOTHING else []),
        "code": code,
        "end": end,
        "findings": findings,
        "failed": failed,
        "nodes": dict(nodes),
    }


# Keys that the judge needs.
JUDGED = ("each", "scope", "when", "severity", "stays", "sentence", "cause", "fix", "command")


def load(roles: Path = dropped.ROLES) -> list[dict[str, Any]]:
    """All rules with their fixtures."""
    found = []
    for one in dropped.doctor_rules(roles):
        rule = yaml_load(one.path.read_text(encoding="utf-8"))
        found.append(dict(rule, name=one.path.stem))
    return found


def doctor_rules(scope: str) -> list[dict[str, Any]]:
    """Rules of a scope, node or cluster, for the judge."""
    return [
        dict({key: rule[key] for key in JUDGED if key in rule}, name=rule["name"])
        for rule in load()
        if rule.get("scope", "node") == scope
    ]
