# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What others plant on a path that root uses: links, FIFOs, their own directories, an exchange in between."""

import os
import stat

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils import _files
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._text import Refusal
from ansible_collections.thefermisea.llama_cluster.tests.unit.strangers import give_away


@pytest.fixture(name="folder")
def fixture_folder(tmp_path):
    folder = tmp_path / "state/inner"
    folder.mkdir(parents=True)
    (folder / "record").write_text("ours")
    return folder


def test_a_file_is_written_whole_and_read_back(folder):
    path = str(folder / "new")
    _files.write(path, b"text", 0o640)
    assert _files.read(path) == b"text"
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o640
    (folder / ".new.partial").symlink_to(folder / "record")
    _files.write(path, b"again")
    assert _files.read(path) == b"again" and (folder / "record").read_text() == "ours"
    assert sorted(os.listdir(str(folder))) == ["new", "record"]


def test_a_missing_file_or_directory_is_named_in_full(folder):
    for path in (folder / "absent", folder / "absent/file"):
        with pytest.raises(FileNotFoundError) as caught:
            _files.read(str(path))
        assert caught.value.filename == str(folder / "absent")


def test_missing_directories_are_made_on_request(folder):
    with _files.directory(str(folder / "a/b"), make=0o700):
        pass
    assert stat.S_IMODE((folder / "a/b").stat().st_mode) == 0o700


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o1777])
def test_a_directory_that_others_may_write_is_refused(folder, mode):
    folder.chmod(mode)
    with pytest.raises(Refusal, match=r"inner: its mode 0?1?77[70] lets others than its owner write it, root uses it: look at who changed it"):
        _files.read(str(folder / "record"))
    with pytest.raises(Refusal):
        _files.write(str(folder / "new"), b"")


def test_a_directory_above_that_others_may_write_is_refused(folder):
    folder.parent.chmod(0o777)
    with pytest.raises(Refusal, match="state: its mode 0777"):
        _files.read(str(folder / "record"))
    # As in /tmp: nobody else can rename what is ours there.
    folder.parent.chmod(0o1777)
    assert _files.read(str(folder / "record")) == b"ours"


@pytest.mark.parametrize("name", ["state", "state/inner", "state/inner/record"])
def test_what_belongs_to_somebody_else_is_refused(folder, tmp_path, name):
    give_away(tmp_path / name)
    with pytest.raises(Refusal, match=r"%s: it belongs to user id 4711, 0 is needed because root uses it" % name):
        _files.read(str(folder / "record"))


def test_a_link_or_a_fifo_at_the_end_is_refused_at_once(folder):
    (folder / "link").symlink_to(folder / "record")
    os.mkfifo(str(folder / "fifo"))
    for name in ("link", "fifo", "."):
        with pytest.raises((Refusal, IsADirectoryError)):
            _files.read(str(folder / name))
    for name in ("link", "fifo"):
        with pytest.raises(Refusal, match="%s: no regular file, one is needed" % name):
            os.close(_files.open_file(str(folder / name), os.O_WRONLY | os.O_APPEND | os.O_CREAT))


def test_a_link_on_the_way_counts_only_where_nobody_else_could_make_it(folder, tmp_path):
    (tmp_path / "short").symlink_to("state/inner")
    (tmp_path / "absolute").symlink_to(folder)
    assert _files.read(str(tmp_path / "short/record")) == b"ours" == _files.read(str(tmp_path / "absolute/record"))
    (tmp_path / "round").symlink_to("round")
    with pytest.raises(Refusal, match="round: no directory"):
        _files.read(str(tmp_path / "round/record"))
    (tmp_path / "sticky").mkdir()
    (tmp_path / "sticky").chmod(0o1777)
    (tmp_path / "sticky/inner").symlink_to(folder)
    with pytest.raises(Refusal, match="sticky/inner: no directory, one is needed"):
        _files.read(str(tmp_path / "sticky/inner/record"))
    # Where a link leads is looked at like everything else.
    folder.chmod(0o777)
    with pytest.raises(Refusal, match="mode 0777"):
        _files.read(str(tmp_path / "short/record"))


def test_a_directory_exchanged_after_the_check_is_not_used(folder, tmp_path, monkeypatch):
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
    assert _files.read(str(folder / "record")) == b"ours"
