# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

import contextlib
import os
import re
import threading
import time
from pathlib import Path

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._node import kernel_log, nvidia_smi

UNIT = Path(__file__).resolve().parents[3]
STUB = str(UNIT / "stub_nvidia_smi")
FIXTURES = UNIT / "fixtures"
V100S = FIXTURES / "nvidia_smi_535_v100s.xml"
A100_MIG = FIXTURES / "nvidia_smi_550_a100_mig.xml"
LOST = "6,812,5000000,-;NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.\n"


@pytest.fixture(name="collect")
def fixture_collect(monkeypatch, tmp_path):
    """collect() with a stub that does this, on a machine with the V100S in NUMA node 1."""

    def collect(does, deadline=10, kernel_log=""):
        monkeypatch.setenv("STUB_NVIDIA_SMI", str(does))
        (tmp_path / "0000:3b:00.0").mkdir()
        (tmp_path / "0000:3b:00.0" / "numa_node").write_text("1\n")
        (tmp_path / "kmsg").write_text(kernel_log)
        return nvidia_smi.collect(STUB, deadline, str(tmp_path), str(tmp_path / "kmsg"))

    return collect


def test_v100s_with_driver_535(collect):
    assert collect(V100S) == {
        "available": True,
        "reason": None,
        "warning": None,
        "driver": "535.183.01",
        "cuda": "12.2",
        "xids": [],
        "xids_reason": None,
        "gpus": [
            {
                "index": 0,
                "name": "Tesla V100S-PCIE-32GB",
                "uuid": "GPU-00000000-1111-2222-3333-444444444444",
                "pci_bus_id": "00000000:3B:00.0",
                "numa_node": 1,
                "compute_cap": "7.0",
                "compute_mode": None,
                "memory_total_mib": 32768,
                "memory_reason": None,
                "memory_used_mib": 22574,
                "memory_free_mib": 9876,
                "utilization": 31,
                "temperature_c": 41,
                "power_w": 97.42,
                "mig": None,
                "mig_devices": [],
                "ecc": {"volatile_uncorrected": 0},
                "throttle_reasons": ["sw_power_cap", "sw_thermal_slowdown"],
                "processes": [
                    {
                        "pid": 4711,
                        "type": "C",
                        "name": "/opt/llama.cpp/releases/b11434/bin/ggml-rpc-server",
                        "memory_used_mib": 22570,
                    }
                ],
            }
        ],
    }


def test_a100_with_mig_and_driver_550(collect):
    gpu = collect(A100_MIG)["gpus"][0]
    assert (gpu["mig"], gpu["utilization"], gpu["power_w"]) == (True, None, 40.71)
    assert gpu["mig_devices"] == [
        {
            "index": 0,
            "uuid": "MIG-00000000-aaaa-5555-6666-777777777777",
            "gpu_instance_id": 1,
            "compute_instance_id": 0,
            "memory_total_mib": 20096,
            "memory_used_mib": 12,
            "memory_free_mib": 20084,
        },
        {
            "index": 1,
            "uuid": "MIG-11111111-aaaa-5555-6666-777777777777",
            "gpu_instance_id": 2,
            "compute_instance_id": 0,
            "memory_total_mib": 20096,
            "memory_used_mib": 1500,
            "memory_free_mib": 18596,
        },
    ]
    assert gpu["ecc"]["volatile_uncorrected"] == 2 + 3 + 5
    assert gpu["throttle_reasons"] == []
    assert gpu["processes"] == [{"pid": 815, "type": "C", "name": None, "memory_used_mib": None}]


def test_unsupported_values_are_null(collect):
    gpu = collect(A100_MIG)["gpus"][1]
    assert (gpu["index"], gpu["memory_total_mib"], gpu["utilization"]) == (1, 40960, 0)
    unknown = (
        "memory_used_mib",
        "memory_free_mib",
        "temperature_c",
        "power_w",
        "throttle_reasons",
        "compute_cap",
        "numa_node",
    )
    assert {name: gpu[name] for name in unknown} == dict.fromkeys(unknown)
    assert set(gpu["ecc"].values()) == {None}


