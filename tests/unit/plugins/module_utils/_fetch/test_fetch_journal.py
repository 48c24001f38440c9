# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from pathlib import Path

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._fetch import journal as fetch_journal
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._fetch.journal import Journal, Ranges
from hypothesis import given
from hypothesis import strategies as st

steps = st.lists(st.tuples(st.booleans(), st.integers(0, 30), st.integers(0, 30)), max_size=12)


@given(steps)
def test_ranges_are_set_of_positions(changes):
    ranges, positions = Ranges(), set()
    for adding, start, end in changes:
        if adding:
            ranges.add(start, end)
            positions |= set(range(start, end))
        elif start < end:
            ranges.remove(start, end)
            positions -= set(range(start, end))
    intervals = list(ranges)
    assert {position for start, end in intervals for position in range(start, end)} == positions
    assert all(left[1] < right[0] for left, right in zip(intervals, intervals[1:]))
    assert ranges.total() == len(positions)
    missing = {position for start, end in ranges.gaps(5, 25) for position in range(start, end)}
    assert missing == set(range(5, 25)) - positions
    for start in range(31):
        frontier = ranges.frontier(start)
        assert frontier not in positions
        assert set(range(start, frontier)) <= positions


IDENTITY = ((100, "sha"),)


@pytest.fixture
def journal(tmp_path):
    journal = Journal(str(tmp_path / "m.journal"))
    yield journal
    journal.close()


def reread(journal, identity=IDENTITY):
    return list(Journal(journal.path).load(identity))


def test_all_records_count_while_machine_is_up(journal):
    journal.start(IDENTITY, Ranges([(0, 10)]))
    journal.add(10, 20)
    journal.add(40, 50)
    assert reread(journal) == [(0, 20), (40, 50)]
    assert reread(journal, ((100, "other"),)) == []


def test_after_reboot_only_flushed_records_count(journal, monkeypatch):
    journal.start(IDENTITY, Ranges([(0, 10)]))
    journal.add(10, 20)
    covered = journal.count
    journal.add(20, 30)
    journal.durable(covered)
    journal.add(30, 40)
    monkeypatch.setattr(fetch_journal, "boot_id", lambda: "another boot")
    assert reread(journal) == [(0, 20)]


def test_torn_last_line_is_dropped(journal):
    journal.start(IDENTITY, Ranges())
    journal.add(0, 10)
    journal.add(10, 4096)
    journal.close()
    data = Path(journal.path).read_bytes()
    for cut in range(1, len(b"w 10 4086\n") + 1):
        with open(journal.path, "wb") as stream:
            stream.write(data[:-cut])
        assert reread(journal) == [(0, 10)]


@pytest.mark.parametrize(
    "tail",
    [
        b"\0\0\0\0\n",
        b"w 1\n",
        b"x 1 2\n",
        b"w a b\n",
        b"d x\n",
        b"\n",
        b"w -5 10\n",
        b"w 5 -10\n",
        b"w %s 1\n" % (b"9" * 5000),
    ],
)
def test_nothing_after_unreadable_line_counts(journal, tail):
    journal.start(IDENTITY, Ranges([(0, 10)]))
    journal.close()
    with open(journal.path, "ab") as stream:
        stream.write(tail + b"w 10 10\n")
    assert reread(journal) == [(0, 10)]


@pytest.mark.parametrize("content", [b"", b"\n", b"{}\n", b"no json\nw 0 10\n", b"[]\nw 0 10\n", b"\xff\xfe\nw 0 10\n"])
def test_damaged_first_line_starts_over(journal, content):
    with open(journal.path, "wb") as stream:
        stream.write(content)
    assert reread(journal) == []


def test_delete_removes_file_and_may_be_repeated(journal, tmp_path):
    journal.start(IDENTITY, Ranges())
    journal.delete()
    journal.delete()
    assert list(tmp_path.iterdir()) == []
