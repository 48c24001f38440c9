# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._reports.failures import (
    NO_REASON,
    failure_reason,
)


@pytest.mark.parametrize(
    "result,reason",
    [
        ({"failed": True, "msg": "no space left"}, "no space left"),
        ({"failed": True, "msg": "two\n  lines of it\n"}, "two lines of it"),
        ({"failed": True, "msg": "Task failed: Module failed: no space left"}, "no space left"),
        (
            {
                "failed": True,
                "msg": "All items completed",
                "results": [{"msg": "fine"}, {"failed": True, "msg": "chat is down"}],
            },
            "chat is down",
        ),
        (
            {
                "failed": True,
                "msg": "All items completed",
                "results": [{"failed": True, "msg": "first"}, {"failed": True, "msg": "second"}],
            },
            "first",
        ),
        # An item whose failure says nothing, and a module whose results are no items of a loop.
        (
            {"failed": True, "msg": "One or more items failed", "results": [{"failed": True}]},
            "One or more items failed",
        ),
        ({"failed": True, "msg": "no such package", "results": ["numactl"]}, "no such package"),
        ({"failed": True, "msg": ""}, NO_REASON),
        ({"failed": True, "rc": 1}, NO_REASON),
        ({}, NO_REASON),
        (None, NO_REASON),
    ],
)
def test_the_reason_is_one_line(result, reason):
    assert failure_reason(result) == reason
