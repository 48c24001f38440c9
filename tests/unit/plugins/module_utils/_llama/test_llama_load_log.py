# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from pathlib import Path

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._llama import load_log
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._text import Refusal

# load_b11434.log: captured from b11434 at -lv 4, a 30-layer model over two workers, load lines only.
# load_b11434_vulkan.log: a head and a worker on Mesa's software device for Vulkan, and a worker of the CPU.
# load_b11434_tensor.log: the same model with --split-mode tensor, over two workers.
# load_b7772.log: made from the format strings of b7772's source, with a fit pass before the load.
FIXTURES = Path(__file__).resolve().parents[3] / "fixtures"

PASS = "load_tensors: loading model tensors, this can take a while... (load_mode = mmap)"
TWO_WORKERS = [
    "llama_prepare_model_devices: using device RPC0 (a:1) (unknown id) - 100 MiB free",
    "llama_prepare_model_devices: using device RPC1 (a:1) (unknown id) - 100 MiB free",
    "llama_prepare_model_devices: using device RPC2 (b:1) (unknown id) - 100 MiB free",
    PASS,
]


def parse_fixture(name):
    with open(FIXTURES / name, encoding="utf-8") as stream:
        return load_log.parse(stream)


def layers(info):
    return {(place["device"], place["endpoint"]): place["layers"] for place in info["devices"] if place["layers"]}


def buffers(info, kind):
    return {
        (buffer["device"], buffer["endpoint"]): buffer["mib"] for buffer in info["buffers"] if buffer["kind"] == kind
    }


def test_projector_and_adapter_are_added():
    found = load_log.parse(
        """load_tensors: loading model tensors, this can take a while... (load_mode = mmap, direct_io = false)
load_tensors: RPC0[127.0.0.1:18970] model buffer size =    92.10 MiB
llama_adapter_lora_init_impl: RPC0[127.0.0.1:18970] LoRA buffer size =    47.81 MiB
sched_reserve: RPC0[127.0.0.1:18970] compute buffer size =    15.51 MiB
sched_reserve:        CPU compute buffer size =     6.52 MiB
sched_reserve:        CPU compute buffer size =     6.52 MiB
reserve_compute_meta:        CPU compute buffer size =     1.71 MiB
reserve_compute_meta:        CPU compute buffer size =     1.71 MiB""".splitlines()
    )
    totals = {row["device"]: row["total_mib"] for row in found["devices"]}
    assert totals == {"CPU": 8.23, "RPC0": 155.42}


def test_b11434():
    info = parse_fixture("load_b11434.log")
    assert (info["build"], info["commit"]) == (11434, "unknown")
    assert (info["layers_offloaded"], info["layers_total"]) == (31, 31)
    assert info["endpoints"] == {"127.0.0.1:51052": 188.87, "127.0.0.1:51053": 191.19}
    assert info["kv_caches"] == [{"mib": 180.0, "cells": 8192, "layers": 30, "k_type": "f16", "v_type": "f16"}]
    assert buffers(info, "model") == {
        ("CPU_Mapped", None): 28.69,
        ("RPC0", "127.0.0.1:51052"): 33.82,
        ("RPC0", "127.0.0.1:51053"): 58.28,
    }
    assert buffers(info, "output") == {("CPU", None): 0.19}
    assert info["devices"][2] == {
        "device": "RPC0",
        "endpoint": "127.0.0.1:51052",
        "model_mib": 33.82,
        "kv_mib": 96.0,
        "compute_mib": 59.05,
        "output_mib": 0.0,
        "total_mib": 188.87,
        "layers": 16,
    }
    assert layers(info) == {("RPC0", "127.0.0.1:51052"): 16, ("RPC0", "127.0.0.1:51053"): 14}


def test_parts_of_every_layer_have_a_row_each():
    info = parse_fixture("load_b11434_tensor.log")
    assert (info["divided"], info["width"], info["layers_total"]) == (True, 576, 31)
    assert layers(info) == {("RPC0", "127.0.0.1:23750"): 30, ("RPC0", "127.0.0.1:23751"): 30}
    own = {"device": "RPC0", "model_mib": 60.46, "kv_mib": 45.0, "compute_mib": 17.51, "output_mib": 0.0}
    own.update(total_mib=122.97, layers=30)
    assert info["devices"][-2:] == [dict(own, endpoint=f"127.0.0.1:{port}") for port in (23750, 23751)]
    assert not parse_fixture("load_b11434.log")["divided"]


