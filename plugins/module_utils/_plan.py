# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where one model goes: whether it fits, alone or split, and which device holds which layers. Private to the collection.

Sizes in a plan are MiB, rounded up; a device is one of _plan_devices, with `claimed_mib` where other services share it.
"""

from ._llama_args import build_number
from ._memory import Shape, place, settings_of
from ._model_shape import Mla
from ._plan_split import needed, split
from ._settings import memory_settings

MIB = 1 << 20


def shape_facts(shape):
    """A Shape as a dict that survives JSON."""
    return dict(shape._asdict(), mla=list(shape.mla) if shape.mla else None)


def shape_of(facts):
    """The Shape that shape_facts() made the dict of."""
    return Shape(**dict(facts, mla=Mla(*facts["mla"]) if facts["mla"] else None))


def settings_for(service, build):
    """Settings of a service; build: llama_cpp_version, such as b11434."""
    given = dict(memory_settings(service))
    given["flash_attn"] = given.get("flash_attn") != "off"
    return settings_of(build=build_number(build), **given)


def context(shape, settings):
    """Tokens of context in all slots together."""
    return settings.ctx_size or shape.context_length


def slot_context(shape, settings):
    """Tokens of context that one request may use."""
    return context(shape, settings) // (settings.parallel or 1)


def room(device):
    """Bytes of a device that a model may use: what others use, the margin and other services' shares are not its own."""
    return (device["total_mib"] - device["others_mib"] - device.get("claimed_mib", 0) - device["margin_mib"]) * MIB


def mib(size):
    return -(-size // MIB)


def plan(shape, settings, devices, local=0, force_split=False, counts=None):
    """Place a model on devices, in llama.cpp's order.

    local: how many of the last devices are the head's own; counts: layers per device that somebody chose. What fits one device is not
    split unless force_split. -> {fits, topology: single, replicas or split, reason, devices: [{node, device, layers, first_layer, last_layer,
    weights_mib, kv_mib, compute_mib, margin_mib, total_mib, free_mib}], host: {weights_mib, kv_mib, compute_mib}, counts, tensor_split: as in
    --tensor-split, [] where one device has all}. devices and counts show the least bad placement where nothing fits.
    """
    alone = [index for index in range(len(devices)) if _fits(_alone(shape, settings, devices, index, local), devices)]
    chosen = counts
    if counts is None and alone and not force_split:
        chosen = _counts(shape, len(devices), alone[0])
    elif counts is None:
        speeds = _speeds(devices)
        chosen = split(shape, settings, [room(device) for device in devices], speeds, local) or split(shape, settings, None, speeds, local)
    if chosen is None:
        # Fewer layers than devices.
        chosen = [1] * shape.block_count + [0] * (len(devices) - shape.block_count)
    placed = _place(shape, settings, devices, chosen, local)
    used = sum(count > 0 for count in chosen)
    unsplit = "replicas" if len(alone) > 1 else "single"
    return {
        "fits": _fits(placed, devices),
        "topology": "split" if used > 1 else unsplit,
        "reason": _reason(devices, alone, used),
        "devices": [_row(device, entry) for device, entry in zip(devices, placed["devices"])],
        "host": {"%s_mib" % key: mib(size) for key, size in placed["host"].items()},
        "counts": chosen,
        "tensor_split": with_output(chosen) if len(devices) > 1 else [],
    }


def _reason(devices, alone, used):
    names = ["%s %s" % (device["node"], device["device"]) for device in devices]
    if used > 1:
        return "it fits %s alone, and is split because it is told to" % names[alone[0]] if alone else "it fits none of %s alone" % ", ".join(names)
    if len(alone) > 1:
        return "it fits each of %s alone" % ", ".join(names[index] for index in alone)
    return "it fits %s" % names[alone[0]] if alone else "%s is the only device" % names[0]


def _speeds(devices):
    """Bandwidths, alike where one is not known."""
    speeds = [device["bandwidth"] for device in devices]
    return speeds if all(speeds) else [1] * len(devices)


def _counts(shape, devices, index):
    return [shape.block_count if device == index else 0 for device in range(devices)]


def _alone(shape, settings, devices, index, local):
    # A device without others beside it is the head's own.
    placed = _place(shape, settings, [devices[index]], [shape.block_count], 1)
    empty = {"first_layer": None, "last_layer": None, "layers": 0, "weights": 0, "kv": 0, "compute": 0}
    entries = [dict(empty) for _device in devices]
    entries[index] = placed["devices"][0]
    return dict(placed, devices=entries)


def _place(shape, settings, devices, counts, local):
    placed = place(shape, settings, counts, local)
    # What the head keeps lies in the same memory as its own layers where that is the main memory.
    if local and devices[-1]["kind"] == "main":
        own = placed["devices"][-1]
        for key, size in placed["host"].items():
            own[key] += size
        placed["host"] = dict.fromkeys(placed["host"], 0)
    return placed


def _fits(placed, devices):
    return all(not needed(entry) or needed(entry) <= room(device) for entry, device in zip(placed["devices"], devices))


def _row(device, entry):
    used = needed(entry)
    return {
        "node": device["node"],
        "device": device["device"],
        "layers": entry["layers"],
        "first_layer": entry["first_layer"],
        "last_layer": entry["last_layer"],
        "weights_mib": mib(entry["weights"]),
        "kv_mib": mib(entry["kv"]),
        "compute_mib": mib(entry["compute"]),
        "margin_mib": device["margin_mib"] if used else 0,
        "total_mib": mib(used) + (device["margin_mib"] if used else 0),
        "free_mib": device["total_mib"] - device["others_mib"] - device.get("claimed_mib", 0),
    }


def with_output(counts):
    """Counts of layers as --tensor-split wants them: the output layer is one more item, of the last device that has any."""
    last = max(index for index, count in enumerate(counts) if count)
    return counts[:last] + [counts[last] + 1]
