# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How much memory a model needs on each device, from its header alone.

All sizes are bytes. A layer is a block; the output layer is none, it goes with the last device that has layers. In no number: the
accelerator's own context, its pools, and what a driver keeps.
"""

from collections import namedtuple

from .._settings import OWN
from .compute_buffer import compute_bytes
from .kv_cache import kv_bytes
from .shape import Shape, read_shape

__all__ = ["Settings", "Shape", "kv_bytes", "place", "read_shape", "settings_of"]

Settings = namedtuple("Settings", "build ctx_size parallel batch_size ubatch_size cache_type_k cache_type_v flash_attn kv_unified")
"""build: number of the llama.cpp build, None when unknown (the larger of what known builds need); ctx_size: tokens as given to -c, 0 for the
model's own; parallel: slots, None for llama-server's own choice (4 in a unified cache); batch_size, ubatch_size: tokens;
cache_type_k, cache_type_v: names of _kv_cache.CACHE_TYPES; flash_attn, kv_unified: bool."""


def settings_of(**given):
    """Settings with llama-server's defaults for what is not given."""
    defaults = {
        "build": None,
        "ctx_size": 0,
        "parallel": None,
        "kv_unified": False,
    }
    return Settings(**dict(dict(OWN, flash_attn=True), **dict(defaults, **given)))


def place(shape, settings, counts, local=None, fit_params=False):
    """Memory of each device when ``counts`` blocks go to each.

    counts: blocks per device in llama.cpp's order (RPC devices as in --rpc, then the head's own), summing to block_count; local: how many of the last
    devices are the head's own (None: none); fit_params: see compute_bytes. -> {"devices": [{"first_layer", "last_layer" (None without
    layers), "layers", "weights", "kv", "compute"}], "host": {"weights", "kv", "compute"}}. Raises ValueError when the counts do not sum up.
    """
    if sum(counts) != shape.block_count:
        raise ValueError("%s blocks placed, the model has %d" % (sum(counts), shape.block_count))
    caches = kv_bytes(shape, settings)
    compute, host = compute_bytes(shape, settings, counts, local or 0, fit_params)
    last = max(device for device, count in enumerate(counts) if count)
    devices, first = [], 0
    for device, count in enumerate(counts):
        end = first + count
        devices.append({
            "first_layer": first if count else None,
            "last_layer": end - 1 if count else None,
            "layers": count,
            "weights": sum(shape.block_bytes[first:end]) + (shape.output_bytes if device == last else 0),
            "kv": sum(caches[first:end]),
            "compute": compute[device],
        })  # fmt: skip
        first = end
    return {"devices": devices, "host": {"weights": shape.input_bytes, "kv": 0, "compute": host}}
