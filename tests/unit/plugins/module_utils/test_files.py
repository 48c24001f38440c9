# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Links, FIFOs and directories of other users on a path that root uses, also exchanged in between."""

import contextlib
import hashlib
import os
import stat
import tracemalloc

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils import _files
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._text import Refusal
from ansible_collections.thefermisea.llama_cluster.tests.unit.other_users import give_away


@pytest.fixture(name="folder")
def fixture_folder(tmp_path):
    folder = tmp_path / "state/inner"
    folder.mkdir(parents=True)
    (folder / "record").write_text("good")
    return folder


def test_file_is_written_whole_and_read_back(folder):
    path = str(folder / "new")
    _files.write_atomically(path, b"text", 0o640)
    assert _files.read(path) == b"text"
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o640
    (folder / ".new.partial").symlink_to(folder / "record")
    _files.write_atomically(path, b"again")
    assert _files.read(path) == b"again" and (folder / "record").read_text() == "good"
    assert sorted(os.listdir(str(folder))) == ["new", "record"]


def test_file_is_complete_before_its_name(folder, monkeypatch):
    calls = []

    def note(name):
        real = getattr(os, name)
        monkeypatch.setattr(os, name, lambda *arguments, **options: (calls.append(name), real(*arguments, **options)))

    for name in ("fchown", "fchmod", "fsync", "rename"):
        note(name)
    _files.write_atomically(str(folder / "new"), b"text", 0o640, (os.geteuid(), os.getegid()))
    assert calls == ["fchown", "fchmod", "fsync", "rename"]
    del calls[:]
    _files.write_atomically(str(folder / "new"), b"text", mode=None, anywhere=True, durable=False)
    assert calls == ["rename"]


def test_write_that_fails_leaves_what_was_there(folder, monkeypatch):
    def full(_descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    for anywhere in (False, True):
        with pytest.raises(OSError, match="No space left on device") as caught:
            _files.write_atomically(str(folder / "record"), b"theirs", anywhere=anywhere)
        assert caught.value.filename == str(folder / "record")
    assert os.listdir(str(folder)) == ["record"] and (folder / "record").read_text() == "good"


def test_in_directory_of_others_nothing_is_written_through(folder, monkeypatch):
    folder.chmod(0o777)
    path, partial = folder / "new", folder / ".new.partial"
    partial.symlink_to(folder / "record")
    previous = os.umask(0o027)
    try:
        _files.write_atomically(str(path), b"text", mode=None, anywhere=True)
    finally:
        os.umask(previous)
    assert path.read_text() == "text" and stat.S_IMODE(path.stat().st_mode) == 0o640
    # Planted again in between.
    real = os.unlink

    def plant(name, **options):
        with contextlib.suppress(FileNotFoundError):
            real(name, **options)
        partial.symlink_to(folder / "record")

    monkeypatch.setattr(os, "unlink", plant)
    with pytest.raises(FileExistsError):
        _files.write_atomically(str(path), b"again", anywhere=True)
    assert path.read_text() == "text" and (folder / "record").read_text() == "good"


def test_directory_exchanged_while_file_is_written_gets_nothing(folder, tmp_path, monkeypatch):
    """The file is renamed where it was written, whatever the directory's name leads to by then."""
    other = tmp_path / "theirs"
    other.mkdir()
    real = os.fsync

    def exchange(descriptor):
        real(descriptor)
        folder.rename(tmp_path / "state/old")
        (tmp_path / "state/inner").symlink_to(other)

    monkeypatch.setattr(os, "fsync", exchange)
    _files.write_atomically(str(folder / "new"), b"text", anywhere=True)
    assert os.listdir(str(other)) == [] and (tmp_path / "state/old/new").read_text() == "text"


def test_link_replaces_what_was_there(folder):
    for target in ("record", "/somewhere else"):
        (folder / ".link.partial").symlink_to("half")
        _files.link_atomically(str(folder / "link"), target)
        assert os.readlink(str(folder / "link")) == target
        assert sorted(os.listdir(str(folder))) == ["link", "record"] and (folder / "record").read_text() == "good"
    folder.chmod(0o777)
    with pytest.raises(Refusal, match="inner: its mode 0777"):
        _files.link_atomically(str(folder / "link"), "record")
    assert os.readlink(str(folder / "link")) == "/somewhere else"


def test_record_takes_memory_of_what_is_in_it(folder):
    (folder / "record").chmod(0o644)
    tracemalloc.start()
    try:
        assert _files.read_trusted(str(folder / "record"), 1 << 30) == b"good"
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()
    assert _files.read_trusted(str(folder / "record"), 3) == b"goo"
    (folder / "record").chmod(0o666)
    with pytest.raises(OSError, match="others may write it"):
        _files.read_trusted(str(folder / "record"), 3)


def test_digest_of_file_or_next_bytes(folder):
    data = os.urandom((1 << 20) + 7)
    (folder / "record").write_bytes(data)
    assert _files.sha256_file(str(folder / "record")) == hashlib.sha256(data).hexdigest()
    seen = []
    with open(str(folder / "record"), "rb", buffering=0) as stream:
        parts = [_files.sha256_stream(stream, size, seen.append) for size in (5, 1 << 20, 0)]
        assert stream.tell() == (1 << 20) + 5 == sum(seen)
        assert parts == [hashlib.sha256(part).hexdigest() for part in (data[:5], data[5:-2], b"")]
        # The position of the stream shows an early end.
        assert _files.sha256_stream(stream, 100) == hashlib.sha256(data[-2:]).hexdigest() and stream.tell() == len(data)


def test_missing_file_or_directory_is_named_in_full(folder):
    for path in (folder / "absent", folder / "absent/file"):
        with pytest.raises(FileNotFoundError) as caught:
            _files.read(str(path))
        assert caught.value.filename == str(folder / "absent")


def test_missing_directories_are_made_on_request(folder):
    with _files.directory(str(folder / "a/b"), make=0o700):
        pass
    assert stat.S_IMODE((folder / "a/b").stat().st_mode) == 0o700


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o1777])
def test_directory_that_others_may_write_is_refused(folder, mode):
    folder.chmod(mode)
    with pytest.raises(
        Refusal,
        match=r"inner: its mode 0?1?77[70] lets others than its owner write it, root uses it: look at who changed it",
    ):
        _files.read(str(folder / "record"))
    with pytest.raises(Refusal):
        _files.write_atomically(str(folder / "new"), b"")


