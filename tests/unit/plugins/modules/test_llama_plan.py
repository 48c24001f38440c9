# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module on headers of real models' shapes: from a sparse file, by range from a server, from a repository."""

import mmap

import pytest
from ansible_collections.thefermisea.llama_cluster.tests.unit import companion_files, gguf_files, model_files
from ansible_collections.thefermisea.llama_cluster.tests.unit.fake_hub import FakeHub

CARDS = [{"name": "node%d" % number, "memory_mib": 32510} for number in (2, 3, 1)]


def remote(fake, path):
    """A sparse file of any size on a server, without reading it. -> its URL"""
    with open(path, "rb") as stream:
        return fake.add_plain(path.name, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ))


@pytest.fixture
def qwen(tmp_path):
    model_files.qwen2_72b().write(tmp_path / "Qwen2-72B.Q8_0.gguf")
    return tmp_path / "Qwen2-72B.Q8_0.gguf"


def test_a_local_model(run, qwen):
    code, result = run(path=str(qwen), devices=CARDS, slot_ctx_size=4096, parallel=1, build="b11434")
    assert (code, result["changed"], result["fits"], result["topology"]) == (0, False, True, "split")
    assert result["tensor_split"] == [27, 27, 27]
    assert [device["node"] for device in result["devices"]] == ["node2", "node3", "node1"]
    assert result["advice"] == []
    assert result["lines"][1] == "  head node1 (32510 MiB), workers node2 (32510 MiB) and node3 (32510 MiB)"
    assert result["lines"][2].split() == [
        "node",
        "device",
        "layers",
        "weights",
        "KV",
        "compute",
        "margin",
        "total",
        "free",
    ]
    assert result["lines"][3].split()[2:4] == ["0-26", "(27)"]


def test_adapter_is_no_model_but_described(run, tmp_path):
    (tmp_path / "t.gguf").write_bytes(gguf_files.file_bytes(*companion_files.adapter(blocks=1)))
    code, result = run(path=str(tmp_path / "t.gguf"), urls=["file:///nowhere/t.gguf"])
    assert code == 1 and "a LoRA adapter, which is no model" in result["msg"]
    assert (result["companion"]["kind"], result["companion"]["blocks"]) == ("adapter", [36864])


def test_header_of_damaged_file_comes_from_source(run, qwen, tmp_path):
    wanted = run(path=str(qwen))[1]["shape"]
    damaged = tmp_path / "damaged.gguf"
    damaged.write_bytes(b"nothing of a model")
    code, result = run(path=str(damaged), urls=[str(qwen)])
    assert (code, result["shape"]) == (0, wanted)
    assert run(path=str(damaged))[0] == 1


def test_without_devices_only_the_shape(run, qwen):
    code, result = run(path=str(qwen))
    assert (code, result["shape"]["block_count"]) == (0, 80)
    assert "fits" not in result


def test_a_giant_is_refused_from_its_remote_header(run, tmp_path):
    path = tmp_path / "DeepSeek-V3.Q4_K_M.gguf"
    model_files.deepseek_v3().write(path)
    with FakeHub() as fake:
        code, result = run(url=[remote(fake, path)], devices=CARDS, slot_ctx_size=4096, parallel=1)
    assert (code, result["fits"]) == (0, False)
    assert sum(device["total_mib"] for device in result["devices"]) > 350000
    assert any("does not fit" in line for line in result["lines"])
    assert result["advice"][0] == "use 12 cards of 32510 MiB"
    assert result["refused"] == ["it does not fit 3 devices: %s" % ", or ".join(result["advice"])]
    assert not any("use 12 cards" in line for line in result["lines"])


def test_too_large_weights_are_offered_more_cards(run, qwen):
    result = run(path=str(qwen), devices=CARDS[:1], slot_ctx_size=32768, parallel=4, build="b11434")[1]
    assert result["advice"] == ["use 4 cards of 32510 MiB"]
    fitting = {"slot_ctx_size": 32768, "cache": "q4_0", "parallel": 4, "build": "b11434"}
    assert run(path=str(qwen), devices=CARDS, **fitting)[1]["fits"], "three do with a smaller cache"


def test_a_remote_header_with_its_vocabulary_costs_little(run, tmp_path):
    model, words = model_files.qwen2_72b(), [f"token {number:06}" for number in range(152064)]
    model.metadata.append(("tokenizer.ggml.tokens", gguf_files.ARRAY, (gguf_files.STRING, words)))
    model.write(tmp_path / "m.gguf")
    size = len(model.header())
    with FakeHub() as fake:
        code, result = run(
            url=[remote(fake, tmp_path / "m.gguf")],
            devices=CARDS,
            slot_ctx_size=4096,
            parallel=1,
            build="b11434",
        )
        assert size < fake.sent < 16 << 20
    assert (code, result["tensor_split"]) == (0, [27, 27, 27])


