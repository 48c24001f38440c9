# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

import math

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._exporter import exposition
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._exporter.board import Board, Part
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._exporter.exposition import (
    Family,
    parse,
    render,
)


def family(*samples, name="llama_x", kind="gauge"):
    found = Family(name, kind, "What it is.\nIn two lines.")
    for value, labels in samples:
        found.add(value, **labels)
    return found


def test_what_is_written_is_read_again():
    hostile = 'a"b\\c\nd,e="f"} 1'
    text = render([family((1, {"service": hostile, "unit": "u"}), (2.5, {}), (None, {"service": "gone"}))])
    assert text.split("\n")[:2] == ["# HELP llama_x What it is.\\nIn two lines.", "# TYPE llama_x gauge"]
    assert [tuple(one) for one in parse(text)] == [
        ("llama_x", {"service": hostile, "unit": "u"}, 1.0),
        ("llama_x", {}, 2.5),
    ]


def test_a_family_without_samples_is_left_out():
    assert render([family(), family((None, {}))]) == ""


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (2**50, "1125899906842624"),
        (0.1, "0.1"),
        (math.inf, "Inf"),
        (-math.inf, "-Inf"),
        (math.nan, "NaN"),
        (-3.0, "-3"),
    ],
)
def test_numbers(value, text):
    assert exposition.number(value) == text
    again = float(text.replace("Inf", "inf"))
    assert again == value or math.isnan(value)


def test_lines_that_are_none_are_passed_over():
    text = '# HELP x y\n\nx\nx{a="1"\nx one\n{} 1\nx{a="1"} 3 1795547392\n1x 2\nx 4\n'
    assert [tuple(one) for one in parse(text)] == [("x", {"a": "1"}, 3.0), ("x", {}, 4.0)]


def test_a_histogram():
    found = Family("llama_s", "histogram", "Seconds.")
    found.add_part("_bucket", 2, service="a", le="+Inf")
    found.add_part("_sum", 1.5, service="a")
    assert render([found]).split("\n")[2:4] == [
        'llama_s_bucket{le="+Inf",service="a"} 2',
        'llama_s_sum{service="a"} 1.5',
    ]


def test_a_board_merges_families_and_forgets_parts_that_do_not_come():
    clock = [100.0]
    board = Board(lambda: clock[0])
    board.put("a", [family((1, {"service": "a"}))], 10)
    board.put("b", [family((2, {"service": "b"}))], 50)
    assert board.text().count("# TYPE") == 1
    assert [one.value for one in parse(board.text())] == [1, 2]
    clock[0] = 120.0
    assert [one.value for one in parse(board.text())] == [2]
    board.drop("b")
    assert board.text() == ""


def test_a_part_that_fails_is_told_of_once_and_tried_again(capsys):
    board = Board()
    tries = []

    def look():
        tries.append(1)
        if len(tries) < 3:
            raise OSError("no such card")
        part.stop()
        return [family((7, {}))]

    part = Part(board, "cards", 0.0, look)
    shown = []
    board.put = lambda _name, families, _lasts: shown.append(families)
    part.run()
    assert capsys.readouterr().out == "cards: cannot be sampled: OSError: no such card\n"
    assert len(tries) == 3 and len(shown) == 1