@pytest.mark.parametrize("words", ["N/A", "[N/A]", "Not Supported", "GPU is lost", "Insufficient Permissions"])
def test_missing_memory_size_has_its_reason(words):
    text = re.sub(r"(<fb_memory_usage>\s*<total>)[^<]*", r"\g<1>" + words, V100S.read_text(), count=1)
    gpu = nvidia_smi.parse(text)["gpus"][0]
    assert (gpu["memory_total_mib"], gpu["memory_reason"]) == (None, words)


def test_compute_cap_of_the_xml_comes_first(collect, tmp_path):
    newer = tmp_path / "newer_v100s.xml"
    newer.write_text(V100S.read_text().replace("<minor_number>", "<compute_cap>7.5</compute_cap>\n<minor_number>"))
    assert collect(newer)["gpus"][0]["compute_cap"] == "7.5"


@pytest.mark.parametrize(
    ("name", "driver", "readings"),
    [
        (
            "nvidia_smi_460_v100s.xml",
            ("460.73.01", "11.2"),
            {
                "memory_total_mib": 32510,
                "power_w": 232.8,
                "throttle_reasons": ["sw_power_cap"],
            },
        ),
        (
            "nvidia_smi_555_l4.xml",
            ("555.42.06", "12.5"),
            {
                "memory_total_mib": 23034,
                "power_w": 27.22,
                "throttle_reasons": [],
            },
        ),
        (
            "nvidia_smi_570_rtx3060.xml",
            ("570.124.04", "12.8"),
            {
                "memory_total_mib": 12288,
                "power_w": 11.6,
                "throttle_reasons": [],
            },
        ),
        (
            "nvidia_smi_580_h100.xml",
            ("580.159.04", "13.0"),
            {
                "memory_total_mib": 81559,
                "power_w": 496.31,
                "throttle_reasons": [],
            },
        ),
        (
            "nvidia_smi_595_rtx4000.xml",
            ("595.84", "13.2"),
            {
                "memory_total_mib": 20475,
                "power_w": 8.81,
                "throttle_reasons": ["hw_power_brake_slowdown", "hw_slowdown", "sw_power_cap"],
            },
        ),
    ],
)
def test_readings_of_driver_families(name, driver, readings):
    facts = nvidia_smi.parse((FIXTURES / name).read_text())
    assert (facts["driver"], facts["cuda"]) == driver
    assert {key: facts["gpus"][0][key] for key in readings} == readings


@pytest.mark.parametrize(
    ("name", "errors"),
    [
        ("nvidia_smi_460_v100s.xml", 0),
        ("nvidia_smi_555_l4.xml", 2 + 4 + 16),
        ("nvidia_smi_570_rtx3060.xml", None),
        ("nvidia_smi_595_rtx4000.xml", None),
    ],
)
def test_uncorrected_memory_errors(name, errors):
    assert nvidia_smi.parse((FIXTURES / name).read_text())["gpus"][0]["ecc"] == {"volatile_uncorrected": errors}


@pytest.mark.parametrize(
    ("does", "reason"),
    [
        (
            "no_devices",
            "failed with status 6: No devices were found: the driver runs and found no GPU that works: see lspci and "
            "dmesg",
        ),
        (
            "no_driver",
            "failed with status 9: NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver",
        ),
        ("no_driver", "load it with modprobe nvidia"),
        (
            "mismatch",
            "failed with status 18: Failed to initialize NVML: Driver/library version mismatch, NVML library version: "
            "535.183: the kernel still runs the driver of before an update: reboot the node",
        ),
    ],
)
def test_missing_gpu_or_driver_has_a_reason(collect, does, reason):
    facts = collect(does)
    assert reason in facts.pop("reason")
    assert facts == {
        "available": False,
        "warning": None,
        "driver": None,
        "cuda": None,
        "gpus": [],
        "xids": [],
        "xids_reason": None,
    }


@pytest.mark.parametrize(
    ("fault", "warning"),
    [
        ("inforom", "WARNING: infoROM is corrupted at gpu 0000:3B:00.0"),
        ("lost", "Unable to determine the device handle for GPU1: 0000:5E:00.0: Unknown Error"),
    ],
)
def test_cards_beside_a_faulty_one_are_listed(collect, fault, warning):
    facts = collect("%s %s" % (fault, V100S))
    assert (facts["available"], facts["warning"]) == (True, warning)
    assert facts["gpus"][0]["memory_total_mib"] == 32768


