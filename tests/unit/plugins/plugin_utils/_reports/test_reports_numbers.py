# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Numbers that playbooks are given with -e."""

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._reports.numbers import numbers_refused


@pytest.mark.parametrize(
    "name, values",
    [
        ("requests", ["x", "", "0", "-1", "1.5", "1e3", "\u0663", None, [3], True]),
        ("minutes", ["1h", "0", "0.0", "nan", "inf", ".5"]),
        ("first_token", ["2s", "-1"]),
        ("concurrency", ["1,x", "0", "1,,2", "1 2"]),
        ("depths", ["4k", ","]),
    ],
)
def test_value_that_is_no_number_is_refused(name, values):
    for value in values:
        (found,) = numbers_refused({name: value}, "tune")
        assert found.startswith(f"tune: {name} ") and found.endswith(f" needed: correct -e {name}=")


def test_sentence_has_value_and_need():
    assert numbers_refused({"requests": "x", "loss": "5", "depths": "4k"}, "benchmark") == [
        "benchmark: requests 'x' seen, a whole number of 1 or more is needed: correct -e requests=",
        "benchmark: depths '4k' seen, whole numbers of 0 or more with commas are needed: correct -e depths=",
    ]


@pytest.mark.parametrize(
    "given",
    [
        {"requests": "3", "max_tokens": 64, "minutes": "0.5", "first_token": "0", "loss": 5.5},
        {"concurrency": "1,4", "depths": 0},
        {},
    ],
)
def test_numbers_are_taken(given):
    assert numbers_refused(given, "tune") == []