def test_cards_of_a_head_have_a_part_each():
    lines = [
        "llama_prepare_model_devices: creating a Meta device for tensor parallelism from 2 devices:",
        "llama_prepare_model_devices: - device 0: CUDA0 (NVIDIA L4)",
        "llama_prepare_model_devices: - device 1: CUDA1 (NVIDIA L4)",
        "llama_prepare_model_devices: using device Meta(CUDA0,CUDA1) (Meta(CUDA0,CUDA1)) (unknown id) - 44000 MiB free",
        PASS,
        "load_tensors: offloaded 31/31 layers to GPU",
        "load_tensors: Meta(CUDA0,CUDA1) model buffer size =    60.46 MiB",
    ]
    info = load_log.parse(lines)
    assert [(one["device"], one["endpoint"], one["model_mib"], one["layers"]) for one in info["devices"]] == [
        ("CUDA0", None, 60.46, 30),
        ("CUDA1", None, 60.46, 30),
    ]


def test_b7772_counts_the_last_layout_only():
    info = parse_fixture("load_b7772.log")
    assert (info["build"], info["commit"]) == (7772, "388ce8224")
    assert info["endpoints"] == {"10.100.0.32:50052": 67.19, "10.100.0.33:50052": 67.19}
    assert layers(info) == {("RPC0", "10.100.0.32:50052"): 10, ("RPC0", "10.100.0.33:50052"): 10, ("CUDA0", None): 10}
    assert buffers(info, "compute")[("CUDA_Host", None)] == 5.13
    assert [cache["cells"] for cache in info["kv_caches"]] == [2048]


def test_shards_of_a_model_add_up():
    lines = [PASS] + [
        "load_tensors:   CPU_Mapped model buffer size =    %s MiB" % size for size in ("35.03", "2.11", "14.80")
    ]
    assert buffers(load_log.parse(lines), "model") == {("CPU_Mapped", None): 51.94}


def test_compute_buffers_replace_each_other():
    lines = [PASS] + ["sched_reserve:      CUDA0 compute buffer size =   %s MiB" % size for size in ("101.02", "64.50")]
    assert buffers(load_log.parse(lines), "compute") == {("CUDA0", None): 64.5}


def test_sliding_window_caches_add_up():
    lines = [
        PASS,
        "llama_kv_cache:      CUDA0 KV buffer size =    20.00 MiB",
        "llama_kv_cache: RPC0[a:1] KV buffer size =    20.00 MiB",
        "llama_kv_cache: size =   40.00 MiB (  4096 cells,   4 layers,  1/1 seqs), K (q8_0):   20.00 MiB, V (q4_0):   "
        "20.00 MiB",
        "llama_kv_cache:      CUDA0 KV buffer size =    16.00 MiB",
        "llama_kv_cache: RPC0[a:1] KV buffer size =     8.00 MiB",
        "llama_kv_cache: size =   24.00 MiB (  1024 cells,  12 layers,  1/1 seqs), K (q8_0):   12.00 MiB, V (q4_0):   "
        "12.00 MiB",
    ]
    info = load_log.parse(lines)
    assert buffers(info, "KV") == {("CUDA0", None): 36.0, ("RPC0", "a:1"): 28.0}
    assert layers(info) == {("CUDA0", None): 2 + 8, ("RPC0", "a:1"): 2 + 4}
    assert [(cache["cells"], cache["k_type"], cache["v_type"]) for cache in info["kv_caches"]] == [
        (4096, "q8_0", "q4_0"),
        (1024, "q8_0", "q4_0"),
    ]


def test_layers_of_different_size_are_not_guessed():
    lines = [
        PASS,
        "llama_kv_cache:      CUDA0 KV buffer size =    25.00 MiB",
        "llama_kv_cache: RPC0[a:1] KV buffer size =    15.00 MiB",
        "llama_kv_cache: size =   40.00 MiB (  4096 cells,   4 layers,  1/1 seqs), K (f16):   20.00 MiB, V (f16):   "
        "20.00 MiB",
    ]
    assert [place["layers"] for place in load_log.parse(lines)["devices"]] == [None, None]


def test_layers_of_an_incomplete_log_are_not_guessed():
    lines = [
        PASS,
        "llama_kv_cache:      CUDA0 KV buffer size =    20.00 MiB",
        "llama_kv_cache: size =   40.00 MiB (  4096 cells,   4 layers,  1/1 seqs), K (f16):   20.00 MiB, V (f16):   "
        "20.00 MiB",
    ]
    assert [place["layers"] for place in load_log.parse(lines)["devices"]] == [None]


