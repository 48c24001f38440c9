# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Paths that no unit can see, wherever a text has them."""

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._intent.values import hidden


@pytest.mark.parametrize(
    "text, path",
    [
        ("/home/ops/m.gguf", "/home/ops/m.gguf"),
        ("/root", "/root"),
        ("//home/./ops", "/home/ops"),
        ("--mmproj=/root/m.gguf", "/root/m.gguf"),
        ("/opt/a.gguf:0.5,/tmp/b.gguf:1", "/tmp/b.gguf"),
        ("/opt/lib:~/lib", "~/lib"),
        ("/run/user/1000/x", "/run/user/1000/x"),
        ("/homes/ops", ""),
        ("/data/home/ops", ""),
        ("/opt/tmp", ""),
        ("/rooted", ""),
        ("a ~ b", ""),
        ("look into /tmp", ""),
        ("7", ""),
        (7, ""),
    ],
)
def test_what_units_do_not_see(text, path):
    assert hidden(text) == path
