# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A draft model beside the one that it drafts for."""

from collections.abc import Sequence

from .kv_cache import Settings


def draft_settings(settings: Settings) -> Settings:
    """Its context is that of the model, its cache f16 whatever the model's is (common_base_params_to_speculative)."""
    return settings._replace(cache_type_k="f16", cache_type_v="f16", drafted=0)


def draft_counts(blocks: int, counts: Sequence[int]) -> list[int]:
    """Blocks of a draft model per device: llama.cpp shares them out by the model's own --tensor-split, with the output
    layer as one more."""
    last = max(device for device, count in enumerate(counts) if count)
    items = [count + (device == last) for device, count in enumerate(counts)]
    ends, total = [sum(items[: device + 1]) for device in range(len(items))], sum(items)
    found = [0] * len(items)
    for block in range(blocks):
        found[next(device for device, end in enumerate(ends) if end * (blocks + 1) > block * total)] += 1
    return found
