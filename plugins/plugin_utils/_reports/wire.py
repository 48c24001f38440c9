# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The split proof: whether an answer really came from every worker as the plan says. Private to the collection.

Each check looks at what kernel, cards and llama.cpp's log of the load say. A check that cannot be made says why, and
refuses nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from ...module_utils._node.port_probe import OPEN, SILENT
from .results import FORMAT, files_of

Map = Mapping[str, Any]
# How far from its plan, or from what the log says, a worker's memory may be: a tenth.
OFF = 0.1
# Of 1/N: how busy each of N stages has to be while tokens are generated, one stage after the other.
BUSY = 0.7
# Samples of a second each, below which nothing is said of how busy a card was.
SAMPLES = 3
# Bytes of a worker's answer around its numbers.
ANSWER = 8
IPV4 = re.compile(r"^\d+\.\d+\.\d+\.\d+\Z")


class Check(NamedTuple):
    """holds: None where it cannot be judged. said: the values that were seen. wrong: a sentence for each fault."""

    name: str
    holds: bool | None
    said: str
    wrong: list[str]


class Seen(NamedTuple):
    """What was read of one service. wire: of llama_wire. process: of llama_process, of the head. processes: the same of
    its workers, in the order of its shares. releases: those that the inventory wants, the head's first. knocks: {host:
    answers of port_probe, None for one that was not reached}. load: of llama_load_info. addresses: {node: address on
    the fabric}. plan: rows of the acceptance report. watches: {node: result of llama_bench_watch}."""

    wire: Map
    process: Map
    processes: Sequence[Map]
    releases: Sequence[str]
    knocks: Map
    load: Map
    addresses: Map
    plan: Sequence[Map]
    watches: Map

    def nodes(self, head: Map) -> list[tuple[str, Map]]:
        """(node, process) of the head and of each worker."""
        names = [head["node"]] + [share["node"] for share in head["shares"]]
        return list(zip(names, [self.process, *self.processes], strict=True))


def wire(head: Map, seen: Seen, measured_at: str) -> dict[str, Any]:
    """-> {verdict, files, lines, refused}: what is kept and printed, and a sentence for each fault.

    head: an entry of head_instances. measured_at: ISO 8601, UTC.
    """
    label = str(head.get("label") or head["service"]).replace(" on ", ".")
    if seen.wire["decode"] is None:
        said = f"wire of {label}: not looked at, {seen.wire['reason']}"
        return {"verdict": "not looked at", "files": {}, "lines": [said], "refused": []}
    judged: list[Callable[[Map, Seen], Check]] = [_build, _memory, _addresses, _bytes, _work, _closed]
    checks = [check(head, seen) for check in judged if head["shares"] or check is _build]
    refused = [f"llama_services.{head['service']}: {wrong}" for check in checks for wrong in check.wrong]
    result = {
        "format": FORMAT,
        "kind": "wire",
        "service": head["service"],
        "label": label,
        "model": head["model"],
        "quant": head["quant"],
        "measured_at": measured_at,
        "verdict": _verdict(checks, refused),
        "sentences": refused,
        "checks": [{"name": check.name, "holds": check.holds, "said": check.said} for check in checks],
        "decode": {name: seen.wire["decode"][name] for name in ("tokens", "tokens_per_second", "workers")},
    }
    lines = _lines(label, checks)
    return {"verdict": result["verdict"], "files": files_of("wire", result), "lines": lines, "refused": refused}


def _verdict(checks: Sequence[Check], refused: Sequence[str]) -> str:
    """Without its bytes, or without anybody who could ask whether a port is open, nothing is proved of a split."""
    unknown = any(check.holds is None for check in checks if check.name in ("bytes", "closed"))
    return "refused" if refused else "not judged" if unknown else "true"


def _lines(label: str, checks: Sequence[Check]) -> list[str]:
    words = {True: "holds", False: "FAILS", None: "-"}
    return [f"wire of {label}:", *(f"  {check.name:10} {words[check.holds]:6} {check.said}" for check in checks)]


