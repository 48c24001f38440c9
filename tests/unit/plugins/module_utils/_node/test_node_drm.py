# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

import os

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._node import drm
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._node.disposable import Disposable
from ansible_collections.thefermisea.llama_cluster.tests.unit.drm_cards import add_card

# A Radeon RX 7900 XTX, the graphics of a Ryzen AI Max, an Arc B580, an Arc A770 by i915, and a server's own display.
XTX = {
    "class": "0x030000",
    "vendor": "0x1002",
    "device": "0x744c",
    "driver": "amdgpu",
    "drm": ("card0", "card0-DP-1", "renderD128"),
    "product_name": "",
    "mem_info_vram_vendor": "samsung",
    "mem_info_vram_total": "25753026560",
    "mem_info_vram_used": "19325550592",
    "mem_info_gtt_total": "33607294976",
    "mem_info_gtt_used": "52428800",
    "gpu_busy_percent": "97",
    "power/runtime_status": "active",
    "hwmon/hwmon3/temp1_input": "54000",
    "hwmon/hwmon3/power1_average": "303000000",
}
MAX = {
    "class": "0x038000",
    "vendor": "0x1002",
    "device": "0x1586",
    "driver": "amdgpu",
    "drm": ("card1", "renderD129"),
    "mem_info_vram_total": "536870912",
    "mem_info_vram_used": "160432128",
    "mem_info_gtt_total": "115964116992",
    "mem_info_gtt_used": "64424509440",
    "hwmon/hwmon5/power1_input": "55020000",
}
B580 = {
    "class": "0x030000",
    "vendor": "0x8086",
    "device": "0xe20b",
    "driver": "xe",
    "drm": ("card2", "renderD130"),
    "tile0/physical_vram_size_bytes": "12884901888",
    "tile0/gt0/gtidle/idle_residency_ms": "900000",
    "tile0/gt1/gtidle/idle_residency_ms": "990000",
    "hwmon/hwmon6/temp2_input": "61000",
    "hwmon/hwmon6/energy1_input": "5000000000",
}
A770 = {
    "class": "0x030000",
    "vendor": "0x8086",
    "device": "0x56a0",
    "driver": "i915",
    "drm": ("card3", "renderD131"),
    "drm/card3/gt/gt0/rc6_residency_ms": "1234",
}
BMC = {"class": "0x030000", "vendor": "0x1a03", "device": "0x2000", "driver": "ast", "drm": ("card4",)}
NPU = {"class": "0x120000", "vendor": "0x1022", "device": "0x17f0", "driver": "amdxdna"}
CLIENT = """pos:\t0
flags:\t02100002
drm-driver:\t%(driver)s
drm-client-id:\t%(client)s
drm-pdev:\t%(slot)s
%(memory)s
"""


def add_client(proc, pid, number, memory, client="7", slot="0000:03:00.0", target="/dev/dri/renderD128"):
    for name in ("fd", "fdinfo"):
        (proc / str(pid) / name).mkdir(parents=True, exist_ok=True)
    (proc / str(pid) / "fd" / str(number)).symlink_to(target)
    words = {"driver": "amdgpu", "client": client, "slot": slot, "memory": memory}
    (proc / str(pid) / "fdinfo" / str(number)).write_text(CLIENT % words)


@pytest.fixture(name="sys")
def fixture_sys(tmp_path):
    sys = tmp_path / "sys"
    for slot, files in (
        ("0000:c5:00.0", MAX),
        ("0000:03:00.0", XTX),
        ("0000:04:00.0", B580),
        ("0000:05:00.0", A770),
        ("0000:06:00.0", BMC),
        ("0000:c6:00.1", NPU),
    ):
        add_card(sys, slot, files)
    return sys


def test_cards_in_order_of_slots(sys):
    found = drm.collect(str(sys))["cards"]
    assert [(one["slot"], one["vendor"], one["driver"], one["render"]) for one in found] == [
        ("0000:03:00.0", "amd", "amdgpu", "/dev/dri/renderD128"),
        ("0000:04:00.0", "intel", "xe", "/dev/dri/renderD130"),
        ("0000:05:00.0", "intel", "i915", "/dev/dri/renderD131"),
        ("0000:06:00.0", "0x1a03", "ast", None),
        ("0000:c5:00.0", "amd", "amdgpu", "/dev/dri/renderD129"),
    ]
    assert [one["unified"] for one in found] == [False, False, False, None, True]


def test_amdgpu_card_has_memory_and_sensors(sys):
    card = drm.collect(str(sys))["cards"][0]
    assert (card["vram_total_mib"], card["vram_used_mib"]) == (24560, 18430.28)
    assert (card["gtt_total_mib"], card["gtt_used_mib"]) == (32050.41, 50)
    assert (card["busy_percent"], card["temperature_c"], card["power_w"]) == (97, 54, 303)


def test_intel_counters_become_busy_and_power(sys):
    before = drm.collect(str(sys))["cards"][1]
    assert (before["vram_total_mib"], before["temperature_c"], before["busy_percent"]) == (12288, 61, None)
    now = {**before, "at": before["at"] + 10, "idle_ms": before["idle_ms"] + 2500, "energy_uj": 5000000000 + 1900000000}
    seen = drm.between(before, now)
    assert (seen["busy_percent"], seen["power_w"]) == (75, 190)
    assert drm.between(now, now)["busy_percent"] is None


