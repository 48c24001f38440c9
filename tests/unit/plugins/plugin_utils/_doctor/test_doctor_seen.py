# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The origin of each rule's fault, and faults that a lab cannot have, from the output of programs to the
finding. For faults of a lab: molecule/monitoring/tests/test_named_by_the_doctor.py."""

import json
import os
import re
import subprocess
from pathlib import Path

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._doctor import journal, judge, system
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._exporter import machine
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._node import kernel_log, nvidia_smi, resets
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._doctor import cluster

ROOT = Path(__file__).resolve().parents[5]
FIXTURES = ROOT / "tests/unit/fixtures"
RULES = cluster.load()
MIB = 1 << 20
COLLECT = nvidia_smi.collect


@pytest.mark.parametrize("rule", RULES, ids=[rule["name"] for rule in RULES])
def test_fault_of_rule_was_seen(rule):
    """By a drill, a test or a public report."""
    seen = rule["seen"]
    if seen == "drill":
        assert rule["drills"]
    elif not seen.startswith("https://github.com/"):
        assert re.search(r"\b%s\b" % rule["name"], (ROOT / seen).read_text()), seen


def found(**evidence):
    return sorted({one["rule"] for one in judge.judge(RULES, dict(evidence, node="node1"))})


@pytest.fixture(name="smi")
def fixture_smi(tmp_path, monkeypatch):
    """The doctor's findings for an output of nvidia-smi."""

    def look(text, status=0):
        tool = tmp_path / "nvidia-smi"
        (tmp_path / "said").write_text(text)
        tool.write_text("#!/bin/sh\ncat '%s/said'\nexit %d\n" % (tmp_path, status))
        tool.chmod(0o755)
        facts = COLLECT(str(tool), kernel_log=str(tmp_path / "none"))
        monkeypatch.setattr(system.nvidia_smi, "collect", lambda: facts)
        monkeypatch.setattr(system.drm, "collect", lambda usage: NO_GRAPHICS)
        return found(**system.cards([]))

    return look


NO_GRAPHICS = {"cards": [], "reason": None, "processes": {}}
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


@pytest.fixture(name="graphics")
def fixture_graphics(tmp_path, monkeypatch):
    """The doctor's findings for cards of other vendors, with lines of the kernel's log."""
    monkeypatch.setattr(
        system.nvidia_smi,
        "collect",
        lambda: {"gpus": [], "xids": None, "available": False, "reason": "none is installed", "driver": None},
    )

    def look(*lines, **different):
        seen = {"cards": [RADEON], "reason": None, "processes": {}, **different}
        monkeypatch.setattr(system.drm, "collect", lambda usage: seen)
        records = "".join("3,1,5000000,-;%s\n" % line for line in lines)
        hangs = resets.found_in(kernel_log.parse(records, 60.0))
        monkeypatch.setattr(system.drm, "hangs", lambda _cards: (hangs, None))
        return found(**system.cards([]))

    return look


def test_hangs_of_other_vendors_cards_are_found(graphics):
    assert graphics("amdgpu 0000:03:00.0: amdgpu: MODE2 reset") == []
    assert graphics("amdgpu 0000:03:00.0: amdgpu: ring gfx_0.0.0 timeout, signaled seq=1, emitted seq=2") == [
        "card_hung"
    ]
    assert graphics("amdgpu 0000:03:00.0: amdgpu: GPU reset(1) failed") == ["card_not_reset"]
    assert graphics(cards=[], reason="sysfs gave no answer in 10 s: a graphics driver hangs, see dmesg") == [
        "graphics_hung"
    ]


def test_server_on_another_vendors_card_is_foreign(graphics, monkeypatch):
    monkeypatch.setattr(system, "control_group", lambda pid: "0::/user.slice\n")
    own = {RADEON["slot"]: {os.getpid(): 4096.0}}
    assert graphics(processes=own) == ["foreign_on_card"]
    monkeypatch.setattr(system, "read", lambda path, most: "llama-server\n")
    assert graphics(processes=own) == ["two_servers_on_card"]
    # A desktop's program is not.
    assert graphics(processes={RADEON["slot"]: {os.getpid(): 300.0}}) == []


