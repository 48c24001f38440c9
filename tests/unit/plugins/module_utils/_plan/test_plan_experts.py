# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Experts in the head's main memory: how many layers, and what lies where then."""

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._model import gguf
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._model.memory import (
    place,
    read_shape,
    settings_of,
)
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._plan import devices as plan_devices
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._plan.place import Case, plan, plan_experts
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._plan.suggest import nearest
from ansible_collections.thefermisea.llama_cluster.tests.unit import model_files

MIB = 1 << 20
SETTINGS = settings_of(build=11434, ctx_size=32768, parallel=1)


def shape_of(model):
    data = model().header()
    return read_shape(gguf.read_header(lambda offset, length: data[offset : offset + length], "m.gguf"))


BIG = shape_of(model_files.qwen3_235b)


def cards(*sizes):
    """GPUs of one node."""
    return [plan_devices.of_card("node1", index, {"memory_mib": size}, 1024) for index, size in enumerate(sizes)]


def memory(size=257000):
    return plan_devices.main_memory("node1", {"memory_mib": size}, 1024)


def planned(wish, sizes=(32510,), size=257000, **more):
    return plan_experts(Case(BIG, SETTINGS, cards(*sizes), len(sizes), memory(size)), wish, **more)[1]


def test_experts_are_in_main_memory_rest_on_card():
    whole, some = place(BIG, SETTINGS, [94], 1), place(BIG.keeping(10), SETTINGS, [94], 1)
    # Gate, up and down of 128 experts of 4096 x 1536 weights, in blocks of 256 weights and 144 bytes.
    experts = 3 * 128 * 4096 * 1536 // 256 * 144
    assert BIG.expert_bytes == [experts] * 94
    assert whole.devices[0].weights - some.devices[0].weights == 10 * experts
    assert some.host.weights - whole.host.weights == 10 * experts
    assert some.devices[0].kv == whole.devices[0].kv


def test_experts_are_those_of_llama_cpp_flag():
    """The router, shared experts and dense layers stay on the card; biases of experts do not."""
    deepseek, gpt_oss = shape_of(model_files.deepseek_v3), shape_of(model_files.gpt_oss_120b)
    assert deepseek.expert_bytes[:3] == [0, 0, 0] and min(deepseek.expert_bytes[3:]) > 0
    assert deepseek.expert_bytes[3] == 3 * 256 * 7168 * 2048 // 256 * 144
    biases = sum(4 * 128 * 2880 for _part in ("gate", "up", "down"))
    assert gpt_oss.expert_bytes[0] == 3 * 128 * 2880 * 2880 // 32 * 17 + biases
    assert gpt_oss.expert_copy == 128 * 2880 * 2880 // 32 * 17
    # The last block predicts further tokens and is not loaded.
    assert shape_of(model_files.glm_45_air).expert_bytes[46] == 0
    for dense in (model_files.qwen2_72b, model_files.gemma3_27b):
        assert not any(shape_of(dense).expert_bytes)


@pytest.mark.parametrize(("blocks", "kept"), [(0, 0), (1, 1), (94, 94), (512, 94)])
def test_no_more_layers_than_there_are(blocks, kept):
    shape = BIG.keeping(blocks)
    assert (shape.cpu_moe, shape.expert_bytes.count(0), len(shape.block_bytes)) == (kept, kept, 94)


def test_card_copies_what_it_computes_for_main_memory():
    """A product's weights at a time; the first card does it for all, over RPC none does."""
    kept = BIG.keeping(94)
    single = place(BIG, SETTINGS, [94], 1).devices[0].compute
    assert place(kept, SETTINGS, [94], 1).devices[0].compute == single + BIG.expert_copy
    both = place(kept, SETTINGS, [47, 47], 2).devices
    assert both[0].compute > both[1].compute + BIG.expert_copy
    assert place(kept, SETTINGS, [94], 0).devices[0].compute < single
    # Two copies if a larger tensor is beside it, as in quants with another type for down.
    header = model_files.qwen3_235b()
    header.tensors = [
        (name, dims, model_files.Q6_K if "down_exps" in name else kind) for name, dims, kind in header.tensors
    ]
    data = header.header()
    mixed = read_shape(gguf.read_header(lambda offset, length: data[offset : offset + length], "m.gguf"))
    assert mixed.expert_copy == 128 * 4096 * 1536 // 256 * (144 + 210)


