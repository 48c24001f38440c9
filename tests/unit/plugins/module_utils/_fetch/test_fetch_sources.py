# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a server's first answer says of a file, and what of it may change later."""

import types
from email.message import Message

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._fetch import sources
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._text import Refusal

URL = "https://h/m.gguf"


@pytest.fixture(name="answer")
def fixture_answer(monkeypatch):
    """Has the server answer with a status and header fields."""

    def answer(status, **fields):
        headers = Message()
        for name, value in fields.items():
            headers[name.replace("_", "-")] = value
        response = types.SimpleNamespace(status=status, headers=headers)
        monkeypatch.setattr(sources, "get_following", lambda client, url, more, token: (response, url))
        monkeypatch.setattr(sources, "discard", lambda client, url, response, most=0: None)

    return answer


def resolved(**options):
    source = sources.HttpSource(URL, **options)
    source.resolve(None)
    return source


@pytest.mark.parametrize(
    ("status", "fields", "size", "ranges"),
    [
        (206, {"Content_Range": "bytes 0-0/10"}, 10, True),
        (200, {"Content_Length": "10"}, 10, False),
        (200, {"Content_Length": "0" * 17 + "7"}, 7, False),
    ],
)
def test_size_and_ranges(answer, status, fields, size, ranges):
    answer(status, **fields)
    source = resolved()
    assert (source.size, source.ranges, sources.size_of(source)) == (size, ranges, size)


@pytest.mark.parametrize(
    ("status", "fields", "words"),
    [
        (206, {"Content_Range": "bytes 0-0/*"}, r"answers ranges with Content-Range bytes 0-0/\*: use another source"),
        (206, {}, "answers ranges with Content-Range None"),
        (200, {}, "says neither how long it is nor answers ranges"),
        (200, {"Content_Length": "10, 10"}, "says neither how long it is nor answers ranges"),
        (416, {}, "empty, a GGUF file is needed"),
        (200, {"Content_Length": "10", "Content_Type": "text/html; charset=utf-8"}, "a web page with status 200"),
    ],
)
def test_an_answer_that_is_of_no_use(answer, status, fields, words):
    answer(status, **fields)
    with pytest.raises(Refusal, match="^https://h/m.gguf: " + words):
        resolved()


def test_a_length_that_is_known_stands_in_for_one_that_is_not_said(answer):
    answer(200)
    assert resolved(size=10).size == 10
    answer(206, Content_Range="bytes 0-0/11")
    with pytest.raises(Refusal, match="has 11 bytes, 10 bytes needed: another file is there"):
        resolved(size=10)


@pytest.mark.parametrize(
    ("fields", "validator"),
    [
        ({}, None),
        ({"ETag": '"a"', "Last_Modified": "Mon"}, '"a"'),
        ({"ETag": 'W/"a"', "Last_Modified": "Mon"}, "Mon"),
        ({"ETag": 'W/"a"'}, None),
        ({"Last_Modified": "x" * 200}, "x" * 200),
        ({"Last_Modified": "x" * 201}, None),
        ({"ETag": '"\x1b"'}, None),
    ],
)
def test_what_a_file_is_known_by(answer, fields, validator):
    answer(206, Content_Range="bytes 0-0/10", **fields)
    assert resolved().validator == validator


@pytest.mark.parametrize(
    ("size", "etag", "pinned", "changed"),
    [
        (10, '"a"', False, False),
        (10, '"b"', False, True),
        (10, '"b"', True, False),
        (11, '"a"', False, True),
        (11, '"a"', True, True),
    ],
)
def test_a_file_that_changes_between_two_answers(answer, size, etag, pinned, changed):
    answer(206, Content_Range="bytes 0-0/10", ETag='"a"')
    source = resolved(pinned=pinned)
    answer(206, Content_Range="bytes 0-0/%d" % size, ETag=etag)
    if changed:
        with pytest.raises(Refusal, match="changed on the server while it was fetched"):
            source.resolve(None)
    else:
        source.resolve(None)
        assert source.validator == etag


@pytest.mark.parametrize(
    ("offset", "length", "data"), [(0, 4, b"0123"), (4, 3, b"456"), (8, 9, b"89"), (0, 10, b"0123456789"), (9, 1, b"9")]
)
def test_a_range_of_a_file_of_this_node(tmp_path, offset, length, data):
    (tmp_path / "m.gguf").write_bytes(b"0123456789")
    source = sources.make_source("file://%s/m.gguf" % tmp_path)
    source.resolve(None)
    assert sources.read_range(source, None, offset, length) == data


def test_a_file_of_this_node_that_is_cut_while_it_is_read(tmp_path):
    path = tmp_path / "m.gguf"
    path.write_bytes(b"0123456789")
    source = sources.make_source(str(path))
    source.resolve(None)
    body, buffer = source.open(None, 2, 8), bytearray(5)
    assert (body.readinto(memoryview(buffer)), body.length, bytes(buffer)) == (5, 3, b"23456")
    path.write_bytes(b"012")
    with pytest.raises(Refusal, match="m.gguf: ends 3 bytes early: changed while it was read"):
        body.readinto(memoryview(buffer))
    with pytest.raises(Refusal, match="changed while it was fetched"):
        source.open(None, 0, 1)
