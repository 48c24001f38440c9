# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Model files: their header, the shape that decides their memory, and the plan that is made of it."""

import json
import os
import struct

from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._model import describe, gguf
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._model.shape import Shape, read_shape
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._plan.what_if import what_if
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._text import Refusal
from ansible_collections.thefermisea.llama_cluster.tests.unit import gguf_files as make
from ansible_collections.thefermisea.llama_cluster.tests.unit.fuzz import damage
from ansible_collections.thefermisea.llama_cluster.tests.unit.fuzz.folder import FOLDER

# key -> value beside what every model has; each architecture takes another way through the shape.
KINDS = {
    "llama": {},
    "gemma3": {"attention.sliding_window": 1024},
    "gpt-oss": {
        "attention.sliding_window": 128,
        "expert_count": 4,
        "expert_used_count": 2,
        "attention.key_length_swa": 16,
    },
    "deepseek2": {
        "attention.kv_lora_rank": 32,
        "attention.key_length_mla": 48,
        "rope.dimension_count": 16,
        "attention.value_length_mla": 32,
    },
    "granitehybrid": {
        "ssm.conv_kernel": 4,
        "ssm.inner_size": 128,
        "ssm.state_size": 16,
        "ssm.group_count": 1,
        "attention.head_count_kv": [0, 2, 0, 2],
    },
    "qwen3next": {"ssm.conv_kernel": 4, "ssm.inner_size": 128, "ssm.state_size": 16, "full_attention_interval": 4},
    "lfm2": {"shortconv.l_cache": 3, "attention.head_count_kv": [0, 2, 0, 2]},
    "glm4moe": {
        "nextn_predict_layers": 1,
        "expert_count": 4,
        "expert_used_count": 2,
        "attention.sliding_window_pattern": [0, 1, 1, 1],
    },
}
GIVEN = {
    "slot_ctx_size": 0, "parallel": None, "batch_size": 2048, "ubatch_size": 512, "cache": "f16",
    "build": "b11434", "margin_mib": 16,
    "force_split": False,
    "urls": ["https://hub.example/m.Q8_0.gguf"], "repo": None, "files": None, "revision": "main",
    "endpoint": "https://hub.example",
}  # fmt: skip


def parts(architecture, blocks=4):
    """(metadata, tensors) of a small model."""
    values = {
        "block_count": blocks,
        "context_length": 4096,
        "embedding_length": 64,
        "feed_forward_length": 128,
        "nextn_predict_layers": 0,
    }
    values.update(
        {
            "attention.head_count": 4,
            "attention.head_count_kv": 2,
            "attention.key_length": 16,
            "attention.value_length": 16,
        }
    )
    values.update(KINDS.get(architecture, {}))
    metadata = [("general.architecture", make.STRING, architecture), ("general.name", make.STRING, "a model")]
    for name, value in values.items():
        kind = make.ARRAY if isinstance(value, list) else make.U32
        metadata.append(("%s.%s" % (architecture, name), kind, (make.I32, value) if isinstance(value, list) else value))
    metadata.append(("%s.rope.scaling.type" % architecture, make.STRING, "none"))
    tensors = [("token_embd.weight", (64, 512), 1), ("output.weight", (64, 512), 1)]
    for block in range(blocks):
        tensors += [
            ("blk.%d.%s.weight" % (block, name), dims, 1)
            for name, dims in (("attn_q", (64, 64)), ("ffn_up", (64, 128)), ("ffn_down", (128, 64)))
        ]
    return metadata, tensors


def start_of(path):
    """The header of a real file, and some bytes more."""
    with open(path, "rb") as stream:
        return stream.read(gguf.read_path(path).header_size + 1000)


def header_seeds(files):
    made = [make.model(1)[:2000], make.shards(2)[1][:500]]
    return made + [start_of(os.fspath(path)) for path in files]


def shape_seeds(_files):
    return [parts(architecture) for architecture in KINDS]


def damaged_parts(seed, source):
    return (
        damage.header_of(*seed, source) if source.random() < 0.8 else damage.bytes_of(make.header_bytes(*seed), source)
    )


def parsed(data):
    return gguf.read_header(lambda offset, length: data[offset : offset + length], "m.gguf")


def header(data):
    """Whatever is asked about a header."""
    try:
        found = parsed(data)
        describe.describe([found])
        describe.size_problem(found, len(data), "m.gguf")
        describe.check_shards([found], ["m.gguf"])
        if found.metadata.get("split.count"):
            describe.check_shards([found, found], ["m.gguf", "n.gguf"])
    except Refusal as error:
        return str(error)
    return None


def shape(data):
    try:
        read_shape(parsed(data))
    except Refusal as error:
        return str(error)
    return None


def plan(data):
    """The shape as it travels from a node to the controller, and a plan with advice for two cards."""
    try:
        planned(Shape.of(json.loads(json.dumps(read_shape(parsed(data)).as_dict()))), len(data))
    except Refusal as error:
        return str(error)
    return None


def planned(model, number):
    cards = [{"name": "GPU%d" % place, "node": None, "memory_mib": 18 + number % 7} for place in range(2)]
    told = what_if(model, dict(GIVEN, devices=cards, parallel=1 + number % 3))
    for line in told["lines"] + told["advice"]:
        assert line.isprintable() and len(line) < 2000, line


def most_tensors():
    return make.header_bytes(
        [("general.architecture", make.STRING, "llama")], [("t%060d" % number, (32,), 0) for number in range(32768)]
    )


def most_strings():
    return b"".join(
        [
            b"GGUF",
            struct.pack("<IQQ", 3, 0, 1),
            make.text("tokens"),
            struct.pack("<IIQ", make.ARRAY, make.STRING, 2 << 20),
            bytes(16 << 20),
        ]
    )


def longest_text():
    return make.header_bytes([("t", make.STRING, "x" * ((8 << 20) - 100) + "\U0001f600")], [])


def most_keys():
    return make.header_bytes([("k%040d" % number, make.U64, (1 << 63) + number) for number in range(65536)], [])


def most_blocks():
    return make.header_bytes(*parts("llama", 512))


def largest_seeds(_files):
    """Files with the most of everything that a header may have: nothing is damaged, each is read once."""
    made = (most_tensors, most_strings, longest_text, most_keys, most_blocks)
    maker = os.fork()
    if not maker:
        # In a process of its own: the memory that making them takes is not to be left to their reader.
        for one in made:
            FOLDER.write(one(), "largest", one.__name__ + ".gguf")
        os._exit(0)
    os.waitpid(maker, 0)
    return [FOLDER.path("largest", one.__name__ + ".gguf") for one in made]


def largest(path):
    try:
        found = gguf.read_path(path)
        describe.describe([found])
        planned(read_shape(found), 18)
    except Refusal as error:
        return str(error)
    return None
