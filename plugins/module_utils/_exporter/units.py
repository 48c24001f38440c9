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

from .._node import paths, sockets
from .._node.units import held_since, number, parse_show, service_of, systemctl_show, unit_kind
from .._watchdog import samples
from .._watchdog.firewall import UNIT as FIREWALL
from . import config
from .exposition import Family

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
RELEASE = re.compile(re.escape(paths.BUILDS) + r"/releases/([\w.+-]+)/")


def role_of(unit: str) -> tuple[str | None, str]:
    """(role, service) of a unit; None for one that is of no interest."""
    kind = unit_kind(unit)[0]
    if kind:
        return {"rpc": "worker"}.get(kind, kind), service_of(unit) or ""
    return ROLES.get(unit), ""


class Units:
    """One question to systemd for all units, and the sockets that the kernel is asked for."""

    def __init__(self, told: config.Config) -> None:
        self._told = told
        self._links: dict[str, samples.Links] = {}
        self._began: dict[str, tuple[int, float]] = {}  # when, since the boot in microseconds and since 1970

    def look(self) -> list[Family]:
        names = sorted(os.path.basename(path) for path in glob.glob(paths.UNIT_FILES) if not os.path.islink(path))
        names = [name for name in names if role_of(name)[0]]
        shown = parse_show(systemctl_show(names, PROPERTIES)) if names else []
        held = held_since() is not None
        active = Family("llama_unit_active", "gauge", "Whether the unit runs.")
        wanted = Family(
            "llama_unit_wanted",
            "gauge",
            "Whether it is to run: enabled, its node is not held, its service not stopped.",
        )
        failed = Family("llama_unit_failed", "gauge", "Whether systemd has given it up, or its last run failed.")
        starting = Family("llama_unit_starting", "gauge", "Whether it is on its way: a head may wait for its workers.")
        restarts = Family("llama_unit_restarts_total", "counter", "Starts by systemd after a run had ended.")
        started = Family("llama_unit_started_seconds", "gauge", "When its process began, since 1970.")
        memory = Family("llama_memory_bytes", "gauge", "Memory of the unit's control group.")
        planned = Family("llama_memory_planned_bytes", "gauge", "Main memory that the plan gives the unit.")
        builds = Family("llama_build_info", "gauge", "The release of llama.cpp that the unit names.")
        models = Family("llama_model_info", "gauge", "What the service serves.")
        repairs = Family("llama_watchdog_repairs_total", "counter", "Repairs by the watchdog since the node booted.")
        repaired = Family("llama_watchdog_last_repair_seconds", "gauge", "When it repaired last, since 1970, and why.")
        alive = Family("llama_watchdog_alive", "gauge", "Whether the watchdog runs.")
        holds = Family("llama_node_held", "gauge", "Whether the node is held for maintenance.")
        holds.add(int(held))
        for one in shown:
            unit = one.get("Id", "")
            role, service = role_of(unit)
            labels: dict[str, Any] = {"unit": unit, "service": service, "role": role}
            runs = one.get("ActiveState") == "active" and one.get("SubState") in ("running", "exited")
            active.add(int(runs), **labels)
            enabled = one.get("UnitFileState") in ("enabled", "enabled-runtime")
            wanted.add(int(enabled and not held and unit not in self._told.stopped), **labels)
            failed.add(int(one.get("ActiveState") == "failed" or one.get("SubState") == "auto-restart"), **labels)
            starts = one.get("ActiveState") == "activating" and one.get("SubState") != "auto-restart"
            starting.add(int(starts), **labels)
            restarts.add(number(one, "NRestarts"), **labels)
            started.add(self._start(unit, number(one, "ExecMainStartTimestampMonotonic")), **labels)
            if role == "watchdog":
                alive.add(int(runs))
            memory.add(_memory(one.get("ControlGroup")) if runs else None, **labels)
            if role in SERVING:
                planned.add(self._told.planned.get(unit), **labels)
                build = _build(one.get("ExecStart", ""))
                builds.add(1 if build else None, build=build, **labels)
                told = self._told.models.get(service)
                if told and role != "worker":
                    models.add(1, unit=unit, service=service, model=told.get("model"), quant=told.get("quant"))
                repair = config.repairs(unit)
                repairs.add(repair["count"], **labels)
                repaired.add(repair["at"], reason=repair["reason"], **labels)
        # Its rules are loaded again so soon that nothing else shows it.
        repair = config.repairs(FIREWALL)
        repairs.add(repair["count"], unit=FIREWALL, service="", role="firewall")
        repaired.add(repair["at"], reason=repair["reason"], unit=FIREWALL, service="", role="firewall")
        return [
            active,
            wanted,
            failed,
            starting,
            restarts,
            started,
            memory,
            planned,
            builds,
            models,
            repairs,
            repaired,
            alive,
        ] + ([holds] + self._sockets())

    def _start(self, unit: str, since: int) -> float | None:
        """Seconds since 1970: the same number as long as it is the same process, however the clock is set."""
        if self._began.get(unit, (None, 0.0))[0] != since:
            boot = time.time() - time.clock_gettime(time.CLOCK_MONOTONIC)
            self._began[unit] = (since, round(boot + since / 1e6, 3))
        return self._began[unit][1] if since else None

    def _sockets(self) -> list[Family]:
        up = Family("llama_rpc_link_up", "gauge", "Whether the head's connection to a worker stands.")
        received = Family("llama_rpc_link_received_bytes_total", "counter", "Bytes from the worker.")
        sent = Family("llama_rpc_link_sent_bytes_total", "counter", "Bytes to the worker that it has confirmed.")
        clients = Family("llama_rpc_worker_clients", "gauge", "Connections that the worker serves.")
        units = config.watched()
        for one in units:
            if one.kind == "rpc":
                clients.add(_clients(one.told), service=one.service)
                continue
            endpoints = [str(end) for end in one.told.get("rpc_endpoints") or []]
            for endpoint in endpoints:
                links = self._links_of(one.service, endpoint)
                states, came, _segments = links.look()
                labels = {"service": one.service, "worker": endpoint}
                up.add(int(states.get(endpoint) == "up"), **labels)
                received.add(came, **labels)
                sent.add(links.acked, **labels)
        return [up, received, sent, clients]

    def _links_of(self, service: str, endpoint: str) -> samples.Links:
        key = f"{service} {endpoint}"
        if key not in self._links:
            self._links[key] = samples.Links([endpoint])
        return self._links[key]


def _clients(told: dict[str, Any]) -> int | None:
    """How many connections a worker serves: read from the table, since its listener says who waits alone."""
    address, port = told.get("address"), told.get("port")
    if not isinstance(address, str) or not isinstance(port, int):
        return None
    here = [one for one in sockets.entries(samples.read(samples.TCP), (address, port)) if one.local == (address, port)]
    return sum(1 for one in here if one.state == sockets.ESTABLISHED and one.inode)


def _memory(group: str | None) -> int | None:
    if not group:
        return None
    text = config.read(f"/sys/fs/cgroup{group}/memory.current") or config.read(
        f"/sys/fs/cgroup/memory{group}/memory.usage_in_bytes"
    )
    return int(text) if text.strip().isdigit() else None


def _build(command: str) -> str | None:
    """The release whose program the unit starts."""
    found = RELEASE.search(command)
    return found.group(1) if found else None
