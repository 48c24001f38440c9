# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How a transfer divides the work and when it gives up, without a server and without waiting."""

import argparse
import time

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._fetch import transfer
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._fetch.errors import Stopped, Transient
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._fetch.target import Piece, Span, Target
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._text import Refusal

MIB = 1 << 20
LOST = Transient("lost")


def target(*pieces, spans=1, there=()):
    """A target of pieces of these sizes, with spans of one size; there: fetched by an earlier run."""
    made, offset = [], 0
    for size in pieces:
        made.append(Piece(None, offset, size))
        offset += size
    step = offset // spans
    found = Target("/m", made, [Span(n * step, (n + 1) * step, None, "m") for n in range(spans)], None)
    for start, end in there:
        found.ranges.add(start, end)
    return found


def transfer_of(*targets, connections=8, progress=None):
    return transfer.Transfer(targets, connections, progress or (lambda state: None), lambda: None)


def taken(moves):
    """[(start, end)] of the chunks that are asked for until none is left."""
    return [chunk[2:] for chunk in iter(moves._take, None)]


def test_chunks_shrink_towards_end():
    sizes = [end - start for start, end in taken(transfer_of(target(300 * MIB), connections=4))]
    # Half of what each connection has left, 32 MiB at most and 4 MiB at least; the last one is the rest.
    assert sizes[0] == sizes[1] == 32 * MIB and sizes[2] == (300 - 64) * MIB // 8
    assert sizes[:-1] == sorted(sizes[:-1], reverse=True) and sizes[-2] == 4 * MIB >= sizes[-1]
    assert sum(sizes) == 300 * MIB