def test_directory_above_that_others_may_write_is_refused(folder):
    folder.parent.chmod(0o777)
    with pytest.raises(Refusal, match="state: its mode 0777"):
        _files.read(str(folder / "record"))
    # As in /tmp: other users cannot rename its files.
    folder.parent.chmod(0o1777)
    assert _files.read(str(folder / "record")) == b"good"


@pytest.mark.parametrize("name", ["state", "state/inner", "state/inner/record"])
def test_what_belongs_to_somebody_else_is_refused(folder, tmp_path, name):
    give_away(tmp_path / name)
    with pytest.raises(Refusal, match=r"%s: it belongs to user id 4711, 0 is needed because root uses it" % name):
        _files.read(str(folder / "record"))


def test_link_or_fifo_is_refused_at_once(folder):
    (folder / "link").symlink_to(folder / "record")
    os.mkfifo(str(folder / "fifo"))
    for name in ("link", "fifo", "."):
        with pytest.raises((Refusal, IsADirectoryError)):
            _files.read(str(folder / name))
    for name in ("link", "fifo"):
        with pytest.raises(Refusal, match="%s: no regular file, one is needed" % name):
            os.close(_files.open_file(str(folder / name), os.O_WRONLY | os.O_APPEND | os.O_CREAT))


def test_only_roots_links_are_followed(folder, tmp_path):
    (tmp_path / "short").symlink_to("state/inner")
    (tmp_path / "absolute").symlink_to(folder)
    assert _files.read(str(tmp_path / "short/record")) == b"good" == _files.read(str(tmp_path / "absolute/record"))
    (tmp_path / "round").symlink_to("round")
    with pytest.raises(Refusal, match="round: no directory"):
        _files.read(str(tmp_path / "round/record"))
    (tmp_path / "sticky").mkdir()
    (tmp_path / "sticky").chmod(0o1777)
    (tmp_path / "sticky/inner").symlink_to(folder)
    with pytest.raises(Refusal, match="sticky/inner: no directory, one is needed"):
        _files.read(str(tmp_path / "sticky/inner/record"))
    # The target of a link is checked too.
    folder.chmod(0o777)
    with pytest.raises(Refusal, match="mode 0777"):
        _files.read(str(tmp_path / "short/record"))


def test_directory_exchanged_after_check_is_not_used(folder, tmp_path, monkeypatch):
    other = tmp_path / "theirs"
    other.mkdir()
    (other / "record").write_text("theirs")
    real = os.open

    def exchange(path, flags, *arguments, **options):
        if path == "record" and not (tmp_path / "state/old").exists():
            folder.rename(tmp_path / "state/old")
            (tmp_path / "state/inner").symlink_to(other)
        return real(path, flags, *arguments, **options)

    monkeypatch.setattr(os, "open", exchange)
    assert _files.read(str(folder / "record")) == b"good"


def test_directory_that_becomes_link_is_not_followed(folder, tmp_path, monkeypatch):
    other = tmp_path / "theirs"
    other.mkdir()
    (other / "record").write_text("theirs")
    real = os.open

    def exchange(path, flags, *arguments, **options):
        if path == folder.name and not folder.is_symlink():
            folder.rename(tmp_path / "state/old")
            folder.symlink_to(other)
        return real(path, flags, *arguments, **options)

    monkeypatch.setattr(os, "open", exchange)
    with pytest.raises(OSError, match="Not a directory|Too many levels of symbolic links"):
        _files.read(str(folder / "record"))
    assert folder.is_symlink()


def test_no_other_program_gets_descriptor(folder):
    """Python closes its own in what it starts."""
    for descriptor in (
        _files.open_directory(str(folder)),
        _files.open_file(str(folder / "record")),
        _files.open_trusted(str(folder / "record")),
    ):
        assert not os.get_inheritable(descriptor)
        os.close(descriptor)
