# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Evidence of units, their command lines and their servers. Private to the collection."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import Any

from .._bench.variant import Variants
from .._exporter.config import read, read_json, watched
from .._llama.api import LlamaApi, read_api_key
from .._llama.args import parse_args
from .._llama.server import ANSWERING, probe
from .._node import paths
from .._node.units import Unit, held_since, number, parse_show, systemctl_show, unit_info
from .._text import Refusal

PATTERNS = ("llama-*.service", "llama-gateway.socket")
NGINX = "nginx.service"
# Names of Debian and others, on a host of group llama_monitoring.
MONITORING = ("prometheus.service", "prometheus-alertmanager.service", "alertmanager.service")
# In addition to _node/units: status text and start times.
MORE = ("Id", "StatusText", "ExecMainStartTimestampMonotonic", "InactiveExitTimestampMonotonic")
ON_CPU = ("--cpu-moe", "--n-cpu-moe")
ROLES = {"rpc": "worker", "head": "head", "router": "router"}
DROP_IN_MOST = 16384
# Speed counts from this many tokens, and up to this many requests at a time.
JUDGED_TOKENS, JUDGED_BUSY = 500, 1.2


def look() -> dict[str, Any]:
    """{units, drop_ins, held}. Errors: Refusal."""
    known = unit_info(PATTERNS)
    measured = {one["service"] for one in Variants().report()}
    if any(unit.name.startswith("llama-gateway") for unit in known):
        known += [unit for unit in unit_info([NGINX]) if unit.installed]
    if os.path.isdir(paths.MONITORING):
        known += [unit for unit in unit_info(MONITORING) if unit.installed]
    shown = {one["Id"]: one for one in parse_show(systemctl_show([unit.name for unit in known], MORE))} if known else {}
    now, monotonic = time.time(), time.clock_gettime(time.CLOCK_MONOTONIC)
    keys = {one.unit: one.settings for one in watched()}
    units: list[dict[str, Any]] = []
    drop_ins: list[dict[str, Any]] = []
    for unit in known:
        more = shown.get(unit.name, {})
        start = number(more, "ExecMainStartTimestampMonotonic") / 1e6
        began = number(more, "InactiveExitTimestampMonotonic") / 1e6
        units.append(
            dict(
                _record(unit),
                **{
                    "is_measured": unit.service in measured,
                    "status": more.get("StatusText") or "",
                    "started_at": round(now - monotonic + start, 3) if start else None,
                    "starts_for": round(monotonic - began, 1) if unit.active_state == "activating" and began else None,
                },
            )
        )
        # The roles write drop-ins only for units of packages.
        for path in unit.drop_ins if unit.name.startswith("llama-") else ():
            drop_ins.append(
                {
                    "unit": unit.name,
                    "service": unit.service,
                    "path": path,
                    "text": settings_of(read(path, DROP_IN_MOST)),
                }
            )
    for record in units:
        if record["kind"] in ("head", "router") and record["active_state"] == "active" and record["url"]:
            record.update(ask(record, keys.get(record["name"], {})))
    return {"units": units, "drop_ins": drop_ins, "held": held_since()}


def settings_of(text: str) -> str:
    """The settings of a drop-in in one line."""
    lines = [line.strip() for line in text.splitlines()]
    return ", ".join(line for line in lines if line and line[0] not in "[#;") or "nothing"