@pytest.mark.parametrize(("cores", "spans", "abreast"), [(None, 8, 2), (3, 8, 3), (64, 8, 4), (64, 1, 1)])
def test_spans_are_fetched_side_by_side(monkeypatch, cores, spans, abreast):
    monkeypatch.setattr(transfer.os, "cpu_count", lambda: cores)
    moves = transfer_of(target(spans * 64 * MIB, spans=spans))
    assert moves.abreast == abreast
    assert {start // (64 * MIB) for start, _end in taken(moves)[:abreast]} == set(range(abreast))


@pytest.mark.parametrize("spans", [1, 2])
def test_missing_bytes_are_taken_once(spans):
    made = target(60, 40, spans=spans, there=[(10, 20), (55, 65)])
    joined = [*taken(transfer_of(made)), *made.ranges]
    assert sorted(position for start, end in joined for position in range(start, end)) == list(range(100))


class Body:
    """Gives counts of bytes, or a failure, each after ``seconds``."""

    def __init__(self, length, gives, seconds=0.0):
        self.length, self.gives, self.asked, self.now, self.seconds = length, list(gives), [], 0.0, seconds
        self.closed = False

    def readinto(self, buffer):
        self.asked.append(len(buffer))
        given = self.gives.pop(0)
        if isinstance(given, Transient):
            raise given
        self.length -= given
        self.now += self.seconds
        return given

    def close(self):
        self.closed = True


@pytest.mark.parametrize(
    ("body", "filled", "asked"),
    [
        (Body(10**6, [65536, 34464]), (100000, None), [65536, 34464]),
        (Body(50, [20, 30]), (50, None), [65536, 65536]),
        # A second is enough.
        (Body(10**6, [1, 2, 3, 4], seconds=0.4), (6, None), [65536, 65536, 65536]),
        (Body(10**6, [7, LOST]), (7, LOST), [65536, 65536]),
    ],
)
def test_buffer_is_filled(monkeypatch, body, filled, asked):
    monkeypatch.setattr(transfer.time, "monotonic", lambda: body.now)
    assert transfer.fill(body, memoryview(bytearray(100000))) == filled
    assert body.asked == asked


class Source:
    """Answers from a list: a Transient, or what its body gives."""

    def __init__(self, *answers):
        self.answers, self.asked, self.bodies = list(answers), [], []

    def open(self, _client, offset, length):
        self.asked.append((offset, length))
        answer = self.answers.pop(0)
        if isinstance(answer, Transient):
            raise answer
        self.bodies.append(Body(length, answer))
        return self.bodies[-1]


class Moves(transfer.Transfer):
    """Records what would be written and waited for."""

    def __init__(self):
        super().__init__([], 8, lambda state: None, lambda: None)
        self.written, self.marked, self.backoffs = [], [], []

    def write(self, view, position):
        self.written.append((position, len(view)))

    def _mark(self, _target, start, end):
        self.marked.append((start, end))

    def _back_off(self, failures, wait):
        self.backoffs.append((failures, wait))

    def get(self, source, end=100, offset=0):
        self._fetch(None, memoryview(bytearray(1000)), self, Piece(source, offset, end - offset), 0, end)
        return self


def test_chunk_continues_where_it_broke():
    source = Source([10, LOST], [LOST], [90])
    moves = Moves().get(source, offset=-1000)
    assert source.asked == [(1000, 100), (1010, 90), (1010, 90)]
    assert moves.written == moves_of(moves.marked) == [(0, 10), (10, 90)]
    assert all(body.closed for body in source.bodies)


def moves_of(marked):
    return [(start, end - start) for start, end in marked]


@pytest.mark.parametrize(
    ("answers", "end", "backoffs"),
    [
        # An attempt that gained much begins the count again, one of a byte does not.
        ([LOST, LOST, LOST, [MIB, LOST], LOST, [MIB, LOST], [MIB]], 3 * MIB, [1, 2, 3, 1, 2, 1]),
        ([LOST, [1, LOST], [1, LOST], [98]], 100, [1, 2, 3]),
        ([LOST] * 9 + [[100]], 100, list(range(1, 10))),
        ([LOST] * 10, 100, None),
    ],
)
def test_failures_in_row_are_counted(answers, end, backoffs):
    if backoffs is None:
        with pytest.raises(Refusal, match="^lost, 10 times in a row: "):
            Moves().get(Source(*answers), end)
    else:
        assert [failures for failures, _wait in Moves().get(Source(*answers), end).backoffs] == backoffs


def test_requested_wait_is_passed_on():
    assert Moves().get(Source(Transient("busy", 7), LOST, [100])).backoffs == [(1, 7), (2, None)]


@pytest.mark.parametrize(("failures", "seconds"), [(1, 0.5), (2, 1.0), (7, 32.0), (8, 60.0), (9, 60.0)])
def test_back_off_doubles_to_one_minute(monkeypatch, failures, seconds):
    monkeypatch.setattr(transfer.time, "monotonic", lambda: 1000.0)
    moves, until = transfer_of(), []
    moves._sleep_until = until.append
    moves._back_off(failures, None)
    assert (until, moves._not_before) == ([1000.0 + seconds], 0.0)


def test_longest_requested_wait_holds_for_all(monkeypatch):
    monkeypatch.setattr(transfer.time, "monotonic", lambda: 1000.0)
    moves, until = transfer_of(), []
    moves._sleep_until = until.append
    moves._back_off(1, 30.0)
    moves._back_off(5, 7.0)
    assert (until, moves._not_before) == ([1030.0] * 2, 1030.0)


def test_failure_ends_wait():
    moves = transfer_of()
    moves._failure = Stopped("enough")
    begun = time.monotonic()
    moves._sleep_until(begun + 60)
    assert time.monotonic() - begun < 5


def test_failure_aborts_connections():
    moves, aborted = transfer_of(), []
    moves._clients = [argparse.Namespace(abort=lambda number=number: aborted.append(number)) for number in (1, 2)]
    moves._fail(Stopped("enough"))
    assert aborted == [1, 2]


def test_rate_is_of_last_ten_seconds(monkeypatch):
    now, states = [100.0], []
    monkeypatch.setattr(transfer.time, "monotonic", lambda: now[0])
    moves = transfer_of(target(1000, there=[(0, 10)]), progress=states.append)
    for seconds, moved in ((100.0, 0), (101.0, 50), (110.0, 400), (112.0, 500)):
        now[0], moves.moved = seconds, moved
        moves._report("fetch")
    assert [one["rate"] for one in states] == [0.0, 50.0, 40.0, 50.0]
    moves._report("verify")
    assert states[-1] == {"phase": "verify", "done": 10, "total": 1000, "moved": 500, "rate": 50.0}
