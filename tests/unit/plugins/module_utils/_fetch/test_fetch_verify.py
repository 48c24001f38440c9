# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later


import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._fetch.verify import verify_path
from ansible_collections.thefermisea.llama_cluster.tests.unit import gguf_files

MODEL = gguf_files.model(2)


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "m.gguf"
    path.write_bytes(MODEL)
    return path


def test_whole_file(path):
    answer = verify_path(str(path))
    assert answer["complete"] is True
    assert answer["problem"] is None
    assert answer["sha256"] is None
    assert (answer["path"], answer["size"], answer["expected_size"], answer["architecture"]) == (
        str(path),
        len(MODEL),
        len(MODEL),
        "llama",
    )


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (None, "No such file or directory: fetch it, or correct the path"),
        (b"<html>", "starts with b'<htm'"),
        (b"", "empty"),
    ],
)
def test_what_is_no_model(path, data, words):
    path.unlink()
    if data is not None:
        path.write_bytes(data)
    answer = verify_path(str(path))
    assert (answer["complete"], answer["architecture"], answer["size"]) == (False, None, None)
    assert answer["problem"].startswith("%s: " % path)
    assert words in answer["problem"]


def test_any_shard_stands_for_all_of_them(tmp_path):
    parts = gguf_files.shards(3)
    for number, part in enumerate(parts):
        (tmp_path / ("m-%05d-of-00003.gguf" % (number + 1))).write_bytes(part)
    answer = verify_path(str(tmp_path / "m-00002-of-00003.gguf"))
    assert answer["path"] == str(tmp_path / "m-00001-of-00003.gguf")
    assert (answer["complete"], answer["shards"], answer["size"], answer["expected_size"]) == (
        True,
        3,
        sum(map(len, parts)),
        sum(map(len, parts)),
    )
    assert "no single sha256" in verify_path(answer["path"], checksum=True)["problem"]
    (tmp_path / "m-00003-of-00003.gguf").write_bytes(parts[1])
    assert "m-00003-of-00003.gguf: its header says shard 1" in verify_path(answer["path"])["problem"]
    (tmp_path / "m-00003-of-00003.gguf").unlink()
    assert verify_path(answer["path"])["problem"].startswith(str(tmp_path / "m-00003-of-00003.gguf") + ": No such file")