def test_weights_by_name_end_the_pipeline():
    plain, kept = place(BIG, SETTINGS, [47, 47], 2), place(BIG.keeping(1), SETTINGS, [47, 47], 2)
    assert kept.devices[1].compute < plain.devices[1].compute


def test_auto_is_the_fewest_layers_that_fit():
    one = planned("auto")
    assert one.fits and 0 < one.cpu_moe < 94
    assert not planned(one.cpu_moe - 1).fits
    assert planned(one.cpu_moe) == one
    assert planned("auto", (200000,)).cpu_moe == 0
    two = planned("auto", (24576, 24576))
    assert two.fits and not planned(two.cpu_moe - 1, (24576, 24576)).fits
    assert len(two.counts) == len(two.tensor_split) == 2


def test_all_and_a_number():
    assert planned("all").cpu_moe == 94 and planned(93).cpu_moe == 93
    assert planned("all").devices[0].weights_mib < planned(93).devices[0].weights_mib


def test_main_memory_has_a_row():
    one = planned("all")
    card, main = one.devices
    assert (main.node, main.device, main.kind, main.layers, main.first_layer) == ("node1", "main", "main", 0, None)
    assert main.weights_mib == -(-(sum(BIG.expert_bytes) + BIG.input_bytes) // MIB)
    assert main.margin_mib == 1024 and main.free_mib == 257000 and main.kv_mib == 0
    assert set(one.host.values()) == {0}
    assert (one.topology, one.reason, one.tensor_split) == ("single", "it fits node1 GPU0", [])
    assert [row.device for row in planned("auto", (200000,)).devices] == ["GPU0"]


def test_main_memory_has_to_hold_them():
    needed = planned("all").devices[1].total_mib
    assert planned("all", size=needed).fits and not planned("all", size=needed - 1).fits
    # More layers would need more of it.
    fewest = planned("auto")
    short = planned("auto", size=fewest.devices[1].total_mib - 1)
    assert not short.fits and short.cpu_moe == fewest.cpu_moe


def test_where_nothing_fits_all_of_them_are_tried():
    one = planned("auto", (8192,))
    assert not one.fits and one.cpu_moe == 94


def test_an_earlier_number_is_kept_while_it_fits():
    busy = planned("auto", (24576,))
    assert busy.cpu_moe > planned("auto").cpu_moe
    assert planned("auto", earlier=busy).cpu_moe == busy.cpu_moe
    assert planned("auto", (24576,), earlier=planned("auto")).cpu_moe == busy.cpu_moe


def test_without_gpu_all_weights_are_in_main_memory():
    for wish, sizes in (("all", 257000), ("auto", 257000), (3, 1000)):
        case, one = plan_experts(Case(BIG, SETTINGS, [memory(sizes)], 1, memory(sizes)), wish)
        assert (case.shape, one.cpu_moe, [row.device for row in one.devices]) == (BIG, 0, ["main"])
        assert one == plan(BIG, SETTINGS, [memory(sizes)], 1)


def test_it_is_advised_where_it_helps():
    words = nearest(Case(BIG, SETTINGS, cards(32510), 1, memory()))
    assert words[0] == "set cpu_moe to auto, the experts of %d layers lie in main memory then" % planned("auto").cpu_moe
    for one, local, main in (
        (BIG, 1, None),
        (BIG, 1, memory(32000)),
        (BIG, 0, memory()),
        (shape_of(model_files.qwen2_72b), 1, memory()),
    ):
        assert "cpu_moe" not in " ".join(nearest(Case(one, SETTINGS, cards(32510), local, main)))