def _build(head: Map, seen: Seen) -> Check:
    """One build, whole, on every node, and each process runs it."""
    own = (seen.process.get("build") or {}).get("identity")
    wrong = []
    fix = ": restart it with site.yml"
    for (node, process), wanted in zip(seen.nodes(head), seen.releases, strict=True):
        build, runs = process.get("build") or {}, process.get("release")
        if not process["pid"]:
            wrong.append(f"worker {node} does not run: start it with site.yml")
        elif runs != wanted:
            wrong.append(f"{node} runs {runs or 'a program of elsewhere'}, release {wanted} is needed{fix}")
        elif process["foreign"]:
            files = ", ".join(process["foreign"][:3])
            wrong.append(f"{node} runs {files}, files of release {wanted} alone are needed{fix}")
        elif not build.get("intact"):
            files = ", ".join((build.get("broken") or [])[:3]) or "no build.json"
            words = (
                "release %s of %s has changed files (%s), those of its build are needed: install it with --tags build"
            )
            wrong.append(words % (runs, node, files))
        elif build.get("identity") != own:
            words = "%s runs build %s and the head %s, one build is needed%s"
            wrong.append(words % (node, build.get("identity"), own, fix))
    names = sorted({str(process.get("release")) for _node, process in seen.nodes(head)})
    return Check("build", not wrong, f"{', '.join(names)} on {len(seen.releases)} node(s)", wrong)


def _memory(head: Map, seen: Seen) -> Check:
    """Every worker holds what the plan gives it, by llama.cpp's log; and that it is there, by kernel and card."""
    wrong, said = [], []
    for share, process in zip(head["shares"], seen.processes, strict=True):
        node = share["node"]
        rows = [row for row in seen.plan if row["node"] == node and row["loaded_mib"]]
        planned = sum(sum(row["planned_mib"].values()) for row in rows)
        devices = [one for one in seen.load["devices"] if one["endpoint"] == share["endpoint"]]
        loaded = sum(one["total_mib"] for one in devices)
        kept = sum(one["model_mib"] + one["kv_mib"] for one in devices)
        held = sum((process.get("cards_mib") or {}).values()) or process.get("resident_mib") or 0.0
        said.append(
            "%s %.0f MiB loaded, %.0f held%s" % (node, loaded, held, " of %d planned" % planned if rows else "")
        )
        if rows and abs(loaded - planned) > OFF * planned:
            words = "worker %s was given %.0f MiB, %d are planned and a tenth more or less is allowed"
            wrong.append(words % (node, loaded, planned) + ": deploy the plan with site.yml")
        # A driver that lists the process may not tell its memory.
        told = not process.get("cards_mib") or any(process["cards_mib"].values())
        if told and held < (1 - OFF) * kept:
            words = (
                "worker %s holds %.0f MiB, weights and KV cache of %.0f are needed: look at its journal, and restart it"
            )
            wrong.append(words % (node, held, kept))
    return Check("memory", not wrong, "; ".join(said), wrong)


def _addresses(head: Map, seen: Seen) -> Check:
    """RPC runs between addresses of the fabric, and a worker listens nowhere else."""
    wrong, said = [], []
    ends = {one["endpoint"]: one["ends"] for one in seen.wire["connections"]}
    here = seen.addresses.get(head["node"]) or ""
    for share, process in zip(head["shares"], seen.processes, strict=True):
        node, endpoint = share["node"], share["endpoint"]
        there = seen.addresses.get(node) or ""
        if not ends.get(endpoint):
            words = "the head has no connection to worker %s at %s: restart the head once the worker runs"
            wrong.append(words % (node, endpoint))
        for local, remote in ends.get(endpoint) or []:
            said.append(f"{local} to {remote}")
            for name, end, wanted in ((head["node"], local, here), (node, remote, there)):
                address = end.rpartition(":")[0]
                if IPV4.match(wanted) and address != wanted:
                    words = (
                        "RPC of worker %s uses %s of %s, its llama_fabric_address %s is needed: correct routes or units"
                    )
                    wrong.append(words % (node, address, name, wanted))
        places = process.get("listens") or []
        if IPV4.match(endpoint.rpartition(":")[0]) and endpoint not in places:
            words = "worker %s listens on %s, %s is needed: restart it with site.yml"
            wrong.append(words % (node, ", ".join(places) or "nothing", endpoint))
        for place in places if endpoint in places else []:
            if IPV4.match(endpoint.rpartition(":")[0]) and place != endpoint:
                words = "worker %s listens on %s, %s alone is needed: restart it with site.yml"
                wrong.append(words % (node, place, endpoint))
    return Check("addresses", not wrong, "; ".join(said), wrong)


