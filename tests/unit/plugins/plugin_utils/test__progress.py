# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils import _progress


def test_the_name_of_a_file_forges_no_line(monkeypatch):
    shown = []
    monkeypatch.setattr(_progress.display, "display", lambda line, color: shown.append(line))
    _progress.Progress("node1", "m\x1b[2J").show("5 %\nno change")
    assert shown == ["node1: m?[2J 5 %?no change"]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.9, "0 s"),
        (59.9, "59 s"),
        (60, "1 min 00 s"),
        (3599.9, "59 min 59 s"),
        (3600, "1 h 00 min"),
        (3659, "1 h 00 min"),
        (7199, "1 h 59 min"),
    ],
)
def test_a_time_as_people_say_it(seconds, text):
    assert _progress.duration(seconds) == text


def test_what_is_left_goes_by_the_mean_rate_since_work_was_seen(monkeypatch):
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


def test_a_line_is_shown_once(monkeypatch):
    shown = []
    monkeypatch.setattr(_progress.display, "display", lambda line, color: shown.append(line))
    progress = _progress.Progress("node1", "compiling")
    for text in ("5 %", "5 %", "6 %", "5 %"):
        progress.show(text)
    assert shown == ["node1: compiling 5 %", "node1: compiling 6 %", "node1: compiling 5 %"]
