# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a memory plan says beside its tables."""

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._plan import table

NOTHING = {"services": {}, "unchanged": [], "uncounted": [], "unplanned": {}, "refused": [], "sharing": []}
SHARING = ["chat shares cards with fast:", "  decision: none", "fast shares cards with chat:", "  decision: beside"]


@pytest.mark.parametrize(
    ("unchanged", "only", "shown"),
    [
        ([], "", SHARING),
        (["chat"], "", SHARING[2:]),
        (["fast"], "", SHARING[:2]),
        (["cards", "shares"], "", SHARING),
        ([], "fast", SHARING),
        (["chat"], "chat", SHARING[2:]),
        ([], "fas", []),
    ],
)
def test_services_that_share_are_told_of_those_that_changed(unchanged, only, shown):
    assert table.lines(dict(NOTHING, sharing=SHARING, unchanged=unchanged), only) == shown


@pytest.mark.parametrize(
    ("refused", "only", "shown"),
    [
        ([], "", ["chat: not planned, no header", "fast: not planned, no card"]),
        ([], "fast", ["fast: not planned, no card"]),
        (["llama_services.fast: no card"], "", ["chat: not planned, no header"]),
        (["llama_services.chatty: no card"], "chat", ["chat: not planned, no header"]),
        (["llama_services.fast: no card"], "fast", []),
    ],
)
def test_a_service_without_a_plan_is_told_once(refused, only, shown):
    unplanned = {"fast": "no card", "chat": "no header"}
    assert table.lines(dict(NOTHING, unplanned=unplanned, refused=refused), only) == shown


@pytest.mark.parametrize(("names", "text"), [(["a"], "a"), (["a", "b"], "a and b"), (["a", "b", "c"], "a, b and c")])
def test_memory_that_is_not_counted_is_named(names, text):
    (note,) = table.lines(dict(NOTHING, uncounted=names))
    assert note.startswith("note: %s not counted, " % text)
