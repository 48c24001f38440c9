# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Seeding a tensor cache: real files over real connections, with a fake ggml-rpc-server. The program runs without
its unit; scenario cluster has a real build, unit and head."""

import os
import stat
import sys
import threading
import time
from collections import namedtuple
from pathlib import Path

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._fetch.share import Server
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._model.gguf import read_path
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._seed import cache, seed
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._text import Refusal
from ansible_collections.thefermisea.llama_cluster.tests.unit import gguf_files
from ansible_collections.thefermisea.llama_cluster.tests.unit.fake_rpc_server import fnv1a64

ROOT = Path(__file__).resolve().parents[5]
F32 = 0
START = "import sys; sys.path[:0] = [%r]; from plugins.module_utils.programs.rpc_seed import main; sys.exit(main(%r))"
NAMES = ["blk.%d.%s.weight" % (block, name) for block in range(3) for name in ("ffn_up", "ffn_down", "attn_norm")]
TENSORS = [("token_embd.weight", (64, 40), F32)]
TENSORS += [(name, (64, 4 if "norm" in name else 40 + number), F32) for number, name in enumerate(NAMES)]


class Node:
    """A worker's node, and one that serves the model."""

    def __init__(self, folder, monkeypatch):
        self.folder, self.model = folder / "cache", folder / "m.gguf"
        self.folder.mkdir()
        self.model.write_bytes(gguf_files.file_bytes([("general.architecture", gguf_files.STRING, "llama")], TENSORS))
        self.program = folder / "ggml-rpc-server"
        self.program.write_text("#!%s\n%s" % (sys.executable, (ROOT / "tests/unit/fake_rpc_server.py").read_text()))
        self.program.chmod(0o755)
        self.server = Server("127.0.0.1", 0, {"m.gguf": str(self.model)}, ["127.0.0.1"], 600.0)
        self.thread = threading.Thread(target=self.server.serve, daemon=True)
        self.thread.start()
        monkeypatch.setattr(seed, "SMALLEST", 8000)
        monkeypatch.setattr(seed.Wanted, "folder", lambda _wanted: str(self.folder))
        monkeypatch.setattr(seed, "command", self.command)

    def command(self, wanted, _total):
        return [sys.executable, "-c", START % (str(ROOT), [wanted.program, wanted.folder()])]

    def wanted(self, layers=(1, 3), output=True, sha256="a"):
        files = [{"path": "/opt/m.gguf", "size": 9, "pieces": [{"size": 9, "sha256": sha256}]}]
        return seed.Wanted("chat", files, layers, output, str(self.program), "llama-rpc")

    def seed(self, **asked):
        wanted = self.wanted(**asked)
        found = seed.seed(wanted, "http://127.0.0.1:%d/" % self.server.server_address[1], lambda _line: None)
        assert seed.is_done(wanted)
        return found

    def hashes(self, *names):
        """The names that the tensors have in a cache."""
        header, data = read_path(str(self.model)), self.model.read_bytes()
        at = {one.name: header.data_offset + one.offset for one in header.tensors}
        return {fnv1a64(data[at[one.name] : at[one.name] + one.nbytes]) for one in header.tensors if one.name in names}

    def cached(self):
        return set(os.listdir(self.folder / "rpc"))


@pytest.fixture(name="node")
def fixture_node(tmp_path, monkeypatch):
    one = Node(tmp_path, monkeypatch)
    yield one
    one.server.idle = -1


SHARE = ("blk.1.ffn_up.weight", "blk.1.ffn_down.weight", "blk.2.ffn_up.weight", "blk.2.ffn_down.weight")
LAST = (*SHARE, "token_embd.weight")


def test_cache_gets_the_share_of_its_worker(node):
    assert not seed.is_done(node.wanted())
    said = node.seed()
    assert said.startswith(f"{node.folder}: ") and ", 5 tensors of " in said
    assert node.cached() == node.hashes(*LAST)
    assert sorted(os.listdir(node.folder)) == ["rpc", "seed.json"]
    for path in [*(node.folder / "rpc").iterdir(), node.folder / "seed.json"]:
        # A worker that ends deletes what is younger than a minute.
        assert time.time() - path.stat().st_mtime > 3600
    assert stat.S_IMODE((node.folder / "seed.json").stat().st_mode) == 0o600
    assert all(fnv1a64(path.read_bytes()) == path.name for path in (node.folder / "rpc").iterdir())


@pytest.mark.parametrize(
    "asked, copied, kept",
    [
        ({"layers": (0, 2), "output": False}, ["blk.0.ffn_up.weight", "blk.0.ffn_down.weight"], SHARE[:2]),
        ({"output": False}, [], SHARE),
        ({"sha256": "b"}, LAST, ()),
    ],
    ids=["other layers", "fewer tensors", "another model"],
)
def test_only_what_is_missing_is_copied(node, asked, copied, kept):
    node.seed()
    before = {path.name: path.stat().st_ino for path in (node.folder / "rpc").iterdir()}
    assert not seed.is_done(node.wanted(**asked))
    node.seed(**asked)
    assert node.cached() == node.hashes(*copied, *kept)
    same = {path.name for path in (node.folder / "rpc").iterdir() if path.stat().st_ino == before.get(path.name)}
    assert same >= node.hashes(*kept)
    assert not seed.is_done(node.wanted())


