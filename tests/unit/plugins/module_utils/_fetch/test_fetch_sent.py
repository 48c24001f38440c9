# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files that the controller sends from a bundle: only the bundle's bytes get a model's name, without a copy."""

import hashlib
import os

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._fetch import fetch as fetch_module
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._fetch.existing import unchanged
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._fetch.fetch import acquire, awaited
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._fetch.request import Request, Watch
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._text import Refusal
from ansible_collections.thefermisea.llama_cluster.tests.unit import gguf_files

MODEL = gguf_files.model(2)


def pieces(data):
    return [{"size": len(part), "sha256": hashlib.sha256(part).hexdigest()} for part in (data[:1000], data[1000:])]


def whole(data):
    return [{"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}]


def request(folder, files=None, split=pieces):
    files = files or {"m.gguf": MODEL}
    entries = [{"name": name, "size": len(data), "pieces": split(data)} for name, data in files.items()]
    bundle = {"files": entries, "commit": None, "gguf": {"architecture": "llama"}}
    urls = ["http://127.0.0.1:9/" + name for name in files]
    return Request(str(folder / next(iter(files))), urls=urls, bundle=bundle)


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_sent_file_becomes_model_by_rename(tmp_path):
    sent = tmp_path / "m.gguf.sent"
    assert awaited(request(tmp_path)) == [{"name": "m.gguf", "path": str(sent), "size": len(MODEL), "there": 0}]
    sent.write_bytes(MODEL)
    inode = sent.stat().st_ino
    done = acquire(request(tmp_path))
    assert (done["changed"], done["adopted"], done["verified"]) == (True, len(MODEL), "sha256")
    assert (tmp_path / "m.gguf").stat().st_ino == inode
    assert names(tmp_path) == ["m.gguf", "m.gguf.manifest.json"]
    assert acquire(request(tmp_path))["changed"] is False
    # A run without the bundle finds the same model and contacts no server.
    assert acquire(Request(str(tmp_path / "m.gguf"), urls=["http://127.0.0.1:9/m.gguf"]))["changed"] is False


def test_wrong_sent_byte_is_refused_and_removed(tmp_path):
    damaged = bytearray(MODEL)
    damaged[1500] ^= 1
    (tmp_path / "m.gguf.sent").write_bytes(damaged)
    needed = pieces(MODEL)[1]["sha256"]
    with pytest.raises(Refusal, match="^bundle: m.gguf arrived with sha256 .*, %s is needed" % needed):
        acquire(request(tmp_path))
    assert names(tmp_path) == []


def test_half_sent_file_is_kept(tmp_path):
    (tmp_path / "m.gguf.sent").write_bytes(MODEL[:1234])
    assert [one["there"] for one in awaited(request(tmp_path))] == [1234]
    with pytest.raises(Refusal, match="has 1,234 bytes"):
        acquire(request(tmp_path))
    assert names(tmp_path) == ["m.gguf.sent"]


def test_existing_file_is_verified_instead(tmp_path):
    path = tmp_path / "m.gguf"
    path.write_bytes(MODEL)
    assert awaited(request(tmp_path)) == []
    done = acquire(request(tmp_path))
    assert (done["changed"], done["adopted"]) == (True, 0)
    for data, words in ((bytes(len(MODEL)), "sha256 is"), (b"short", "5 bytes")):
        path.unlink()
        path.write_bytes(data)
        with pytest.raises(Refusal, match=words):
            acquire(request(tmp_path))


def test_damaged_model_is_sent_again(tmp_path):
    path, sent = tmp_path / "m.gguf", tmp_path / "m.gguf.sent"
    sent.write_bytes(MODEL)
    acquire(request(tmp_path))
    os.truncate(path, 1000)
    again = request(tmp_path)
    assert unchanged(again, Watch(), hashing=False) is None
    assert [one["there"] for one in awaited(again)] == [0]
    assert acquire(request(tmp_path), check=True)["changed"] is True
    sent.write_bytes(MODEL)
    assert acquire(request(tmp_path))["adopted"] == len(MODEL)
    # One of the same size is found by hashing, when nothing was sent.
    path.write_bytes(bytes(len(MODEL)))
    with pytest.raises(Refusal, match="was damaged and is removed: run again"):
        acquire(request(tmp_path))
    assert names(tmp_path) == ["m.gguf.manifest.json"]


def test_sent_shards_keep_their_names(tmp_path):
    data = dict(zip(["m-00001-of-00002.gguf", "m-00002-of-00002.gguf"], gguf_files.shards(2)))
    for name, content in data.items():
        (tmp_path / (name + ".sent")).write_bytes(content)
    assert acquire(request(tmp_path, data, whole))["dest"] == str(tmp_path / "m-00001-of-00002.gguf")
    assert {path.name: path.read_bytes() for path in tmp_path.glob("*.gguf")} == data
    assert acquire(request(tmp_path, data, whole))["changed"] is False


def test_check_mode_sees_disk_of_bundle(tmp_path, monkeypatch):
    done = acquire(request(tmp_path / "models"), check=True)
    assert (done["changed"], done["adopted"], names(tmp_path)) == (True, 0, [])
    assert "would be sent from the bundle" in done["msg"]
    asked = []
    monkeypatch.setattr(fetch_module, "check_disk", lambda *given: asked.append(given))
    (tmp_path / "m.gguf.sent").write_bytes(MODEL[:1000])
    acquire(request(tmp_path), check=True)
    assert asked == [(str(tmp_path), "m.gguf", len(MODEL), len(MODEL) - 1000)]
