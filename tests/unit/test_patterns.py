# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every pattern of the product on lines as long as journald takes them: none goes back and forth over what others
wrote."""

import importlib
import pkgutil
import re
import time

import pytest
from ansible_collections.thefermisea.llama_cluster import plugins
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._doctor import cluster

# LineMax= of journald.conf.
LINE = 48 * 1024
# Seconds for one pattern on one line, on a machine that does other things beside.
MOST = 2.0
# Lines of one letter, and of beginnings of patterns.
SHAPES = ("x", " ", "x ", "0", "/", "a=", "x: ", "{ ", "[x", chr(34), chr(39), "1.", "model ", "Xid ", "a=" + chr(34))
LINES = [one * (LINE // len(one)) for one in SHAPES]


def inside(value):
    """The patterns in a module's constant."""
    if isinstance(value, re.Pattern):
        yield value
    elif isinstance(value, (list, tuple, set, frozenset)):
        for one in value:
            yield from inside(one)
    elif isinstance(value, dict):
        yield from inside(tuple(value.values()))


def patterns():
    found = {}
    for package in ("module_utils", "plugin_utils", "filter", "callback"):
        folder = importlib.import_module("%s.%s" % (plugins.__name__, package))
        for one in pkgutil.walk_packages(folder.__path__, folder.__name__ + "."):
            for value in vars(importlib.import_module(one.name)).values():
                for pattern in inside(value):
                    if isinstance(pattern.pattern, str):
                        found[pattern.pattern] = pattern
    for rule in cluster.load():
        for condition in rule["when"]:
            for operator in ("matches", "lacks"):
                if operator in condition:
                    found[condition[operator]] = re.compile(condition[operator])
    return sorted(found.values(), key=lambda pattern: pattern.pattern)


@pytest.mark.parametrize("line", LINES, ids=[repr(line[:7]) for line in LINES])
def test_no_pattern_is_slow_on_a_long_line(line):
    slow, known = [], patterns()
    assert len(known) > 200
    for pattern in known:
        began = time.process_time()
        pattern.search(line)
        if time.process_time() - began > MOST:
            slow.append(pattern.pattern)
    assert slow == []
