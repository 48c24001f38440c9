# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Records of models, also damaged ones."""

import json

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._fetch import manifest

DIGEST = "0123456789abcdef" * 4
FILE = {"name": "m.gguf", "size": 5, "pieces": [{"size": 2, "sha256": DIGEST}, {"size": 3, "sha256": DIGEST}]}
PUBLISHED = dict(FILE, mtime_ns=1, inode=2)
RECORD = {"version": 1, "request": {}, "commit": None, "verified": "sha256", "gguf": {}, "files": [PUBLISHED]}


def test_files_of_record():
    assert manifest.are_files([FILE]) is True
    assert manifest.are_files([FILE, dict(FILE, name="n.gguf")]) is True
    assert manifest.are_files([{"name": "m.gguf", "size": 0, "pieces": []}]) is True


@pytest.mark.parametrize(
    "files",
    [
        [],
        None,
        {},
        7,
        [None],
        [{}],
        [dict(FILE, name="m.bin")],
        [dict(FILE, name="../m.gguf")],
        [dict(FILE, size=6)],
        [dict(FILE, size=-1, pieces=[{"size": -1, "sha256": DIGEST}])],
        [dict(FILE, size=True, pieces=[{"size": True, "sha256": DIGEST}])],
        [dict(FILE, size=1 << 60, pieces=[{"size": 1 << 60, "sha256": DIGEST}])],
        [dict(FILE, size=4, pieces=[{"size": 5, "sha256": DIGEST}, {"size": -1, "sha256": DIGEST}])],
        [dict(FILE, pieces=None)],
        [dict(FILE, pieces=[{"size": 5}])],
        [dict(FILE, pieces=[{"size": 5, "sha256": DIGEST[1:]}])],
        [dict(FILE, pieces=[{"size": 5, "sha256": DIGEST.upper()}])],
        [dict(FILE, pieces=[{"size": 5, "sha256": None}])],
        [FILE, dict(FILE, size=6)],
    ],
)
def test_files_that_cannot_be_used(files):
    assert manifest.are_files(files) is False


@pytest.mark.parametrize(("digest", "usable"), [(None, True), (DIGEST, True), ("", False), (DIGEST + "0", False)])
def test_digest_may_be_unknown_where_that_is_allowed(digest, usable):
    assert manifest.are_files([dict(FILE, pieces=[{"size": 5, "sha256": digest}])], hashed=False) is usable


@pytest.mark.parametrize(
    ("size", "good"),
    [(0, True), (1, True), ((1 << 60) - 1, True), (1 << 60, False), (-1, False), (True, False), (1.0, False)],
)
def test_size_is_count_of_bytes(size, good):
    assert manifest.is_size(size) is good


@pytest.mark.parametrize(
    ("name", "good"),
    [("m", True), ("a" * 220, True), ("a" * 221, False), ("ä" * 110, True), ("ä" * 111, False)]
    + [(name, False) for name in ("", ".m", "a/b", "/a", "a\n", None, 7)],
)
def test_file_name_leads_nowhere_else(name, good):
    assert manifest.is_file_name(name) is good


@pytest.mark.parametrize(
    "change",
    [
        {"version": 2},
        {"version": None},
        {"files": []},
        {"files": [FILE]},
        {"files": [dict(PUBLISHED, inode=None)]},
        {"files": [dict(PUBLISHED, mtime_ns=True)]},
        {"files": [PUBLISHED, dict(PUBLISHED, inode="2")]},
        *({key: ...} for key in ("request", "commit", "verified", "gguf")),
    ],
)
def test_record_that_cannot_be_used_is_none(tmp_path, change):
    path = tmp_path / "m.gguf.manifest.json"
    path.write_text(json.dumps(RECORD))
    path.chmod(0o600)
    parts = [manifest.Part(2, DIGEST), manifest.Part(3, DIGEST)]
    assert manifest.read_manifest(str(path)).files == [manifest.Entry("m.gguf", 5, parts, 1, 2)]
    path.write_text(json.dumps(dict(RECORD, files=[dict(PUBLISHED, found=True)])))
    assert manifest.read_manifest(str(path)).files[0].as_dict() == dict(PUBLISHED, found=True)
    changed = {key: value for key, value in dict(RECORD, **change).items() if value is not ...}
    path.write_text(json.dumps(changed))
    assert manifest.read_manifest(str(path)) is None


def test_recorded_pieces_answer_those_that_are_wanted():
    one, other = manifest.Part(5, DIGEST), manifest.Part(5, DIGEST[::-1])
    unknown = manifest.Part(5, None)
    assert manifest.covers([one], [one]) and manifest.covers([one], [unknown]) and manifest.covers([unknown], [unknown])
    assert not manifest.covers([one], [other])
    assert not manifest.covers([unknown], [one])
    assert not manifest.covers([one, one], [one]) and not manifest.covers([one], [one, one])
    assert not manifest.covers([one], [manifest.Part(10, DIGEST)])


def test_digest_for_each_piece(tmp_path):
    (tmp_path / "m.gguf").write_bytes(b"abcde")
    counts = []
    found = manifest.hash_pieces(str(tmp_path / "m.gguf"), [2, 3], counts.append)
    assert [digest[:8] for digest in found] == ["fb8e20fc", "08a018a9"]
    assert sum(counts) == 5
    with pytest.raises(OSError, match="shorter than it was"):
        manifest.hash_pieces(str(tmp_path / "m.gguf"), [2, 4])


def test_what_module_returns_of_model():
    part = manifest.Part(5, DIGEST)
    one, two = manifest.Entry("a.gguf", 5, [part], 1, 2), manifest.Entry("b.gguf", 5, [part], 1, 2)
    record = manifest.Manifest({}, "c0ffee", "sha256", {"name": "m"}, [one])
    assert manifest.result(record, "/m", True, "fetched") == {
        "changed": True,
        "msg": "fetched",
        "dest": "/m/a.gguf",
        "files": [{"path": "/m/a.gguf", "size": 5, "pieces": [{"size": 5, "sha256": DIGEST}]}],
        "size": 5,
        "sha256": DIGEST,
        "verified": "sha256",
        "commit": "c0ffee",
        "gguf": {"name": "m"},
        "transferred": 0,
        "resumed": 0,
        "adopted": 0,
        "seconds": 0.0,
    }
    # A digest is of one piece, and not of the model where it has several.
    for files in ([one, two], [one._replace(size=10, pieces=[part, part])]):
        several = manifest.result(record._replace(files=files), "/m", False, "there")
        assert (several["sha256"], several["size"], several["changed"]) == (None, 10, False)