def test_recurrent_states_count_as_cache():
    lines = [
        PASS,
        "llama_kv_cache:      CUDA0 KV buffer size =    40.00 MiB",
        "llama_kv_cache: size =   40.00 MiB (  4096 cells,   4 layers,  1/1 seqs), K (f16):   20.00 MiB, V (f16):   "
        "20.00 MiB",
        "llama_memory_recurrent:      CUDA0 RS buffer size =     2.50 MiB",
        "llama_memory_recurrent: size =    2.50 MiB (     1 cells,  16 layers,  1 seqs), R (f32):    0.50 MiB, S "
        "(f32):    2.00 MiB",
    ]
    info = load_log.parse(lines)
    assert buffers(info, "KV") == {("CUDA0", None): 42.5}
    assert info["devices"][0]["layers"] is None


def test_assigned_layers_exclude_output():
    lines = TWO_WORKERS + [
        "0.00.084.179 D load_tensors: layer %3d assigned to device RPC%d, is_swa = 0" % pair
        for pair in ((0, 0), (1, 0), (2, 1), (3, 2), (4, 2))
    ]
    assert layers(load_log.parse(lines)) == {("RPC0", "a:1"): 2, ("RPC1", "a:1"): 1, ("RPC0", "b:1"): 1}


def test_assigned_layers_of_a_fit_pass_are_forgotten():
    lines = ["load_tensors: layer   %d assigned to device CPU, is_swa = 0" % layer for layer in (0, 1)]
    info = load_log.parse([PASS] + lines + [PASS, "load_tensors:        CUDA0 model buffer size =    49.82 MiB"])
    assert [(place["device"], place["layers"]) for place in info["devices"]] == [("CUDA0", None)]


def test_no_lines():
    info = load_log.parse([])
    assert (info["build"], info["buffers"], info["devices"], info["endpoints"], info["layers_total"]) == (
        None,
        [],
        [],
        {},
        None,
    )


def test_requests_after_the_load_are_not_read():
    def log():
        yield "0.00.196.080 I load_tensors: offloaded 31/31 layers to GPU\n"
        yield "0.00.498.113 I srv  llama_server: model loaded\n"
        pytest.fail("read on after the load")

    lines, loaded = load_log.until_loaded(log())
    assert (len(lines), loaded) == (2, True)


def test_unfinished_load_is_reported():
    assert load_log.until_loaded(["load_tensors: offloaded 31/31 layers to GPU\n"])[1] is False


def load_info(monkeypatch, shown, lines):
    asked = []
    monkeypatch.setattr(load_log, "systemctl_show", lambda names, properties: shown)
    monkeypatch.setattr(load_log, "read_journal", lambda invocation, _model: asked.append(invocation) or lines)
    return load_log.load_info("llama-head"), asked


# The journal of a worker of b11434 on Mesa's software device.
VULKAN_WORKER = """ggml_vulkan: Found 1 Vulkan devices:
ggml_vulkan: 0 = llvmpipe (LLVM 19.1.7, 256 bits) (llvmpipe) | uma: 0 | fp16: 1 | warp size: 8 | matrix cores: none
Starting RPC server v7.0.0
  endpoint       : 127.0.0.1:50052
  local cache    : n/a
Devices:
  Vulkan0: llvmpipe (LLVM 19.1.7, 256 bits) (24105 MiB, 21697 MiB free)
  transport      : TCP
Accepted client connection
"""
SHOWN = "Id=llama-head-chat.service\nLoadState=loaded\nInvocationID=4a1de5e1ff2f4dbcb1c8f4b1d2a3c4e5\n"


def test_the_current_run_of_the_unit_is_read(monkeypatch):
    info, asked = load_info(monkeypatch, SHOWN, (FIXTURES / "load_b11434.log").read_text().splitlines())
    assert asked == ["4a1de5e1ff2f4dbcb1c8f4b1d2a3c4e5"]
    assert (info["unit"], info["reason"], info["layers_total"]) == ("llama-head-chat.service", None, 31)


def test_b11434_on_vulkan():
    """A head with Vulkan, a worker with Vulkan and one of the CPU: the head cannot tell them apart."""
    info = parse_fixture("load_b11434_vulkan.log")
    layers = {(one["device"], one["endpoint"]): one["layers"] for one in info["devices"] if one["layers"]}
    assert layers == {("RPC0", "127.0.0.1:50052"): 10, ("RPC0", "127.0.0.1:50053"): 10, ("Vulkan0", None): 10}
    assert info["endpoints"] == {"127.0.0.1:50052": 53.94, "127.0.0.1:50053": 43.8}
    (own,) = [one for one in info["devices"] if one["device"] == "Vulkan0"]
    assert (own["model_mib"], own["kv_mib"], own["compute_mib"]) == (49.83, 3.75, 17.79)