def _record(unit: Unit) -> dict[str, Any]:
    words = list(unit.arguments)
    line = parse_args(words)

    def value(*flags: str) -> str | None:
        return ([None] + [given for flag, given in zip(words, words[1:]) if flag in flags])[-1]

    def whole(*flags: str) -> int | None:
        text = value(*flags)
        return int(text) if text and text.isdigit() else None

    path = unit.exec_path or ""
    program = next(
        (word for word in [path] + words if "/bin/" in word and "llama" in word or "rpc-server" in word), path
    )
    return {
        "name": unit.name,
        "unit": unit.name,
        "service": unit.service,
        "kind": unit.kind,
        "role": ROLES.get(unit.kind or "", unit.name[: -len(".service")]),
        "managed": unit.managed,
        "enabled": unit.enabled,
        "active_state": unit.active_state,
        "sub_state": unit.sub_state,
        "result": unit.result,
        "restarts": unit.restarts,
        "failed_in_a_row": unit.failed_in_a_row,
        "stale": unit.stale,
        "main_pid": unit.main_pid,
        "url": unit.url,
        "endpoint": unit.endpoint,
        "rpc_endpoints": list(unit.rpc_endpoints),
        "program": program,
        "build": program.split("/releases/")[1].split("/")[0] if "/releases/" in program else None,
        "model": value("--model", "-m"),
        "parallel": whole("--parallel", "-np"),
        "ctx_size": whole("--ctx-size", "-c"),
        "asked_slot_context": line.slot_ctx,
        "n_predict": line.n_predict or None,
        "reasoning_off": line.reasoning_off,
        "embeddings": line.embeddings,
        "tensor_split": value("--tensor-split", "-ts"),
        "tensor_cache": "-c" in words or "--cache" in words if unit.kind == "rpc" else None,
        "numa": value("--numa") or "none",
        "on_cpu": any(word in ON_CPU for word in words) or value("--n-gpu-layers", "-ngl") == "0",
    }


def ask(record: dict[str, Any], watch: dict[str, Any]) -> dict[str, Any]:
    """The state of a server: {state, ...}."""
    try:
        key = watch.get("api_key_file")
        api = LlamaApi(record["url"], read_api_key(key) if key else None, pid=record["main_pid"] or 0)
        seen = probe(api, record["kind"] == "router")
    except Refusal as error:
        return {"state": None, "state_reason": str(error)}
    found: dict[str, Any] = {"state": seen.state}
    if seen.state not in ANSWERING:
        return dict(found, state_reason=seen.reason, silent=seen.silent)
    if record["kind"] == "router":
        return found
    template = str(seen.props.get("chat_template") or "")
    found.update(slots=seen.slots, slot_context=seen.context, slots_busy=seen.busy, build_info=seen.build)
    found.update(thinks="<think>" in template or "enable_thinking" in template)
    found.update(requests_processing=seen.requests, requests_deferred=seen.deferred)
    metrics = {name: value for (_model, name), value in seen.counters.items()}
    return dict(found, **speed(metrics, read_json(paths.BASELINES.replace("*", str(record.get("service"))))))


def speed(metrics: Mapping[str, float], kept: Mapping[str, Any]) -> dict[str, float]:
    """{speed, baseline, speed_ratio}: tokens/s since the server's start and as measured by upgrade.yml; empty after few
    tokens or with parallel requests."""
    tokens, seconds = (metrics.get("tokens_predicted" + one, 0.0) for one in ("_total", "_seconds_total"))
    baseline = kept.get("tokens_per_second")
    if tokens < JUDGED_TOKENS or seconds <= 0 or metrics.get("n_busy_slots_per_decode", 1.0) > JUDGED_BUSY:
        return {}
    if not isinstance(baseline, (int, float)) or baseline <= 0:
        return {}
    now = tokens / seconds
    return {"speed": round(now, 1), "baseline": round(baseline, 1), "speed_ratio": now / baseline}


def is_well(record: dict[str, Any]) -> bool:
    """Whether a unit runs and, as a server, responds."""
    if record.get("active_state") != "active":
        return False
    return record.get("kind") not in ("head", "router") or record.get("state") in (*ANSWERING, None)


def models_of(units: list[dict[str, Any]]) -> dict[str, str]:
    """{file: service} of the models that heads serve."""
    return {str(one["model"]): str(one["service"]) for one in units if one["kind"] == "head" and one["model"]}
