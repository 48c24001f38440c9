# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module's wiring: each part's arguments reach its function, and a refusal is one sentence."""

import time

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._text import Refusal
from ansible_collections.thefermisea.llama_cluster.plugins.modules import node_history

UNITS = ["llama-rpc-chat.service"]
EVENT = {"at": 1795292606.0, "unit": UNITS[0], "kind": "exited", "text": ""}


@pytest.fixture(name="run")
def fixture_run(monkeypatch, run):
    """run.asked: what the functions were called with; run.errors: what they raise."""

    def replaced(name, result):
        def function(*given):
            run.asked = (name, *given)
            for error in run.errors:
                raise error
            return dict(result)

        monkeypatch.setattr(node_history, name, function)

    run.errors = []
    replaced("timeline", {"now": 7.5, "events": [EVENT], "units": {}})
    replaced("recent", {"lines": [], "more": False})
    replaced("last_manual_change", {"now": 7.5, "at": 1.5})
    monkeypatch.setattr(node_history, "known_units", lambda: UNITS)
    return run


def test_each_part_has_its_arguments(run):
    _code, result = run(part="events", units=UNITS, since=5.5)
    assert run.asked == ("timeline", UNITS, 5.5) and (result["changed"], result["events"]) == (False, [EVENT])
    assert "noticed_at" not in result
    assert run(part="lines", seconds=600, service="chat", lines=5, all=True)[1]["more"] is False
    _name, since, *rest = run.asked
    assert 595 < time.time() - since < 660 and rest == ["chat", 5, True, UNITS]
    run(part="lines")
    assert run.asked[2:5] == (None, 200, False)
    assert run(part="manual_change", units=UNITS)[1]["at"] == 1.5 and run.asked[1:] == (UNITS,)


def test_fault_is_noticed_or_not(run):
    for fault, noticed in (
        ({"kind": "restart"}, EVENT["at"]),
        ({"kind": "firewall"}, None),
        ({"kind": "start", "says": "another build"}, None),
    ):
        assert run(part="events", units=UNITS, since=1, fault=fault)[1]["noticed_at"] == noticed


@pytest.mark.parametrize("part", ["events", "lines", "manual_change"])
@pytest.mark.parametrize(
    ("error", "message"),
    [
        (Refusal("journalctl cannot be run"), "node_history: journalctl cannot be run"),
        (PermissionError(13, "Permission denied", "/etc/x"), "node_history: /etc/x: Permission denied: root is needed"),
    ],
)
def test_error_is_one_sentence(run, part, error, message):
    run.errors = [error]
    assert run(part=part)[1]["msg"] == message