# nvidia_smi_535_v100s.xml is of a card that is too warm, with an unmanaged worker.
def test_faults_of_cards_are_found(smi):
    assert smi((FIXTURES / "nvidia_smi_570_rtx3060.xml").read_text()) == []
    text = (FIXTURES / "nvidia_smi_535_v100s.xml").read_text()
    assert smi(text) == ["card_throttled", "two_servers_on_card"]
    other = text.replace("Active</clocks_event_reason_sw", "Not Active</clocks_event_reason_sw")
    assert smi(other.replace("ggml-rpc-server", "python3")) == ["foreign_on_card"]
    spoilt = (FIXTURES / "nvidia_smi_580_h100.xml").read_text()
    assert "card_ecc" in smi(re.sub(r"(?s)(<volatile>.*?dram_uncorrectable>)0<", r"\g<1>2<", spoilt))


@pytest.mark.parametrize(
    "text, rule",
    [
        (
            "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest "
            "NVIDIA driver is installed and running.\n",
            "driver_gone",
        ),
        (
            "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 570.124\n",
            "driver_mismatch",
        ),
        ("No devices were found\n", "driver_gone"),
    ],
)
def test_driver_faults_are_found(smi, text, rule):
    assert smi(text, 9) == [rule]


def test_xid_is_found():
    record = "4,1200,5000000,-;NVRM: Xid (PCI:0000:44:00): 79, GPU has fallen off the bus\n"
    assert found(xids=nvidia_smi.xids_in(kernel_log.parse(record, 60.0))) == ["card_xid"]


def write(folder, **files):
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).write_text("%s\n" % content)


def test_fabric_faults_are_found(tmp_path, monkeypatch):
    """fabric_mtu, ethernet_instead_of_fabric."""
    net = tmp_path / "class/net"
    write(net / "eth0", type=1, mtu=1500, operstate="up", speed=1000)
    write(net / "ib0", type=32, mtu=2044, operstate="up", mode="datagram")
    shown = "2: eth0    inet 10.0.0.31/24 scope global eth0\n3: ib0    inet 10.1.0.31/24 scope global ib0\n"
    monkeypatch.setattr(system.fabric, "_ip", lambda *_words: (0, shown))

    def look(address):
        return found(fabric=system.fabric_of(address, [], str(tmp_path)))

    assert look("10.1.0.31") == ["fabric_mtu"]
    assert look("10.0.0.31") == ["ethernet_instead_of_fabric"]
    write(net / "ib0", mtu=65520, mode="connected")
    assert look("10.1.0.31") == []
    write(net / "ib0", operstate="down")
    assert look("10.1.0.31") == ["fabric_route"]


def test_expiring_certificate_is_found(tmp_path, monkeypatch):
    """certificate_ends."""
    path = tmp_path / "gateway.pem"
    for days, rule in ((5, ["certificate_ends"]), (60, [])):
        make = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=gateway", "-days", str(days)]
        subprocess.run([*make, "-keyout", os.devnull, "-out", str(path)], check=True, capture_output=True)
        config = tmp_path / "sampler.json"
        config.write_text('{"certificate": "%s"}' % path)
        monkeypatch.setattr(system.paths, "SAMPLER", str(config))
        assert found(certificate=system._certificate()) == rule


def test_unset_clock_is_found(monkeypatch):
    """clock: adjtimex(2) of a machine without chrony returns 5."""
    monkeypatch.setattr(machine, "CONTAINERS", ())
    for state, rule in ((5, ["clock"]), (0, [])):
        said = type("Libc", (), {"adjtimex": staticmethod(lambda _buffer, state=state: state)})
        monkeypatch.setattr(machine.ctypes, "CDLL", lambda *_words, said=said, **_more: said)
        assert found(clock={"synchronized": machine.clock_synchronized()}) == rule


def test_repair_loop_is_found():
    """repair_loop, with a line of test_watchdog.py."""
    said = {"MESSAGE": "worker chat: it hangs: not repaired again before 21:04:00 (3 repairs in 10 min)"}
    said.update(_SYSTEMD_UNIT="llama-watchdog.service", __REALTIME_TIMESTAMP="1795548339000000")
    assert found(lines=list(journal.parse([json.dumps(said)], []))) == ["repair_loop"]
