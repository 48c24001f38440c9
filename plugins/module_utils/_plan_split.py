# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How many layers go to which device. Private to the collection.

A token passes the devices one after the other and reads all of a device's weights there, so the stage that takes longest is the one with
most bytes of weights per byte/s of memory bandwidth.
"""

from ._memory import kv_bytes, place

INFINITE = float("inf")
ROUNDS = 4
"""The compute buffers depend a little on who has how many layers: place, look, place again."""


def split(shape, settings, room, speeds, local):
    """Layers per device, in llama.cpp's order, at least one each: all fit, and the slowest stage is as short as it can be; None where none fit.

    room: bytes that each device has for the model, None for no limit; speeds: bandwidth of each device, in any unit; local: how many of the
    last devices are the head's own. The same arguments give the same counts.
    """
    devices = len(speeds)
    if shape.block_count < devices:
        return None
    room = room or [INFINITE] * devices
    even = [shape.block_count // devices + (device < shape.block_count % devices) for device in range(devices)]
    compute = [device["compute"] for device in place(shape, settings, even, local)["devices"]]
    for _round in range(ROUNDS):
        counts = _partition(shape, settings, room, speeds, compute)
        if counts is None:
            return None
        seen = place(shape, settings, counts, local)["devices"]
        if all(needed(device) <= most for device, most in zip(seen, room)):
            return counts
        compute = [max(known, device["compute"]) for known, device in zip(compute, seen)]
    return None


def needed(device):
    """Bytes of one device of place()."""
    return device["weights"] + device["kv"] + device["compute"]


def _sums(sizes):
    sums = [0]
    for size in sizes:
        sums.append(sums[-1] + size)
    return sums


def _partition(shape, settings, room, speeds, compute):
    """Consecutive blocks per device: first the shortest slowest stage, then, among those, the most even ones (least squares)."""
    weights, caches = _sums(shape.block_bytes), _sums(kv_bytes(shape, settings))
    last = len(speeds) - 1

    def stage(device, start, end):
        """-> time of a stage, infinite where it does not fit"""
        held = weights[end] - weights[start] + (shape.output_bytes if device == last else 0)
        if held + caches[end] - caches[start] + compute[device] > room[device]:
            return INFINITE
        return held / float(speeds[device])

    slowest = _best(shape.block_count, last + 1, stage, max)[0]
    if slowest == INFINITE:
        return None

    def square(device, start, end):
        time = stage(device, start, end)
        return time * time if time <= slowest else INFINITE

    return _best(shape.block_count, last + 1, square, lambda one, other: one + other)[1]


def _best(blocks, devices, cost, join):
    """-> (least joined cost of all stages, blocks per device), by dynamic programming over (device, blocks placed so far)."""
    known = {0: (0.0, None)}
    history = []
    for device in range(devices):
        left = devices - device - 1
        ends = [blocks] if not left else range(device + 1, blocks - left + 1)
        table = {}
        for end in ends:
            best = (INFINITE, None)
            for start, (before, _from) in known.items():
                if start < end and before < best[0]:
                    total = join(before, cost(device, start, end))
                    if total < best[0]:
                        best = (total, start)
            table[end] = best
        known = table
        history.append(table)
    total = known[blocks][0]
    if total == INFINITE:
        return INFINITE, None
    counts, end = [], blocks
    for table in reversed(history):
        start = table[end][1]
        counts.insert(0, end - start)
        end = start
    return total, counts


def with_output(counts):
    """Counts of layers as --tensor-split wants them: the output layer is one more item, of the last device that has any."""
    last = max(index for index, count in enumerate(counts) if count)
    return counts[:last] + [counts[last] + 1]


def per_device(layers, nodes):
    """Layers by node -> layers by device; a node's are spread evenly over its cards. nodes: the node of each device."""
    counts = []
    for index, node in enumerate(nodes):
        share, rest = divmod(layers.get(node, 0), nodes.count(node))
        counts.append(share + (nodes[:index].count(node) < rest))
    return counts
