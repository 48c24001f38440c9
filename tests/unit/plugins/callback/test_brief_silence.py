# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Callback brief while nothing changes: plays share a line, which is printed at least once a minute."""

import types

from ansible_collections.thefermisea.llama_cluster.plugins.callback import brief


def test_unchanged_plays_share_a_line_each_minute(monkeypatch):
    clock, lines = [0.0], []
    monkeypatch.setattr(brief, "time", types.SimpleNamespace(monotonic=lambda: clock[0]))
    monkeypatch.setattr(brief, "warm", lambda: None)
    callback = brief.CallbackModule()
    monkeypatch.setattr(callback._display, "display", lambda text, **_options: lines.append((clock[0], text)))
    for name, seconds in (("Preflight", 70), ("Nodes", 30), ("Build", 29), ("Models", 9), ("Heads", 5)):
        play = {"hosts": ["all"], "get_name": lambda name=name: name, "get_variable_manager": lambda: None}
        callback.v2_playbook_on_play_start(types.SimpleNamespace(**play))
        clock[0] += seconds
    callback.end_play()
    assert lines == [
        (70.0, "Preflight 1 min 10 s: no change"),
        (138.0, "Nodes 30 s, Build 29 s, Models 9 s: no change"),
    ]
    assert callback.unchanged == ["Heads 5 s"]
