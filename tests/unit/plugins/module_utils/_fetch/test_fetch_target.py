# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rests of an earlier run, and the disk that a file takes."""

import errno
import os
import stat
import types

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._fetch import request
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._fetch import target as fetch_target
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._fetch.errors import Stopped
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._fetch.journal import Ranges
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._fetch.request import Request, Watch
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._fetch.target import Piece, Span, Target
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._text import Refusal

MIB = 1 << 20


@pytest.fixture(name="make")
def fixture_make(tmp_path):
    made = []

    def make(size=100):
        pieces = [Piece(None, 0, size // 2), Piece(None, size // 2, size - size // 2)]
        made.append(Target(str(tmp_path / "m.gguf"), pieces, [Span(0, size, None, "m.gguf")], "id"))
        return made[-1]

    yield make
    for one in made:
        one.close()


def leave(target, there, size=None):
    """Leave the files of a run that has fetched these ranges; size: of its partial file, None without one."""
    target.journal.start("id", Ranges(there))
    target.journal.close()
    if size is not None:
        with open(target.partial, "wb") as stream:
            stream.truncate(size)


@pytest.mark.parametrize(
    ("size", "known"),
    [(100, [(0, 10), (20, 100)]), (101, [(0, 10), (20, 100)]), (50, [(0, 10), (20, 50)]), (0, []), (None, [])],
)
def test_recorded_bytes_beyond_file_are_dropped(make, size, known):
    target = make()
    leave(target, [(0, 10), (20, 100)], size)
    target.load()
    assert list(target.ranges) == known == list(target.flushed)


def test_partial_file_is_private_until_published(make, tmp_path):
    before = os.umask(0o022)
    try:
        target = make()
        target.load()
        target.open()
        assert stat.S_IMODE(os.stat(target.partial).st_mode) == 0o600
        target.allocate()
        target.publish()
        assert stat.S_IMODE((tmp_path / "m.gguf").stat().st_mode) == 0o644
        assert (tmp_path / "m.gguf").stat().st_size == 100 and os.umask(0o022) == 0o022
    finally:
        os.umask(before)


def test_what_run_left_is_continued_in_same_file(make):
    target = make()
    leave(target, [(0, 10)], 100)
    inode = os.stat(target.partial).st_ino
    target.load()
    target.open()
    assert (os.fstat(target.fd).st_ino, target.journal.count, list(target.ranges)) == (inode, 1, [(0, 10)])
    target.discard()
    assert not os.path.exists(target.partial) and not os.path.exists(target.journal.path) and target.fd == -1


def test_file_without_record_is_begun_anew(make):
    target = make()
    with open(target.partial, "wb") as stream:
        stream.write(b"x" * 100)
    target.load()
    target.open()
    assert os.fstat(target.fd).st_size == 0


@pytest.fixture(name="refuse")
def fixture_refuse(monkeypatch):
    """Have the kernel refuse to reserve disk with this error."""

    def refuse(error):
        library = types.SimpleNamespace(fallocate=lambda *_arguments: -1)
        monkeypatch.setattr(fetch_target.ctypes, "CDLL", lambda *_arguments, **_options: library)
        monkeypatch.setattr(fetch_target.ctypes, "get_errno", lambda: error)

    return refuse


@pytest.mark.parametrize("error", [errno.EOPNOTSUPP, errno.ENOSYS])
def test_length_is_set_without_reservation(make, refuse, error):
    refuse(error)
    target = make()
    target.load()
    target.open()
    target.allocate()
    assert os.fstat(target.fd).st_size == 100


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (errno.ENOSPC, r"the disk is full \(.* free\): free space and run again, what was fetched is kept"),
        (errno.EDQUOT, "the disk is full"),
        (errno.EIO, "cannot be written: Input/output error"),
    ],
)
def test_disk_that_refuses_is_one_sentence(make, refuse, error, words):
    refuse(error)
    target = make()
    target.load()
    target.open()
    with pytest.raises(Refusal, match="m.gguf.partial: " + words):
        target.allocate()


