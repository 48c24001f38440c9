# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One model on nodes that need not exist: in which ways it would run, and its entry to paste."""

from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._plan.what_if import what_if
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._cluster_plan.cards import cards
from ansible_collections.thefermisea.llama_cluster.tests.unit import mixture, model_files

HUB = "https://huggingface.co"
OPTIONS = {
    "slot_ctx_size": 16384,
    "parallel": 1,
    "cache": "f16",
    "build": "b11434",
    "margin_mib": 1024,
    "force_split": False,
    "batch_size": 2048,
    "ubatch_size": 512,
    "urls": None,
    "repo": None,
    "files": None,
    "revision": "main",
    "endpoint": HUB,
}
BIG, SMALL, DENSE = mixture.SHAPE, mixture.shape_of(model_files.qwen3_30b), mixture.DENSE


def asked(shape, devices, **options):
    return what_if(shape, dict(OPTIONS, devices=cards(devices), **options))


def test_experts_in_main_memory_are_last_choice():
    result = asked(BIG, "24GB+main:256GB,48GB+main:256GB,8GB")
    assert (result["fits"], result["topology"], result["refused"], result["advice"]) == (True, "single", [], [])
    # On the node with the fewest experts beside the card.
    assert [(row["node"], row["device"]) for row in result["devices"]] == [("node2", "GPU0"), ("node2", "main")]
    assert result["tensor_split"] == [] and result["lines"][1] == "  head node2 (49152 MiB)"
    assert " of 94 layers in main memory: " in "\n".join(result["lines"])


def test_main_memory_beside_a_card_holds_no_layers():
    """Not even those that no card of a split can hold."""
    plain, beside = asked(DENSE, "2x12GB"), asked(DENSE, "12GB+main:256GB,12GB")
    assert plain["devices"] == beside["devices"] and not beside["fits"]


def test_fitting_split_is_preferred_to_experts():
    result = asked(SMALL, "12GB+main:64GB,12GB")
    assert result["topology"] == "split" and result["fits"]
