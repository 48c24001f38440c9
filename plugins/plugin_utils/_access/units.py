# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What keeps a node from having its workers or heads, or from running them. Private to the collection."""

from __future__ import annotations

from typing import Any, Mapping, Sequence

from ...module_utils._llama.flags import flags, known_flags, owner
from ...module_utils._node import paths
from ...module_utils._node.units import unit_name, units_of

Instance = Mapping[str, Any]


def unit_refusals(
    node: Mapping[str, Any],
    host: str,
    kind: str,
    instances: Sequence[Instance],
    build: str,
    at_boot: bool,
    deployed: bool,
    told: str | None = None,
) -> list[str]:
    """One sentence for each thing that is missing or in the way.

    kind: rpc, head or router, of those instances that are asked about; node: the fact llama_node with units, `build`
    and, for heads and routers, `files` with their models; build: the path of the build to run;
    at_boot: whether the primary service answers to its short name; deployed: whether earlier tasks have really
    installed build and models; told: what llama-server --help of that build says, for instances whose `asks_build` is
    true, None where nobody could ask.
    """
    instances = [item for item in instances if item.get("kind", kind) == kind]
    found = _taken_names(instances, kind, node, host, at_boot)
    if instances and deployed and node["build"]["current_build"] is None:
        found.append("%s: missing on %s, a llama.cpp build is needed: run with --tags build first" % (build, host))
    found += [
        "llama_services.%s.cards: no UUID of its cards on %s seen in this run, that of role preflight is needed: run "
        "site.yml without --skip-tags and without --limit" % (item["service"], host)
        for item in instances
        if not all(item.get("cards") or [])
    ]
    for item in instances if kind != "rpc" else []:
        found += [
            "%s: missing on %s, the model of service %s is needed: run with --tags model first"
            % (path, host, item["service"])
            for path in item.get("model_paths") or [item["model_path"]]
            if deployed and node["files"][path] is None
        ]
        if item.get("models_max", 0) is None:
            found.append(
                "llama_services.%s.models_max: no plan of this run seen, that of role preflight is needed: run "
                "site.yml without --skip-tags, or give the number of models" % item["service"]
            )
        if item["tensor_split"] is None and (item["workers"] or item["layers"]):
            found.append(
                "llama_services.%s.tensor_split: no plan of this run seen, that of role preflight is needed: run "
                "site.yml without --skip-tags" % item["service"]
            )
        if item.get("cpu_moe", 0) is None:
            found.append(
                "llama_services.%s.cpu_moe: auto and no plan of this run seen, that of role preflight is needed: run "
                "site.yml without --skip-tags, or give the number of layers" % item["service"]
            )
        if told is not None and item.get("asks_build"):
            found += _unknown_flags(item, host, build, told)
    return found


def _unknown_flags(item: Instance, host: str, build: str, told: str) -> list[str]:
    known = known_flags(told)
    if not known:
        return [
            "%s/bin/llama-server: no flags in what --help says on %s, its list is needed to compare the settings of "
            "service %s with: run it there" % (build, host, item["service"])
        ]
    return [
        "llama_services.%s.%s: %s seen, a flag that %s of %s has is needed: choose one of its llama-server --help, or "
        "another release" % (item["service"], owner(flag) or "extra_args", flag, build.rpartition("/")[2], host)
        for flag in flags([word for one in (item, *item.get("models", ())) for word in one["args"]])
        if flag not in known
    ]


def _taken_names(
    instances: Sequence[Instance], kind: str, node: Mapping[str, Any], host: str, at_boot: bool
) -> list[str]:
    needed = {unit_name(kind, item["service"]) for item in instances}
    if at_boot and any(item.get("primary") for item in instances):
        needed.add("llama-%s.service" % kind)
    taken = sorted(
        unit.name for unit in units_of(node["units"]) if unit.installed and not unit.ours and unit.name in needed
    )
    if not taken:
        return []
    return [
        "%s/%s: a unit that this collection did not write on %s, a free name is needed: adopt.yml takes "
        "llama-%s.service over; for another name call the service otherwise, or move that unit away"
        % (paths.UNITS, ", ".join(taken), host, kind)
    ]


def build_refusals(builds: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """What is wrong with the builds that the nodes would run: {node: the build of its fact llama_node}"""
    sums = {host: build["build_sha256"] for host, build in builds.items()}
    if len(set(sums.values())) > 1:
        return [
            "%s: different builds on the nodes (%s), one identical build is needed: run with --tags build"
            % (paths.BUILDS, sums)
        ]
    return [
        "%s: %s of build %s differ from its build.json, an intact build is needed: remove the release and run with "
        "--tags build" % (host, ", ".join(build["build_broken"] or []), build["current_build"])
        for host, build in builds.items()
        if not build["build_intact"]
    ]
