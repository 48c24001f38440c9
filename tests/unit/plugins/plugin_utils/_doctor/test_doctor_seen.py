# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who has seen the fault of each rule, and the faults that a lab cannot have, from the words of those who tell of them
to the finding. Those of a lab: molecule/monitoring/tests/test_named_by_the_doctor.py."""

import json
import os
import re
import subprocess
import time
from pathlib import Path

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._doctor import journal, judge, system
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._exporter import machine
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._node import nvidia_smi, xid
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._doctor import cluster, rules

ROOT = Path(__file__).resolve().parents[5]
FIXTURES = ROOT / "tests/unit/fixtures"
RULES = rules.load()
MIB = 1 << 20
COLLECT = nvidia_smi.collect


@pytest.mark.parametrize("rule", RULES, ids=[rule["name"] for rule in RULES])
def test_somebody_has_seen_it(rule):
    """A drill makes it, a test makes it, or a public report has it."""
    seen = rule["seen"]
    if seen == "drill":
        assert rule["drills"]
    elif not seen.startswith("https://github.com/"):
        assert re.search(r"\b%s\b" % rule["name"], (ROOT / seen).read_text()), seen


def found(**evidence):
    return sorted({one["rule"] for one in judge.judge(RULES, dict(evidence, node="node1"))})


@pytest.fixture(name="smi")
def fixture_smi(tmp_path, monkeypatch):
    """What the doctor finds where nvidia-smi prints a text."""

    def look(text, status=0):
        tool = tmp_path / "nvidia-smi"
        (tmp_path / "said").write_text(text)
        tool.write_text("#!/bin/sh\ncat '%s/said'\nexit %d\n" % (tmp_path, status))
        tool.chmod(0o755)
        facts = COLLECT(str(tool), kernel_log=str(tmp_path / "none"))
        monkeypatch.setattr(system.nvidia_smi, "collect", lambda: facts)
        return found(**system.cards([]))

    return look


# The tags of other drivers differ; nvidia_smi_535_v100s.xml is of a card that is too warm, with a worker of nobody.
def test_cards_as_nvidia_smi_shows_them(smi):
    assert smi((FIXTURES / "nvidia_smi_570_rtx3060.xml").read_text()) == []
    text = (FIXTURES / "nvidia_smi_535_v100s.xml").read_text()
    assert smi(text) == ["card_throttled", "two_servers_on_card"]
    other = text.replace("Active</clocks_event_reason_sw", "Not Active</clocks_event_reason_sw")
    assert smi(other.replace("ggml-rpc-server", "python3")) == ["stranger_on_card"]
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
def test_drivers_as_nvidia_smi_complains_of_them(smi, text, rule):
    assert smi(text, 9) == [rule]


def test_xids_as_the_kernel_writes_them():
    record = "4,1200,5000000,-;NVRM: Xid (PCI:0000:44:00): 79, GPU has fallen off the bus\n"
    assert found(xids=xid.parse_xids(record, 60.0)) == ["card_xid"]


def write(folder, **files):
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).write_text("%s\n" % content)


def test_the_fabric_as_the_kernel_shows_it(tmp_path, monkeypatch):
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


def test_a_certificate_that_ends_soon(tmp_path, monkeypatch):
    """certificate_ends."""
    path = tmp_path / "gateway.pem"
    for days, rule in ((5, ["certificate_ends"]), (60, [])):
        make = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=gateway", "-days", str(days)]
        subprocess.run([*make, "-keyout", os.devnull, "-out", str(path)], check=True, capture_output=True)
        told = tmp_path / "sampler.json"
        told.write_text('{"certificate": "%s"}' % path)
        monkeypatch.setattr(system.paths, "SAMPLER", str(told))
        assert found(certificate=system._certificate()) == rule


def test_a_clock_that_nobody_sets(monkeypatch):
    """clock: adjtimex(2) of a machine without chrony says 5."""
    monkeypatch.setattr(machine, "CONTAINERS", ())
    for state, rule in ((5, ["clock"]), (0, [])):
        said = type("Libc", (), {"adjtimex": staticmethod(lambda _buffer, state=state: state)})
        monkeypatch.setattr(machine.ctypes, "CDLL", lambda *_words, said=said, **_more: said)
        assert found(clock={"synchronized": machine.clock_synchronized()}) == rule


def test_a_proof_that_did_not_hold(tmp_path, monkeypatch):
    """conversation_failed, by what the sampler has written."""
    page = tmp_path / "samples.prom"
    words = 'llama_sampler_timestamp_seconds %d\nllama_conversation_ok{service="chat"} %d\n'
    monkeypatch.setattr(system.paths, "SAMPLES", str(page))
    for held, rule in ((0, ["conversation_failed"]), (1, [])):
        page.write_text(words % (time.time(), held))
        assert found(samples=system.samples()) == rule


def test_a_unit_that_the_watchdog_leaves_alone():
    """repair_loop, in the words of test_watchdog.py."""
    said = {"MESSAGE": "worker chat: it hangs: not repaired again before 21:04:00 (3 repairs in 10 min)"}
    said.update(_SYSTEMD_UNIT="llama-watchdog.service", __REALTIME_TIMESTAMP="1795548339000000")
    assert found(lines=list(journal.parse([json.dumps(said)], []))) == ["repair_loop"]


def test_a_zone_of_firewalld_that_was_reset():
    """firewalld_zone."""
    rule = 'rule family="ipv4" source address="10.1.0.1" port port="50052" protocol="tcp" accept'
    lost = system.lost("running public %s\n" % rule, "public (active)\n  rich rules:\n", "public\n  interfaces: eth0\n")
    assert found(firewall={"lost": lost}) == ["firewalld_zone"]


def test_what_only_all_nodes_show():
    """clock_skew, fabric_mixed, plan_stale: of evidence as nodes send it."""
    layers = [{"address": "10.1.0.1", "link_layer": layer} for layer in ("InfiniBand", "Ethernet")]
    plan = {"service": "chat", "of": "node2", "device": "GPU1", "total_mib": 32768}
    cards = [{"index": 0, "total": 32768 * MIB}]
    nodes = {
        "node1": {"at": time.time(), "fabric": layers[0], "plans": [plan], "ahead": 0.1},
        "node2": {"at": time.time(), "fabric": layers[1], "cards": cards, "ahead": -3600.0},
    }
    seen = cluster.cluster_evidence(nodes)
    assert sorted(one["rule"] for one in judge.judge(RULES, seen)) == ["clock_skew", "fabric_mixed", "plan_stale"]
