import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils import _load_log

# Lines of a real b11434 head with two workers, shortened to those that matter.
B11434 = """\
0.00.293.213 I load_tensors: offloaded 31/31 layers to GPU
0.00.293.218 I load_tensors:   CPU_Mapped model buffer size =    28.69 MiB
0.00.293.219 I load_tensors: RPC0[10.214.0.12:50052] model buffer size =    31.71 MiB
0.00.293.220 I load_tensors: RPC0[10.214.0.13:50052] model buffer size =    60.40 MiB
0.00.663.997 I llama_context:        CPU  output buffer size =     0.19 MiB
0.00.665.713 I llama_kv_cache: RPC0[10.214.0.12:50052] KV buffer size =    45.00 MiB
0.00.674.350 I llama_kv_cache: RPC0[10.214.0.13:50052] KV buffer size =    45.00 MiB
0.00.674.447 I llama_kv_cache: size =   90.00 MiB (  4096 cells,  30 layers,  1/1 seqs), K (f16):   45.00 MiB, V (f16):   45.00 MiB
0.00.739.989 I sched_reserve: RPC0[10.214.0.12:50052] compute buffer size =    43.05 MiB
0.00.740.001 I sched_reserve:        CPU compute buffer size =    27.32 MiB
"""


def test_sizes_by_endpoint():
    seen = _load_log.parse(B11434)
    assert seen["endpoints"] == {
        "10.214.0.12:50052": {"model_mib": 31.71, "kv_mib": 45.0, "compute_mib": 43.05},
        "10.214.0.13:50052": {"model_mib": 60.4, "kv_mib": 45.0, "compute_mib": 0.0},
    }
    assert (seen["layers_offloaded"], seen["layers_total"], seen["kv_cells"]) == (31, 31, 4096)
    assert {"device": "CPU", "endpoint": None, "kind": "output", "mib": 0.19} in seen["buffers"]


def test_the_dry_run_of_fit_does_not_count():
    dry = B11434.replace("31.71", "0.00").replace("60.40", "0.00")
    assert _load_log.parse(dry + B11434) == _load_log.parse(B11434)


def test_the_dialect_without_prefixes_is_the_same():
    plain = "".join(line.split(" I ", 1)[1] for line in B11434.splitlines(keepends=True))
    assert _load_log.parse(plain) == _load_log.parse(B11434)


def test_several_cards_of_one_worker_add_up():
    both = "x: RPC0[h:1] model buffer size = 1.50 MiB\nx: RPC1[h:1] model buffer size = 2.25 MiB\n"
    assert _load_log.parse(both)["endpoints"]["h:1"]["model_mib"] == 3.75


def test_a_head_that_does_not_run(monkeypatch):
    monkeypatch.setattr(_load_log, "_output", lambda command: "MainPID=0\n")
    with pytest.raises(_load_log.LoadLogError, match="^llama-head-x.service does not run, a running head is needed"):
        _load_log.unit_log("llama-head-x.service")


def test_a_journal_that_lost_the_start(monkeypatch):
    monkeypatch.setattr(_load_log, "_output", lambda command: "MainPID=7\n" if command[0] == "systemctl" else "srv: all slots are idle\n")
    with pytest.raises(_load_log.LoadLogError, match="has no buffer sizes of process 7"):
        _load_log.unit_log("llama-head-x.service")
