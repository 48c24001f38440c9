# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which tensors the caches of workers are seeded with."""

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._intent.seeds import rpc_seeds
from ansible_collections.thefermisea.llama_cluster.tests.unit.intents import (
    GROUPS,
    HOSTVARS,
    MODELS,
    changed,
    mistakes,
)


def seeds(**settings):
    found = rpc_seeds(changed(**settings), MODELS, GROUPS, HOSTVARS, "/opt/models")
    return {one["node"]: (*one["layers"], one["output"]) for one in found}


@pytest.mark.parametrize(
    "split, expected",
    [
        ({"node2": 27, "node3": 53}, {"node2": (0, 27, False), "node3": (27, 80, True)}),
        ({"node1": 26, "node2": 27, "node3": 27}, {"node2": (0, 27, False), "node3": (27, 54, False)}),
        ({"node2": 80, "node3": 0}, {"node2": (0, 80, True), "node3": (80, 80, False)}),
        ("auto", {}),
    ],
    ids=["workers only", "head too", "one worker", "no plan"],
)
def test_workers_are_seeded_with_their_layers(split, expected):
    assert seeds(rpc_cache="seeded", tensor_split=split) == expected


def test_other_caches_are_not_seeded():
    assert seeds() == seeds(rpc_cache=True) == {}


def test_seed_names_model_and_build():
    one = rpc_seeds(changed(rpc_cache="seeded"), MODELS, GROUPS, HOSTVARS, "/opt/models")[0]
    assert (one["service"], one["head"], one["model_path"]) == ("reasoning", "node1", "/opt/models/Big.Q8_0.gguf")
    assert one["program"].startswith("/opt/llama.cpp/releases/b11434-cpu-")
    assert one["program"].endswith("/bin/ggml-rpc-server")


@pytest.mark.parametrize("value", ["true", "seed", 1, []])
def test_other_values_are_refused(value):
    (found,) = mistakes(changed(rpc_cache=value))
    assert " seen, true, false or seeded is needed: " in found
    assert mistakes(changed(rpc_cache="seeded")) == []
