# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What only all nodes together show, and the doctor's report. Private to the collection."""

import os
import shlex
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from ...module_utils._doctor import explain, judge
from .rules import doctor_rules

Evidence = Mapping[str, Any]
# Exit codes of llama-doctor, which say the same.
NOTHING, FOUND, NOT_LOOKED = 0, 1, 2


def cluster_evidence(nodes: Mapping[str, Evidence]) -> dict[str, Any]:
    """{scope, services, plans, clocks, fabrics} of what the nodes have seen."""
    return {
        "scope": "cluster",
        "services": _builds(nodes),
        "plans": _plans(nodes),
        "clocks": [{"node": node, "ahead": abs(seen["ahead"])} for node, seen in nodes.items() if "ahead" in seen],
        "fabrics": _fabrics(nodes),
    }


def _builds(nodes: Mapping[str, Evidence]) -> list[dict[str, Any]]:
    """The builds of each service's head with its workers. Replicas are each on their own: a node's head and the workers
    at its endpoints."""
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


def _plans(nodes: Mapping[str, Evidence]) -> list[dict[str, Any]]:
    """Cards that a plan counts with and that are not there, or have another size; a node whose cards nobody saw is left
    out."""
    found = []
    for head, seen in nodes.items():
        for plan in seen.get("plans") or ():
            other = nodes.get(plan["of"])
            if not other or not other.get("cards") or not str(plan["device"]).startswith("GPU"):
                continue
            sizes = {f"GPU{card['index']}": card["total"] for card in other["cards"]}
            size = sizes.get(plan["device"])
            text = None
            if plan["device"] not in sizes:
                text = f"it counts with {plan['device']} of {plan['of']}, which is not there"
            elif size and abs(size / 2**20 - plan["total_mib"]) > 64:
                words = "it counts with %d MiB on %s of %s, which has %d MiB"
                text = words % (plan["total_mib"], plan["device"], plan["of"], size / 2**20)
            if text:
                found.append({"service": plan["service"], "node": head, "text": text})
    return found


def _given(inventories: Iterable[str]) -> str:
    """Words for ansible-playbook, as they are typed here."""
    below = os.getcwd() + os.sep
    return " ".join(
        "-i " + shlex.quote(one[len(below) :] if one.startswith(below) else one) for one in map(str, inventories)
    )


def _fabrics(nodes: Mapping[str, Evidence]) -> list[dict[str, Any]]:
    layers: dict[str, list[str]] = defaultdict(list)
    for node, seen in nodes.items():
        fabric = seen.get("fabric") or {}
        if fabric.get("address") and fabric.get("link_layer"):
            layers[fabric["link_layer"]].append(node)
    if len(layers) < 2:
        return []
    return [{"text": ", ".join(f"{layer} on {' and '.join(sorted(at))}" for layer, at in sorted(layers.items()))}]


def doctor_report(
    hostvars: Mapping[str, Any], hosts: Iterable[str], explained: str = "", inventories: Iterable[str] = ()
) -> dict[str, Any]:
    """{lines, code, end, findings, failed, nodes} of what module llama_doctor has registered as doctor_node. hosts: all
    that should have been looked at. explained: the unit whose story is told instead. inventories: those of this run,
    which the commands of findings get."""
    given = _given(inventories)
    nodes: dict[str, Evidence] = {}
    findings: list[dict[str, Any]] = []
    failed: dict[str, str] = {}
    events: list[dict[str, Any]] = []
    since = 0.0
    for host in hosts:
        told = (hostvars.get(host) or {}).get("doctor_node") or {}
        if "evidence" not in told and "events" not in told:
            failed[host] = str(told.get("msg") or "it was not reached")
            continue
        # A node is called what the inventory calls it.
        events += [dict(event, node=host) for event in told.get("events") or ()]
        since = told.get("since") or since
        if "evidence" in told:
            nodes[host] = told["evidence"]
            findings += told["findings"]
            failed.update({f"{host}: {what}": why for what, why in told["evidence"]["failed"].items()})
    if explained:
        lines = explain.story(explained, events, since) + judge.lines_of([], failed)
        return {"lines": lines, "code": NOTHING, "findings": [], "failed": failed, "nodes": {}}
    findings += judge.judge(doctor_rules("cluster"), cluster_evidence(nodes))
    findings.sort(key=judge.order)
    for one in findings:
        one["command"] = one["command"].replace("-i inventories/mine", given) if given else one["command"]
    code = FOUND if judge.needed(findings) else NOT_LOOKED if failed else NOTHING
    end = judge.end_of(findings, max((seen["at"] for seen in nodes.values()), default=since) - since)
    return {
        # How a run ends that fails is said by its last task.
        "lines": judge.lines_of(findings, failed) + ([end] if code == NOTHING else []),
        "code": code,
        "end": end,
        "findings": findings,
        "failed": failed,
        "nodes": dict(nodes),
    }
