# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

import time
from pathlib import Path

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils import _nvidia_smi

UNIT = Path(__file__).resolve().parents[2]
STUB = str(UNIT / "stub_nvidia_smi")
V100S = UNIT / "fixtures" / "nvidia_smi_535_v100s.xml"
A100_MIG = UNIT / "fixtures" / "nvidia_smi_550_a100_mig.xml"


@pytest.fixture(name="collect")
def fixture_collect(monkeypatch, tmp_path):
    """What is collected from a stub that does this, on a machine with the V100S in NUMA node 1."""

    def collect(does, deadline=10):
        monkeypatch.setenv("STUB_NVIDIA_SMI", str(does))
        (tmp_path / "0000:3b:00.0").mkdir()
        (tmp_path / "0000:3b:00.0" / "numa_node").write_text("1\n")
        return _nvidia_smi.collect(STUB, deadline, str(tmp_path))

    return collect


def test_v100s_with_driver_535(collect):
    assert collect(V100S) == {
        "available": True,
        "reason": None,
        "driver": "535.183.01",
        "cuda": "12.2",
        "gpus": [
            {
                "index": 0,
                "name": "Tesla V100S-PCIE-32GB",
                "uuid": "GPU-00000000-1111-2222-3333-444444444444",
                "pci_bus_id": "00000000:3B:00.0",
                "numa_node": 1,
                "compute_cap": "7.0",
                "memory_total_mib": 32768,
                "memory_used_mib": 22574,
                "memory_free_mib": 9876,
                "utilization": 31,
                "memory_utilization": 22,
                "temperature_c": 41,
                "power_w": 97.42,
                "power_limit_w": 250.0,
                "persistence_mode": True,
                "mig": None,
                "mig_devices": [],
                "ecc": {"enabled": True, "volatile_corrected": 1, "volatile_uncorrected": 0, "aggregate_corrected": 7, "aggregate_uncorrected": 3},
                "throttle_reasons": ["sw_power_cap", "sw_thermal_slowdown"],
                "processes": [{"pid": 4711, "type": "C", "name": "/opt/llama.cpp/releases/b11434/bin/ggml-rpc-server", "memory_used_mib": 22570}],
            }
        ],
    }


def test_a100_with_mig_and_driver_550(collect):
    gpu = collect(A100_MIG)["gpus"][0]
    assert (gpu["mig"], gpu["persistence_mode"], gpu["utilization"], gpu["power_w"]) == (True, False, None, 40.71)
    assert gpu["mig_devices"] == [
        {"index": 0, "gpu_instance_id": 1, "memory_total_mib": 20096, "memory_used_mib": 12, "memory_free_mib": 20084},
        {"index": 1, "gpu_instance_id": 2, "memory_total_mib": 20096, "memory_used_mib": 1500, "memory_free_mib": 18596},
    ]
    assert (gpu["ecc"]["volatile_corrected"], gpu["ecc"]["volatile_uncorrected"]) == (1 + 4, 2 + 3 + 5)
    assert gpu["throttle_reasons"] == []
    assert gpu["processes"] == [{"pid": 815, "type": "C", "name": None, "memory_used_mib": None}]


def test_what_a_card_does_not_tell_is_null(collect):
    gpu = collect(A100_MIG)["gpus"][1]
    assert (gpu["index"], gpu["memory_total_mib"], gpu["power_limit_w"], gpu["utilization"]) == (1, 40960, 250.0, 0)
    unknown = ("memory_used_mib", "memory_free_mib", "memory_utilization", "temperature_c", "power_w", "throttle_reasons", "compute_cap", "numa_node")
    assert {name: gpu[name] for name in unknown} == dict.fromkeys(unknown)
    assert set(gpu["ecc"].values()) == {None}


def test_compute_cap_of_the_xml_comes_first(collect, tmp_path):
    newer = tmp_path / "newer_v100s.xml"
    newer.write_text(V100S.read_text().replace("<minor_number>", "<compute_cap>7.5</compute_cap>\n<minor_number>"))
    assert collect(newer)["gpus"][0]["compute_cap"] == "7.5"


@pytest.mark.parametrize(
    ("does", "reason"),
    [
        ("no_devices", "failed with status 6: No devices were found"),
        ("no_driver", "failed with status 9: NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver"),
    ],
)
def test_no_gpu_and_no_driver_are_answers(collect, does, reason):
    facts = collect(does)
    assert reason in facts.pop("reason")
    assert facts == {"available": False, "driver": None, "cuda": None, "gpus": []}


def test_a_hung_driver_is_an_answer_and_its_process_is_killed(collect, tmp_path):
    facts = collect("hang %s" % (tmp_path / "pid"), deadline=1)
    assert facts["available"] is False
    assert "gave no answer in 1 s: the driver hangs" in facts["reason"]
    stat = Path("/proc/%s/stat" % (tmp_path / "pid").read_text().strip())
    for _attempt in range(100):
        # Killed: gone, or a zombie that only its parent can take away.
        if not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] == "Z":
            return
        time.sleep(0.1)
    pytest.fail("the process of a hung nvidia-smi still runs")


def test_no_tool_is_an_answer(tmp_path):
    facts = _nvidia_smi.collect(str(tmp_path / "nvidia-smi"))
    assert facts["available"] is False
    assert "cannot be run (No such file or directory)" in facts["reason"]


@pytest.mark.parametrize(
    "text", ["N/A", "[N/A]", "[Not Supported]", "Unknown Error", "[Insufficient Permissions]", "GPU is lost", "[GPU requires reset]", "ERR!", ""]
)
def test_what_stands_for_nothing_is_null(text):
    gpu = _nvidia_smi.parse("<nvidia_smi_log><gpu><product_name>%s</product_name></gpu></nvidia_smi_log>" % text)["gpus"][0]
    assert gpu["name"] is None


@pytest.mark.parametrize("text", ["", "No devices were found", "<nvidia_smi_log><gpu>", "\x00<a/>"])
def test_what_is_no_xml_is_not_available(text):
    with pytest.raises(_nvidia_smi.NotAvailable, match="printed no XML"):
        _nvidia_smi.parse(text)


def test_xml_without_gpu_is_not_available():
    facts = _nvidia_smi.parse("<nvidia_smi_log><driver_version>535.183.01</driver_version><attached_gpus>0</attached_gpus></nvidia_smi_log>")
    assert (facts["available"], facts["reason"], facts["driver"]) == (False, "nvidia-smi lists no GPU", "535.183.01")


def test_capabilities():
    text = "GPU-aaaa, 7.0\nGPU-bbbb, 12.0\nGPU-cccc, [N/A]\n"
    assert _nvidia_smi.parse_capabilities(text) == {"GPU-aaaa": "7.0", "GPU-bbbb": "12.0"}


@pytest.mark.parametrize(("content", "node"), [("0\n", 0), ("3\n", 3), ("-1\n", None), ("", None)])
def test_numa_node(tmp_path, content, node):
    (tmp_path / "000a:ca:00.0").mkdir()
    (tmp_path / "000a:ca:00.0" / "numa_node").write_text(content)
    assert _nvidia_smi.numa_node("0000000A:CA:00.0", str(tmp_path)) == node


@pytest.mark.parametrize("bus_id", [None, "", "../../etc", "00000000:CA:00.0"])
def test_no_numa_node(tmp_path, bus_id):
    assert _nvidia_smi.numa_node(bus_id, str(tmp_path)) is None
