# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

import json

import pytest
from ansible.module_utils.testing import patch_module_args
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._text import Refusal
from ansible_collections.thefermisea.llama_cluster.plugins.modules import llama_hand


def run(capsys):
    with patch_module_args({"units": ["llama-rpc-chat.service"]}), pytest.raises(SystemExit) as stop:
        llama_hand.main()
    return stop.value.code, json.loads(capsys.readouterr().out)


def test_what_was_found_is_returned_and_changes_nothing(capsys, monkeypatch):
    monkeypatch.setattr(llama_hand, "last_hand", lambda units: {"at": 1.5, "what": units[0]})
    code, result = run(capsys)
    assert (code, result["changed"], result["at"], result["what"]) == (0, False, 1.5, "llama-rpc-chat.service")


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (Refusal("journalctl cannot be run"), "llama_hand: journalctl cannot be run"),
        (PermissionError(13, "Permission denied", "/etc/x"), "llama_hand: /etc/x: Permission denied: root is needed"),
    ],
)
def test_an_error_names_the_module(capsys, monkeypatch, error, said):
    def fails(_units):
        raise error

    monkeypatch.setattr(llama_hand, "last_hand", fails)
    assert run(capsys)[1]["msg"] == said