def test_missing_tensor_is_copied_again(node):
    node.seed()
    for damage in (Path.unlink, lambda path: path.write_bytes(b"short")):
        damage(next((node.folder / "rpc").iterdir()))
        assert not seed.is_done(node.wanted())
        node.seed()
        assert node.cached() == node.hashes(*LAST)


def test_interrupted_seeding_continues(node, monkeypatch):
    monkeypatch.setenv("FAULT", "3")
    with pytest.raises(Refusal, match="rpc_cache: "):
        node.seed()
    assert len(node.cached()) == 2 and not seed.is_done(node.wanted())
    monkeypatch.setenv("FAULT", "4")
    # The other three are.
    node.seed()
    assert node.cached() == node.hashes(*LAST)


@pytest.mark.parametrize("fault, words", [("cut", "that were sent"), ("old", "RPC protocol 6.0.0 seen, 7 is needed")])
def test_wrong_server_leaves_no_tensor(node, monkeypatch, fault, words):
    monkeypatch.setenv("FAULT", fault)
    with pytest.raises(Refusal, match=words):
        node.seed()
    assert node.cached() == set() and not seed.is_done(node.wanted())


def test_missing_model_is_refused(node, monkeypatch):
    monkeypatch.setattr(node, "wanted", lambda: seed.Wanted("chat", [], (0, 1), False, "", ""))
    with pytest.raises(Refusal, match="no model seen on the node of its head"):
        node.seed()


def test_program_that_does_not_start_is_named(node):
    node.program = "/nonexistent"
    with pytest.raises(Refusal, match="rpc_cache: .*No such file"):
        node.seed()


def test_foreign_record_is_no_record(node):
    node.seed()
    path = node.folder / "seed.json"
    good = path.read_text()
    for text in ("", "[]", "{", '{"tensors": {"a": ["../../etc/passwd", 1]}, "request": 1, "whole": 1}', "[" * 10**5):
        path.write_text(text)
        assert cache.read(str(node.folder)).tensors == {} and not seed.is_done(node.wanted())
    path.unlink()
    os.mkfifo(path)
    assert not seed.is_done(node.wanted())
    path.unlink()
    path.write_text(good + " " * cache.MOST)
    assert not seed.is_done(node.wanted())
    path.write_text(good)
    assert seed.is_done(node.wanted())


@pytest.mark.parametrize("said", ["5", "null", '"blk.1.ffn_up.weight"', "{}"])
def test_foreign_answer_ends_the_seeding(node, monkeypatch, said):
    """Another process of its user may write it."""
    words = [sys.executable, "-c", "input(); print('{\"missing\": %s}')" % said.replace('"', '\\"')]
    monkeypatch.setattr(seed, "command", lambda _wanted, _total: words)
    with pytest.raises(Refusal, match="rpc_cache: the seeding ended"):
        node.seed()


Disk = namedtuple("Disk", "f_blocks f_bfree f_bavail f_frsize")


@pytest.mark.parametrize(
    "needed, wrong", [(300 << 20, False), (350 << 20, True), (2 << 30, True)], ids=["fits", "too full", "too large"]
)
def test_full_disk_is_refused(monkeypatch, needed, wrong):
    # 1000 MiB, of which 400 are free and root's last 10 are not for others.
    monkeypatch.setattr(cache.os, "statvfs", lambda _path: Disk(1000, 400, 390, 1 << 20))
    if wrong:
        with pytest.raises(Refusal, match=r"rpc_cache: 34\d\.\d MB of room in /c, "):
            cache.check_room("/c", needed)
    else:
        cache.check_room("/c", needed)


def test_unit_has_neither_network_nor_cards():
    wanted = seed.Wanted("chat", [], (0, 1), False, "/opt/llama.cpp/releases/b1/bin/ggml-rpc-server", "llama-rpc")
    words = seed.command(wanted, 2 << 30)
    assert words[0] == "systemd-run" and "--unit=llama-seed-chat" in words
    # Another process of its user may take the place of the program.
    assert "--property=RuntimeMaxSec=1924" in words
    for line in ("User=llama-rpc", "CacheDirectory=llama-cluster/rpc-chat", "PrivateNetwork=yes", "PrivateDevices=yes"):
        assert "--property=" + line in words
    assert words[-4:] == [
        "/opt/llama-cluster/bin/llama-program",
        "rpc_seed",
        wanted.program,
        "/var/cache/llama-cluster/rpc-chat",
    ]
