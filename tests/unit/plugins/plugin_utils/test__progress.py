# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils import _progress


def test_the_name_of_a_file_forges_no_line(monkeypatch):
    shown = []
    monkeypatch.setattr(_progress.display, "display", lambda line, color: shown.append(line))
    _progress.Progress("node1", "m\x1b[2J").show("5 %\nno change")
    assert shown == ["node1: m?[2J 5 %?no change"]


def test_time_left_uses_the_mean_rate(monkeypatch):
    clock = [50.0]
    monkeypatch.setattr(_progress.time, "monotonic", lambda: clock[0])
    progress = _progress.Progress("node1", "compiling")
    assert progress.left(20, 100) is None
    clock[0] = 60.0
    assert progress.left(20, 100) is None
    clock[0] = 70.0
    assert progress.left(60, 100) == 20.0
    clock[0] = 80.0
    assert progress.left(80, 100) == 10.0
    clock[0] = 81.0
    assert repr(progress.left(80, 100)) == "10"


def test_a_line_is_shown_once(monkeypatch):
    shown = []
    monkeypatch.setattr(_progress.display, "display", lambda line, color: shown.append(line))
    progress = _progress.Progress("node1", "compiling")
    for text in ("5 %", "5 %", "6 %", "5 %"):
        progress.show(text)
    assert shown == ["node1: compiling 5 %", "node1: compiling 6 %", "node1: compiling 5 %"]
