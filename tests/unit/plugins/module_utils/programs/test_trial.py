# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lines that the end of a trial logs."""

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils.programs import trial


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ({"state": "reverted"}, "chat: the trial of Q8_0 was not kept until T: Q4_K_M is back"),
        (
            {"state": "reverted", "reason": "llama-head-chat.service did not run then"},
            "chat: the trial of Q8_0 was not kept until T: Q4_K_M is back, llama-head-chat.service did not run then",
        ),
        (
            {"state": "failed", "reason": "/opt/models/m.gguf is gone"},
            "chat: the trial of Q8_0 was not kept until T, and Q4_K_M cannot come back: /opt/models/m.gguf is gone",
        ),
    ],
)
def test_outcome_for_the_journal(more, text):
    record = {"service": "chat", "quant": "Q8_0", "was": "Q4_K_M", "until": "T", "at": "T", "reason": ""}
    assert trial.outcome(dict(record, **more)) == text


def test_usage_without_a_service():
    assert trial.main([]) == "usage: trial SERVICE"
