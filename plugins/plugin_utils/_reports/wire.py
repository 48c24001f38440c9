# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The split proof: whether an answer really came from every worker as the plan says. Private to the collection.

Each check compares facts of the kernel, the cards and llama.cpp's log of the load. A check without facts reports why,
and refuses nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from ...module_utils._node.port_probe import OPEN, SILENT
from .results import FORMAT, files_of, label_of

Map = Mapping[str, Any]
# The largest difference of a worker's memory from its plan, or from the log: a tenth.
OFF = 0.1
# The part of 1/N that each of N stages is busy while tokens are generated, one stage after the other.
BUSY = 0.7
# The least samples, one a second, that judge how busy a card was.
SAMPLES = 3
# Bytes of a worker's answer besides its numbers, and of a number.
ANSWER, WORD = 8, 4
IPV4 = re.compile(r"^\d+\.\d+\.\d+\.\d+\Z")


class Check(NamedTuple):
    """holds: None if it cannot be judged. said: the values that were seen. wrong: a sentence for each fault."""

    name: str
    holds: bool | None
    said: str
    wrong: Sequence[str] = ()


class Seen(NamedTuple):
    """The facts of one service. wire: of llama_wire. process: of llama_process, of the head. processes: the same of
    its workers, in the order of its shares. releases: of the inventory, the head's first. probes: {host: answers
    of port_probe, None for a host that was not reached}. load: of llama_load_info. addresses: {node: address on the
    fabric}. plan: rows of the acceptance report. watches: {node: result of llama_bench_watch}."""

    wire: Map
    process: Map
    processes: Sequence[Map]
    releases: Sequence[str]
    probes: Map
    load: Map
    addresses: Map
    plan: Sequence[Map]
    watches: Map

    def nodes(self, head: Map) -> list[tuple[str, Map]]:
        """(node, process) of the head and of each worker."""
        names = [head["node"]] + [share["node"] for share in head["shares"]]
        return list(zip(names, [self.process, *self.processes], strict=True))


def wire_report(head: Map, facts: Map, measured_at: str) -> dict[str, Any]:
    """-> {verdict, files: to keep, lines: to print, refused: a sentence for each fault}.

    head: an entry of head_instances. facts: the fields of Seen. measured_at: ISO 8601, UTC.
    """
    seen = Seen(**facts)
    label, decode = label_of(head), seen.wire["decode"]
    if decode is None:
        lines = [f"wire of {label}: not looked at, {seen.wire['reason']}"]
        return {"verdict": "not looked at", "files": {}, "lines": lines, "refused": []}
    judges: list[Callable[[Map, Seen], Check]] = [_build, _memory, _addresses, _bytes, _work, _closed]
    checks = [judge(head, seen) for judge in judges if head["shares"] or judge is _build]
    refused = [f"llama_services.{head['service']}: {wrong}" for check in checks for wrong in check.wrong]
    # Bytes, and a host that could probe the ports, are needed to prove a split.
    unknown = any(check.holds is None for check in checks if check.name in ("bytes", "closed"))
    result = {
        "format": FORMAT,
        "kind": "wire",
        "service": head["service"],
        "label": label,
        "model": head["model"],
        "quant": head["quant"],
        "measured_at": measured_at,
        "verdict": "refused" if refused else "not judged" if unknown else "true",
        "sentences": refused,
        "checks": [{"name": check.name, "holds": check.holds, "said": check.said} for check in checks],
        "decode": {name: decode[name] for name in ("tokens", "tokens_per_second", "workers")},
    }
    words = {True: "holds", False: "FAILS", None: "-"}
    lines = [f"wire of {label}:", *(f"  {check.name:10} {words[check.holds]:6} {check.said}" for check in checks)]
    return {"verdict": result["verdict"], "files": files_of("wire", result), "lines": lines, "refused": refused}


