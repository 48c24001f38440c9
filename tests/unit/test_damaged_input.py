# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Damaged headers, records and hub answers end in a result or in one sentence."""

import copy
import json
import random
import struct

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._fetch import bundle, hub, journal, manifest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._model import companion, describe, gguf
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._model.shape import read_shape
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._text import Refusal
from ansible_collections.thefermisea.llama_cluster.tests.unit import companion_files
from ansible_collections.thefermisea.llama_cluster.tests.unit import gguf_files as make

ROUNDS = 400
COUNTS = [0, 1, 0xFFFF, 1 << 31, (1 << 32) - 1, 1 << 40, (1 << 63) - 1, (1 << 64) - 1]
# Values that do not belong where they are put.
FOREIGN = [None, True, -1, 1 << 70, 0.5, float("nan"), "", "x", "a\nb", "../../etc/cron.d/x", "a\0b.gguf", "\ud800",
           "\x1b[2J", "http://[::1", "x" * 70000, [], {}, [None], {"x": {}}, ["x"] * 1000]  # fmt: skip
DIGEST, COMMIT = "0" * 64, "0" * 40
FILE = {"name": "m.gguf", "size": 5, "pieces": [{"size": 5, "sha256": DIGEST}]}
WANTED = {"model": "m", "quant": "Q8_0", "repo": "some/m", "revision": "main"}
WANTED.update({"urls": [], "files": ["m.gguf"], "sha256": []})
BUNDLE = {
    "version": 1,
    "models": [{"wanted": WANTED, "commit": COMMIT, "gguf": {"tensors": 1}, "files": [dict(FILE, sha256=DIGEST)]}],
    "builds": [{"name": "b1.tar.gz", "size": 5, "sha256": DIGEST}],
    "source": [],
}
RECORD = {
    "version": 1, "request": {}, "commit": None, "verified": "sha256", "gguf": {},
    "files": [dict(FILE, mtime_ns=1, inode=2)],
}  # fmt: skip
TREE = [
    {"type": "file", "path": "m.Q8_0.gguf", "size": 130, "lfs": {"oid": DIGEST, "size": 5}},
    {"type": "file", "path": "more/m-00001-of-00002.gguf", "size": 7},
]
KINDS = {
    "llama": {},
    "gpt-oss": {"attention.sliding_window": 128, "expert_count": 4, "expert_used_count": 2},
    "deepseek2": {"attention.kv_lora_rank": 32, "attention.key_length_mla": 48, "rope.dimension_count": 16},
    "granitehybrid": {"ssm.conv_kernel": 4, "ssm.inner_size": 128, "ssm.state_size": 16, "ssm.group_count": 1},
    "qwen3next": {"ssm.conv_kernel": 4, "ssm.inner_size": 128, "ssm.state_size": 16, "full_attention_interval": 4},
}
COMPANIONS = [
    make.header_bytes(*one) for one in (companion_files.adapter(blocks=1), companion_files.projector(blocks=0))
]


def damaged_bytes(data, source):
    changed = bytearray(data)
    for _change in range(source.randint(1, 4)):
        place = source.randrange(max(1, len(changed)))
        kind = source.randrange(4)
        if kind == 0:
            changed[place : place + 1] = bytes([source.randrange(256)])
        elif kind == 1:
            changed[place : place + 8] = struct.pack("<Q", source.choice(COUNTS))
        elif kind == 2:
            del changed[place : place + source.randint(1, 64)]
        else:
            changed[place:place] = changed[place : place + source.randint(1, 64)]
    return bytes(changed)


def places(value):
    """[(container, key)] of everything in a JSON value."""
    keys = list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    return [place for key in keys for place in [(value, key), *places(value[key])]]