def test_xids_name_their_card(collect):
    facts = collect(V100S, kernel_log=LOST + LOST.replace("3b", "5e"))
    assert [(entry["pci_slot"], entry["xid"], entry["gpu"]) for entry in facts["xids"]] == [
        ("0000:3b:00", 79, 0),
        ("0000:5e:00", 79, None),
    ]


def test_hung_driver_is_reported_and_killed(collect, tmp_path):
    facts = collect("hang %s" % (tmp_path / "pids"), deadline=1, kernel_log=LOST)
    assert (facts["available"], facts["gpus"]) == (False, [])
    assert "gave no answer in 1 s: the driver hangs" in facts["reason"]
    assert [entry["xid"] for entry in facts["xids"]] == [79]
    stats = [Path("/proc/%s/stat" % pid) for pid in (tmp_path / "pids").read_text().split()]
    assert len(stats) == 2
    for _attempt in range(100):
        # Killed: gone, or a zombie that only its parent can take away.
        if all(not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] == "Z" for stat in stats):
            return
        time.sleep(0.1)
    pytest.fail("a process of a hung nvidia-smi still runs")


def test_unkillable_call_blocks_further_calls(tmp_path, monkeypatch):
    started = tmp_path / "started"
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\necho x >>%s\nexec sleep 60\n" % started)
    tool.chmod(0o755)
    spared = []
    monkeypatch.setattr(nvidia_smi, "DIES", 0.1)
    monkeypatch.setattr(nvidia_smi.os, "killpg", lambda *which: spared.append(which))
    for _look in range(3):
        assert "gave no answer in 0.5 s: the driver hangs" in nvidia_smi.collect(str(tool), 0.5)["reason"]
    assert started.read_text() == "x\n"
    monkeypatch.undo()
    # After the driver releases it, the tool is called again.
    os.killpg(*spared[0])
    nvidia_smi._hanging[0].wait(10)
    tool.write_text("#!/bin/sh\necho no\nexit 6\n")
    assert "failed with status 6" in nvidia_smi.collect(str(tool), 5)["reason"]
    assert not nvidia_smi._hanging


def test_missing_tool_has_a_reason(tmp_path):
    facts = nvidia_smi.collect(str(tmp_path / "nvidia-smi"))
    assert facts["available"] is False
    assert "cannot be run (No such file or directory): no NVIDIA driver is installed" in facts["reason"]


def test_tool_without_permission_has_a_reason(tmp_path):
    (tmp_path / "nvidia-smi").write_text("")
    assert nvidia_smi.collect(str(tmp_path / "nvidia-smi"))["reason"].endswith("cannot be run (Permission denied)")


@pytest.mark.parametrize(
    "text",
    [
        "N/A",
        "[N/A]",
        "[Not Supported]",
        "Unknown Error",
        "[Insufficient Permissions]",
        "GPU is lost",
        "[GPU requires reset]",
        "ERR!",
        "Not Found",
        "",
    ],
)
def test_placeholder_texts_are_null(text):
    gpu = nvidia_smi.parse("<nvidia_smi_log><gpu><product_name>%s</product_name></gpu></nvidia_smi_log>" % text)[
        "gpus"
    ][0]
    assert gpu["name"] is None


@pytest.mark.parametrize("text", ["", "No devices were found", "<nvidia_smi_log><gpu>", "\x00<a/>"])
def test_missing_xml_is_refused(text):
    with pytest.raises(nvidia_smi.Refusal, match="printed no XML"):
        nvidia_smi.parse(text)


def test_xml_without_gpu_is_not_available():
    facts = nvidia_smi.parse(
        "<nvidia_smi_log><driver_version>535.183.01</driver_version><attached_gpus>0</attached_gpus></nvidia_smi_log>"
    )
    assert (facts["available"], facts["reason"], facts["driver"]) == (False, "nvidia-smi lists no GPU", "535.183.01")


def test_capabilities():
    text = "GPU-aaaa, 7.0\nGPU-bbbb, 12.0\nGPU-cccc, [N/A]\n"
    assert nvidia_smi.parse_capabilities(text) == {"GPU-aaaa": "7.0", "GPU-bbbb": "12.0"}