def _build(head: Map, seen: Seen) -> Check:
    """Every process runs the intact release of the inventory, and all releases are of one build."""
    own = (seen.process.get("build") or {}).get("identity")
    wrong = []
    for (node, process), wanted in zip(seen.nodes(head), seen.releases, strict=True):
        build, runs = process.get("build") or {}, process.get("release")
        restart = ": restart it with site.yml"
        foreign, broken = (", ".join((files or [])[:3]) for files in (process.get("foreign"), build.get("broken")))
        rows = (
            (not process["pid"], f"worker {node} does not run: start it with site.yml"),
            (
                runs != wanted,
                f"{node} runs {runs or 'a program of elsewhere'}, release {wanted} is needed{restart}",
            ),
            (foreign, f"{node} runs {foreign}, only files of release {wanted} are needed{restart}"),
            (
                not build.get("intact"),
                f"release {runs} of {node} has changed files ({broken or 'no build.json'}), the files of its build "
                "are needed: install it with --tags build",
            ),
            (
                build.get("identity") != own,
                f"{node} runs build {build.get('identity')} and the head {own}, one build is needed{restart}",
            ),
        )
        wrong += [text for applies, text in rows if applies][:1]
    names = sorted({str(process.get("release")) for _node, process in seen.nodes(head)})
    return Check("build", not wrong, f"{', '.join(names)} on {len(seen.releases)} node(s)", wrong)


def _memory(head: Map, seen: Seen) -> Check:
    """Every worker was given its plan by llama.cpp's log, and holds it by kernel or card."""
    wrong, said = [], []
    for share, process in zip(head["shares"], seen.processes, strict=True):
        node, cards = share["node"], process.get("cards_mib") or {}
        planned = sum(
            sum(row["planned_mib"].values()) for row in seen.plan if row["node"] == node and row["loaded_mib"]
        )
        devices = [one for one in seen.load["devices"] if one["endpoint"] == share["endpoint"]]
        loaded = sum(one["total_mib"] for one in devices)
        kept = sum(one["model_mib"] + one["kv_mib"] for one in devices)
        if seen.load.get("divided"):
            own = [row["planned_mib"] for row in seen.plan if row["node"] == node]
            kept = sum(row["weights"] + row["kv"] for row in own)
        held = sum(cards.values()) or process.get("resident_mib") or 0.0
        said.append(
            "%s %.0f MiB loaded, %.0f held%s" % (node, loaded, held, " of %d planned" % planned if planned else "")
        )
        computes = process.get("devices") or []
        planned_on = sorted({row["device"] for row in seen.plan if row["node"] == node} - {"main"})
        if planned_on and computes and all(name == "CPU" for name in computes):
            wrong.append(
                "worker %s computes on its processor, %s is planned: correct the driver of the card and restart the "
                "worker" % (node, ", ".join(planned_on))
            )
        if planned and abs(loaded - planned) > OFF * planned:
            wrong.append(
                "worker %s was given %.0f MiB, %d are planned and a tenth more or less is allowed: deploy the plan "
                "with site.yml" % (node, loaded, planned)
            )
        # A driver may list a process without its memory.
        if (not cards or any(cards.values())) and held < (1 - OFF) * kept:
            wrong.append(
                "worker %s holds %.0f MiB, weights and KV cache of %.0f are needed: look at its journal, and restart it"
                % (node, held, kept)
            )
    return Check("memory", not wrong, "; ".join(said), wrong)


def _addresses(head: Map, seen: Seen) -> Check:
    """RPC uses addresses of the fabric, and a worker listens only there."""
    wrong, said = [], []
    ends = {one["endpoint"]: one["ends"] for one in seen.wire["connections"]}
    for share, process in zip(head["shares"], seen.processes, strict=True):
        node, endpoint = share["node"], share["endpoint"]
        if not ends.get(endpoint):
            words = "the head has no connection to worker %s at %s: restart the head once the worker runs"
            wrong.append(words % (node, endpoint))
        for pair in ends.get(endpoint) or []:
            said.append(" to ".join(pair))
            for name, end in zip((head["node"], node), pair, strict=True):
                address, wanted = end.rpartition(":")[0], seen.addresses.get(name) or ""
                if IPV4.match(wanted) and address != wanted:
                    words = "RPC of worker %s uses %s of %s, its llama_fabric_address %s is needed: correct routes or "
                    wrong.append((words + "units") % (node, address, name, wanted))
        places = process.get("listens") or []
        if IPV4.match(endpoint.rpartition(":")[0]) and places != [endpoint]:
            others = [place for place in places if place != endpoint] or ["nothing"]
            words = "worker %s listens on %s, only %s is needed: restart it with site.yml"
            wrong.append(words % (node, ", ".join(others), endpoint))
    return Check("addresses", not wrong, "; ".join(said), wrong)


