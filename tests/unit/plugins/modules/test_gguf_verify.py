# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

import hashlib
import os

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._fetch.fetch import acquire
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._fetch.request import Request
from ansible_collections.thefermisea.llama_cluster.tests.unit import gguf_files
from ansible_collections.thefermisea.llama_cluster.tests.unit.fake_hub import FakeHub

MODEL = gguf_files.model(1)


@pytest.fixture
def path(tmp_path):
    (tmp_path / "m.gguf").write_bytes(MODEL)
    return str(tmp_path / "m.gguf")


def test_every_model_has_entry_in_order(run, path, tmp_path):
    (tmp_path / "n.gguf").write_bytes(gguf_files.model(2))
    code, result = run(paths=[str(tmp_path / "n.gguf"), path])
    assert (code, result["changed"]) == (0, False)
    assert [(model["path"], model["tensors"]) for model in result["models"]] == [
        (str(tmp_path / "n.gguf"), 2),
        (path, 1),
    ]


def test_one_bad_model_fails_and_all_are_returned(run, path, tmp_path):
    (tmp_path / "short.gguf").write_bytes(MODEL[:1000])
    code, result = run(paths=[path, str(tmp_path / "short.gguf"), str(tmp_path / "none.gguf")])
    assert code == 1
    assert [model["complete"] for model in result["models"]] == [True, False, False]
    assert result[
        "msg"
    ] == "gguf_verify: %s/short.gguf: 1,000 bytes present, %s bytes needed by its header: fetch it again; %s" % (
        tmp_path,
        "{:,}".format(len(MODEL)),
        "%s/none.gguf: No such file or directory: fetch it, or correct the path" % tmp_path,
    )


def test_digests_belong_to_paths(run, path):
    digest = hashlib.sha256(MODEL).hexdigest()
    assert run(path=[path], sha256=[digest])[1]["models"][0]["sha256"] == digest
    assert run(path=[path], sha256=["0" * 64])[0] == 1
    code, result = run(path=[path], sha256=[digest, digest])
    assert (code, result["msg"]) == (1, "gguf_verify: sha256: 2 digests given, paths has 1 files: give one for each")


@pytest.fixture
def published(tmp_path):
    """A model in two pieces and one in two shards, as gguf_fetch publishes them. -> their paths"""
    with FakeHub() as fake:
        urls = [fake.add_plain("m.gguf.part1of2", MODEL[:5000]), fake.add_plain("m.gguf.part2of2", MODEL[5000:])]
        acquire(Request(str(tmp_path / "m.gguf"), urls=urls))
        names = ["s-00001-of-00002.gguf", "s-00002-of-00002.gguf"]
        urls = [fake.add_plain(name, data) for name, data in zip(names, gguf_files.shards(2))]
        acquire(Request(str(tmp_path / "s.gguf"), urls=urls))
    return [tmp_path / "m.gguf", tmp_path / names[0]]


def flip(path, place):
    """Change a byte behind the back of size and time."""
    before = path.stat()
    with open(path, "r+b") as stream:
        stream.seek(place)
        byte = stream.read(1)
        stream.seek(place)
        stream.write(bytes([byte[0] ^ 1]))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def test_models_are_compared_with_their_records(run, published, tmp_path):
    paths = [str(path) for path in published]
    code, result = run(paths=paths, recorded=True, progress="/run/llama-models-test")
    assert (code, result["changed"]) == (0, False)
    assert [model["hashed"] for model in result["models"]] == [True, True]
    assert not os.path.exists("/run/llama-models-test")


@pytest.mark.parametrize("check", [False, True])
def test_flipped_byte_is_named_by_its_piece(run, published, check):
    flip(published[0], 600000)
    flip(published[1].parent / "s-00002-of-00002.gguf", 500)
    times = [path.stat().st_mtime_ns for path in published]
    code, result = run(paths=[str(path) for path in published], recorded=True, _ansible_check_mode=check)
    assert (code, result["changed"]) == (1, not check)
    problems = [model["problem"] for model in result["models"]]
    assert problems[0].startswith("%s: bytes 5000 to %d have sha256 " % (published[0], len(MODEL) - 1))
    assert problems[0].endswith(" recorded: run site.yml --tags model")
    assert problems[1].startswith("%s/s-00002-of-00002.gguf: bytes 0 to " % published[1].parent)
    assert (published[0].stat().st_mtime_ns == times[0]) is check


def test_model_without_record_is_not_compared(run, path):
    code, result = run(path=[path], recorded=True)
    assert (code, result["models"][0]["hashed"]) == (1, False)
    assert result["msg"] == "gguf_verify: %s: no record is beside it: run site.yml --tags model" % path


def test_found_model_without_digests_is_not_compared(run, tmp_path):
    (tmp_path / "m.gguf").write_bytes(MODEL)
    with FakeHub() as fake:
        acquire(Request(str(tmp_path / "m.gguf"), urls=[fake.add_plain("m.gguf", MODEL)]))
    code, result = run(path=[str(tmp_path / "m.gguf")], recorded=True)
    assert (code, result["models"][0]["hashed"], result["models"][0]["complete"]) == (0, False, True)
