# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Headers of adapters and projectors; bytes are those that b11434 logged when it loaded these files."""

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._model import companion, gguf, tensor_mode
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._text import Refusal
from ansible_collections.thefermisea.llama_cluster.tests.unit import companion_files
from ansible_collections.thefermisea.llama_cluster.tests.unit import gguf_files as make
from ansible_collections.thefermisea.llama_cluster.tests.unit.mixture import DENSE

MIB = 1 << 20


def read(metadata, tensors):
    data = make.header_bytes(metadata, tensors)
    return companion.read_companion([gguf.read_header(lambda offset, length: data[offset : offset + length], "b.gguf")])


def with_key(key, kind, value):
    metadata, tensors = companion_files.projector()
    return [entry for entry in metadata if entry[0] != key] + [(key, kind, value)], tensors


@pytest.mark.parametrize(
    "width, heads, wide, image, patch, fast, plain",
    [
        (192, 3, 768, 224, 16, 1.00, 1.01),
        (384, 6, 1536, 512, 16, 10.50, 30.00),
        (384, 6, 3072, 896, 14, 66.00, 408.00),
    ],
)
def test_buffer_of_projector_is_as_measured(width, heads, wide, image, patch, fast, plain):
    """The compute buffers of an idefics3 with these numbers."""
    shape = {"width": width, "heads": heads, "wide": wide, "image": image, "patch": patch}
    found = read(*companion_files.projector("idefics3", **shape))
    assert (found.compute / MIB, found.compute_plain / MIB) == pytest.approx((fast, plain), abs=0.01)


def test_pictures_of_any_size_need_more():
    assert read(*companion_files.projector("qwen3vl_merger")).compute > 50 * read(*companion_files.projector()).compute


def test_adapter_lies_with_its_layers():
    more = [("token_embd.weight.lora_a", (8, 16), 0), ("output.weight.lora_b", (8, 32), 0)]
    found = read(*companion_files.adapter("qwen3", blocks=2, more=more))
    assert (found.kind, found.architecture, found.blocks) == ("adapter", "qwen3", [2 * 576 * 8 * 4] * 2)
    changed = found.added_to(DENSE)
    assert changed.block_bytes[0] - DENSE.block_bytes[0] == 2 * 576 * 8 * 4
    assert changed.block_bytes[2:] == DENSE.block_bytes[2:]
    assert changed.input_bytes - DENSE.input_bytes == 8 * 16 * 4
    assert changed.output_bytes - DENSE.output_bytes == 8 * 32 * 4


@pytest.mark.parametrize(
    "files, words",
    [
        (companion_files.adapter("x\nllama_services.y: \x1b[2J"), r"architecture 'x\\nllama_services.y"),
        (companion_files.adapter(kind="other"), "adapter.type 'other' seen, lora is needed"),
        (companion_files.adapter(more=[("blk.0.x", (32,), 0)]), "tensor 'blk.0.x' seen, lora_a and lora_b are needed"),
        (with_key("clip.vision.patch_size", make.U32, 0), "patch_size is 0, a number up to"),
        (with_key("clip.vision.image_size", make.U32, 2**32 - 1), "image_size is 4294967295, a number up to"),
        (with_key("clip.vision.embedding_length", make.STRING, "x" * 999), "embedding_length is 'xxx"),
        (with_key("clip.vision.feed_forward_length", make.BOOL, True), "feed_forward_length is True"),
    ],
)
def test_unusable_header_is_refused(files, words):
    with pytest.raises(Refusal, match=words):
        read(*files)


def test_other_files_are_none():
    sound = with_key("clip.has_vision_encoder", make.BOOL, False)
    assert read(*sound)[5:] == (0, 0)
    assert read([("general.architecture", make.STRING, "llama")], []) is None


def parts(layers, heads, cached, size, of_devices):
    return tensor_mode.head_parts([heads] * layers, [cached] * layers, [size] * layers, of_devices)


@pytest.mark.parametrize(
    ("layers", "heads", "of_devices", "expected"),
    [
        # Whole groups of heads: 1, 1 and 2 of 4, and another device begins in each layer.
        (3, (32, 4), [1, 1, 1], [1 / 3, 1 / 3, 1 / 3]),
        (2, (32, 8), [1, 1], [0.5, 0.5]),
        (2, (32, 8), [3, 1], [0.75, 0.25]),
        # Fewer heads than devices: each has some in some layers.
        (4, (8, 1), [1, 1], [0.5, 0.5]),
        # One layer only: the last device has what is left over.
        (1, (32, 4), [1, 1, 1], [0.25, 0.25, 0.5]),
    ],
)
def test_heads_follow_the_parts(layers, heads, of_devices, expected):
    assert parts(layers, *heads, 128, of_devices) == pytest.approx(expected)


def test_layers_without_a_cache_do_not_count():
    found = tensor_mode.head_parts([32, 0, 32, 0], [8, 0, 8, 0], [128] * 4, [1, 1])
    assert found == [0.5, 0.5]
    assert tensor_mode.head_parts([0], [0], [0], [3, 1]) == [0.75, 0.25]
