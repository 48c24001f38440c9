# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The directories of tensor caches, on a disk that others use as well."""

import json
import os
import stat
import subprocess

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._node import tensor_caches
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._node.tensor_caches import RECORD, Caches
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._text import Refusal
from ansible_collections.thefermisea.llama_cluster.tests.unit.plugins.module_utils._removal.test_removal import (
    inventory,
    plant,
)

NOBODY = (65534, 65534)
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives a directory away")
ME = (os.geteuid(), os.getegid())


def have(folder, *wanted, owner=ME, check=False):
    caches = Caches(str(folder), check)
    caches.have(list(wanted), owner)
    return [action.split()[0] + " " + os.path.basename(action) for action in caches.actions]


def test_caches_come_and_go_with_their_services(tmp_path):
    folder = tmp_path / "scratch/rpc-cache"
    assert have(folder) == []
    assert have(folder, "chat", "code", check=True) == ["make chat", "make code"]
    assert not folder.exists()
    assert have(folder, "chat", "code") == ["make chat", "make code"]
    assert have(folder, "chat", "code") == []
    assert stat.S_IMODE((folder / "chat").stat().st_mode) == 0o700
    assert stat.S_IMODE(folder.stat().st_mode) == 0o755
    (folder / "code/rpc").mkdir()
    assert have(folder, "chat", check=True) == ["remove code"]
    assert have(folder, "chat") == ["remove code"]
    assert have(folder) == ["remove chat"]
    assert not folder.exists()


def test_a_cache_that_cannot_be_removed_is_told_with_the_last_words(tmp_path, monkeypatch):
    folder = tmp_path / "rpc-cache"
    have(folder, "chat")
    failed = subprocess.CompletedProcess([], 1, b"first " + b"x" * 195 + b" busy\n")
    monkeypatch.setattr(tensor_caches.subprocess, "run", lambda *_words, **_options: failed)
    with pytest.raises(Refusal) as caught:
        have(folder)
    assert str(caught.value) == "%s/chat: not removed (%s): remove it by hand" % (folder, "x" * 195 + " busy")


def test_a_cache_that_was_opened_to_others_is_closed_again(tmp_path):
    folder = tmp_path / "rpc-cache"
    have(folder, "chat")
    (folder / "chat").chmod(0o755)
    assert have(folder, "chat", check=True) == ["change chat"]
    assert stat.S_IMODE((folder / "chat").stat().st_mode) == 0o755
    assert have(folder, "chat") == ["change chat"]
    assert stat.S_IMODE((folder / "chat").stat().st_mode) == 0o700
    assert have(folder, "chat") == []


def test_directories_of_others_are_never_touched(tmp_path):
    folder = tmp_path / "rpc-cache"
    have(folder, "chat")
    plant(folder)
    (folder / "alice/datasets").mkdir(parents=True)
    have(folder, "chat", "code")
    before = inventory(folder)
    have(folder, "chat")
    have(folder)
    left = inventory(folder)
    assert left == {path: seen for path, seen in before.items() if path.split("/")[0] not in ("chat", "code", RECORD)}
    assert "alice/datasets" in left


def test_a_directory_that_is_in_use_is_refused(tmp_path):
    plant(tmp_path / "scratch")
    before = inventory(tmp_path)
    with pytest.raises(Refusal, match=r"link in it and not from here, an empty directory or none is needed"):
        have(tmp_path / "scratch", "chat")
    # Nothing is asked for: it is none of our business.
    assert have(tmp_path / "scratch") == []
    assert inventory(tmp_path) == before


def test_a_name_that_is_taken_is_refused(tmp_path):
    have(tmp_path / "rpc-cache", "chat")
    (tmp_path / "rpc-cache/alice").mkdir()
    with pytest.raises(Refusal, match=r"rpc-cache/alice: there already and not from here, a free name is needed"):
        have(tmp_path / "rpc-cache", "chat", "alice")
    assert have(tmp_path / "rpc-cache", "chat") == []


@as_root
@pytest.mark.parametrize("target", ["directory", "file"])
def test_no_link_is_followed_to_what_is_not_the_workers(tmp_path, target):
    folder = tmp_path / "rpc-cache"
    have(folder, "chat", owner=NOBODY)
    assert (folder / "chat").stat().st_uid == NOBODY[0]
    (tmp_path / "precious").mkdir() if target == "directory" else (tmp_path / "precious").write_text("root's")
    (folder / "chat").rmdir()
    (folder / "chat").symlink_to(tmp_path / "precious")
    with pytest.raises(Refusal, match=r"chat: no directory seen, one is needed"):
        have(folder, "chat", owner=NOBODY)
    have(folder)
    assert (tmp_path / "precious").stat().st_uid == 0
    assert (folder / "chat").is_symlink()


@as_root
def test_what_a_worker_plants_in_its_cache_leads_nowhere(tmp_path):
    have(tmp_path / "rpc-cache", "chat", owner=NOBODY)
    plant(tmp_path / "outside")
    before = inventory(tmp_path / "outside")
    (tmp_path / "rpc-cache/chat/rpc").symlink_to(tmp_path / "outside")
    os.mkfifo(str(tmp_path / "rpc-cache/chat/unproved"))
    have(tmp_path / "rpc-cache")
    assert not (tmp_path / "rpc-cache").exists()
    assert inventory(tmp_path / "outside") == before


@as_root
def test_a_cache_goes_however_deep_a_worker_made_it(tmp_path):
    folder = tmp_path / "rpc-cache"
    have(folder, "chat")
    here = os.open(str(folder / "chat"), os.O_RDONLY)
    for _depth in range(1500):
        os.mkdir("x", dir_fd=here)
        below = os.open("x", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)
    assert have(folder) == ["remove chat"]
    assert not folder.exists()


def test_only_a_directory_that_is_roots_alone_will_do(tmp_path):
    (tmp_path / "scratch").mkdir()
    for path, mode, uid in (
        (tmp_path / "scratch", 0o1777, 0),
        (tmp_path / "scratch", 0o755, NOBODY[0]),
        (tmp_path, 0o777, 0),
    ):
        os.chmod(str(path), mode)
        os.chown(str(path), uid, -1)
        with pytest.raises(Refusal, match="because root uses it|root uses it: look at"):
            have(tmp_path / "scratch", "chat", owner=NOBODY)
        os.chown(str(path), 0, -1)
        os.chmod(str(path), 0o755)
    assert os.listdir(str(tmp_path / "scratch")) == []


@as_root
def test_nobody_but_root_makes_a_record(tmp_path):
    """On a disk where everybody may write, a record that lists what is somebody else's."""
    scratch = tmp_path / "scratch"
    (scratch / "alice").mkdir(parents=True)
    os.chmod(str(scratch), 0o1777)
    (scratch / RECORD).write_text(json.dumps({"caches": ["alice"]}))
    os.chown(str(scratch / RECORD), *NOBODY)
    assert have(scratch) == []
    assert (scratch / "alice").is_dir()


@pytest.mark.parametrize(
    "text",
    ["", "[]", '{"caches": [".."]}', '{"caches": ["a/b"]}', '{"caches": [7]}', '{"caches": 7}', '{"caches": [""]}'],
)
def test_a_record_that_names_something_else_is_refused(tmp_path, text):
    (tmp_path / RECORD).write_text(text)
    with pytest.raises(Refusal, match=r"no record of caches"):
        have(tmp_path)
