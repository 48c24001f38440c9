# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Differences between llama.cpp builds in the memory that they need.

Only b7772 and b11434 were measured. A build outside their ranges may need what any of them needs, so a plan takes the
larger.
"""

from __future__ import annotations

from typing import NamedTuple


class BuildRange(NamedTuple):
    """Builds that need the same memory, by number; last: None for no end."""

    first: int
    last: int | None
    mla_values: bool  # a compressed cache (MLA) has values beside its keys
    rpc_events: bool  # RPC devices have events, so several of them work as a pipeline with four copies of each input
    all_outputs: bool  # a ubatch reserves logits for all of its tokens, not for one per slot
    rotated_cache: bool  # the query is rotated for a quantized cache
    # In a model with constant states too, the cache of each of several sequences has room for the context of all.
    whole_context_beside_states: bool


RANGES = (
    BuildRange(
        7760,
        7772,
        mla_values=True,
        rpc_events=False,
        all_outputs=True,
        rotated_cache=False,
        whole_context_beside_states=True,
    ),
    BuildRange(
        11434,
        None,
        mla_values=False,
        rpc_events=True,
        all_outputs=False,
        rotated_cache=True,
        whole_context_beside_states=False,
    ),
)
"""7760 is the oldest build that is supported; it is taken to need what b7772, twelve builds later, was measured
to need."""


def ranges_of(build: int | None) -> tuple[BuildRange, ...]:
    """-> the BuildRange of a build number, or all of them when none is known to hold for it (or the number is None)"""
    for known in RANGES:
        if build is not None and known.first <= build and (known.last is None or build <= known.last):
            return (known,)
    return RANGES
