# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

import json

import pytest
from ansible.module_utils.testing import patch_module_args
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._text import Refusal
from ansible_collections.thefermisea.llama_cluster.plugins.modules import llama_timeline


def run(capsys, **more):
    with (
        patch_module_args({"units": ["llama-rpc-chat.service"], "since": 1795292605.5, **more}),
        pytest.raises(SystemExit) as stop,
    ):
        llama_timeline.main()
    return stop.value.code, json.loads(capsys.readouterr().out)


def test_what_happened_is_returned(capsys, monkeypatch):
    monkeypatch.setattr(
        llama_timeline, "timeline", lambda units, since: {"now": since + 1, "events": [], "units": {units[0]: {}}}
    )
    code, result = run(capsys)
    assert (code, result["changed"], result["now"], result["units"]) == (
        0,
        False,
        1795292606.5,
        {"llama-rpc-chat.service": {}},
    )


def test_an_error_names_the_module(capsys, monkeypatch):
    def timeline(_units_asked, _since):
        raise Refusal("journalctl cannot be run (it is not there)")

    monkeypatch.setattr(llama_timeline, "timeline", timeline)
    assert run(capsys)[1]["msg"] == "llama_timeline: journalctl cannot be run (it is not there)"


def test_a_fault_is_noticed_or_not(capsys, monkeypatch):
    event = {"at": 1795292606.0, "unit": "llama-rpc-chat.service", "kind": "exited", "text": ""}
    monkeypatch.setattr(llama_timeline, "timeline", lambda units, since: {"now": 0, "events": [event], "units": {}})
    assert run(capsys, fault={"kind": "restart"})[1]["noticed_at"] == 1795292606.0
    assert run(capsys, fault={"kind": "firewall"})[1]["noticed_at"] is None
    assert run(capsys, fault={"kind": "start", "says": "another build"})[1]["noticed_at"] is None
    assert "noticed_at" not in run(capsys)[1]
