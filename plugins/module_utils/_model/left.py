# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A model as two parts: first layers in the head's main memory, the rest on devices."""

from .shape import Shape


def leaving(shape: Shape, blocks: int) -> Shape:
    """The same model with its first blocks in the head's main memory, as --n-gpu-layers has it. The
    others, at least one, are for devices."""
    if not blocks:
        return shape
    left, others = _part(shape, 0, blocks), _part(shape, blocks, shape.block_count)
    return others._replace(input_bytes=shape.input_bytes + sum(left.block_bytes), left=left)


def _part(shape: Shape, first: int, end: int) -> Shape:
    return shape._replace(
        block_count=end - first,
        block_bytes=shape.block_bytes[first:end],
        n_head=shape.n_head[first:end],
        n_head_kv=shape.n_head_kv[first:end],
        head_k=shape.head_k[first:end],
        head_v=shape.head_v[first:end],
        swa_layers=shape.swa_layers[first:end],
        recurrent=shape.recurrent[first:end],
        expert_bytes=shape.expert_bytes[first:end],
    )