def test_instances():
    text = (
        "GPU 0: NVIDIA H100 NVL (UUID: GPU-aaaa)\n  MIG 2g.24gb     Device  0: (UUID: MIG-0000)\n  MIG 1c.3g.40gb "
        "Device 11: (UUID: MIG-GPU-aaaa/3/0)\nGPU 1: NVIDIA H100 NVL (UUID: GPU-bbbb)\n  MIG 1g.12gb     Device  0: "
        "(UUID: MIG-1111)\n"
    )
    assert nvidia_smi.parse_instances(text) == {
        ("GPU-aaaa", 0): "MIG-0000",
        ("GPU-aaaa", 11): "MIG-GPU-aaaa/3/0",
        ("GPU-bbbb", 0): "MIG-1111",
    }


@pytest.mark.parametrize(("content", "node"), [("0\n", 0), ("3\n", 3), ("-1\n", None), ("", None)])
def test_numa_node(tmp_path, content, node):
    (tmp_path / "000a:ca:00.0").mkdir()
    (tmp_path / "000a:ca:00.0" / "numa_node").write_text(content)
    assert nvidia_smi.numa_node("0000000A:CA:00.0", str(tmp_path)) == node


@pytest.mark.parametrize("bus_id", [None, "", "../../etc", "00000000:CA:00.0"])
def test_no_numa_node(tmp_path, bus_id):
    assert nvidia_smi.numa_node(bus_id, str(tmp_path)) is None


WITH_PROCESSES = [path for path in sorted(FIXTURES.glob("nvidia_smi_*.xml")) if "<processes>" in path.read_text()]


FORGED = (
    '<gpu id="00000000:FF:00.0">\n<product_name>FORGED</product_name>\n<uuid>GPU-FORGED</uuid>\n<fb_memory_usage>\n'
    "<total>99 MiB</total>\n</fb_memory_usage>\n"
)
ENDS = "</process_name>\n</process_info>\n</processes>\n"
OPENS = "<processes>\n<process_info>\n<process_name>"


@pytest.mark.parametrize("path", WITH_PROCESSES, ids=lambda path: path.stem)
@pytest.mark.parametrize(
    ("name", "read"),
    [
        ("a & b", True),
        ("a<b>c", True),
        ("/tmp/</processes>", True),
        ("\x01\x1b[2J", True),
        ("x\n<gpu id='1'>", True),
        (ENDS + "</gpu>\n" + FORGED + OPENS, None),
        (ENDS + "</gpu>\n" + FORGED + "<x>\n<gpu>\n" + OPENS, None),
        (ENDS + "<compute_cap>99.9</compute_cap><uuid>GPU-FORGED</uuid>\n" + OPENS, None),
        (ENDS + "</gpu>" + FORGED + OPENS + "<!--", None),
    ],
)
def test_process_name_forges_no_card(path, name, read):
    text = path.read_text()
    clean = nvidia_smi.parse(re.sub("(?s)<processes>.*?</processes>", "<processes/>", text))["gpus"]
    process = f"<processes>\n<process_info>\n<process_name>{name}</process_name>\n</process_info>\n"
    found = None
    with contextlib.suppress(nvidia_smi.Refusal):
        found = nvidia_smi.parse(text.replace("<processes>", process, 1))
    assert found is not None or not read
    if found:
        kept = ("index", "name", "uuid", "pci_bus_id", "compute_cap", "memory_total_mib")
        assert [[gpu[key] for key in kept] for gpu in found["gpus"]] == [[gpu[key] for key in kept] for gpu in clean]
        assert "its processes are left out" in found["warning"]


@pytest.mark.parametrize("same", ['<gpu id="1"><uuid>GPU-a</uuid></gpu>', '<gpu id="0"><uuid>GPU-b</uuid></gpu>'])
def test_card_listed_twice_is_refused(same):
    text = '<nvidia_smi_log><gpu id="0"><uuid>GPU-a</uuid></gpu>%s</nvidia_smi_log>'
    with pytest.raises(nvidia_smi.Refusal, match="describes cards"):
        nvidia_smi.parse(text % same)