def test_model_leaves_64_mib_to_others(tmp_path, monkeypatch):
    monkeypatch.setattr(fetch_target, "free_disk", lambda _folder: 100 * MIB)
    fetch_target.check_disk(str(tmp_path), "m.gguf", 36 * MIB, 36 * MIB)
    with pytest.raises(fetch_target.DiskTooSmall, match="m.gguf needs 37.7 MB and 67.1 MB to spare") as caught:
        fetch_target.check_disk(str(tmp_path / "new"), "m.gguf", 36 * MIB + 1, 36 * MIB + 1)
    assert caught.value.disk == {"folder": str(tmp_path), "free": 100 * MIB, "missing": 100 * MIB + 1}
    with pytest.raises(Refusal, match="needs 37.7 MB more of its 104.9 MB"):
        fetch_target.check_disk(str(tmp_path), "m.gguf", 100 * MIB, 36 * MIB + 1)


DIGEST = "0123456789abcdef" * 4


def test_two_requests_for_same_bytes_have_one_identity(tmp_path):
    dest = str(tmp_path / "m.gguf")
    assert Request(dest, urls=["https://h/m.gguf?token=a"], sha256=[DIGEST.upper()]).identity() == {
        "urls": ["https://h/m.gguf"],
        "sha256": [DIGEST],
    }
    asked = {"repo": "o/r", "revision": "main", "files": ["m.gguf"], "sha256": []}
    assert Request(dest, repo="o/r", files=["m.gguf"], token="secret", connections=3).identity() == asked


def test_other_query_is_other_content(tmp_path):
    urls = [f"https://h/get?file={name}.gguf&token=a" for name in "mn"]
    first, second = (Request(str(tmp_path / "m.gguf"), urls=[url]).identity()["urls"] for url in urls)
    assert first != second and "file" not in first[0]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        *(({"urls": ["/m"], "connections": number}, "connections: %d given, 1 to 16" % number) for number in (0, 17)),
        *(
            ({"urls": ["/m"], "sha256": [DIGEST, digest]}, "64 hexadecimal digits are needed")
            for digest in (DIGEST[1:], DIGEST + "0", DIGEST[1:] + "g", "")
        ),
        ({"repo": "o/r"}, "repo: o/r may hold several models: name the files of one"),
        ({"copy_of": {"url": "http://n", "files": []}}, "copy_of: no files given"),
        *(({"urls": ["/m"], "connections": number}, None) for number in (1, 16)),
    ],
)
def test_requests_without_sense_are_refused(tmp_path, options, words):
    if words is None:
        assert Request(str(tmp_path / "m.gguf"), **options).connections == options["connections"]
    else:
        with pytest.raises(Refusal, match=words):
            Request(str(tmp_path / "m.gguf"), **options)


def test_destination_is_file_or_directory(tmp_path):
    for dest, into in ((tmp_path / "m.gguf", False), (tmp_path, True)):
        assert Request(str(dest), urls=["/m"]).into_folder is into
        assert Request(str(dest), urls=["/m"]).folder() == str(tmp_path)
    assert Request(str(tmp_path / "new") + "/", urls=["/m"]).folder() == str(tmp_path / "new")


def test_hashing_reports_each_second_and_stops(monkeypatch):
    clock, states, reasons = [100.0], [], [None, "enough"]
    monkeypatch.setattr(request.time, "monotonic", lambda: clock[0])
    advance = Watch(states.append, lambda: reasons.pop(0)).meter("/models/m.gguf", 1000)
    for seconds, count in ((0.5, 10), (0.25, 20), (0.25, 30), (0.75, 40)):
        clock[0] += seconds
        advance(count)
    state = {"phase": "hash", "done": 60, "total": 1000, "moved": 0, "rate": 60.0, "name": "m.gguf"}
    assert states == [state]
    clock[0] += 1.25
    with pytest.raises(Stopped, match="enough"):
        advance(50)
    assert states[1] == dict(state, done=150, rate=50.0)
