# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._model import tensor_mode


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