@pytest.mark.parametrize(
    "lines, devices",
    [
        (VULKAN_WORKER, ["Vulkan0"]),
        (VULKAN_WORKER.replace("Vulkan0: llvmpipe (LLVM 19.1.7, 256 bits)", "CPU: Intel(R) Xeon(R) @ 2.5GHz"), ["CPU"]),
        ("Starting RPC server v7.0.0\n", []),
    ],
)
def test_devices_that_a_worker_computes_on(monkeypatch, lines, devices):
    monkeypatch.setattr(load_log, "systemctl_show", lambda names, properties: SHOWN)
    monkeypatch.setattr(load_log, "ask", lambda _options, _letters: iter(lines.splitlines()))
    assert load_log.worker_devices("llama-rpc-chat.service") == devices


def test_missing_lines_have_a_reason(monkeypatch):
    info, _asked = load_info(monkeypatch, SHOWN, ["srv  llama_server: model loaded"])
    assert "the journal has no buffer sizes of the current run of llama-head" in info["reason"]
    assert "-lv 4" in info["reason"]


@pytest.mark.parametrize("shown", ["", "Id=llama-head.service\nLoadState=not-found\nInvocationID=\n"])
def test_a_unit_that_does_not_run_is_refused(monkeypatch, shown):
    with pytest.raises(Refusal, match="^unit llama-head does not run on this node: "):
        load_info(monkeypatch, shown, [])


@pytest.fixture
def journalctl(tmp_path, monkeypatch):
    """A journalctl on PATH: a script of the shell that is given."""

    def make(script):
        (tmp_path / "journalctl").write_text("#!/bin/sh\n%s\n" % script)
        (tmp_path / "journalctl").chmod(0o755)
        monkeypatch.setenv("PATH", "%s:/usr/bin:/bin" % tmp_path)

    return make


def test_journal_is_read_until_load_ends(journalctl):
    journalctl('echo "$@"; echo "srv  llama_server: model loaded"; exec sleep 60')
    lines = load_log.read_journal("4a1d")
    assert lines[0].split()[-1] == "_SYSTEMD_INVOCATION_ID=4a1d" and len(lines) == 2


@pytest.mark.parametrize("script", ["echo one", "echo one; echo 'no such file' >&2", "printf 'one\n'; exit 0"])
def test_unfinished_load_is_read_completely(journalctl, script):
    journalctl(script)
    assert load_log.read_journal("4a1d") == ["one\n"]


def test_unreadable_journal_is_refused(journalctl):
    journalctl("echo 'No permission.\nAsk somebody.' >&2; exit 1")
    with pytest.raises(
        Refusal, match=r"^journalctl answered 'No permission\.': is systemd-journald running on this node\?"
    ):
        load_log.read_journal("4a1d")


def test_a_node_without_journalctl_is_one_sentence(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Refusal, match=r"^journalctl cannot be run \(No such file or directory\): "):
        load_log.read_journal("4a1d")


@pytest.mark.parametrize("missing", ["buffer size", "layers to GPU"])
def test_missing_half_of_load_is_refused(monkeypatch, missing):
    lines = [line for line in (FIXTURES / "load_b11434.log").read_text().splitlines() if missing not in line]
    assert "the journal has no buffer sizes" in load_info(monkeypatch, SHOWN, lines)[0]["reason"]


def test_first_named_build_loads():
    lines = ["build: 11434 (abc) with cc", "a prompt: build: 1 (x) with y"]
    assert [load_log.parse(lines)[key] for key in ("build", "commit")] == [11434, "abc"]


def split_cache(*shares, layers=10):
    """A cache of 10 layers that lies on several devices; shares: MiB."""
    lines = ["llama_kv_cache:      CUDA%d KV buffer size =    %.2f MiB" % pair for pair in enumerate(shares)]
    whole = (
        "llama_kv_cache: size =   100.00 MiB (  4096 cells,   %d layers,  1/1 seqs), K (f16): 50 MiB, V (f16): 50 MiB"
    )
    return [place["layers"] for place in load_log.parse([PASS, *lines, whole % layers])["devices"]]


