# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

import json
import re
import tracemalloc
from pathlib import Path

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._model import (
    build_ranges,
    gguf,
    memory,
)
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._model import shape as model_shape
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._text import Refusal
from ansible_collections.thefermisea.llama_cluster.tests.unit import gguf_files as make
from ansible_collections.thefermisea.llama_cluster.tests.unit import model_files

MIB = 1 << 20

# Figures of llama-fit-params of b7772 and b11434 for the header-only models, with three RPC servers: per device weights
# and KV cache in whole MiB, compute in hundredths. Written by tests/benchmarks/memory/run.py --record.
RECORDED = json.loads((Path(__file__).resolve().parents[3] / "fixtures/fit_params.json").read_text())


def documented():
    """{(build, model): the largest error of a total in percent}, as docs/plan.md has it."""
    page = (Path(__file__).resolve().parents[5] / "docs/plan.md").read_text()
    found = {}
    ((title, table),) = re.findall(r"^(\| model \| b.*)\n\|[-:|]*\n((?:\|.*\n)+)", page, re.MULTILINE)
    for row in table.splitlines():
        model, *errors = (cell.strip() for cell in row.strip("|").split("|"))
        for build, worst in zip(re.findall(r"b(\d+): mean", title), errors[1::2], strict=True):
            found[(int(build), model)] = abs(float(worst))
    return found


DOCUMENTED = documented()


def parse(metadata, tensors):
    data = make.header_bytes(metadata, tensors)
    return gguf.read_header(lambda offset, length: data[offset : offset + length], "m.gguf")


def small(architecture="llama", tied=False, blocks=2, **keys):
    """Header of a model with 64 KiB in each block, and 1 MiB each in the embedding and the output layer; keys: a list
    has a value for each block."""
    values = dict(
        {
            "block_count": blocks,
            "context_length": 4096,
            "embedding_length": 128,
            "attention.head_count": 4,
            "attention.head_count_kv": 2,
        },
        **keys,
    )
    metadata = [("general.architecture", make.STRING, architecture)]
    for name, value in values.items():
        if value is not None:
            kind = make.ARRAY if isinstance(value, list) else make.STRING if isinstance(value, str) else make.U32
            metadata.append(("%s.%s" % (architecture, name), kind, (make.I32, value) if kind == make.ARRAY else value))
    tensors = [("blk.%d.weight" % block, (128, 256), 1) for block in range(blocks)]
    tensors += [("token_embd.weight", (128, 4096), 1)] + ([] if tied else [("output.weight", (128, 4096), 1)])
    return parse(metadata, tensors)


def shape_of(**keys):
    return memory.read_shape(small(**keys))


def settings(**given):
    return memory.settings_of(**dict({"build": 11434, "ctx_size": 1024, "parallel": 1}, **given))


def kv(shape, **given):
    return memory.kv_bytes(shape, settings(**given))


def weights(placed):
    return [device.weights for device in placed.devices]


class Shapes(dict):
    """{name: shape}, of the models that are asked for."""

    def __missing__(self, name):
        data = model_files.MODELS[name]().header()
        self[name] = memory.read_shape(gguf.read_header(lambda offset, length: data[offset : offset + length], name))
        return self[name]


@pytest.fixture(scope="module")
def shapes():
    return Shapes()


