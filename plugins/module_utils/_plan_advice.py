# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What would fit where a model does not: less context, a smaller cache, another quant; each one computed. Private to the collection."""

from ._bytes import human
from ._plan import context, plan

CONTEXT_STEP = 1024


def nearest(shape, settings, devices, local=0, sizes=None, counts=None):
    """Words for the nearest things that would fit, [] for none.

    sizes: {quant: bytes of its weights} of the model's other quants, "" is this one; counts: layers per device that somebody chose.
    """

    def fits(shape, **changes):
        return plan(shape, settings._replace(**changes), devices, local, counts=counts)["fits"]

    found = []
    tokens = largest(lambda tokens: fits(shape, ctx_size=tokens), context(shape, settings))
    if tokens:
        found.append("ctx_size %d" % tokens)
    smaller = ["q8_0", "q4_0"][["f16", "q8_0"].index(settings.cache_type_k) :] if settings.cache_type_k in ("f16", "q8_0") and settings.flash_attn else []
    for cache_type in smaller:
        if fits(shape, cache_type_k=cache_type, cache_type_v=cache_type):
            found.append("cache_type_k and cache_type_v %s" % cache_type)
            break
    sizes = dict(sizes or {})
    own = sizes.pop("", None)
    for quant in sorted(sizes, key=lambda name: (-(sizes[name] or 0), name)):
        if own and sizes[quant] and sizes[quant] < own and fits(scaled(shape, sizes[quant] / float(own))):
            found.append("quant %s (%s)" % (quant, human(sizes[quant])))
            break
    return found


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