def _bytes(head: Map, seen: Seen) -> Check:
    """Every worker sends back something for each token that is generated: its answer has eight bytes at least."""
    decode = seen.wire["decode"]
    moved = {one["endpoint"]: one["bytes_received"] for one in decode["workers"]}
    counts = [(share["node"], moved.get(share["endpoint"])) for share in head["shares"]]
    words = "worker %s sent back %d bytes for %d tokens: it does nothing, compare tensor_split"
    wrong = [
        words % (node, count, decode["tokens"])
        for node, count in counts
        if count is not None and count < ANSWER * decode["tokens"]
    ]
    if not wrong and any(count is None for _node, count in counts):
        return Check("bytes", None, f"not judged: the kernel of {head['node']} counts none", [])
    said = "; ".join(f"{node} {round((count or 0) / max(1, decode['tokens']))} bytes a token" for node, count in counts)
    return Check("bytes", not wrong, said, wrong)


def _work(head: Map, seen: Seen) -> Check:
    """On cards each of N stages is busy about 1/N of the time; ggml's threads on processors wait busily and say
    nothing."""
    decode = seen.wire["decode"]
    stages: dict[str, list[float]] = {}
    for node, process in seen.nodes(head):
        for index in process.get("cards_mib") or {}:
            stages[f"{node} card {index}"] = _utilization(seen.watches.get(node) or {}, index, decode)
    if not stages:
        return Check("work", None, "not judged: no cards", [])
    if any(len(samples) < SAMPLES for samples in stages.values()):
        return Check("work", None, "not judged: the cards were seen too few times", [])
    least = 100.0 * BUSY / len(stages)
    means = {name: sum(samples) / len(samples) for name, samples in stages.items()}
    words = "%s was busy %.0f %% of the time, more than %.0f %% are needed of each of %d stages: see doctor.yml"
    wrong = [words % (name, mean, least, len(stages)) for name, mean in means.items() if mean <= least]
    return Check("work", not wrong, "; ".join("%s %.0f %%" % pair for pair in means.items()), wrong)


def _utilization(watch: Map, index: str, decode: Map) -> list[float]:
    """Of a card while tokens were generated; the first second still shows what was before."""
    during = [one for one in watch.get("samples") or [] if decode["began"] + 1 <= one["at"] <= decode["ended"]]
    cards = [card for one in during for card in one["cards"] if str(card["index"]) == str(index)]
    return [card["utilization"] for card in cards if card["utilization"] is not None]


def _closed(head: Map, seen: Seen) -> Check:
    """Nobody but the head's own user gets a connection, root of its node neither."""
    wrong = []
    for host, answers in seen.knocks.items():
        for endpoint, said in (answers or {}).items():
            if said == OPEN:
                words = "%s gets a connection to the RPC port %s, the head alone may have one: load the firewall"
                words += " with --tags node"
                wrong.append(words % (host, endpoint))
    asked = [host for host, answers in seen.knocks.items() if answers is not None]
    missing = [host for host, answers in seen.knocks.items() if answers is None]
    silent = [host for host in asked if SILENT in seen.knocks[host].values()]
    refused = [host for host in asked if host not in silent]
    parts = [f"refused to {', '.join(refused)}"] if refused else []
    parts += [f"no answer to {', '.join(silent)}"] if silent else []
    said = "; ".join(parts) or "nobody could ask"
    said += f"; not asked: {', '.join(missing)}" if missing else ""
    return Check("closed", not wrong if asked or wrong else None, said, wrong)