@pytest.mark.parametrize("case", RECORDED, ids=["b%(build)d %(model)s %(ctx_size)d" % case for case in RECORDED])
def test_as_llama_fit_params_says(case, shapes):
    given = settings(
        build=case["build"], ctx_size=case["ctx_size"], cache_type_k=case["cache_type"], cache_type_v=case["cache_type"]
    )
    placed = memory.place(shapes[case["model"]], given, case["counts"], fit_params=True).devices
    assert [(one.weights // MIB, one.kv // MIB) for one in placed] == [
        (seen, cache) for seen, cache, _compute in case["needs"]
    ]
    worst = DOCUMENTED[(case["build"], case["model"])] + 0.0005
    for one, (seen, cache, compute) in zip(placed, case["needs"]):
        total = seen + cache + compute
        assert abs(one.total() / MIB / total - 1) * 100 <= worst, "percent, by docs/plan.md"


def test_every_model_is_recorded_for_both_builds():
    models = {(build, model) for build in (7772, 11434) for model in model_files.MODELS}
    assert {(case["build"], case["model"]) for case in RECORDED} == models
    assert set(DOCUMENTED) == models | {(7772, "all"), (11434, "all")}
    for build in (7772, 11434):
        assert DOCUMENTED[(build, "all")] == max(
            worst for (of_build, model), worst in DOCUMENTED.items() if (of_build, model != "all") == (build, True)
        )


def test_blocks_go_where_counts_say():
    placed = memory.place(shape_of(), settings(), [1, 1])
    assert [(one.first_layer, one.last_layer, one.layers) for one in placed.devices] == [(0, 0, 1), (1, 1, 1)]
    assert weights(placed) == [65536, 65536 + MIB]
    assert (placed.host.weights, placed.host.kv) == (MIB, 0)


def test_output_goes_with_last_device_that_has_layers():
    placed = memory.place(shape_of(), settings(), [0, 2, 0])
    assert weights(placed) == [0, 2 * 65536 + MIB, 0]
    assert placed.devices[0] == memory.Share(layers=0, first_layer=None, last_layer=None, weights=0, kv=0, compute=0)
    assert placed.devices[1].compute > 0


def test_tied_embedding_counts_twice():
    placed = memory.place(shape_of(tied=True), settings(), [2])
    assert (weights(placed), placed.host.weights) == ([2 * 65536 + MIB], MIB)


@pytest.mark.parametrize(
    ("kind", "copies"), [(0, 1), (1, 1), (2, 2), (3, 2), (6, 1), (8, 2), (12, 2), (14, 2), (23, 2)]
)
def test_repacked_tied_embedding_counts_twice(kind, copies):
    header = small(tied=True)
    tensors = [(one.name, tuple(one.dims), 1) for one in header.tensors if one.name != "token_embd.weight"]
    keys = [(key, make.STRING if isinstance(value, str) else make.U32, value) for key, value in header.metadata.items()]
    shape = memory.read_shape(parse(keys, [*tensors, ("token_embd.weight", (256, 4096), kind)]))
    assert shape.output_bytes == shape.input_bytes == make.tensor_bytes((256, 4096), kind)
    (whole,), host = memory.place(shape, settings(), [2], 1, main=True)
    assert whole.weights == 2 * 65536 + copies * shape.input_bytes
    assert host == memory.Share()
    assert memory.place(shape, settings(), [2], 1).devices[0].weights == 2 * 65536 + shape.output_bytes


def test_main_memory_has_output_layer_and_embedding():
    (whole,), _host = memory.place(shape_of(), settings(), [2], 1, main=True)
    assert whole.weights == 2 * 65536 + 2 * MIB


def test_counts_must_sum_up():
    with pytest.raises(ValueError, match="3 blocks placed, the model has 2"):
        memory.place(shape_of(), settings(), [2, 1])


def test_shards_are_one_model():
    whole = small()
    parts = [whole._replace(tensors=whole.tensors[:2]), whole._replace(metadata={}, tensors=whole.tensors[2:])]
    assert memory.read_shape(parts) == memory.read_shape(whole)


# A block's keys and values: 2 heads of 32 weights each, 128 weights in a cell.
@pytest.mark.parametrize(
    ("cache_type", "cell"),
    [
        ("f32", 512),
        ("f16", 256),
        ("bf16", 256),
        ("q8_0", 136),
        ("q5_1", 96),
        ("q5_0", 88),
        ("q4_1", 80),
        ("q4_0", 72),
        ("iq4_nl", 72),
    ],
)
def test_cache_types(cache_type, cell):
    assert kv(shape_of(), cache_type_k=cache_type, cache_type_v=cache_type) == [1024 * cell] * 2


def test_keys_and_values_have_types_of_their_own():
    assert kv(shape_of(), cache_type_k="q8_0", cache_type_v="f16") == [1024 * (68 + 128)] * 2


@pytest.mark.parametrize(
    ("ctx_size", "parallel", "unified", "cells"),
    [
        (1000, 1, False, 1024),  # padded to 256
        (0, 1, False, 4096),  # the model's own
        (4096, 4, False, 4096),
        (4096, 3, False, 3 * 1536),  # each slot padded
        (4096, 3, True, 4096),
        (4096, None, False, 4096),  # llama-server's choice: four slots in one cache
        (4096, -1, False, 4096),
    ],
)
def test_cells(ctx_size, parallel, unified, cells):
    assert kv(shape_of(), ctx_size=ctx_size, parallel=parallel, kv_unified=unified) == [cells * 256] * 2


def test_heads_of_each_block():
    assert kv(shape_of(**{"attention.head_count_kv": [2, 1]})) == [1024 * 256, 1024 * 128]


def test_lengths_of_keys_and_values():
    assert kv(shape_of(**{"attention.key_length": 64, "attention.value_length": 16})) == [1024 * 2 * (64 + 16) * 2] * 2


@pytest.mark.parametrize(
    ("architecture", "layers"),
    [
        ("gemma2", [True, False, True, False, True, False, True, False]),
        ("gemma3", [True, True, True, True, True, False, True, True]),
        ("gpt-oss", [True, False, True, False, True, False, True, False]),
        ("cohere2", [True, True, True, False, True, True, True, False]),
        ("smallthinker", [False, True, True, True, False, True, True, True]),
        ("phi3", [False] * 8),
        ("llama", [False] * 8),
    ],
)
def test_sliding_windows(architecture, layers):
    shape = shape_of(architecture=architecture, blocks=8, **{"attention.sliding_window": 512})
    assert shape.swa_layers == layers


def test_sliding_window_named_by_header():
    shape = shape_of(
        architecture="gemma4",
        **{"attention.sliding_window": 512, "attention.sliding_window_pattern": [0, 1], "attention.key_length_swa": 16},
    )
    assert (shape.swa_layers, shape.head_k) == ([False, True], [32, 16])


@pytest.mark.parametrize(
    ("given", "cells"),
    [
        ({"ctx_size": 8192}, 1024),  # 512 and an ubatch of 512
        ({"ctx_size": 8192, "ubatch_size": 100}, 768),  # 612, padded
        ({"ctx_size": 512}, 512),  # never more than the context
        ({"ctx_size": 8192, "parallel": 2}, 2 * 1024),  # a window for each slot
        ({"ctx_size": 8192, "parallel": 2, "kv_unified": True}, 2 * 512 + 512),
        ({"ctx_size": 8192, "parallel": None}, 4 * 512 + 512),
    ],
)
def test_cells_of_sliding_window(given, cells):
    shape = shape_of(architecture="gemma2", **{"attention.sliding_window": 512})
    full = given["ctx_size"]
    assert kv(shape, **given) == [cells * 256, full * 256]


def test_window_of_zero_is_none():
    assert shape_of(architecture="llama4", **{"attention.sliding_window": 0}).swa_layers == [False, False]
    assert shape_of(architecture="llama4").swa_layers == [True, True]


MLA = {
    "architecture": "deepseek2",
    "attention.head_count_kv": 1,
    "attention.kv_lora_rank": 512,
    "attention.key_length": 576,
    "attention.value_length": 512,
    "attention.key_length_mla": 192,
    "attention.value_length_mla": 128,
    "rope.dimension_count": 64,
}


@pytest.mark.parametrize(
    ("build", "weights_per_cell"), [(7772, 576 + 512), (11434, 576), (9000, 576 + 512), (None, 576 + 512)]
)
def test_compressed_cache(build, weights_per_cell):
    assert kv(shape_of(**MLA), build=build) == [1024 * 2 * weights_per_cell] * 2


def test_old_files_of_such_models_have_ordinary_cache():
    keys = {
        **MLA,
        "attention.key_length_mla": None,
        "attention.value_length_mla": None,
        "attention.key_length": 192,
        "attention.value_length": 128,
    }
    assert kv(shape_of(**keys)) == [1024 * 2 * (192 + 128)] * 2


STATE = {"ssm.conv_kernel": 4, "ssm.inner_size": 256, "ssm.state_size": 16, "ssm.group_count": 1}
STATE_BYTES = 4 * (3 * (256 + 2 * 16) + 16 * 256)


@pytest.mark.parametrize(
    ("architecture", "more", "caches", "states"),
    [
        ("granitehybrid", {"attention.head_count_kv": [0, 2]}, [0, 1], [1, 0]),
        ("falcon-h1", {}, [1, 1], [1, 1]),
        ("mamba2", {"attention.head_count": 0, "attention.head_count_kv": 0}, [0, 0], [1, 1]),
        ("nemotron_h", {"attention.head_count_kv": [0, 0], "feed_forward_length": [0, 512]}, [0, 0], [1, 0]),
        ("qwen3next", {"full_attention_interval": 2}, [0, 1], [1, 0]),
        ("qwen3next", {}, [0, 0], [1, 1]),
    ],
)
def test_constant_states(architecture, more, caches, states):
    shape = shape_of(architecture=architecture, **dict(STATE, **more))
    for parallel in (1, 4):
        expected = [cache * 4096 * 256 + state * parallel * STATE_BYTES for cache, state in zip(caches, states)]
        assert kv(shape, ctx_size=4096, parallel=parallel, kv_unified=True) == expected


def test_b7772_gives_every_sequence_whole_context_beside_states():
    shape = shape_of(architecture="granitehybrid", **dict(STATE, **{"attention.head_count_kv": [0, 2]}))
    for build, caches in ((7772, 4), (11434, 1), (None, 4)):
        assert kv(shape, ctx_size=4096, parallel=4, build=build) == [4 * STATE_BYTES, caches * 4096 * 256]
        assert kv(shape, ctx_size=4096, parallel=4, build=build, kv_unified=True) == [4 * STATE_BYTES, 4096 * 256]


def test_short_convolutions():
    shape = shape_of(architecture="lfm2", **{"attention.head_count_kv": [0, 2], "shortconv.l_cache": 3})
    assert kv(shape) == [4 * 128 * 2, 1024 * 256]


def test_blocks_that_are_not_loaded():
    shape = shape_of(architecture="glm4moe", blocks=3, nextn_predict_layers=1)
    assert (shape.block_bytes, kv(shape)) == ([65536, 65536, 0], [1024 * 256, 1024 * 256, 0])


@pytest.mark.parametrize(
    ("key", "value", "scaled"),
    [("rope.scaling.type", "yarn", True), ("rope.scaling.type", "none", False), ("x", None, False)],
)
def test_rope_scaling(key, value, scaled):
    assert shape_of(**{key: value}).rope_scaling is scaled


@pytest.mark.parametrize(
    ("build", "firsts"),
    [
        (7772, [7760]),
        (7760, [7760]),
        (7759, [7760, 11434]),
        (9000, [7760, 11434]),
        (11434, [11434]),
        (20000, [11434]),
        (None, [7760, 11434]),
    ],
)
def test_builds(build, firsts):
    assert [known.first for known in build_ranges.ranges_of(build)] == firsts


@pytest.mark.parametrize("name", ["Qwen2 72B", "DeepSeek V3 671B", "gpt-oss-120b"])
def test_unknown_build_takes_larger(name, shapes):
    shape = shapes[name]
    half = shape.block_count // 2
    needs = {}
    for build in (7772, 11434, None):
        placed = memory.place(shape, settings(build=build, ctx_size=32768), [half, shape.block_count - half])
        needs[build] = [size for device in placed.devices for size in (device.weights, device.kv, device.compute)] + [
            placed.host.compute
        ]
    assert needs[None] == [max(pair) for pair in zip(needs[7772], needs[11434])]
    assert needs[7772] != needs[11434]


def compute(shape, counts, local=None, **given):
    return [device.compute for device in memory.place(shape, settings(**given), counts, local).devices]


def test_compute_buffers_by_hand(shapes):
    """Llama 3 70B: a token's hidden state has 8192 weights, its feed-forward 28,672, its logits 128,256, all of 4
    bytes; a ubatch 512 tokens."""
    row = 4 * 512
    core = row * (3 * 28672 + 2 * 8192)
    mask = 2 * 4096 * 512
    hidden = row * 8192
    # b11434 keeps four copies of what a device is given, and the logits of one token.
    assert compute(shapes["Llama 3 70B"], [40, 40], ctx_size=4096) == [
        core + 14 * hidden + 4 * mask,
        core + 5 * hidden + 4 * mask,
    ]
    # b7772 keeps one, and the logits of all.
    assert compute(shapes["Llama 3 70B"], [40, 40], ctx_size=4096, build=7772) == [
        core + hidden + 2 * mask,
        row * (128256 + 8192),
    ]


def test_real_load(shapes):
    """A llama of six blocks with 8B's widths, loaded by llama-server of both builds over three workers: MiB of their
    compute buffers in its log."""
    shape = shapes["Llama 3 70B"]._replace(
        block_count=6,
        block_bytes=[1] * 6,
        n_embd=4096,
        n_head=[32] * 6,
        n_head_kv=[8] * 6,
        head_k=[128] * 6,
        head_v=[128] * 6,
        n_ff=14336,
        n_vocab=32000,
    )
    shape = shape._replace(swa_layers=[False] * 6, recurrent=[0] * 6)
    # For b11434 a plan counts one hidden state more than its last worker has: 8 MiB here.
    loads = (
        (11434, 4096, [228.05, 156.04, 148.04], 8.0),
        (11434, 16384, [276.05, 204.04, 196.04], 8.0),
        (7772, 16384, [140.01, 124.01, 124.01], 0.0),
    )
    for build, ctx_size, seen, more in loads:
        found = [size / MIB for size in compute(shape, [2, 2, 2], ctx_size=ctx_size, build=build)]
        assert found == pytest.approx([*seen[:2], seen[2] + more], abs=0.06)


def of_width(shapes, n_embd, heads, kv_heads, head, n_ff, blocks=4, base="Llama 3 70B", **more):
    """The Shape of a model with these widths and the vocabulary of SmolLM2."""
    return shapes[base]._replace(
        block_count=blocks,
        block_bytes=[1] * blocks,
        n_embd=n_embd,
        n_head=[heads] * blocks,
        n_head_kv=[kv_heads] * blocks,
        head_k=[head] * blocks,
        head_v=[head] * blocks,
        n_ff=n_ff,
        n_vocab=49152,
        swa_layers=[False] * blocks,
        recurrent=[0] * blocks,
        expert_bytes=[0] * blocks,
        **more,
    )


# The files that tests/benchmarks/random_model.py writes as small, and others with heads of other widths.
SMALL = (2048, 32, 8, 64, 5632)


@pytest.mark.parametrize(
    ("counts", "given", "seen"),
    [
        ([3, 1], {}, [105.05, 36.04]),
        ([3, 1], {"ctx_size": 4096}, [113.05, 44.04]),
        ([3, 1], {"ctx_size": 8192}, [129.05, 60.04]),
        ([7, 1], {}, [105.05, 36.04]),
        ([4, 4], {}, [105.05, 69.04]),
        ([4, 3, 1], {}, [105.05, 69.04, 36.04]),
        ([4, 3, 1], {"ubatch_size": 256, "parallel": None}, [52.53, 34.52, 18.02]),
        ([4, 3, 1], {"ubatch_size": 64, "parallel": 32}, [12.26, 7.75, 8.63]),  # the logits of 32 slots
    ],
)
def test_only_last_block_has_narrow_feed_forward(shapes, counts, given, seen):
    """MiB of the compute buffers in llama-server's log of b11434, over RPC workers."""
    found = compute(of_width(shapes, *SMALL, blocks=sum(counts)), counts, **dict({"ctx_size": 2048}, **given))
    assert [size / MIB for size in found] == pytest.approx(seen, abs=0.06)


@pytest.mark.parametrize(
    ("widths", "seen"),
    [
        ((576, 9, 3, 64, 1536), 15.91),
        ((2048, 32, 8, 64, 1024), 36.04),
        ((2048, 32, 8, 128, 5632), 44.04),  # the query is wider
        ((2048, 16, 8, 64, 5632), 32.04),  # narrower
        ((2048, 16, 16, 64, 5632), 34.04),  # keys and values are more than the query
        ((2048, 8, 8, 64, 5632), 31.04),
        ((2048, 32, 32, 64, 5632), 40.04),
        ((1024, 16, 8, 128, 3072), 26.04),
        ((2048, 40, 40, 64, 5632), 48.04),  # the keys are wider than the hidden state
        ((2048, 48, 48, 64, 5632), 52.04),
        ((2048, 32, 32, 128, 5632), 60.04),
        ((1024, 32, 16, 128, 3072), 38.04),
    ],
)
def test_what_attention_of_last_block_needs(shapes, widths, seen):
    """MiB of the last worker's compute buffer in llama-server's log of b11434. Some were loaded with a cache in
    q8_0 too, and had up to 0.4 MiB more."""
    for cache_type in ("f16", "q8_0"):
        given = {"ctx_size": 2048, "cache_type_k": cache_type, "cache_type_v": cache_type}
        assert compute(of_width(shapes, *widths), [3, 1], **given)[1] / MIB == pytest.approx(seen, abs=0.06)


def test_experts_of_last_block_see_few_tokens_too(shapes):
    """MiB in llama-server's log of b11434: 32 heads, 8 of 16 experts, a qwen3moe."""
    shape = of_width(shapes, 2048, 32, 4, 128, 0, base="Qwen3 30B-A3B", n_expert=16, n_expert_used=8, n_ff_exp=768)
    found = compute(shape, [3, 1], ctx_size=2048)
    assert [size / MIB for size in found] == pytest.approx([144.05, 44.04], abs=0.06)


@pytest.mark.parametrize(
    ("architecture", "given"),
    [
        ("gpt-oss", {}),  # it goes on with all tokens until its end
        ("llama", {"embeddings": True}),  # each token has an output
        ("llama", {"build": None}),  # b7772 reserves for outputs of all tokens
        ("llama", {"flash_attn": False}),
    ],
)
def test_last_block_is_planned_as_any_other(shapes, architecture, given):
    shape = of_width(shapes, *SMALL, blocks=6)._replace(architecture=architecture)
    given = dict({"ctx_size": 2048}, **given)
    assert compute(shape, [5, 1], **given)[1] == compute(shape, [3, 3], **given)[1]


def test_heads_own_buffer_by_hand(shapes):
    """The inputs of a ubatch: hidden states and masks, these for the window too where there is one."""
    hidden, mask = 4 * 512 * 8192, 2 * 4096 * 512
    llama = shapes["Llama 3 70B"]
    for build, counts, local, size in (
        (11434, [80], 1, 4 * hidden + mask),
        (11434, [40, 40], 1, 10 * hidden + 4 * mask),
        (7772, [40, 40], 1, hidden + 2 * mask),
        (7772, [40, 40], 2, 10 * hidden + 4 * mask),
    ):
        assert memory.place(llama, settings(ctx_size=4096, build=build), counts, local).host.compute == size
    gemma = shapes["Gemma 3 27B"]
    assert memory.place(gemma, settings(ctx_size=16384), [62], 1).host.compute == 4 * (4 * 512 * 5376) + 2 * 512 * (
        16384 + 1536
    )


@pytest.mark.parametrize(
    ("model", "ctx_size", "parallel", "seen"),
    [
        ("Qwen2 72B", 4096, 1, 257.27),
        ("Qwen2 72B", 32768, 1, 285.27),
        ("Qwen2 72B", 8192, 4, 255.27),
        ("Llama 3 70B", 4096, 1, 252.02),
        ("Mixtral 8x7B", 32768, 1, 240.02),
        ("Phi-4 14B", 32768, 1, 187.02),
        ("Phi-4 14B", 8192, 4, 157.02),
    ],
)
def test_real_load_in_main_memory(shapes, model, ctx_size, parallel, seen):
    """MiB of the one compute buffer in llama-server's log of b11434, which has inputs and layers in it."""
    shape = shapes[model]
    given = settings(ctx_size=ctx_size, parallel=parallel)
    placed = memory.place(shape, given, [shape.block_count], 1, main=True).devices[0].compute / MIB
    assert placed == pytest.approx(seen, abs=0.06)


@pytest.mark.parametrize(
    ("model", "ctx_size", "device", "host"),
    [
        ("Qwen3 30B-A3B", 4096, 52.01, 80.02),
        ("Qwen3 235B-A22B", 4096, 100.01, 156.02),
        ("Mixtral 8x7B", 4096, 52.01, 188.02),
        ("Mixtral 8x7B", 32768, 80.01, 216.02),
        ("gpt-oss-120b", 32768, 77.76, 111.53),
    ],
)
def test_real_load_with_all_experts_in_main_memory(shapes, model, ctx_size, device, host):
    """MiB of the compute buffers of a device and of the head in llama-server's log of b11434."""
    shape = shapes[model].keeping(shapes[model].block_count)
    placed = memory.place(shape, settings(ctx_size=ctx_size), [shape.block_count])
    assert placed.devices[0].compute / MIB == pytest.approx(device, abs=0.06)
    assert placed.host.compute / MIB == pytest.approx(host, abs=0.06)


@pytest.mark.parametrize(
    ("model", "devices"), [("Qwen3 30B-A3B", [52.01, 72.03]), ("Qwen3 235B-A22B", [100.01, 140.03])]
)
def test_real_load_with_experts_in_main_memory(shapes, model, devices):
    shape = shapes[model].keeping(shapes[model].block_count)
    half = shape.block_count // 2
    assert [size / MIB for size in compute(shape, [half, shape.block_count - half], ctx_size=4096)] == pytest.approx(
        devices, abs=0.06
    )


@pytest.mark.parametrize(
    ("ctx_size", "ubatch_size", "main", "device"),
    [(512, 512, 26.01, 24.51), (2048, 512, 26.01, 24.51), (2048, 2048, 110.05, 104.04)],
)
def test_real_load_of_encoder(ctx_size, ubatch_size, main, device):
    """nomic-embed-text's widths: no logits, and a mask of the tokens of one ubatch; MiB in llama-server's log of
    b11434."""
    shape = shape_of(architecture="nomic-bert", tied=True, blocks=2)._replace(
        n_embd=768, n_head=[12] * 2, head_k=[64] * 2, head_v=[64] * 2, n_ff=3072, ffn_parts=3, n_vocab=30522
    )
    given = settings(ctx_size=ctx_size, ubatch_size=ubatch_size, embeddings=True)
    for where, seen in (({"local": 1, "main": True}, main), ({}, device)):
        assert memory.place(shape, given, [2], **where).devices[0].compute / MIB == pytest.approx(seen, abs=0.06)


def test_layer_without_feed_forward_has_query_width(shapes):
    shape = shapes["Llama 3 70B"]._replace(n_ff=0, n_vocab=1)
    row, hidden, mask = 4 * 512, 4 * 512 * 8192, 2 * 4096 * 512
    assert compute(shape, [80], ctx_size=4096) == [row * (2 * 8192 + 64 * 128) + 2 * hidden + mask]


def test_masks_count_where_their_layers_are(shapes):
    """Gemma 3's first five blocks look at 1024 tokens only: a longer context costs their device nothing, and the others
    half of what it costs without."""
    short, long = (compute(shapes["Gemma 3 27B"], [5, 28, 29], ctx_size=ctx_size) for ctx_size in (16384, 32768))
    assert (long[0] - short[0], long[1] - short[1]) == (0, 4 * 2 * 16384 * 512)


def test_local_devices_make_pipeline_of_their_own(shapes):
    """Only devices with events do: RPC devices of b7772 have none."""
    remote = compute(shapes["Llama 3 70B"], [40, 40], build=7772)
    assert compute(shapes["Llama 3 70B"], [40, 40], local=1, build=7772) == remote
    assert compute(shapes["Llama 3 70B"], [40, 40], local=2, build=7772)[0] > remote[0]


def test_without_flash_attention_scores_count(shapes):
    row, cells = 4 * 512, 16384
    hidden, scores, mask = row * 8192, row * 64 * cells, 4 * cells * 512
    (without,) = compute(shapes["Llama 3 70B"], [80], ctx_size=cells, flash_attn=False)
    # For each token the query of 64 heads of 128 weights, twice, and the hidden state, twice, and two more beside.
    assert without == scores + row * (2 * 64 * 128 + 2 * 8192) + 2 * hidden + mask
    # A mask of half the size, and no scores.
    (with_it,) = compute(shapes["Llama 3 70B"], [80], ctx_size=cells, flash_attn=True)
    assert with_it == row * (3 * 28672 + 2 * 8192) + 2 * hidden + mask // 2


def test_each_slot_has_row_of_logits(shapes):
    """On b11434; with four tokens in a ubatch they outweigh the layers of Llama 3 70B."""
    hidden, mask = 4 * 4 * 8192, 2 * 4096 * 4
    layers = 4 * 4 * (3 * 28672 + 2 * 8192) + 2 * hidden
    for parallel, widest in ((1, layers), (4, 4 * 4 * 128256 + 4 * hidden)):
        assert compute(
            shapes["Llama 3 70B"], [80], parallel=parallel, kv_unified=True, ctx_size=4096, ubatch_size=4
        ) == [widest + mask]


@pytest.mark.parametrize(
    ("cache_type", "bits"),
    [
        ("f32", 32), ("f16", 16), ("bf16", 16), ("q8_0", 8.5), ("q5_1", 6), ("q5_0", 5.5), ("q4_1", 5), ("q4_0", 4.5),
        ("iq4_nl", 4.5),
    ],
)  # fmt: skip
def test_bytes_of_each_type_of_cache(cache_type, bits):
    """A cell of 64 weights of keys and 64 of values."""
    assert kv(shape_of(), ctx_size=256, cache_type_k=cache_type, cache_type_v=cache_type) == [256 * 128 * bits / 8] * 2
    assert kv(shape_of(), ctx_size=256, cache_type_v=cache_type) == [256 * (64 * bits / 8 + 128)] * 2


def test_encoder_has_no_cache_and_output_layer():
    tied = shape_of(tied=True)
    plain = shape_of(architecture="nomic-bert", tied=True)
    assert kv(plain, ctx_size=2048) == [0, 0] != kv(tied, ctx_size=2048)
    assert (plain.tied, tied.tied) == (False, True) and tied.output_bytes - plain.output_bytes == tied.input_bytes
    assert plain.block_bytes == tied.block_bytes


def test_embeddings_reserve_output_for_each_token(shapes):
    """On b11434: four tokens in a ubatch, where one slot has a row of logits otherwise."""
    given = {"kv_unified": True, "ctx_size": 4096, "ubatch_size": 4}
    hidden, mask = 4 * 4 * 8192, 2 * 4096 * 4
    assert compute(shapes["Llama 3 70B"], [80], embeddings=True, **given) == [4 * 4 * 128256 + 4 * hidden + mask]
    assert compute(shapes["Llama 3 70B"], [80], embeddings=True, **given) > compute(
        shapes["Llama 3 70B"], [80], parallel=1, **given
    )


def test_full_window_takes_what_other_layers_take():
    shape = shape_of(architecture="gemma2", **{"attention.sliding_window": 512})
    for given in ({"parallel": 1}, {"parallel": 2}, {"parallel": 2, "kv_unified": True}, {"parallel": None}):
        assert kv(shape, ctx_size=8192, swa_full=True, **given) == [8192 * 256, 8192 * 256]
    (without,) = compute(shape, [2], ctx_size=8192, ubatch_size=512)
    # Its mask: 16 bits for each token of a ubatch and each cell.
    assert compute(shape, [2], ctx_size=8192, swa_full=True) == [without + 2 * 512 * (8192 - 1024)]


def test_flash_attention_copies_cache_of_f32():
    given = {"ctx_size": 8192, "parallel": 2}
    (without,) = compute(shape_of(), [2], **given)
    scores = compute(shape_of(), [2], flash_attn=False, **given)
    for keys, values, copied in (("f32", "f32", 128), ("f32", "f16", 64), ("f16", "f32", 64)):
        given.update(cache_type_k=keys, cache_type_v=values)
        # Both slots: 16 bits of each weight.
        assert compute(shape_of(), [2], **given) == [without + 2 * 8192 * copied]
        assert compute(shape_of(), [2], flash_attn=False, **given) == scores


@pytest.mark.parametrize("count", [0, 513, 10**8, (1 << 32) - 1, 1 << 40])
def test_impossible_block_count_costs_nothing(count):
    tensors = [("token_embd.weight", (32, 32), 1), ("blk.0.weight", (32, 32), 1)]
    header = parse([("general.architecture", make.STRING, "llama"), ("llama.block_count", make.U64, count)], tensors)
    tracemalloc.start()
    with pytest.raises(Refusal, match="block_count is %d" % count):
        memory.read_shape(header)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < MIB


@pytest.mark.parametrize(
    ("kind", "architecture", "words"),
    [("mmproj", "clip", "a projector"), (None, "clip", "a projector"), ("adapter", "llama", "a LoRA adapter")]
    + [("imatrix", "llama", "an importance matrix"), (None, "controlvector", "a control vector")],
)
def test_header_of_companion_is_refused_in_words(kind, architecture, words):
    metadata = [("general.architecture", make.STRING, architecture)]
    metadata += [("general.type", make.STRING, kind)] if kind else []
    data = make.header_bytes(metadata, [])
    header = gguf.read_header(lambda offset, length: data[offset : offset + length], "m.gguf")
    with pytest.raises(Refusal, match="%s.*, which is no model: name the file of the model itself" % words):
        model_shape.read_shape(header)


def test_arrays_of_header_are_held_to_total():
    metadata = [("n%d" % number, make.ARRAY, (make.I8, [1] * 4096)) for number in range(2000)]
    data = make.header_bytes(metadata, [])
    tracemalloc.start()
    with pytest.raises(Refusal, match="numbers in short arrays"):
        gguf.read_header(lambda offset, length: data[offset : offset + length], "m.gguf")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 16 * MIB


def test_rank_that_is_no_number_is_refused():
    with pytest.raises(Refusal, match="attention.kv_lora_rank is 'x', a count is needed"):
        shape_of(**{"attention.kv_lora_rank": "x", "attention.key_length_mla": 64})


def test_model_without_heads_has_none_and_no_lengths():
    keys = {"attention.head_count": None, "attention.head_count_kv": None}
    shape = shape_of(architecture="mamba", **dict(STATE, **keys))
    assert (shape.n_head, shape.n_head_kv, shape.head_k, shape.head_v) == ([0, 0], [0, 0], [0, 0], [0, 0])


def test_what_header_leaves_out_has_its_usual_value():
    shape = shape_of(**{"attention.head_count": 8, "attention.head_count_kv": None})
    assert (shape.n_head, shape.n_head_kv) == ([8, 8], [8, 8]), "every head has a cache of its own"
    assert (shape.head_k, shape.head_v) == ([16, 16], [16, 16]), "the width is shared out among the heads"
    assert (shape.n_expert, shape.n_expert_used, shape.n_ff, shape.n_ff_exp, shape.ffn_parts) == (0, 0, 0, 0, 0)
    assert (shape.fused_ffn, shape.mla, shape.swa_window, shape.rope_scaling) == (False, None, 0, False)


@pytest.mark.parametrize(
    ("given", "heads"),
    [
        ([4, 2], [4, 2]),
        ([4, 2, 1], [4, 2]),  # more than there are blocks
        ([4], [4, 4]),  # fewer: the largest counts for all
        ([0, (1 << 31) - 1], [0, (1 << 31) - 1]),
    ],
)
def test_one_number_for_each_block_or_for_all(given, heads):
    assert shape_of(**{"attention.head_count": given, "attention.head_count_kv": given}).n_head_kv == heads


@pytest.mark.parametrize(
    ("value", "seen"), [([], "missing"), ([-1, -1], "-1"), ("4", "'4'"), (None, "missing"), ([-2, -5, -1], "-1")]
)
def test_count_that_is_none_is_refused(value, seen):
    with pytest.raises(Refusal, match=r"embedding_length is %s, a count is needed" % seen):
        shape_of(embedding_length=value)


def test_largest_count_is_that_of_32_bits():
    metadata = [("x.%s" % name, make.U64, value) for name, value in (("a", (1 << 32) - 1), ("b", 1 << 32), ("c", 0))]
    keys = model_shape._Keys(parse(metadata, []).metadata, "x")
    assert (keys.number("a"), keys.number("c"), keys.number("d", 5)) == ((1 << 32) - 1, 0, 5)
    for missing in ("b", "d"):
        with pytest.raises(Refusal, match="a count is needed"):
            keys.number(missing)
    assert keys.per_block("a", 2) == [(1 << 32) - 1] * 2


@pytest.mark.parametrize(
    ("length", "name"), [(0, ""), (200, "x" * 200), (201, None)], ids=["empty", "longest", "too long"]
)
def test_name_that_is_safe_to_print(length, name):
    assert model_shape._name("x" * length) == name
    assert model_shape._name("a\x1b[2J") is None is model_shape._name(7)


def feed_forward(*blocks):
    """_feed_forward() of the dimensions of each block's tensors."""
    named = {
        "blk.%d.ffn_%s.weight" % (number, part): gguf.Tensor(part, dims, "F16", 0, 0)
        for number, block in enumerate(blocks)
        for part, dims in block.items()
    }
    return model_shape._feed_forward(named, len(blocks))


def test_widest_feed_forward_decides():
    up, down = (8, 30), (30, 8)
    plain, gated = {"up": up, "down": down}, {"up": up, "down": down, "gate": up}
    fused = {"up": (8, 80), "down": (40, 8)}
    assert feed_forward({}, plain) == (30, 2, False, 0)
    assert feed_forward(gated, plain) == (30, 3, False, 0), "of two of one width the first"
    assert feed_forward(plain, fused, gated) == (40, 3, True, 0)
    assert feed_forward({"up": up}, {"down": down}) == (0, 0, False, 0)
    experts = [{"down_exps": (size, 8, 4)} for size in (5, 9, 7)]
    assert feed_forward(*experts) == (0, 0, False, 9)


@pytest.mark.parametrize(("nbytes", "padded"), [(0, 0), (1, 128), (127, 128), (128, 128), (129, 256)])
def test_tensor_takes_whole_lines_of_memory(nbytes, padded):
    assert model_shape._padded(gguf.Tensor("t", (1,), "F32", 0, nbytes)) == padded


@pytest.mark.parametrize(
    ("architecture", "window", "first_dense"),
    [
        # llama.cpp's loaders: every so many layers one attends to everything, the last of each group.
        *(("exaone4", 4096, 3), ("gemma2", 4096, 1), ("llama4", 8192, 3)),
        # These name their window in the header.
        *((name, 0, None) for name in ("afmoe", "cohere2", "gemma3", "gemma3n", "gpt-oss", "olmo2")),
    ],
)
def test_window_of_architecture_whose_header_names_none(architecture, window, first_dense):
    shape = shape_of(architecture=architecture, blocks=12)
    assert shape.swa_window == window
    assert (shape.swa_layers.index(False), any(shape.swa_layers)) == (first_dense or 0, bool(window))


@pytest.mark.parametrize(
    ("architecture", "period"),
    [("afmoe", 4), ("exaone4", 4), ("gemma3", 6), ("gemma3n", 5), ("gpt-oss", 2), ("llama4", 4), ("olmo2", 4)],
)
def test_one_layer_in_so_many_attends_to_everything(architecture, period):
    shape = shape_of(architecture=architecture, blocks=30, **{"attention.sliding_window": 512})
    dense = [block for block, windowed in enumerate(shape.swa_layers) if not windowed]
    assert dense == list(range(period - 1, 30, period))


def test_every_fourth_layer_attends_by_default():
    for interval, dense in ((None, [3, 7]), (1, list(range(8))), (0, list(range(8))), (8, [7])):
        shape = shape_of(architecture="qwen3next", blocks=8, **dict(STATE, full_attention_interval=interval))
        assert [block for block, state in enumerate(shape.recurrent) if not state] == dense
        assert [block for block, heads in enumerate(shape.n_head_kv) if heads] == dense


@pytest.mark.parametrize(
    ("keys", "weights"),
    [
        ({"ssm.group_count": None}, 3 * 256 + 16 * 256),
        ({"ssm.conv_kernel": 1}, 16 * 256),
        ({"ssm.conv_kernel": 0}, 16 * 256),
        ({"ssm.group_count": 2}, 3 * (256 + 4 * 16) + 16 * 256),
    ],
)
def test_constant_state_has_four_byte_weights(keys, weights):
    shape = shape_of(architecture="mamba2", **dict(STATE, **keys))
    assert shape.recurrent == [4 * weights] * 2


@pytest.mark.parametrize(("blocks", "skipped", "right"), [(3, 2, True), (3, 3, False), (1, 0, True), (2, 5, False)])
def test_some_block_is_loaded(blocks, skipped, right):
    if right:
        assert shape_of(architecture="glm4moe", blocks=blocks, nextn_predict_layers=skipped).block_count == blocks
    else:
        with pytest.raises(Refusal, match="nextn_predict_layers is %d of %d blocks" % (skipped, blocks)):
            shape_of(architecture="glm4moe", blocks=blocks, nextn_predict_layers=skipped)


def test_model_may_have_512_blocks():
    assert shape_of(blocks=512).block_count == 512


@pytest.mark.parametrize(
    ("window", "pattern", "layers"),
    [
        (512, [1, 0], [True, False]),
        (512, [0, 1, 1], [False, True]),
        (0, [1, 1], [False, False]),
        (None, [1, 1], [False] * 2),
    ],
)
def test_pattern_of_header_counts_where_there_is_window(window, pattern, layers):
    keys = {"attention.sliding_window": window, "attention.sliding_window_pattern": pattern}
    shape = shape_of(architecture="gemma4", **keys)
    assert (shape.swa_layers, shape.swa_window) == (layers, window or 0)
    with pytest.raises(Refusal, match="pattern names 1 layers, 2 are needed"):
        shape_of(architecture="gemma4", **{"attention.sliding_window": 1, "attention.sliding_window_pattern": [1]})


@pytest.mark.parametrize(
    "key", ["attention.indexer.head_count", "attention.shared_kv_layers", "kda.head_dim", "wkv.head_size"]
)
def test_unknown_cache_kind_is_refused(key):
    with pytest.raises(Refusal, match="architecture llama: llama.%s seen" % key):
        shape_of(**{key: 1})
    assert shape_of(**{key: 0}).block_count == 2


@pytest.mark.parametrize("key", ["ssm.state_size", "shortconv.l_cache"])
def test_unknown_state_is_refused(key):
    with pytest.raises(Refusal, match="architecture llama: llama.ssm.state_size seen"):
        shape_of(**{key: 1})


def test_compressed_cache_needs_both_its_numbers():
    keys = {"attention.kv_lora_rank": 512, "attention.key_length_mla": 192, "rope.dimension_count": 64}
    assert tuple(shape_of(**keys).mla) == (512, 64, 192)
    for missing in ("attention.kv_lora_rank", "attention.key_length_mla"):
        assert shape_of(**dict(keys, **{missing: None})).mla is None


def test_tensors_lie_where_their_names_say():
    """The output layer's device has the bytes of blocks that the header does not count, and of other tensors."""
    names = (
        "blk.0.x",
        "blk.1.x",
        "blk.2.x",
        "blk.x",
        "token_embd.weight",
        "token_types.weight",
        "output.weight",
        "cls.x",
    )
    header = small()._replace(
        tensors=[gguf.Tensor(name, (128, 4096), "F16", 0, 1 << place) for place, name in enumerate(names, 7)]
    )
    shape = memory.read_shape(header)
    assert shape.block_bytes == [1 << 7, 1 << 8]
    assert shape.input_bytes == (1 << 11) + (1 << 12)
    assert shape.output_bytes == (1 << 9) + (1 << 10) + (1 << 13) + (1 << 14)
    assert (shape.tied, shape.n_vocab, shape.n_embd) == (False, 4096, 128)


def test_block_without_tensors_is_incomplete_model():
    header = small()
    for name in ("blk.1.weight", "token_embd.weight"):
        left = [tensor for tensor in header.tensors if tensor.name != name]
        with pytest.raises(Refusal, match="tensors of the embedding or of a block are missing"):
            memory.read_shape(header._replace(tensors=left))