# The records of /dev/kmsg, a line with the device it is about included.
LOG = """\
6,811,4000000,-;NVRM: loading NVIDIA UNIX x86_64 Kernel Module  535.183.01  Sun May 12 19:39:15 UTC 2024
3,812,5000000,-;NVRM: Xid (PCI:0000:3b:00): 13, pid=4711, name=rpc-server, Graphics Exception: ESR 0x51de48=0x1000e
 SUBSYSTEM=pci
 DEVICE=+pci:0000:3b:00.0
3,813,6000000,c;NVRM: Xid (PCI:0000:3b:00): 13, pid=4712, name=rpc-server, Graphics Exception: ESR 0x51de48=0x1000f
3,814,7500000,-,caller=T42;NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.
3,815,8000000,-;NVRM: Xid (PCI:000A:CA:00 GPU-I:05): 94, pid=7194, Contained: CE User Channel (0x9). RST: No, D-RST: No
3,816,8100000,-;NVRM: Xid (0000:5e:00): 31
6,817,9000000,-;someone wrote NVRM: Xid (PCI:0000:01:00): 79, GPU has fallen off the bus.
"""


def test_one_entry_for_each_card_and_number():
    assert nvidia_smi.xids_in(kernel_log.parse(LOG, 10.0)) == [
        {
            "pci_slot": "0000:3b:00",
            "xid": 13,
            "count": 2,
            "seconds_ago": 4,
            "message": "pid=4712, name=rpc-server, Graphics Exception: ESR 0x51de48=0x1000f",
        },
        {"pci_slot": "0000:3b:00", "xid": 79, "count": 1, "seconds_ago": 2, "message": "GPU has fallen off the bus."},
        {
            "pci_slot": "000a:ca:00",
            "xid": 94,
            "count": 1,
            "seconds_ago": 2,
            "message": "pid=7194, Contained: CE User Channel (0x9). RST: No, D-RST: No",
        },
        {"pci_slot": "0000:5e:00", "xid": 31, "count": 1, "seconds_ago": 1, "message": None},
    ]


def test_fallen_card_without_xid_counts_as_79():
    """NVIDIA/NVSentinel #155, leptonai/gpud #1209."""
    text = (
        r"3,9,1843308145,-;NVRM: The NVIDIA GPU 0000:b3:00.0\x0aNVRM: (PCI ID: 10de:26b5) installed in this system "
        r"has\x0aNVRM: fallen off the bus and is not responding to commands."
    )
    (found,) = nvidia_smi.xids_in(kernel_log.parse(text, 1850.0))
    assert (found["pci_slot"], found["xid"], found["message"]) == ("0000:b3:00", 79, "fallen off the bus")


def test_log_is_read_without_waiting(tmp_path):
    """A named pipe with a writer, like the device: what is there, and then nothing for now."""
    pipe = tmp_path / "kmsg"
    os.mkfifo(str(pipe))
    keep_open = os.open(str(pipe), os.O_RDWR)
    os.write(keep_open, LOG.encode())
    found = []
    reader = threading.Thread(target=lambda: found.append(nvidia_smi.read_xids(str(pipe))), daemon=True)
    reader.start()
    reader.join(10)
    os.close(keep_open)
    xids, reason = found[0]
    assert ([entry["xid"] for entry in xids], reason) == ([13, 79, 94, 31], None)


def test_records_that_were_overwritten_meanwhile_are_passed_over(tmp_path, monkeypatch):
    answers = [LOG.splitlines(True)[1].encode(), BrokenPipeError(), LOG.splitlines(True)[5].encode(), BlockingIOError()]

    def read(descriptor, length):
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    (tmp_path / "kmsg").write_text("")
    monkeypatch.setattr(os, "read", read)
    assert [entry["xid"] for entry in nvidia_smi.read_xids(str(tmp_path / "kmsg"))[0]] == [13, 79]


@pytest.mark.parametrize(
    ("problem", "needed"),
    [
        (
            PermissionError(1, "Operation not permitted"),
            "/dev/kmsg is not readable for user id %d: run with become" % os.geteuid(),
        ),
        (
            FileNotFoundError(2, "No such file or directory"),
            "/dev/kmsg cannot be read (No such file or directory): a container has none, see the log of its host",
        ),
    ],
)
def test_unreadable_log_has_a_reason(monkeypatch, problem, needed):
    def refuse(path, flags):
        raise problem

    monkeypatch.setattr(os, "open", refuse)
    assert nvidia_smi.read_xids() == (None, needed)
