# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The architectures whose caches are not plain. The sources are llama-hparams.cpp and the loaders of the architectures
(load_hparams) of b7772 and b11434."""

from __future__ import annotations

from typing import NamedTuple


class Swa(NamedTuple):
    """The sliding windows of an architecture."""

    period: int  # one layer in so many attends to everything
    window: int  # tokens where the header names none
    dense_first: bool


# The architectures whose caches have a sliding window, unless the header names the layers itself. The others keep the
# whole context, whatever their header says of a window.
SWA = {
    "afmoe": Swa(4, 0, False),
    "cohere2": Swa(4, 0, False),
    "exaone4": Swa(4, 4096, False),
    "gemma2": Swa(2, 4096, False),
    "gemma3": Swa(6, 0, False),
    "gemma3n": Swa(5, 0, False),
    "gpt-oss": Swa(2, 0, False),
    "llama4": Swa(4, 8192, False),
    "olmo2": Swa(4, 0, False),
    "smallthinker": Swa(4, 4096, True),
}

# The architectures with layers of constant state instead of, or beside, a cache: which layers those are.
RECURRENT = {
    "falcon-h1": "beside",
    "granitehybrid": "without heads",
    "jamba": "without heads",
    "lfm2": "without heads",
    "lfm2moe": "without heads",
    "mamba": "all",
    "mamba2": "all",
    "nemotron_h": "without heads and feed-forward",
    "nemotron_h_moe": "without heads and feed-forward",
    "qwen35": "interval",
    "qwen35moe": "interval",
    "qwen3next": "interval",
}
# The architectures that read a text at once and keep no cache (create_memory); their output is no layer of its own.
WITHOUT_CACHE = {
    "bert",
    "eurobert",
    "gemma-embedding",
    "jina-bert-v2",
    "jina-bert-v3",
    "modern-bert",
    "neo-bert",
    "nomic-bert",
    "nomic-bert-moe",
}
