# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Only what has the bundle's digests gets a model's name, and it gets it without a copy."""

import errno
import hashlib
import os

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._fetch import receive as receive_module
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._fetch import target as fetch_target
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._fetch.fetch import acquire
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._fetch.present import unchanged
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._fetch.receive import awaited, receive
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._fetch.request import Request, Watch
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._text import Refusal
from ansible_collections.thefermisea.llama_cluster.tests.unit import gguf_files
from ansible_collections.thefermisea.llama_cluster.tests.unit.strangers import give_away

MODEL = gguf_files.model(2)
NOWHERE = {"urls": ["http://127.0.0.1:9/m.gguf"]}


def pieces(data, *cuts):
    parts = [data[start:end] for start, end in zip((0, *cuts), (*cuts, len(data)))]
    return [{"size": len(part), "sha256": hashlib.sha256(part).hexdigest()} for part in parts]


def bundled(**files):
    entries = [
        {"name": name + ".gguf", "size": len(data), "pieces": pieces(data, 1000)} for name, data in files.items()
    ]
    return {"files": entries, "commit": None, "gguf": {"architecture": "llama"}}


def left(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_sent_file_becomes_the_model_by_a_rename_and_stays(tmp_path):
    request, entry = Request(str(tmp_path / "m.gguf"), **NOWHERE), bundled(m=MODEL)
    sent = tmp_path / "m.gguf.sent"
    assert awaited(request, entry) == [{"name": "m.gguf", "path": str(sent), "size": len(MODEL), "there": 0}]
    sent.write_bytes(MODEL)
    inode = sent.stat().st_ino
    done = receive(request, entry)
    assert (done["changed"], done["transferred"], done["verified"]) == (True, len(MODEL), "sha256")
    assert (tmp_path / "m.gguf").stat().st_ino == inode
    assert left(tmp_path) == ["m.gguf", "m.gguf.manifest.json"]
    assert receive(request, entry)["changed"] is False
    # A run without the bundle finds the same model and asks nobody.
    assert acquire(request)["changed"] is False


def test_what_was_sent_before_is_not_sent_again(tmp_path):
    (tmp_path / "m.gguf.sent").write_bytes(MODEL[:1234])
    assert [one["there"] for one in awaited(Request(str(tmp_path / "m.gguf"), **NOWHERE), bundled(m=MODEL))] == [1234]


def test_a_flipped_byte_is_refused_and_leaves_nothing(tmp_path):
    damaged = bytearray(MODEL)
    damaged[1500] ^= 1
    (tmp_path / "m.gguf.sent").write_bytes(damaged)
    entry = bundled(m=MODEL)
    with pytest.raises(Refusal) as caught:
        receive(Request(str(tmp_path / "m.gguf"), **NOWHERE), entry)
    needed = entry["files"][0]["pieces"][1]["sha256"]
    assert str(caught.value).startswith("bundle: m.gguf arrived with sha256 ")
    assert "%s is needed by bundle.json: run sha256sum -c SHA256SUMS" % needed in str(caught.value)
    assert left(tmp_path) == []


def test_half_a_file_is_kept_for_the_next_run(tmp_path):
    (tmp_path / "m.gguf.sent").write_bytes(MODEL[:1234])
    with pytest.raises(Refusal, match="1,234 bytes.* are to be sent: run again"):
        receive(Request(str(tmp_path / "m.gguf"), **NOWHERE), bundled(m=MODEL))
    assert left(tmp_path) == ["m.gguf.sent"]


def test_a_file_that_is_there_is_proved_and_nothing_is_awaited(tmp_path):
    (tmp_path / "m.gguf").write_bytes(MODEL)
    request = Request(str(tmp_path / "m.gguf"), **NOWHERE)
    assert awaited(request, bundled(m=MODEL)) == []
    done = receive(request, bundled(m=MODEL))
    assert (done["changed"], done["transferred"]) == (True, 0)
    other = tmp_path / "other"
    other.mkdir()
    (other / "m.gguf").write_bytes(bytes(len(MODEL)))
    with pytest.raises(Refusal, match="its sha256 is not that of the bundle's"):
        receive(Request(str(other / "m.gguf"), **NOWHERE), bundled(m=MODEL))
    (other / "m.gguf").write_bytes(b"short")
    with pytest.raises(Refusal, match="is there with 5 bytes"):
        receive(Request(str(other / "m.gguf"), **NOWHERE), bundled(m=MODEL))


def test_damaged_model_of_ours_is_sent_again(tmp_path):
    path, entry = tmp_path / "m.gguf", bundled(m=MODEL)
    (tmp_path / "m.gguf.sent").write_bytes(MODEL)
    receive(Request(str(path), **NOWHERE), entry)
    os.truncate(path, 1000)
    request = Request(str(path), **NOWHERE)
    assert unchanged(request, Watch(), hashing=False) is None
    assert [one["there"] for one in awaited(request, entry)] == [0]
    assert receive(Request(str(path), **NOWHERE), entry, check=True)["changed"] is True
    (tmp_path / "m.gguf.sent").write_bytes(MODEL)
    assert receive(Request(str(path), **NOWHERE), entry)["transferred"] == len(MODEL)
    # One of the same size is known once it is hashed, when nothing was sent.
    path.write_bytes(bytes(len(MODEL)))
    with pytest.raises(Refusal, match="was damaged and is removed: run again"):
        receive(Request(str(path), **NOWHERE), entry)
    assert left(tmp_path) == ["m.gguf.manifest.json"]


def test_shards_keep_their_names(tmp_path):
    names = ["m-00001-of-00002", "m-00002-of-00002"]
    data = dict(zip(names, gguf_files.shards(2)))
    request = Request(
        str(tmp_path / "m-00001-of-00002.gguf"), urls=["http://127.0.0.1:9/%s.gguf" % name for name in names]
    )
    for name in names:
        (tmp_path / (name + ".gguf.sent")).write_bytes(data[name])
    done = receive(request, bundled(**data))
    assert done["dest"] == str(tmp_path / "m-00001-of-00002.gguf")
    assert [(tmp_path / (name + ".gguf")).read_bytes() for name in names] == [data[name] for name in names]
    assert receive(request, bundled(**data))["changed"] is False


def test_check_mode_changes_nothing_and_sees_the_disk(tmp_path, monkeypatch):
    request = Request(str(tmp_path / "models" / "m.gguf"), **NOWHERE)
    done = receive(request, bundled(m=MODEL), check=True)
    assert (done["changed"], done["transferred"], left(tmp_path)) == (True, 0, [])
    assert "would be sent from the bundle" in done["msg"]
    monkeypatch.setattr(fetch_target, "free_disk", lambda folder: len(MODEL))
    with pytest.raises(Refusal, match="m.gguf needs"):
        receive(request, bundled(m=MODEL), check=True)


@pytest.mark.parametrize("name", ["../../victim", "../victim.gguf", "/victim.gguf", ".hidden.gguf", "m"])
def test_a_record_that_leaves_the_directory_is_refused(tmp_path, name):
    entry = bundled(m=MODEL)
    entry["files"].append(dict(entry["files"][0], name=name))
    for ask in (awaited, receive):
        with pytest.raises(
            Refusal, match="its record has files that are not NAME.gguf with size and sha256: make the bundle again"
        ):
            ask(Request(str(tmp_path / "m.gguf"), **NOWHERE), entry)
    assert left(tmp_path) == []


def test_a_file_whose_flush_failed_is_sent_again(tmp_path, monkeypatch):
    (tmp_path / "m.gguf.sent").write_bytes(MODEL)
    real = os.fsync

    def fail(fd):
        if os.readlink("/proc/self/fd/%d" % fd).endswith(".sent"):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        real(fd)

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(Refusal) as caught:
        receive(Request(str(tmp_path / "m.gguf"), **NOWHERE), bundled(m=MODEL))
    assert str(caught.value) == "%s: cannot be written: Input/output error" % (tmp_path / "m.gguf")
    assert left(tmp_path) == []


def test_a_directory_that_cannot_be_written_is_named(tmp_path, monkeypatch):
    (tmp_path / "m.gguf.sent").write_bytes(MODEL)
    real = os.rename

    def fail(source, target, **folders):
        if source.endswith("/m.gguf.sent"):
            raise OSError(errno.EACCES, os.strerror(errno.EACCES), source)
        real(source, target, **folders)

    monkeypatch.setattr(os, "rename", fail)
    with pytest.raises(Refusal, match="/m.gguf.sent: cannot be written: Permission denied"):
        receive(Request(str(tmp_path / "m.gguf"), **NOWHERE), bundled(m=MODEL))


def test_a_file_of_another_user_becomes_ours(tmp_path):
    for name in ("m.gguf", "m.gguf.sent"):
        (tmp_path / name).write_bytes(MODEL)
        give_away(tmp_path / name)
        receive(Request(str(tmp_path / "m.gguf"), **NOWHERE), bundled(m=MODEL))
        assert os.stat(tmp_path / "m.gguf").st_uid == 0
        for path in tmp_path.iterdir():
            path.unlink()


@pytest.mark.parametrize("link", [os.symlink, os.link])
def test_what_others_have_put_in_place_of_the_sent_file_is_not_published(tmp_path, link):
    victim = tmp_path / "victim"
    victim.write_bytes(MODEL)
    link(str(victim), str(tmp_path / "m.gguf.sent"))
    with pytest.raises(Refusal, match="m.gguf.sent: is a link or has a second name, "):
        receive(Request(str(tmp_path / "m.gguf"), **NOWHERE), bundled(m=MODEL))
    assert not (tmp_path / "m.gguf").exists()


@pytest.mark.parametrize(
    "plant",
    [give_away, lambda path: os.link(str(path), str(path) + " 2"), lambda path: (path.unlink(), os.mkfifo(str(path)))],
)
def test_the_controller_does_not_write_to_what_others_have_put_there(tmp_path, plant):
    sent = tmp_path / "m.gguf.sent"
    sent.write_bytes(MODEL[:1234])
    plant(sent)
    request = Request(str(tmp_path / "m.gguf"), **NOWHERE)
    receive(request, bundled(m=MODEL), check=True)
    assert os.path.lexists(str(sent))
    assert [one["there"] for one in awaited(request, bundled(m=MODEL))] == [0]
    assert not os.path.lexists(str(sent))


def test_a_sent_file_that_is_exchanged_is_noticed(tmp_path, monkeypatch):
    (tmp_path / "m.gguf.sent").write_bytes(MODEL)
    (tmp_path / "other").write_bytes(bytes(len(MODEL)))
    rename = os.rename

    def exchanged(source, target, **folders):
        if source.endswith(".sent"):
            rename(str(tmp_path / "other"), source)
        rename(source, target, **folders)

    monkeypatch.setattr(os, "rename", exchanged)
    with pytest.raises(Refusal, match="m.gguf: was exchanged, the file that was proved is needed: "):
        receive(Request(str(tmp_path / "m.gguf"), **NOWHERE), bundled(m=MODEL))


@pytest.mark.parametrize(
    ("sent", "missing"), [(None, len(MODEL)), (0, len(MODEL)), (1000, len(MODEL) - 1000), (len(MODEL) + 5, 0)]
)
def test_the_disk_holds_what_is_still_to_be_sent(tmp_path, monkeypatch, sent, missing):
    if sent is not None:
        with open(str(tmp_path / "m.gguf.sent"), "wb") as stream:
            stream.truncate(sent)
    asked = []
    monkeypatch.setattr(receive_module, "check_disk", lambda *given: asked.append(given))
    (wanted,) = awaited(Request(str(tmp_path / "m.gguf"), **NOWHERE), bundled(m=MODEL))
    path = str(tmp_path / "m.gguf.sent")
    assert wanted == {"name": "m.gguf", "path": path, "size": len(MODEL), "there": sent or 0}
    assert asked == [(str(tmp_path), "m.gguf", len(MODEL), missing)]
