# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where one model goes: whether it fits, alone or split, and which device holds which layers. Private to the collection.

Sizes in a plan are MiB, rounded up; a device is one of _plan_devices, with `claimed_mib` where other services share it.
"""

from .._llama.args import build_number
from .._model.memory import Shape, place, settings_of
from .._model.shape import Mla
from .._settings import memory_settings
from .._text import Refusal
from .split import needed, split, with_output

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
    """Tokens of context that one request may use; Refusal where a slot would have none."""
    slots = settings.parallel or 1
    tokens = context(shape, settings) // slots
    if not tokens:
        raise Refusal("%d tokens of context seen for %d slots, 1 a slot is needed: set slot_ctx_size" % (context(shape, settings), slots))
    return tokens


def room(device):
    """Bytes of a device that a model may use: what others use, the margin and other services' shares are not its own."""
    return (device["total_mib"] - device["others_mib"] - device.get("claimed_mib", 0) - device["margin_mib"]) * MIB


def mib(size):
    return -(-size // MIB)


def plan(shape, settings, devices, local=0, force_split=False, counts=None):
    """Place a model on devices, in llama.cpp's order.

    local: how many of the last devices are the head's own; counts: layers per device that somebody chose. What fits one device is not
    split unless force_split, and main memory beside GPUs gets what they cannot hold. -> {fits, topology: single, replicas or split, reason, devices:
    [{node, device, kind, layers, first_layer, last_layer, weights_mib, kv_mib, compute_mib, margin_mib, total_mib, free_mib}], host: {weights_mib,
    kv_mib, compute_mib}, counts, tensor_split: as in --tensor-split, [] for one device}. devices and counts show the least bad placement where
    nothing fits.
    """
    gpus = [index for index, device in enumerate(devices) if device["kind"] == "GPU"]
    equals = gpus or list(range(len(devices)))
    alone = [index for index in equals if _fits(_alone(shape, settings, devices, index, local), devices)]
    chosen = counts
    if counts is None and alone and not force_split:
        chosen = _counts(shape, len(devices), min(alone, key=lambda index: devices[index].get("claimed_mib", 0)))
    elif counts is None:
        chosen = _split(shape, settings, devices, equals, local)
    placed = _place(shape, settings, devices, chosen, local)
    used = [index for index, count in enumerate(chosen) if count]
    unsplit = "replicas" if len({devices[index]["node"] for index in alone}) > 1 else "single"
    return {
        "fits": _fits(placed, devices),
        "topology": "split" if len(used) > 1 else unsplit,
        "reason": _reason(devices, equals, alone, used),
        "devices": [_row(device, entry) for device, entry in zip(devices, placed["devices"])],
        "host": {"%s_mib" % key: mib(size) for key, size in placed["host"].items()},
        "counts": chosen,
        "tensor_split": with_output(chosen) if len(devices) > 1 else [],
    }


def _split(shape, settings, devices, equals, local):
    """Layers per device: over the equals, and over as many of the others, which are main memory, as it takes to hold what is left over."""
    others = sorted(set(range(len(devices))) - set(equals), key=lambda index: (-(devices[index]["bandwidth"] or 0), -room(devices[index])))
    for more in range(len(others) + 1):
        chosen = sorted(equals + others[:more])
        part = [devices[index] for index in chosen]
        counts = split(shape, settings, [room(device) for device in part], _speeds(part), local)
        if counts:
            return _spread(dict(zip(chosen, counts)), devices)
    counts = split(shape, settings, None, _speeds([devices[index] for index in equals]), local)
    # Fewer layers than devices: one each.
    return _spread(dict(zip(equals, counts or [1] * shape.block_count)), devices)


def _spread(counts, devices):
    return [counts.get(index, 0) for index in range(len(devices))]


def _reason(devices, equals, alone, used):
    names = ["%s %s" % (device["node"], device["device"]) for device in devices]
    rest = [names[index] for index in used if index not in equals]
    if len(used) > 1 and alone and not rest:
        return "told to, it fits %s alone" % names[alone[0]]
    if len(used) > 1:
        return "it fits none of %s alone" % ", ".join(names[index] for index in equals) + (
            ", what the GPUs cannot hold is left over for %s" % ", ".join(rest) if rest else ""
        )
    if len(alone) > 1:
        return "it fits each of %s alone" % ", ".join(names[index] for index in alone)
    return "it fits %s alone" % names[alone[0]] if alone else "%s is the only device" % names[0]


# A layer that fits no GPU is the only reason for one in main memory.
MAIN_MEMORY = 1e-6


def _speeds(devices):
    """Bandwidths; GPUs count alike where one is not known, and so does main memory, which is never weighed against them."""
    speeds = []
    for device in devices:
        known = [one["bandwidth"] for one in devices if one["kind"] == device["kind"]]
        speeds.append((device["bandwidth"] if all(known) else 1) * (1 if device["kind"] == "GPU" else MAIN_MEMORY))
    return speeds


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
        "kind": device["kind"],
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
