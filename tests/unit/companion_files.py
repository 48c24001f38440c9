# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files that lie beside a model, which llama-server b11434 loads: a LoRA adapter and a projector for pictures."""

from ansible_collections.thefermisea.llama_cluster.tests.unit import gguf_files as make

F32, F16 = 0, 1


def adapter(architecture="llama", rank=8, blocks=30, width=576, kind="lora", more=()):
    """Tensors for the queries of each block of SmolLM2."""
    metadata = [
        ("general.type", make.STRING, "adapter"),
        ("general.architecture", make.STRING, architecture),
        ("adapter.type", make.STRING, kind),
        ("adapter.lora.alpha", make.F32, float(rank)),
    ]
    tensors = []
    for block in range(blocks):
        name = f"blk.{block}.attn_q.weight"
        tensors += [(f"{name}.lora_a", (width, rank), F32), (f"{name}.lora_b", (rank, width), F32)]
    return metadata, [*tensors, *more]


def projector(kind="gemma3", output=576, width=192, heads=3, wide=768, blocks=2, image=256, patch=16):
    metadata = [
        ("general.type", make.STRING, "mmproj"),
        ("general.architecture", make.STRING, "clip"),
        ("clip.has_vision_encoder", make.BOOL, True),
        ("clip.projector_type", make.STRING, kind),
        ("clip.use_gelu", make.BOOL, True),
        ("clip.vision.image_size", make.U32, image),
        ("clip.vision.patch_size", make.U32, patch),
        ("clip.vision.embedding_length", make.U32, width),
        ("clip.vision.feed_forward_length", make.U32, wide),
        ("clip.vision.block_count", make.U32, blocks),
        ("clip.vision.projection_dim", make.U32, output),
        ("clip.vision.attention.head_count", make.U32, heads),
        ("clip.vision.attention.layer_norm_epsilon", make.F32, 1e-6),
        ("clip.vision.image_mean", make.ARRAY, (make.F32, [0.5] * 3)),
        ("clip.vision.image_std", make.ARRAY, (make.F32, [0.5] * 3)),
    ]
    tensors = [
        ("v.patch_embd.weight", (patch, patch, 3, width), F32),
        ("v.patch_embd.bias", (width,), F32),
        ("v.position_embd.weight", (width, (image // patch) ** 2), F32),
        ("v.post_ln.weight", (width,), F32),
        ("v.post_ln.bias", (width,), F32),
        ("mm.input_projection.weight", (output, width), F32),
        ("mm.soft_emb_norm.weight", (width,), F32),
    ]
    for block in range(blocks):
        shapes = {f"attn_{name}": (width, width) for name in ("q", "k", "v", "out")}
        shapes.update({"ffn_up": (width, wide), "ffn_down": (wide, width)})
        for name, dims in shapes.items():
            tensors.append((f"v.blk.{block}.{name}.weight", dims, F32))
            tensors.append((f"v.blk.{block}.{name}.bias", dims[1:], F32))
        for name in ("ln1", "ln2"):
            tensors += [(f"v.blk.{block}.{name}.{part}", (width,), F32) for part in ("weight", "bias")]
    return metadata, tensors
