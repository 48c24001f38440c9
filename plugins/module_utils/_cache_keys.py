# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rows of the table of settings for caches of prompts. Private to the collection."""

from ._key import Key

# KV cache types: unquantized first. CACHE_TYPES: those that work over RPC.
PLAIN_CACHE_TYPES = ("f32", "f16", "bf16")
ALL_CACHE_TYPES = PLAIN_CACHE_TYPES + ("q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl")
CACHE_TYPES = ("f16", "q8_0", "q4_0")

CACHE_ROWS = (
    Key(
        "kv_unified",
        bool,
        "Whether all slots share one KV cache: a request may use the whole context while others are short, and all "
        "together have no more than it.",
        flag=((0, {True: ["--kv-unified"], False: []}),),
        memory=True,
    ),
    Key(
        "cache",
        str,
        "The type of the KV cache: `cache_type_k` and `cache_type_v` at once. With workers one of `f16`, `q8_0` and "
        "`q4_0`.",
        choices=ALL_CACHE_TYPES,
        memory=True,
    ),
    Key(
        "cache_type_k",
        str,
        "The type of the KV cache's keys, with workers the same as `cache_type_v`.",
        own="f16",
        choices=ALL_CACHE_TYPES,
        flag="--cache-type-k",
        memory=True,
    ),
    Key(
        "cache_type_v",
        str,
        "The type of the KV cache's values.",
        own="f16",
        choices=ALL_CACHE_TYPES,
        flag="--cache-type-v",
        memory=True,
    ),
    Key(
        "cache_reuse",
        int,
        "The shortest stretch of tokens, after a change in a prompt, that is taken from the cache all the same.",
        flag="--cache-reuse",
    ),
    Key(
        "cache_ram",
        int,
        "MiB of main memory for prompts whose slot went to another conversation, so that they need not be read again; "
        "0: none. Not with `workers`. [When it is worth it](inventory.md#prompts-of-several-conversations).",
        default=0,
        bounds=(0, 2**20),
        flag="--cache-ram",
        memory=True,
    ),
)
