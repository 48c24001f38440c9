# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

import json
import time

import pytest
from ansible.module_utils.testing import patch_module_args
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._text import Refusal
from ansible_collections.thefermisea.llama_cluster.plugins.modules import journal_lines


def run(capsys, **given):
    with patch_module_args(given), pytest.raises(SystemExit):
        journal_lines.main()
    return json.loads(capsys.readouterr().out)


def test_what_was_said_is_returned(capsys, monkeypatch):
    asked = []
    monkeypatch.setattr(journal_lines, "known_units", lambda: ["llama-head-chat.service"])
    monkeypatch.setattr(journal_lines, "recent", lambda *given: asked.append(given) or {"lines": [], "more": False})
    result = run(capsys, seconds=600, service="chat", lines=5, all=True)
    assert (result["changed"], result["lines"], result["more"]) == (False, [], False)
    ((since, *rest),) = asked
    assert 595 < time.time() - since < 660 and rest == ["chat", 5, True, ["llama-head-chat.service"]]
    run(capsys, seconds=1)
    assert asked[1][1:4] == (None, 200, False)


def test_an_error_names_the_module(capsys, monkeypatch):
    def known_units():
        raise Refusal("journalctl cannot be run (it is not there)")

    monkeypatch.setattr(journal_lines, "known_units", known_units)
    assert run(capsys, seconds=1)["msg"] == "journal_lines: journalctl cannot be run (it is not there)"
