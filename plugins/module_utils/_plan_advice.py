# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What would fit where a model does not: less context, a smaller cache, another quant; each one computed. Private to the collection."""

from ._bytes import human
from ._plan import context, plan

CONTEXT_STEP = 1024
# The types that work over RPC, largest first.
CACHE_TYPES = ("f16", "q8_0", "q4_0")


def nearest(shape, settings, devices, local=0, sizes=None, counts=None):
    """Words for the nearest things that would fit, [] for none.

    sizes: {quant: bytes of its weights} of the model's other quants, "" is this one; counts: layers per device that somebody chose.
    """

    def fits(shape, **changes):
        return plan(shape, settings._replace(**changes), devices, local, counts=counts)["fits"]

    found = []
    wanted = context(shape, settings)
    tokens = largest(lambda tokens: fits(shape, ctx_size=tokens), wanted)
    if tokens:
        found.append("ctx_size %d" % tokens)
    if settings.flash_attn:
        found.extend(_smaller_cache(lambda **changes: fits(shape, **changes), settings.cache_type_k, wanted, tokens))
    sizes = dict(sizes or {})
    own = sizes.pop("", None)
    for quant in sorted(sizes, key=lambda name: (-(sizes[name] or 0), name)):
        if own and sizes[quant] and sizes[quant] < own and fits(scaled(shape, sizes[quant] / float(own))):
            found.append("quant %s (%s)" % (quant, human(sizes[quant])))
            break
    return found


def _smaller_cache(fits, cache_type, wanted, tokens):
    """Words for a smaller type of cache; with less context than wanted where even the smallest is too large, if that is still more than ``tokens``."""
    both = {}
    for smaller in CACHE_TYPES[CACHE_TYPES.index(cache_type) + 1 :]:
        both = {"cache_type_k": smaller, "cache_type_v": smaller}
        if fits(**both):
            return ["cache_type_k and cache_type_v %s" % smaller]
    most = largest(lambda tokens: fits(ctx_size=tokens, **both), wanted) if both else 0
    return ["ctx_size %d with cache_type_k and cache_type_v %s" % (most, both["cache_type_k"])] if most > tokens else []


def largest(fits, tokens):
    """The largest context below ``tokens``, in steps, that fits; 0 where not even one step does."""
    low, high = 0, (tokens - 1) // CONTEXT_STEP
    while low < high:
        middle = (low + high + 1) // 2
        if fits(middle * CONTEXT_STEP):
            low = middle
        else:
            high = middle - 1
    return low * CONTEXT_STEP


def scaled(shape, factor):
    """The same model with weights of another size, as another quant has them."""
    return shape._replace(
        block_bytes=[int(size * factor) for size in shape.block_bytes],
        input_bytes=int(shape.input_bytes * factor),
        output_bytes=int(shape.output_bytes * factor),
    )