def damaged_json(value, source):
    text = json.dumps([value])
    if source.random() < 0.02:
        return "[" * 100000
    changed = json.loads(text)
    for _change in range(source.randint(1, 3)):
        container, key = source.choice(places(changed) or [(changed, slice(0, 0))])
        if source.random() < 0.2:
            del container[key]
        else:
            value = copy.deepcopy(source.choice(FOREIGN))
            container[key] = [value] if isinstance(key, slice) else value
    return json.dumps((changed or [None])[0])


def model_header(architecture):
    values = {"block_count": 4, "context_length": 4096, "embedding_length": 64, "attention.head_count": 4}
    values.update({"attention.head_count_kv": 2, "feed_forward_length": 128}, **KINDS[architecture])
    metadata = [(f"{architecture}.{name}", make.U32, value) for name, value in values.items()]
    tensors = [("token_embd.weight", (64, 512), 1)]
    tensors += [(f"blk.{block}.{name}.weight", (64, 64), 1) for block in range(4) for name in ("attn_q", "ffn_up")]
    return make.header_bytes([("general.architecture", make.STRING, architecture), *metadata], tensors)


def read_model(data, _folder):
    header = gguf.read_header(lambda offset, length: data[offset : offset + length], "m.gguf")
    json.dumps(describe.describe([header]))
    describe.size_problem(header, len(data), "m.gguf")
    describe.check_shards([header], ["m.gguf"])
    json.dumps(read_shape(header).as_dict())


def read_companion(data, _folder):
    header = gguf.read_header(lambda offset, length: data[offset : offset + length], "b.gguf")
    found = companion.read_companion([header])
    assert found is None or found.architecture.isprintable() and len(json.dumps(found)) < 10**4


def read_bundle(data, folder):
    (folder / "bundle.json").write_bytes(data)
    record = bundle.read(str(folder))
    assert all(path.count("/") == 1 and ".." not in path for path, _one in bundle.contents(record))
    assert all(line.isprintable() for line in bundle.lines(str(folder), record))
    bundle.find(record, dict(WANTED, name="m.gguf"), str(folder))


def read_record(data, folder):
    (folder / "record").write_bytes(data)
    found = manifest.read_manifest(str(folder / "record"))
    assert found is None or all("/" not in entry.name for entry in found.files)


def read_journal(data, folder):
    (folder / "journal").write_bytes(data)
    ranges = journal.Journal(str(folder / "journal")).load("identity")
    assert all(0 <= start < end for start, end in ranges)


class Listing(hub.Hub):
    """A hub whose every answer is the same JSON."""

    def __init__(self, data):
        super().__init__(None, "some/m", "http://127.0.0.1:9")
        self.data = data

    def _get_json(self, url):
        response = type("Response", (), {"status": 200, "headers": {}, "reason": ""})
        try:
            parsed = json.loads(self.data)
        except (ValueError, RecursionError):
            parsed = None
        return hub._Answer(response, parsed, "")


def read_listing(data, _folder):
    served = Listing(data)
    for path in [entry.path for entry in hub.select(served.files(COMMIT), "some/m", ["m.Q8_0.gguf"])]:
        assert path.isprintable() and ".." not in path.split("/")
    served.commit("main")


@pytest.mark.parametrize(
    ("read", "seeds", "damaged"),
    [
        (read_model, [make.shards(2)[1][:500], *map(model_header, KINDS)], damaged_bytes),
        (read_companion, COMPANIONS, damaged_bytes),
        (read_bundle, [BUNDLE], damaged_json),
        (read_record, [RECORD], damaged_json),
        (read_journal, [b'{"identity": "identity", "boot_id": "x"}\nw 0 5\nd 1\nw 5 7\n'], damaged_bytes),
        (read_listing, [TREE], damaged_json),
    ],
)
def test_damage_ends_in_result_or_sentence(tmp_path, read, seeds, damaged):
    source = random.Random(2)
    for number in range(ROUNDS):
        data = damaged(seeds[number % len(seeds)], source)
        try:
            read(data.encode() if isinstance(data, str) else data, tmp_path)
        except Refusal as error:
            assert str(error).isprintable() and 0 < len(str(error)) <= 1000, data
