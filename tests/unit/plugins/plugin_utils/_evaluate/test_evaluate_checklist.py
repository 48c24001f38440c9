# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Checklists of facts that an answer has to name."""

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._evaluate.checklist import judge

CHECKLIST = [
    {"fact": "an empty slice panics", "any": [r"panics? (if|when)\b.{0,40}\bempty", r"must not be empty"]},
    {"fact": "milliseconds", "any": [r"\bms\b", r"millisecond"]},
]


@pytest.mark.parametrize(
    ("text", "missing"),
    [
        ("It panics if `values` is empty. The result is in ms.", []),
        ("The slice must not be EMPTY; Milliseconds are returned.", []),
        ("Returns milliseconds.", ["an empty slice panics"]),
        ("It **panics** when the\n\n    slice is empty.", ["milliseconds"]),
        ("/// # Panics\n///\n/// Panics when the slice\n/// is empty.\n/// Times are in\r\n/// ms.", []),
        ("//! panics if it\n//! is empty\n> in\n> ms", []),
        ("a / b // c", ["an empty slice panics", "milliseconds"]),
        ("", ["an empty slice panics", "milliseconds"]),
    ],
)
def test_missing_facts_are_named(text, missing):
    assert judge(CHECKLIST, text) == missing


def test_empty_checklist_passes():
    assert judge([], "anything") == []
