# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How many layers go to which device. Private to the collection.

A token passes the devices one after the other and reads all of a device's weights there, so the stage that takes
longest is the one with most bytes of weights per byte/s of memory bandwidth.
"""

from __future__ import annotations

from collections.abc import Sequence

from .._model.memory import Settings, Shape, kv_bytes, place

INFINITE = float("inf")
SCALE = 1 << 20
ROUNDS = 4
"""The compute buffers depend a little on who has how many layers: place, look, place again."""


def split(
    shape: Shape,
    settings: Settings,
    room: Sequence[float] | None,
    speeds: Sequence[float],
    local: int,
) -> list[int] | None:
    """Layers per device, in llama.cpp's order, at least one each: all fit, and the slowest stage is as short as it can
    be; None where none fit.

    room: bytes that each device has for the model, None for no limit; speeds: bandwidth of each device, in any unit;
    local: how many of the last devices are the head's own. The same arguments give the same counts.
    """
    devices = len(speeds)
    if shape.block_count < devices:
        return None
    room = room or [INFINITE] * devices
    even = [shape.block_count // devices + (device < shape.block_count % devices) for device in range(devices)]
    compute = [share.compute for share in place(shape, settings, even, local).devices]
    for _round in range(ROUNDS):
        counts = _partition(shape, settings, room, speeds, compute)
        if counts is None:
            return None
        seen = place(shape, settings, counts, local).devices
        if all(share.total() <= most for share, most in zip(seen, room)):
            return counts
        compute = [max(known, share.compute) for known, share in zip(compute, seen)]
    return None


class _Stages:
    """The stages of one partition: consecutive blocks on one device."""

    def __init__(
        self,
        shape: Shape,
        settings: Settings,
        room: Sequence[float],
        speeds: Sequence[float],
        compute: Sequence[int],
    ) -> None:
        caches = kv_bytes(shape, settings)
        self.weights, self.bytes = (
            _sums(shape.block_bytes),
            _sums([sum(both) for both in zip(shape.block_bytes, caches)]),
        )
        self.output = [0] * (len(speeds) - 1) + [shape.output_bytes]
        self.room = [most - own - output for most, own, output in zip(room, compute, self.output)]
        # Whole numbers: sums of them are exact, so equal splits are equal and the first one counts.
        self.slowness = [int(SCALE * max(speeds) / speed) for speed in speeds]

    def too_large(self) -> bool:
        """Whether all devices together are too small."""
        return self.bytes[-1] > sum(self.room)

    def time(self, device: int, start: int, end: int) -> float:
        """The time of blocks start to end, infinite if they do not fit. It never shrinks with more blocks."""
        if self.bytes[end] - self.bytes[start] > self.room[device]:
            return INFINITE
        return (self.weights[end] - self.weights[start] + self.output[device]) * self.slowness[device]


def _sums(sizes: Sequence[int]) -> list[int]:
    sums = [0]
    for size in sizes:
        sums.append(sums[-1] + size)
    return sums


def _partition(
    shape: Shape,
    settings: Settings,
    room: Sequence[float],
    speeds: Sequence[float],
    compute: Sequence[int],
) -> list[int] | None:
    """Consecutive blocks per device: first the shortest slowest stage, then, among those, the most even ones (least
    squares)."""
    stages = _Stages(shape, settings, room, speeds, compute)
    if stages.too_large():
        return None
    tables = _slowest(stages, shape.block_count, len(speeds))
    slowest = tables[-1].get(shape.block_count, INFINITE)
    if slowest == INFINITE:
        return None
    ends = [[end for end, time in sorted(table.items()) if time <= slowest] for table in tables]
    return _most_even(stages, ends, slowest)


def _slowest(stages: _Stages, blocks: int, devices: int) -> list[dict[int, float]]:
    """-> [{end: time of the slowest stage when the first end blocks lie on this device and those before}] of each
    device.

    A later start leaves a device less to do and, among the starts that are kept, those before it more: the best one is
    where the two meet.
    """
    known: dict[int, float] = {0: 0}
    tables: list[dict[int, float]] = []
    for device in range(devices):
        last = device == devices - 1
        table: dict[int, float] = {}
        starts: list[int] = []
        before: list[float] = []
        for end in range(device + 1, blocks - (devices - device - 1) + 1):
            if end - 1 in known:
                # A start that leaves more to do for this device and the others than a later one is never the best.
                while before and before[-1] >= known[end - 1]:
                    starts.pop()
                    before.pop()
                starts.append(end - 1)
                before.append(known[end - 1])
            if not starts or (last and end < blocks):
                continue
            low, high = 0, len(starts) - 1
            while low < high:
                middle = (low + high) // 2
                if stages.time(device, starts[middle], end) <= before[middle]:
                    high = middle
                else:
                    low = middle + 1
            best = min(max(before[at], stages.time(device, starts[at], end)) for at in range(max(0, low - 1), low + 1))
            if best < INFINITE:
                table[end] = best
        known = table
        tables.append(table)
    return tables


def _most_even(stages: _Stages, ends: list[list[int]], slowest: float) -> list[int]:
    """-> blocks per device; ends: of each device, where its blocks may end so that no stage takes longer than slowest.

    The best start moves on with the end (the squares are convex), so the best start of the middle end bounds the starts
    of the others.
    """
    known: dict[int, float] = {0: 0}
    history: list[dict[int, int]] = []
    for device, own in enumerate(ends):
        starts = sorted(known)
        table: dict[int, float] = {}
        origin: dict[int, int] = {}
        open_ranges = [(0, len(own) - 1, 0, len(starts) - 1)]
        while open_ranges:
            first, last, low, high = open_ranges.pop()
            if first > last:
                continue
            middle = (first + last) // 2
            end, best, at = own[middle], INFINITE, low
            for index in range(low, high + 1):
                start = starts[index]
                time = stages.time(device, start, end) if start < end else INFINITE
                if time <= slowest and known[start] + time * time < best:
                    best, at = known[start] + time * time, index
            table[end], origin[end] = best, starts[at]
            open_ranges += [(first, middle - 1, low, at), (middle + 1, last, at, high)]
        known = table
        history.append(origin)
    counts: list[int] = []
    end = ends[-1][-1]
    for origin in reversed(history):
        counts.insert(0, end - origin[end])
        end = origin[end]
    return counts


def with_output(counts: list[int]) -> list[int]:
    """Counts of layers as --tensor-split wants them: the output layer is one more item, of the last device that has
    any."""
    last = max(index for index, count in enumerate(counts) if count)
    return counts[:last] + [counts[last] + 1]


def per_device(layers: dict[str, int], nodes: list[str]) -> list[int]:
    """Layers by node -> layers by device; a node's are spread evenly over its cards. nodes: the node of each device."""
    counts = []
    for index, node in enumerate(nodes):
        share, rest = divmod(layers.get(node, 0), nodes.count(node))
        counts.append(share + (nodes[:index].count(node) < rest))
    return counts
