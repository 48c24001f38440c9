# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Checks before a node gets or runs its workers and heads. Private to the collection."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...module_utils._llama.flags import flags, known_flags, owner
from ...module_utils._node import paths
from ...module_utils._node.units import Unit, units_of
from ...module_utils._settings import is_stopped
from .._intent.builds import named

Instance = Mapping[str, Any]
# The kinds of services' units, which are the tags of site.yml that change them.
KINDS = ("rpc", "head", "router")


def partial_refusals(
    host: str, units: Sequence[Unit], heads: Sequence[Instance], workers: Sequence[Instance], changes: Sequence[str]
) -> list[str]:
    """At most one sentence: units of kinds that a run does not configure, though its other changes need that.

    changes: the kinds that it configures. A head would wait for a worker that is missing or listens elsewhere, and an
    unwanted unit would be removed without its successor.
    """
    if not changes:
        return []
    managed = [unit for unit in units if unit.installed and unit.managed]
    wanted = {one["unit"] for one in (*heads, *workers)}
    found = {(unit.name, unit.kind) for unit in managed if unit.name not in wanted}
    if "head" in changes:
        listens = {(unit.name, unit.endpoint) for unit in managed}
        found |= {
            (one["unit"], "rpc")
            for one in workers
            if not is_stopped(one) and (one["unit"], "%s:%d" % (one["address"], one["port"])) not in listens
        }
    missed = sorted((name, kind) for name, kind in found if kind in KINDS and kind not in changes)
    if not missed:
        return []
    return [
        "cannot change only units of kind %s because %s on %s %s too: run with --tags %s"
        % (
            ", ".join(changes),
            ", ".join(name for name, _kind in missed),
            host,
            "changes" if len(missed) == 1 else "change",
            ",".join(kind for kind in KINDS if kind in changes or kind in dict(missed).values()),
        )
    ]


def unit_refusals(
    node: Mapping[str, Any],
    host: str,
    kind: str,
    instances: Sequence[Instance],
    deployed: bool,
    helps: Mapping[str, str] | None = None,
) -> list[str]:
    """One sentence for each thing that is missing or in the way.

    kind: rpc, head or router; node: the fact llama_node with units, `build`
    and, for heads and routers, `files` with their models; deployed: whether earlier tasks have really installed builds
    and models; helps: {release: output of its llama-server --help}, for instances with `asks_build`; without
    those that could not be run.
    """
    instances = [item for item in instances if item.get("kind", kind) == kind]
    found = []
    for release in dict.fromkeys(item.get("build", "") for item in instances):
        if deployed and node["build"]["of"][release]["current_build"] is None:
            found.append(
                f"{_path(release)}: missing on {host}, a llama.cpp build is needed: run with --tags build first"
            )
    found += [
        "llama_services.%s.cards: its cards on %s are not known in this run, role preflight is needed: run "
        "site.yml without --skip-tags and without --limit" % (item["service"], host)
        for item in instances
        if not all(item.get("cards") or [])
    ]
    for item in instances if kind != "rpc" else []:
        found += [
            f"{path}: missing on {host}, the model of service {item['service']} is needed: run with --tags model first"
            for path in [*(item.get("model_paths") or [item["model_path"]]), item.get("draft_path")]
            if deployed and path and node["files"][path] is None
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
        if item.get("asks_build") and item.get("build", "") in (helps or {}):
            release = item.get("build", "")
            found += _unknown_flags(item, host, _path(release), (helps or {})[release])
    return found


def _path(release: str) -> str:
    return f"{paths.BUILDS}/releases/{release}" if release else paths.BUILDS + "/current"


def _unknown_flags(item: Instance, host: str, build: str, text: str) -> list[str]:
    known = known_flags(text)
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


def build_refusals(
    nodes: Mapping[str, Mapping[str, Any]],
    wanted: Mapping[str, Sequence[str]] | None = None,
    runs: Mapping[str, Sequence[Instance]] | None = None,
) -> list[str]:
    """One sentence for each fault of the builds that the nodes would run.

    nodes: {node: its fact llama_node with units and build}; wanted: {node: names of units that count}; runs: instead
    of units, {node: its heads and workers}. Head and workers of a service run one commit, compiled one way for
    each accelerator, and a build on several nodes of one architecture and distribution is the same on all of them.
    """
    found: list[str] = []
    of_service: dict[str, dict[str, str]] = {}  # {service: {node: the identity of what it runs}}
    of_release: dict[tuple[str, str], dict[str, str]] = {}  # {(release, kind): {node: the digest of its manifest}}
    for host, node in nodes.items():
        pairs = _pairs(node, (wanted or {}).get(host, []) if runs is None else None, (runs or {}).get(host, []))
        for service, release in pairs:
            build = node["build"]["of"].get(release) or {}
            if not build.get("build_intact"):
                broken = ", ".join(build.get("build_broken") or ["all files"])
                found.append(
                    "%s: %s of build %s differ from its build.json, an intact build is needed: remove the release and "
                    "run with --tags build" % (host, broken, release)
                )
                continue
            of_release.setdefault((release, build.get("build_kind") or ""), {})[host] = build["build_sha256"]
            of_service.setdefault(service, {})[host] = build["build_identity"]
    found += [
        "%s/releases/%s: different builds on the nodes (%s), one identical build is needed: remove it on those that "
        "differ and run with --tags build" % (paths.BUILDS, release, _each(sums))
        for (release, _kind), sums in sorted(of_release.items())
        if len(set(sums.values())) > 1
    ]
    found += [
        "llama_services.%s.build: different commits on its nodes (%s), one for head and workers is needed: run with "
        "--tags build, without --limit" % (service, _each(identities))
        for service, identities in sorted(of_service.items())
        if len(set(identities.values())) > 1
    ]
    return list(dict.fromkeys(found))


def _each(seen: Mapping[str, str]) -> str:
    return ", ".join(f"{host} has {one[:10]}" for host, one in seen.items())


def _pairs(
    node: Mapping[str, Any], wanted: Sequence[str] | None, instances: Sequence[Instance]
) -> list[tuple[str, str]]:
    """[(service, release)] of a node: of its units among the wanted ones, or of what is to run."""
    if wanted is None:
        return [(item["service"], item["build"]) for item in instances]
    return [
        (unit.service or "", path.rpartition("/")[2])
        for unit, entry in zip(units_of(node["units"]), node["units"], strict=True)
        if unit.managed and unit.installed and unit.name in wanted
        for path in named([entry], paths.BUILDS)
    ]
