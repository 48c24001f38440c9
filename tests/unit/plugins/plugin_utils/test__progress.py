# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils import _progress


def test_the_name_of_a_file_forges_no_line(monkeypatch):
    shown = []
    monkeypatch.setattr(_progress.display, "display", lambda line, color: shown.append(line))
    _progress.Progress("node1", "m\x1b[2J").show("5 %\nno change")
    assert shown == ["node1: m?[2J 5 %?no change"]
