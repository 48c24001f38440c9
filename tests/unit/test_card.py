# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Preparation of the card test: names of builds, its directory, the reduced source, the vocabulary."""

import importlib.util
import struct
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# As compile.sh writes it.
OPTIONS = {
    "CMAKE_EXE_LINKER_FLAGS": "-no-pie",
    "CMAKE_CUDA_ARCHITECTURES": "90-real",
    "GGML_CUDA_COMPRESSION_MODE": "size",
}
ENTRY = {"version": "b11434", "source": "/nonexistent", "source_sha256": "0" * 64, "cmake_options": OPTIONS}
TARGETS = ["llama-server", "ggml-rpc-server"]


def script(name):
    spec = importlib.util.spec_from_file_location("card_" + name, ROOT / "tests/card" / (name + ".py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_build_has_one_name_with_and_without_card():
    release = script("release").release
    compiled = dict(ENTRY, source="/elsewhere", accelerator="cuda", cuda_architectures=["90"], cuda_home="/cuda")
    there = release({"llama_builds": {"default": ENTRY}, "llama_cpp_targets": TARGETS}, [{"compute_cap": "9.0"}])
    here = release({"llama_builds": {"default": compiled}, "llama_cpp_targets": TARGETS}, [])
    assert there == here
    assert there.startswith("b11434-cuda-")


def test_build_for_vulkan_has_one_name():
    release = script("release").release
    entry = {"version": "b11434", "source": "/nonexistent", "accelerator": "vulkan"}
    names = {release({"llama_builds": {"default": dict(entry, source=one)}}, []) for one in ("/here", "/there")}
    assert len(names) == 1 and names.pop().startswith("b11434-vulkan-")


def test_foreign_directory_is_refused(tmp_path):
    machine = script("machine")
    own, others = tmp_path / "own", tmp_path / "others"
    for _again in range(2):
        machine.Machine(tmp_path, own, "cpu").own()
        (own / "base").mkdir(exist_ok=True)
    others.mkdir()
    (others / "letter").touch()
    with pytest.raises(machine.Failed, match="others: files of others seen"):
        machine.Machine(tmp_path, others, "cpu").own()
    own.chmod(0o777)
    with pytest.raises(machine.Failed, match="others may write there"):
        machine.Machine(tmp_path, own, "cpu").own()


def test_reduced_source_keeps_called_kernels():
    reduced = script("reduce").reduced
    head = b"#include\nDECL_FATTN_MMA_F16_CASE( 64,  64, 8, 4);\nDECL_FATTN_MMA_F16_CASE(128, 128, 8, 4);\n"
    folder = "ggml/src/ggml-cuda/template-instances/"
    kept = reduced(folder + "fattn-mma-f16-instance-ncols1_8-ncols2_4.cu", head)
    assert kept == b"#include\nDECL_FATTN_MMA_F16_CASE(128, 128, 8, 4);\n"
    for name in ("template-instances/mmq-instance-q4_0", "template-instances/mmq-instance-q8_0", "rope", "norm"):
        assert reduced("ggml/src/ggml-cuda/%s.cu" % name, b"code") == b"code"
    for name in (
        folder + "fattn-mma-f16-instance-ncols1_8-ncols2_8.cu",
        folder + "mmq-instance-q4_k.cu",
        folder + "mmf-instance-ncols_1.cu",
        "ggml/src/ggml-cuda/wkv.cu",
        "src/models/gemma3.cpp",
    ):
        assert reduced(name, b"code") is None
    assert reduced(folder + "fattn-vec-instance-q8_0-q8_0.cu", b"code").startswith(b"//")
    with pytest.raises(SystemExit, match="no head of 128"):
        reduced(folder + "fattn-vec-instance-f16-f16.cu", b"DECL_FATTN_VEC_CASE( 64, A, B);\n")


def test_a_vocabulary_is_a_model_without_its_tensors():
    text = struct.pack("<Q", 1) + b"a"
    strings = struct.pack("<II Q", 9, 8, 2) + text + text
    numbers = struct.pack("<II Q", 9, 4, 3) + bytes(12)
    keys = text + strings + text + numbers + text + struct.pack("<I?", 7, True)
    tensors = text + struct.pack("<IQIQ", 1, 4, 0, 0) + bytes(64)
    cut = script("vocabulary").vocabulary(struct.pack("<4sIQQ", b"GGUF", 3, 1, 3) + keys + tensors)
    assert cut.rstrip(b"\0") == (struct.pack("<4sIQQ", b"GGUF", 3, 0, 3) + keys).rstrip(b"\0")
    assert len(cut) % 32 == 0
