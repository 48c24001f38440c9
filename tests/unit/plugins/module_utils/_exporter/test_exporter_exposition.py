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


def test_written_page_can_be_read():
    hostile = 'a"b\\c\nd,e="f"} 1'
    text = render([family((1, {"service": hostile, "unit": "u"}), (2.5, {}), (None, {"service": "gone"}))])
    assert text.split("\n")[:2] == ["# HELP llama_x What it is.\\nIn two lines.", "# TYPE llama_x gauge"]
    assert [tuple(one) for one in parse(text)] == [
        ("llama_x", {"service": hostile, "unit": "u"}, 1.0),
        ("llama_x", {}, 2.5),
    ]


def test_empty_family_is_omitted():
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
def test_number_has_no_exponent(value, text):
    assert exposition.number(value) == text
    again = float(text.replace("Inf", "inf"))
    assert again == value or math.isnan(value)


def test_invalid_lines_are_skipped():
    text = '# HELP x y\n\nx\nx{a="1"\nx one\n{} 1\nx{a="1"} 3 1795547392\n1x 2\nx 4\n'
    assert [tuple(one) for one in parse(text)] == [("x", {"a": "1"}, 3.0), ("x", {}, 4.0)]


def test_histogram_is_written():
    found = Family("llama_s", "histogram", "Seconds.")
    found.add_part("_bucket", 2, service="a", le="+Inf")
    found.add_part("_sum", 1.5, service="a")
    assert render([found]).split("\n")[2:4] == [
        'llama_s_bucket{le="+Inf",service="a"} 2',
        'llama_s_sum{service="a"} 1.5',
    ]


def test_duplicate_series_is_written_once():
    text = render([family((1, {"service": "a"}), (2, {"service": "a"}), (3, {"service": "b"}))])
    assert [(one.labels["service"], one.value) for one in parse(text)] == [("a", 1), ("b", 3)]


def shown(board):
    """({part: whether it is up}, the other samples' values)"""
    found = list(parse(board.content().decode()))
    alive = {one.labels["part"]: one.value for one in found if one.name == "llama_sampler_part_up"}
    return alive, [one.value for one in found if one.name != "llama_sampler_part_up"]


def test_board_merges_families_and_expires_parts():
    clock = [100.0]
    board = Board(lambda: clock[0])
    board.put(1, "a", [family((1, {"service": "a"}))], 10)
    board.put(2, "b", [family((2, {"service": "b"}))], 50)
    assert board.content().count(b"# TYPE llama_x") == 1
    assert shown(board) == ({"a": 1, "b": 1}, [1, 2])
    clock[0] = 110.1
    assert shown(board) == ({"a": 0, "b": 1}, [2])
    board.drop(2)
    assert shown(board) == ({"a": 0}, [])


def test_surrogates_are_replaced():
    board = Board()
    board.put(1, "a", [family((1, {"service": "\ud800"}))], 10)
    assert shown(board) == ({"a": 1}, [1])


def test_replaced_part_keeps_successor():
    board = Board()
    old, new = (Part(board, "cards", 0.0, list) for _one in range(2))
    old.stop()
    board.put(new, "cards", [family((7, {}))], 10)
    old.run()
    assert shown(board) == ({"cards": 1}, [7])


def test_failing_part_is_logged_once_and_retried(capsys):
    board = Board()
    tries = []

    def look():
        tries.append(1)
        if len(tries) < 3:
            raise OSError("no such c\u00e4rd\x1b[2J\nllama")
        part.stop()
        return [family((7, {}))]

    part = Part(board, "cards", 0.0, look)
    shown = []
    board.put = lambda _part, _name, families, _lasts: shown.append(families)
    part.run()
    assert capsys.readouterr().out == "cards: cannot be sampled: OSError: no such c\\xe4rd [2J llama\n"
    assert len(tries) == 3 and len(shown) == 1
