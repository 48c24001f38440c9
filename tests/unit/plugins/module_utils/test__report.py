import shlex

from ansible_collections.thefermisea.llama_cluster.plugins.module_utils import _report

HEAD = {
    "service": "chat",
    "endpoint": "http://10.0.0.31:8000/v1",
    "model": "small",
    "quant": "Q4_1",
    "workers": ["node2", "node3"],
    "rpc_endpoints": ["10.100.0.32:50052", "10.100.0.33:50052"],
}
LOAD = {
    "devices": [
        {"endpoint": None, "layers": 0, "model_mib": 28.7, "kv_mib": 0.0},
        {"endpoint": "10.100.0.32:50052", "layers": 10, "model_mib": 20.25, "kv_mib": 30.0},
        {"endpoint": "10.100.0.32:50052", "layers": 5, "model_mib": 11.5, "kv_mib": 15.0},
        {"endpoint": "10.100.0.33:50052", "layers": None, "model_mib": 60.4, "kv_mib": 45.0},
    ]
}
READY = {
    "state": "ready",
    "reason": "it answered",
    "tokens_per_second": 33.137,
    "answer": "It is\nParis.",
    "workers": [
        {"endpoint": "10.100.0.32:50052", "bytes_sent": 10, "bytes_received": 20},
        {"endpoint": "10.100.0.33:50052", "bytes_sent": 30, "bytes_received": 40},
    ],
}


def test_each_worker_by_endpoint_with_all_its_cards():
    report = _report.acceptance(HEAD, READY, LOAD, "Where?", 8)
    assert report["workers"][0] == {
        "node": "node2",
        "endpoint": "10.100.0.32:50052",
        "layers": 15,
        "model_mib": 31.75,
        "kv_mib": 45.0,
        "bytes_sent": 10,
        "bytes_received": 20,
    }
    assert report["tokens_per_second"] == 33.1


def test_the_last_lines():
    lines = _report.acceptance_lines(_report.acceptance(HEAD, READY, LOAD, "Where?", 8))
    assert lines[0] == "worker node2 (10.100.0.32:50052): 15 layers, 31.8 MiB of weights, 45.0 MiB of KV cache, 10 bytes out and 20 back for the answer"
    assert lines[2:4] == ["endpoint: http://10.0.0.31:8000/v1", "tokens/s: 33.1"]
    assert lines[5] == "answer: It is Paris."


def test_the_curl_line_survives_a_quote():
    curl = _report.acceptance(HEAD, READY, LOAD, "What's up?", 8)["curl"]
    words = shlex.split(curl)
    assert words[0] == "curl" and words[2] == "http://10.0.0.31:8000/v1/chat/completions"
    assert '"content": "What\\u0027s up?"' in words[-1]


def test_a_busy_service_is_not_given_a_rate():
    busy = {"state": "busy", "reason": "1 of 1 slots at work", "workers": [], "tokens_per_second": None, "answer": None}
    lines = _report.acceptance_lines(_report.acceptance(HEAD, busy, LOAD, "Where?", 8))
    assert "tokens/s: not measured, the service is busy with other requests and makes progress" in lines


def test_status():
    unit = {"name": "llama-rpc-chat.service", "active_state": "active", "since": "2026-10-01T08:00:00Z", "restarts": 2, "stale": True}
    lines = _report.status_lines({"node2": {"units": [unit], "current_build": "b1"}, "node4": {"units": [], "current_build": None}}, [(HEAD, READY)])
    assert lines == [
        "chat: ready at http://10.0.0.31:8000/v1, it answered",
        "  node2        llama-rpc-chat.service               active since 2026-10-01T08:00:00Z, 2 restarts, build b1, "
        "its configuration changed since it started",
        "  node4        no units",
    ]
