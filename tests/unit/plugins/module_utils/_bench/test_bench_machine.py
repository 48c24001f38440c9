# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Samples of a node."""

import threading

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._bench import machine

GPU = {"index": 0, "name": "Tesla", "utilization": 40, "memory_used_mib": 22574, "power_w": 101.5}


@pytest.fixture(autouse=True)
def fixture_soon(monkeypatch):
    monkeypatch.setattr(machine, "EVERY", 0.01)


RADEON = {
    "slot": "0000:03:00.0",
    "vendor": "amd",
    "device_id": "0x744c",
    "driver": "amdgpu",
    "name": "Navi 31",
    "numa_node": 0,
    "render": "/dev/dri/renderD128",
    "unified": False,
    "vram_total_mib": 24560,
    "vram_used_mib": 18430,
    "gtt_total_mib": 32050,
    "gtt_used_mib": 50,
    "busy_percent": 97,
    "temperature_c": 54,
    "power_w": 303,
    "at": 1.0,
}
NO_NVIDIA = {"available": False, "reason": "none", "gpus": [], "driver": None}


def cards(monkeypatch, collect, *others):
    monkeypatch.setattr(machine.nvidia_smi, "collect", collect)
    monkeypatch.setattr(machine.drm, "collect", lambda: {"cards": list(others), "reason": None, "processes": {}})


def test_watch_ends_on_request(monkeypatch):
    looked = threading.Event()

    def collect(deadline):
        looked.set()
        return {"available": True, "reason": None, "gpus": [GPU], "driver": "535"}

    cards(monkeypatch, collect)
    turns = iter([False] * 50 + [True])
    samples = machine.watch(60, lambda: looked.wait(10) and next(turns))
    assert len(samples) == 51
    assert samples[-1]["cards"] == [{"index": 0, "utilization": 40, "memory_mib": 22574, "power_w": 101.5}]
    assert samples[-1]["rx_bytes"] is None
    assert {type(one["cpu"]) for one in samples} <= {float, type(None)}


def test_other_vendors_card_is_watched_by_slot(monkeypatch):
    cards(monkeypatch, lambda deadline: NO_NVIDIA, RADEON)
    looked = threading.Event()
    monkeypatch.setattr(machine, "_figures", lambda card, figures=machine._figures: looked.set() or figures(card))
    turns = iter([False] * 50 + [True])
    samples = machine.watch(60, lambda: looked.wait(10) and next(turns))
    assert samples[-1]["cards"] == [{"index": "0000:03:00.0", "utilization": 97, "memory_mib": 18430, "power_w": 303}]


def test_hanging_tool_delays_no_sample(monkeypatch):
    over = threading.Event()

    def collect(deadline):
        over.wait(20)
        return {"available": False, "reason": "nvidia-smi hangs", "gpus": [], "driver": None}

    cards(monkeypatch, collect)
    turns = iter([False, False, True])
    try:
        assert [one["cards"] for one in machine.watch(60, lambda: next(turns))] == [[], [], []]
    finally:
        over.set()


def test_watch_ends_after_its_seconds(monkeypatch):
    cards(monkeypatch, lambda deadline: {"available": False, "reason": "none", "gpus": [], "driver": None})
    assert 1 <= len(machine.watch(0.05, lambda: False)) <= 10


def test_busy_is_part_of_all_processors():
    assert machine._busy((100, 1000), (150, 1100)) == 0.5
    assert machine._busy((100, 1000), (100, 1000)) is None


def test_bytes_of_the_loopback(tmp_path):
    folder = tmp_path / "ib0" / "statistics"
    folder.mkdir(parents=True)
    (folder / "rx_bytes").write_text("12\n")
    (folder / "tx_bytes").write_text("34\n")
    assert machine._bytes("ib0", str(tmp_path)) == (12, 34)
    assert machine._bytes("ib1", str(tmp_path)) == (None, None)


def test_fingerprint_without_build_and_link(monkeypatch, tmp_path):
    cards(monkeypatch, lambda deadline: {"available": True, "reason": None, "gpus": [GPU], "driver": "535"})
    found = machine.fingerprint("", str(tmp_path), None)
    assert (found["driver"], found["cards"], found["build"]["release"]) == ("535", ["Tesla"], None)
    assert found["link"]["interface"] is None and found["kernel"]


def test_fingerprint_of_another_vendors_card(monkeypatch, tmp_path):
    cards(monkeypatch, lambda deadline: NO_NVIDIA, RADEON)
    found = machine.fingerprint("", str(tmp_path), None)
    assert (found["driver"], found["cards"]) == ("amdgpu", ["Navi 31"])