def test_layers_follow_from_shares_that_are_nearly_whole():
    assert split_cache(60.0, 40.0) == [6, 4]
    # The log rounds sizes: a tenth of a layer is allowed, no more, in whichever direction.
    assert split_cache(60.9, 39.1) == [6, 4] == split_cache(59.1, 40.9)
    assert split_cache(61.1, 38.9) == [None, None] == split_cache(58.9, 41.1)
    # Complete shares that do not cover all layers.
    assert split_cache(60.0, 30.0) == [None, None] == split_cache(60.0, 50.0)


def test_a_cache_of_no_size_tells_no_layers():
    whole = "llama_kv_cache: size =   0.00 MiB (  4096 cells,   2 layers,  1/1 seqs), K (f16): 0 MiB, V (f16): 0 MiB"
    lines = [PASS, "llama_kv_cache:      CUDA0 KV buffer size =    0.00 MiB", whole]
    assert [place["layers"] for place in load_log.parse(lines)["devices"]] == [None]


def test_a_place_sums_up_what_lies_there():
    sizes = (("model", 100.25), ("KV", 20.5), ("RS", 4.25), ("compute", 10.5), ("output", 0.25))
    lines = [PASS] + ["x: RPC0[a:1] %s buffer size = %.2f MiB" % pair for pair in sizes]
    info = load_log.parse([*lines, "x: RPC1[a:1] model buffer size = 1.00 MiB"])
    assert info["devices"][0] == {
        "device": "RPC0",
        "endpoint": "a:1",
        "model_mib": 100.25,
        "kv_mib": 24.75,
        "compute_mib": 10.5,
        "output_mib": 0.25,
        "total_mib": 135.75,
        "layers": None,
    }
    assert info["endpoints"] == {"a:1": 136.75}


def test_the_last_load_of_a_routers_model():
    log = """0.01 I srv load: spawning server instance with name=coder on port 41
[41] 0.1 I load_tensors: loading model tensors
[41] 0.2 I load_tensors:          CPU model buffer size =   100.00 MiB
[41] 0.3 I srv  llama_server: model loaded
0.02 I srv load: spawning server instance with name=chat on port 42
[42] 0.2 I load_tensors:          CPU model buffer size =   200.00 MiB
0.03 I srv load: spawning server instance with name=coder on port 43
[43] 0.2 I load_tensors:          CPU model buffer size =   300.00 MiB
[43] 0.3 I slot update_slots: a request
0.04 I srv load: spawning server instance with name=chat on port 43
[43] 0.2 I load_tensors:          CPU model buffer size =   400.00 MiB
""".splitlines()[::-1]
    sizes = {model: load_log.parse(load_log.of_model(log, model)[0])["devices"] for model in ("coder", "chat")}
    assert sizes["chat"][0]["model_mib"] == 400 and sizes["coder"][0]["model_mib"] == 300
    assert load_log.of_model(log, "other") == ([], False)


def test_draft_model_adds_to_devices():
    """Lines of b11434 with SmolLM2 and itself as its draft, two slots and a cache of q8_0."""
    lines = [
        PASS,
        "0.00.455.430 I load_tensors:   CPU_Mapped model buffer size =    92.10 MiB",
        "llama_kv_cache:        CPU KV buffer size =    47.81 MiB",
        "llama_kv_cache: size =   47.81 MiB (  2048 cells,  30 layers,  2/2 seqs), K (q8_0): 23.91 MiB, V (q8_0): "
        "23.91 MiB",
        "sched_reserve:        CPU compute buffer size =    16.67 MiB",
    ]
    draft = [
        "0.00.637.314 I common_speculative_init_result: loading draft model '/opt/models/d.gguf'",
        PASS,
        "load_tensors:   CPU_Mapped model buffer size =    92.10 MiB",
        "load_tensors:        GPU9 model buffer size =     1.00 MiB",
        "llama_kv_cache:        CPU KV buffer size =    90.00 MiB",
        "llama_kv_cache: size =   90.00 MiB (  2048 cells,  30 layers,  2/2 seqs), K (f16): 45.00 MiB, V (f16): 45.00 "
        "MiB",
        "sched_reserve:        CPU compute buffer size =    16.64 MiB",
    ]
    single, both = load_log.parse(lines), load_log.parse(lines + draft)
    assert both["kv_caches"] == single["kv_caches"]
    sizes = {place["device"]: place for place in both["devices"]}
    assert (sizes["CPU_Mapped"]["model_mib"], sizes["GPU9"]["model_mib"]) == (184.20, 1.00)
    assert (sizes["CPU"]["kv_mib"], sizes["CPU"]["compute_mib"], sizes["CPU"]["layers"]) == (137.81, 33.31, 30)