def _bytes(head: Map, seen: Seen) -> Check:
    """Every worker sends at least eight bytes for each generated token; with a part of every layer, a result of each:
    measured twice as many."""
    tokens, least, why = seen.wire["decode"]["tokens"], ANSWER, "it does nothing, compare tensor_split"
    if seen.load.get("divided"):
        least = max(ANSWER, WORD * (seen.load["width"] or 0) * ((seen.load["layers_total"] or 1) - 1))
        why = "it has no part of some layers, compare split_mode"
    moved = {one["endpoint"]: one["bytes_received"] for one in seen.wire["decode"]["workers"]}
    counts = {share["node"]: moved.get(share["endpoint"]) for share in head["shares"]}
    wrong = [
        "worker %s sent back %d bytes for %d tokens, at least %d are needed: %s"
        % (node, count, tokens, least * tokens, why)
        for node, count in counts.items()
        if count is not None and count < least * tokens
    ]
    if not wrong and None in counts.values():
        return Check("bytes", None, f"not judged: the kernel of {head['node']} counts none")
    said = "; ".join(f"{node} {round((count or 0) / max(1, tokens))} bytes a token" for node, count in counts.items())
    return Check("bytes", not wrong, said, wrong)


def _work(head: Map, seen: Seen) -> Check:
    """Each of N cards is busy about 1/N of the time. Processors prove nothing: ggml's threads wait busily."""
    decode = seen.wire["decode"]
    stages = {
        f"{node} card {index}": _utilization(seen.watches.get(node) or {}, index, decode)
        for node, process in seen.nodes(head)
        for index in process.get("cards_mib") or {}
    }
    if not stages:
        return Check("work", None, "not judged: no cards")
    if any(len(samples) < SAMPLES for samples in stages.values()):
        return Check("work", None, "not judged: the cards were seen too few times")
    least = 100.0 * BUSY / len(stages)
    means = {name: sum(samples) / len(samples) for name, samples in stages.items()}
    words = "%s was busy %.0f %% of the time, more than %.0f %% are needed of each of %d stages: see doctor.yml"
    wrong = [words % (name, mean, least, len(stages)) for name, mean in means.items() if mean <= least]
    return Check("work", not wrong, "; ".join("%s %.0f %%" % pair for pair in means.items()), wrong)


def _utilization(watch: Map, index: str, decode: Map) -> list[float]:
    """Samples of a card while tokens were generated; the first second still shows the load before."""
    during = [one for one in watch.get("samples") or [] if decode["began"] + 1 <= one["at"] <= decode["ended"]]
    cards = [card for one in during for card in one["cards"] if str(card["index"]) == str(index)]
    return [card["utilization"] for card in cards if card["utilization"] is not None]


def _closed(head: Map, seen: Seen) -> Check:
    """Only the head's user gets a connection, not even root of its node."""
    words = "%s gets a connection to the RPC port %s, only the head may have one: load the firewall with --tags node"
    answers = {host: found for host, found in seen.probes.items() if found is not None}
    wrong = [
        words % (host, endpoint)
        for host, found in answers.items()
        for endpoint, answer in found.items()
        if answer == OPEN
    ]
    silent = [host for host, found in answers.items() if SILENT in found.values()]
    groups = {
        "refused to ": [host for host in answers if host not in silent],
        "no answer to ": silent,
        "not asked: ": [host for host in seen.probes if host not in answers],
    }
    said = "; ".join(f"{text}{', '.join(hosts)}" for text, hosts in groups.items() if hosts)
    return Check("closed", not wrong if answers else None, said if answers else f"no host could ask; {said}", wrong)