def test_sleeping_card_is_not_woken(tmp_path):
    add_card(tmp_path, "0000:03:00.0", {**XTX, "power/runtime_status": "suspended"})
    card = drm.collect(str(tmp_path))["cards"][0]
    assert card["vram_total_mib"] == 24560
    assert (card["busy_percent"], card["temperature_c"], card["power_w"]) == (None, None, None)


@pytest.mark.parametrize("text", ["", "-", "9" * 40, "12 MiB", "\xff\n\n"])
def test_damaged_files_are_unknown_values(tmp_path, text):
    names = ("mem_info_vram_total", "gpu_busy_percent", "hwmon/hwmon3/temp1_input")
    add_card(tmp_path, "0000:03:00.0", {**XTX, **dict.fromkeys(names, text)})
    card = drm.collect(str(tmp_path))["cards"][0]
    assert (card["vram_total_mib"], card["busy_percent"], card["temperature_c"]) == (None, None, None)


def test_node_without_cards(tmp_path):
    assert drm.collect(str(tmp_path)) == {"cards": [], "reason": None, "processes": {}}


def test_name_from_the_list_of_devices(tmp_path):
    ids = tmp_path / "pci.ids"
    ids.write_text("1001  Other\n\t744c  Wrong\n1002  AMD\n# x\n\t744b  Less\n\t744c  Navi 31 [Radeon]\n\t\t1 2  Sub\n")
    assert drm.pci_name("0x1002", "0x744c", ("/nowhere", str(ids))) == "Navi 31 [Radeon]"
    assert drm.pci_name("0x1002", "0x0001", (str(ids),)) is None


@pytest.mark.parametrize(
    "memory, shared, mib",
    [
        ("drm-memory-vram:\t2048 KiB\ndrm-memory-gtt: \t1024 KiB\ndrm-memory-cpu: \t0 KiB", False, 2),
        ("drm-memory-vram:\t2048 KiB\ndrm-memory-gtt: \t1024 KiB\ndrm-memory-cpu: \t9 KiB", True, 3),
        ("drm-total-vram:\t9 MiB\ndrm-memory-vram:\t4 MiB\ndrm-resident-vram:\t5 MiB", False, 5),
        ("drm-total-vram0:\t23552 KiB\ndrm-resident-vram0:\t23552 KiB\ndrm-resident-gtt:\t192 KiB", False, 23),
        ("drm-resident-local0:\t1073741824\ndrm-resident-system0:\t64 MiB\ndrm-shared-local0:\t7", False, 1024),
        ("drm-resident-system0:\t64 MiB\ndrm-resident-stolen-system0:\t8 MiB", False, 64),
        ("drm-engine-gfx:\t25 ns", False, 0),
    ],
)
def test_memory_of_a_client(memory, shared, mib):
    assert drm.client_mib(memory, shared) == mib


def test_each_client_counts_once(tmp_path):
    memory = "drm-memory-vram:\t2048 KiB"
    add_client(tmp_path, 10, 4, memory)
    add_client(tmp_path, 10, 5, memory)
    add_client(tmp_path, 10, 6, memory, client="8")
    add_client(tmp_path, 10, 7, memory, slot="0000:04:00.0")
    add_client(tmp_path, 10, 8, memory, client="9", target="/tmp/dev/dri/renderD128")
    add_client(tmp_path, 11, 4, "drm-memory-vram:\t1024 KiB", client="12")
    (tmp_path / "12").mkdir()
    assert drm.usage(10, str(tmp_path)) == {"0000:03:00.0": 4, "0000:04:00.0": 2}
    assert drm.users(root=str(tmp_path)) == {"0000:03:00.0": {10: 4, 11: 1}, "0000:04:00.0": {10: 2}}


def test_descriptors_of_one_user_hide_no_card(tmp_path, monkeypatch):
    add_client(tmp_path, 10, 4, "drm-memory-vram:\t1024 KiB")
    add_client(tmp_path, 11, 4, "drm-memory-vram:\t1024 KiB", client="12")
    monkeypatch.setattr(drm, "LONGEST", -1.0)
    assert drm.users(root=str(tmp_path)) == {}
    monkeypatch.setattr(drm, "LONGEST", 0.0)
    assert drm.users(root=str(tmp_path)) == {"0000:03:00.0": {10: 1}}


def test_processes_come_with_the_cards(sys, tmp_path):
    add_client(tmp_path / "proc", 10, 4, "drm-memory-gtt:\t2048 KiB", slot="0000:c5:00.0")
    found = drm.collect(str(sys), str(tmp_path / "proc"), usage=True)
    assert found["processes"] == {"0000:c5:00.0": {10: 2}} and len(found["cards"]) == 5


def test_hung_driver_is_a_reason(sys, monkeypatch):
    """A FIFO without a writer blocks its reader, as a hung driver does."""
    path = sys / "bus/pci/devices/0000:03:00.0/gpu_busy_percent"
    path.unlink()
    os.mkfifo(path)
    monkeypatch.setattr(drm, "_child", Disposable(0.2))
    assert drm.collect(str(sys)) == {"cards": [], "reason": drm.HANGS % drm.DEADLINE, "processes": {}}
