# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Units of this node, the memory that they use, and the connections between heads and workers. Private to the
collection."""

from __future__ import annotations

import glob
import os
import re
import time
from typing import Any

from .._bench.variant import TIMER
from .._files import names_in
from .._node import paths
from .._node.units import held_since, number, parse_show, service_of, systemctl_show, unit_kind
from .._slurm import facts, state
from .._watchdog import samples
from .._watchdog.firewall import UNIT as FIREWALL
from . import config
from .exposition import Family
from .metrics import Families

PROPERTIES = (
    *("Id", "ActiveState", "SubState", "Result", "NRestarts", "ExecMainStartTimestampMonotonic", "UnitFileState"),
    *("ControlGroup", "ExecStart"),
)
ROLES = {
    "llama-registry.service": "gateway",
    "llama-gateway.service": "gateway",
    "llama-watchdog.service": "watchdog",
    "llama-sampler.service": "sampler",
}
SERVING = ("head", "worker", "router")
# A job that is held in the queue, beside the states of its keeper.
HELD = "held"
RELEASE = re.compile(re.escape(paths.BUILDS) + r"/releases/([\w.+-]+)/")


def role_of(unit: str) -> tuple[str | None, str]:
    """(role, service) of a unit; role None for a unit that is not sampled."""
    kind = unit_kind(unit)[0]
    if kind:
        return {"rpc": "worker"}.get(kind, kind), service_of(unit) or ""
    return ROLES.get(unit), ""


class Units:
    """Samples all units with one systemctl call, and the sockets of heads and workers."""

    def __init__(self, settings: config.Config) -> None:
        self._settings = settings
        self._links: dict[str, samples.Links] = {}
        self._began: dict[str, tuple[int, float]] = {}  # start: microseconds since the boot, seconds since 1970

    def look(self) -> list[Family]:
        names = sorted(os.path.basename(path) for path in glob.glob(paths.UNIT_FILES) if not os.path.islink(path))
        names = [name for name in names if role_of(name)[0]]
        timers = sorted(name for name in names_in(paths.RUN_UNITS) if TIMER.match(name))
        shown = parse_show(systemctl_show(names + timers, PROPERTIES)) if names else []
        held = held_since() is not None
        # tune.yml measures them with other settings, for as long as their timers run.
        ends = ((TIMER.match(one.get("Id", "")), one.get("SubState")) for one in shown)
        measured = {end.group(1) for end, state in ends if end and state in ("waiting", "running")}
        found = Families()
        found.add("llama_node_held", int(held))
        for one in shown:
            unit = one.get("Id", "")
            role, service = role_of(unit)
            if not role:
                continue
            labels: dict[str, Any] = {"unit": unit, "service": service, "role": role}
            runs = one.get("ActiveState") == "active" and one.get("SubState") in ("running", "exited")
            found.add("llama_unit_active", int(runs), **labels)
            enabled = one.get("UnitFileState") in ("enabled", "enabled-runtime")
            away = held or unit in self._settings.stopped or role in SERVING and service in measured
            found.add("llama_unit_wanted", int(enabled and not away), **labels)
            starts = one.get("ActiveState") == "activating" and one.get("SubState") != "auto-restart"
            found.add("llama_unit_starting", int(starts), **labels)
            found.add("llama_unit_restarts_total", number(one, "NRestarts"), **labels)
            found.add(
                "llama_unit_started_seconds",
                self._start(unit, number(one, "ExecMainStartTimestampMonotonic")),
                **labels,
            )
            if role == "watchdog":
                found.add("llama_watchdog_alive", int(runs))
            found.add("llama_memory_bytes", _memory(one.get("ControlGroup")) if runs else None, **labels)
            if role in SERVING:
                found.add("llama_memory_planned_bytes", self._settings.planned.get(unit), **labels)
                build = _build(one.get("ExecStart", ""))
                found.add("llama_build_info", 1 if build else None, build=build, **labels)
                model = self._settings.models.get(service)
                if model and role != "worker":
                    served = {key: model.get(key) for key in ("model", "quant")}
                    found.add("llama_model_info", 1, unit=unit, service=service, **served)
                _repairs(found, labels)
        _repairs(found, {"unit": FIREWALL, "service": "", "role": "firewall"})
        self._sockets(found)
        return found.all()

    def _start(self, unit: str, since: int) -> float | None:
        """Seconds since 1970, the same for one process whatever happens to the clock."""
        if self._began.get(unit, (None, 0.0))[0] != since:
            boot = time.time() - time.clock_gettime(time.CLOCK_MONOTONIC)
            self._began[unit] = (since, round(boot + since / 1e6, 3))
        return self._began[unit][1] if since else None

    def _sockets(self, found: Families) -> None:
        for one in config.watched():
            for endpoint in map(str, one.settings.get("rpc_endpoints") or []):
                links = self._links_of(one.service, endpoint)
                states, came, _segments = links.look()
                labels = {"service": one.service, "worker": endpoint}
                found.add("llama_rpc_link_up", int(states.get(endpoint) == "up"), **labels)
                found.add("llama_rpc_link_received_bytes_total", came, **labels)
                found.add("llama_rpc_link_sent_bytes_total", links.acked, **labels)

    def _links_of(self, service: str, endpoint: str) -> samples.Links:
        key = f"{service} {endpoint}"
        if key not in self._links:
            self._links[key] = samples.Links([endpoint])
        return self._links[key]


def _repairs(found: Families, labels: dict[str, Any]) -> None:
    repair = config.repairs(labels["unit"])
    found.add("llama_watchdog_repairs_total", repair["count"], **labels)
    found.add("llama_watchdog_last_repair_seconds", repair["at"], reason=repair["reason"], **labels)


def _memory(group: str | None) -> int | None:
    if not group:
        return None
    text = config.read(f"/sys/fs/cgroup{group}/memory.current") or config.read(
        f"/sys/fs/cgroup/memory{group}/memory.usage_in_bytes"
    )
    return int(text) if text.strip().isdigit() else None


def _build(command: str) -> str | None:
    """The release of the unit's program."""
    found = RELEASE.search(command)
    return found.group(1) if found else None


def jobs() -> list[Family]:
    """The jobs of services, as their keeper knows them; nothing on a host without a keeper. One that
    does not run says nothing of its jobs. Errors: Refusal, OSError."""
    found = Families()
    if not os.path.exists(paths.KEEPER_CONFIG):
        return found.all()
    content = state.read(paths.KEEPER)
    alive = not facts.mistrust(content, time.time())
    found.add("llama_keeper_alive", int(alive))
    # The user of the jobs could name any service in its file.
    services = state.configuration(paths.KEEPER_CONFIG).services if alive else {}
    for service, one in sorted(state.known_of(content).items()):
        if service not in services or (one.state == state.NONE and not one.wanted):
            continue
        seen = HELD if one.held and one.state == state.NONE else one.state
        found.add("llama_job_state", 1, service=service, state=seen)
        found.add("llama_job_serves", int(one.serves), service=service)
        found.add("llama_job_failures", int(one.failures), service=service)
    return found.all()
