# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The layout of a model on devices, from the load log of llama-server. Private to the collection.

Both dialects are read: plain lines (builds of January 2026) and lines with a time and level prefix (b11434).
"""

from __future__ import annotations

import contextlib
import itertools
import re
from collections.abc import Iterable
from typing import Any, Optional

from .._node.journal import MOST_LETTERS, ask
from .._node.units import parse_show, systemctl_show
from .._text import Refusal

# A device at its endpoint, and the endpoint; None for one of the head's own.
Place = tuple[str, Optional[str]]

BUILD = re.compile(r"\bbuild:? (\d+) \(([^)]*)\) with ")
DEVICE = re.compile(r"using device (\S+) \(([^)]*)\)")
PASS = re.compile(r"load_tensors: loading model tensors")
# --split-mode tensor makes one device of several; a buffer of it has the size of the largest part.
DIVIDED = re.compile(r"creating a Meta device ")
MEMBER = re.compile(r"llama_prepare_model_devices: - device \d+: (\S+)(?: \(([^)]*)\))?")
META = re.compile(r"^Meta\(")
WIDTH = re.compile(r"print_info: n_embd\s+= (\d+)")
ASSIGNED = re.compile(r"load_tensors: layer\s+(\d+) assigned to device (\S+?),")
OFFLOADED = re.compile(r"offloaded (\d+)/(\d+) layers to GPU")
BUFFER = re.compile(r"(?<!\S)(\S+)\s+(model|LoRA|KV|RS|compute|output) buffer size =\s+([0-9.]+) MiB")
CACHE = re.compile(r"size =\s+([0-9.]+) MiB \(\s*(\d+) cells,\s*(\d+) layers,.*?K \((\w+)\).*?V \((\w+)\)")
# The projector's compute buffer, beside the model's on the same device.
OF_PROJECTOR = re.compile(r"(?:reserve|alloc)_compute_meta:")
DRAFT = re.compile(r"loading draft model '")
LOADED = re.compile(r": model loaded\s*$")
RPC_NAME = re.compile(r"^(RPC\d+)\[(.+)\]\Z")
ENDPOINT = re.compile(r"^\S+:\d+\Z")
# A router starts a server for a model; what that one says begins with its port.
SPAWNED = re.compile(r"spawning server instance with name=(\S+) on port (\d+)")
# A device that ggml-rpc-server lists at its start, such as "Vulkan0: ... (24105 MiB, 21697 MiB free)".
SERVES = re.compile(r"\A\s*([A-Za-z]+\d*): .+ \(\d+ MiB, \d+ MiB free\)\s*\Z")
# Lines of a worker that are read at most for it.
START_MOST = 200
# Lines of a load that are read at most.
LINES_MOST = 100000
# A part of each line that is parsed, and of few others.
PARSED = re.compile(r"load_tensors|build|using device|buffer size|MiB \(")


class _Layout:
    """One layout in the log."""

    def __init__(self) -> None:
        self.mib: dict[tuple[str, str | None, str], float] = {}  # by place and kind of buffer
        self.assigned: dict[int, str] = {}  # device of each layer
        self.offloaded: tuple[int, int] | None = None  # layers, of how many
        self.caches: list[tuple[dict[str, Any], dict[Place, float]]] = []  # each with the MiB of its places
        self.open_cache: dict[Place, float] = {}  # of the cache whose own line has not come yet
        self.recurrent = False
        self.projector: dict[Place, float] = {}

    def divide(self, members: Iterable[Place]) -> None:
        """The same for each device that has a part of every layer."""
        for place in [place for place in self.mib if META.match(place[0])]:
            size = self.mib.pop(place)
            self.mib.update({(*member, place[2]): size for member in members})


def parse(lines: Iterable[str]) -> dict[str, Any]:
    """Log lines of one run -> dict as llama_load_info returns it.

    A model may be laid out several times (a fit pass counts with empty buffers first): the last layout is the real one.
    In it the shards of a model and the caches of a model with sliding windows have a line each and add up; compute
    buffers are reserved anew and replace each other. The buffers of a draft model, which is loaded after it, are added;
    only layers and caches of the model count.
    """
    build: dict[str, Any] = {"build": None, "commit": None}
    devices: dict[str, str | None] = {}
    members: dict[str, str | None] = {}
    width: int | None = None
    layout, whole = _Layout(), None
    for line in lines:
        found = BUILD.search(line)
        if found and build["build"] is None:
            build = {"build": int(found.group(1)), "commit": found.group(2)}
        found = DEVICE.search(line)
        if found:
            devices[found.group(1)] = found.group(2) if ENDPOINT.match(found.group(2)) else None
        if DIVIDED.search(line):
            members = {}
        found = MEMBER.search(line)
        if found:
            members[found.group(1)] = found.group(2) if ENDPOINT.match(found.group(2) or "") else None
        found = WIDTH.search(line)
        if found and width is None:
            width = int(found.group(1))
        if DRAFT.search(line):
            whole = whole or layout
        if PASS.search(line) or DRAFT.search(line):
            layout = _Layout()
        _read(layout, line)
    if whole:
        for place, size in layout.mib.items():
            whole.mib[place] = whole.mib.get(place, 0.0) + size
    report = _report(build, devices, list(_places(members).values()), whole or layout)
    return dict(report, divided=bool(members), width=width)


def _read(layout: _Layout, line: str) -> None:
    found = BUFFER.search(line)
    if found:
        name, kind, size = found.group(1), found.group(2), float(found.group(3))
        # The number in an RPC buffer's name counts the devices at that endpoint, not the head's.
        rpc = RPC_NAME.match(name)
        place: Place = (rpc.group(1), rpc.group(2)) if rpc else (name, None)
        if OF_PROJECTOR.search(line):
            layout.projector[place] = size
            return
        key = (place[0], place[1], {"RS": "KV", "LoRA": "model"}.get(kind, kind))
        layout.recurrent = layout.recurrent or kind == "RS"
        layout.mib[key] = size if kind == "compute" else layout.mib.get(key, 0.0) + size
        if kind == "KV":
            layout.open_cache[place] = layout.open_cache.get(place, 0.0) + size
        return
    found = CACHE.search(line)
    if found:
        mib, cells, layers, k_type, v_type = found.groups()
        cache = {"mib": float(mib), "cells": int(cells), "layers": int(layers), "k_type": k_type, "v_type": v_type}
        layout.caches.append((cache, layout.open_cache))
        layout.open_cache = {}
        return
    found = ASSIGNED.search(line)
    if found:
        layout.assigned[int(found.group(1))] = found.group(2)
    found = OFFLOADED.search(line)
    if found:
        layout.offloaded = (int(found.group(1)), int(found.group(2)))


def _report(
    build: dict[str, Any], devices: dict[str, str | None], members: list[Place], layout: _Layout
) -> dict[str, Any]:
    """members: the devices that have a part of every layer."""
    layout.divide(members)
    layers = _assigned_layers(layout, devices)
    if layers is None:
        layers = _cache_layers(layout)
    if members and layout.offloaded:
        layers = dict.fromkeys(members, layout.offloaded[1] - 1)
    for place, size in layout.projector.items():
        key = (*place, "compute")
        layout.mib[key] = layout.mib.get(key, 0.0) + size
    buffers = [
        {"device": device, "endpoint": endpoint, "kind": kind, "mib": round(size, 2)}
        for (device, endpoint, kind), size in sorted(layout.mib.items(), key=str)
    ]
    places: list[dict[str, Any]] = []
    for place in sorted({(device, endpoint) for device, endpoint, _kind in layout.mib} | set(layers or {}), key=str):
        sums = {kind: layout.mib.get((place[0], place[1], kind), 0.0) for kind in ("model", "KV", "compute", "output")}
        places.append(
            {
                "device": place[0],
                "endpoint": place[1],
                "model_mib": round(sums["model"], 2),
                "kv_mib": round(sums["KV"], 2),
                "compute_mib": round(sums["compute"], 2),
                "output_mib": round(sums["output"], 2),
                "total_mib": round(sum(sums.values()), 2),
                "layers": layers.get(place, 0) if layers else None,
            }
        )
    endpoints: dict[str, float] = {}
    for row in places:
        if row["endpoint"]:
            endpoints[row["endpoint"]] = round(endpoints.get(row["endpoint"], 0.0) + row["total_mib"], 2)
    offloaded, total = layout.offloaded or (None, None)
    return dict(
        build,
        buffers=buffers,
        devices=places,
        endpoints=endpoints,
        layers_offloaded=offloaded,
        layers_total=total,
        kv_caches=[cache for cache, _sizes in layout.caches],
    )


def _assigned_layers(layout: _Layout, devices: dict[str, str | None]) -> dict[Place, int] | None:
    """{(device at its endpoint, endpoint): blocks} from the lines of -lv 5; None without them."""
    if not layout.assigned:
        return None
    places = _places(devices)
    output = max(layout.assigned)
    layers: dict[Place, int] = {}
    for number, name in layout.assigned.items():
        if number != output:
            place = places.get(name, (name, None))
            layers[place] = layers.get(place, 0) + 1
    return layers


def _places(devices: dict[str, str | None]) -> dict[str, Place]:
    """{the head's name of a device: its place}. The head numbers all RPC devices through; at an endpoint the count
    starts again, in the same order."""
    places: dict[str, Place] = {}
    seen: dict[str, int] = {}
    for name, endpoint in devices.items():
        if endpoint:
            places[name] = ("RPC%d" % seen.get(endpoint, 0), endpoint)
            seen[endpoint] = seen.get(endpoint, 0) + 1
        else:
            places[name] = (name, None)
    return places


def _cache_layers(layout: _Layout) -> dict[Place, int] | None:
    """The same from the shares of the KV caches, whose layers are of one size each; None where the shares do not
    tell."""
    if layout.recurrent:
        return None  # their layers have no share in the caches
    layers: dict[Place, int] = {}
    for cache, sizes in layout.caches:
        if not cache["mib"]:
            return None
        counts = {place: size / cache["mib"] * cache["layers"] for place, size in sizes.items()}
        # The sizes are printed with two decimals.
        if (
            any(abs(count - round(count)) > 0.1 for count in counts.values())
            or sum(round(count) for count in counts.values()) != cache["layers"]
        ):
            return None
        for place, count in counts.items():
            layers[place] = layers.get(place, 0) + int(round(count))
    return layers or None


def load_info(unit: str, model: str | None = None) -> dict[str, Any]:
    """parse() of the load of a unit's current (else its last) run, with the unit's name and a reason when lines are
    missing. model: of a router, whose last load is read.

    Errors: Refusal when systemd knows no run of the unit, or the journal cannot be read.
    """
    shown = parse_show(systemctl_show([unit], ("Id", "LoadState", "InvocationID")))
    invocation = shown[0].get("InvocationID") if shown else None
    if not invocation:
        raise Refusal(f"unit {unit} does not run on this node: name the head's unit and start it")
    info = parse(read_journal(invocation, model))
    info["unit"] = shown[0]["Id"]
    info["reason"] = None
    if not info["buffers"] or info["layers_total"] is None:
        info["reason"] = (
            "the journal has no buffer sizes of the current run of %s, they are needed to tell what is where: "
            "read it as root, run llama-server with -lv 4 from b11434 on, and restart it if the journal was rotated"
            % unit
        )
    return info


def until_loaded(stream: Iterable[str]) -> tuple[list[str], bool]:
    """Lines of a log up to the end of the load: later ones are requests, and there may be millions. -> (lines, whether
    the load ended)."""
    lines = []
    for line in stream:
        lines.append(line)
        if LOADED.search(line):
            return lines, True
    return lines, False


def of_model(newest_first: Iterable[str], model: str) -> tuple[list[str], bool]:
    """Lines of a router's log on the last load of a model, from the newest line on -> (lines, whether there was
    one)."""
    kept: list[str] = []
    for line in newest_first:
        found = SPAWNED.search(line)
        if found and found.group(1) == model:
            return [one for one in reversed(kept) if one.startswith(f"[{found.group(2)}] ")], True
        if found:  # a later server at a port says nothing of an earlier one
            kept = [one for one in kept if not one.startswith(f"[{found.group(2)}] ")]
        elif PARSED.search(line) and len(kept) < LINES_MOST:
            kept.append(line)
    return [], False


def read_journal(invocation: str, model: str | None = None) -> list[str]:
    """Lines of the load of one run of a unit, or of the last load of a router's model. Errors: Refusal."""
    command = ["--output=cat", "_SYSTEMD_INVOCATION_ID=" + invocation] + (["--reverse"] if model else [])
    stream = ask(command, MOST_LETTERS)
    # The reader may stop early, which ends journalctl.
    return (of_model(stream, model) if model else until_loaded(stream))[0]


def worker_devices(unit: str) -> list[str]:
    """The devices that a worker's current run listed at its start: CUDA0, Vulkan0 or CPU; empty if unknown."""
    with contextlib.suppress(Refusal):
        shown = parse_show(systemctl_show([unit], ("Id", "LoadState", "InvocationID")))
        invocation = shown[0].get("InvocationID") if shown else None
        if invocation:
            lines = ask(["--output=cat", "_SYSTEMD_INVOCATION_ID=" + invocation], MOST_LETTERS)
            found = map(SERVES.match, itertools.islice(lines, START_MOST))
            return [one.group(1) for one in found if one]
    return []