def test_ten_shards_cost_no_more(run, tmp_path):
    """A giant as hubs have it: the vocabulary in the first of ten shards."""
    model = model_files.deepseek_v3()
    words = (gguf_files.STRING, ["token %06d" % number for number in range(257021)])  # tokens and merges
    per = -(-len(model.tensors) // 10)
    with FakeHub() as fake:
        urls = []
        for number in range(10):
            tensors = model.tensors[number * per : (number + 1) * per]
            keys = [("split.no", gguf_files.U16, number), ("split.count", gguf_files.U16, 10)]
            keys.append(("split.tensors.count", gguf_files.I32, len(model.tensors)))
            if not number:
                keys += [*model.metadata, ("tokenizer.ggml.tokens", gguf_files.ARRAY, words)]
            header_bytes = gguf_files.header_bytes(keys, tensors)
            path = tmp_path / ("m-%05d-of-00010.gguf" % (number + 1))
            sizes = (gguf_files.tensor_bytes(dims, kind) for _name, dims, kind in tensors)
            with open(path, "wb") as stream:
                stream.write(header_bytes)
                stream.truncate(len(header_bytes) + -len(header_bytes) % 32 + sum(size + -size % 32 for size in sizes))
            urls.append(remote(fake, path))
        code, result = run(urls=urls, devices=CARDS, slot_ctx_size=4096, parallel=1)
        assert fake.sent < 16 << 20
    assert (code, result["fits"], result["shape"]["block_count"]) == (0, False, 61)


def test_a_repository_and_its_shards(run):
    with FakeHub() as fake:
        names = ["m-%05d-of-00003.gguf" % number for number in (1, 2, 3)]
        fake.add_repo("some/m-GGUF", dict(zip(names, gguf_files.shards(3))))
        code, result = run(repo="some/m-GGUF", files=names[:1], endpoint=fake.url)
    # Its shards are found and read; that these three have no embedding is the answer.
    assert code == 1
    assert result["msg"].startswith("architecture llama: ")


def test_context_beyond_the_models_own_is_named(run, qwen):
    result = run(path=str(qwen), devices=CARDS, slot_ctx_size=65536, parallel=1, cache="q4_0")[1]
    assert result["advice"][0] == (
        "lower slot_ctx_size to 32768, where llama-server caps each slot, or set rope_scaling: yarn, rope_scale: 2, "
        "yarn_orig_ctx: 32768, "
        "or for a model that needs no scaling override_kv: ['qwen2.context_length=int:65536']"
    )


@pytest.mark.parametrize(
    "options, sentence",
    [
        ({"path": "/nowhere/m.gguf"}, "/nowhere/m.gguf: No such file or directory: fetch it, or correct the path"),
        (
            {"path": "/nowhere/m.gguf", "url": ["file:///nowhere/n.gguf"]},
            "/nowhere/n.gguf on ",
        ),
        ({"path": __file__}, "%s: starts with " % __file__),
    ],
)
def test_no_header(run, options, sentence):
    code, result = run(**options)
    assert code == 1
    assert result["msg"].startswith(sentence)


def test_a_repo_needs_its_files(run):
    code, result = run(repo="some/m-GGUF")
    assert code == 1 and "files" in result["msg"]


def test_two_cards_and_main_memory_of_one_node(run, qwen):
    devices = [
        {"node": "mem1", "name": "main", "main": True, "memory_mib": 257000},
        {"node": "rtx1", "name": "RTX 3090", "memory_mib": 49152},
        {"node": "rtx1", "name": "of our own", "bandwidth": 468, "memory_mib": 49152},
    ]
    code, result = run(path=str(qwen), devices=devices, slot_ctx_size=4096)
    assert (code, result["fits"]) == (0, True)
    assert [(one["node"], one["device"]) for one in result["devices"]] == [
        ("mem1", "main"),
        ("rtx1", "GPU0"),
        ("rtx1", "GPU1"),
    ]
    main, first, second = (one["layers"] for one in result["devices"])
    assert main == 0 and first > 1.2 * second
    assert result["lines"][1] == "  head rtx1 (49152 + 49152 MiB), worker mem1 (257000 MiB)"
    (sentence,) = result["refused"]
    assert sentence.startswith("nodes: mem1 would hold no layers, since the GPUs hold all of ") and sentence.endswith(
        ": leave it out of nodes"
    )
    # A head without a GPU holds none beside workers, however much memory it has.
    result = run(path=str(qwen), devices=devices[1:2] + devices[:1], slot_ctx_size=4096)[1]
    assert result["refused"] and [one["node"] for one in result["devices"]] == ["rtx1"]
    assert run(path=str(qwen), devices=devices[:1], slot_ctx_size=4096)[1]["refused"] == []
