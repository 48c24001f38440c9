# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Results of links."""

import json

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._reports import link

IPOIB = {"link_layer": "InfiniBand", "rate_gbps": 100.0, "interface": "ib0", "mtu": 2044, "ipoib_mode": "datagram"}
ETHERNET = {"link_layer": "Ethernet", "rate_gbps": 10.0, "interface": "eth1", "mtu": 1500, "ipoib_mode": None}
NODES = ("node1", "node2")


def report(gbit, fabric=None, other=None, **changes):
    fabric = IPOIB if fabric is None else fabric
    one = {"from": "node1", "to": "node2", "gbit_per_second": gbit, "retransmits": 3}
    hostvars = {
        "node1": {"acceptance_link": [dict(one, **changes)], "ansible_facts": {"llama_fabric": fabric}},
        "node2": {"ansible_facts": {"llama_fabric": other or fabric}},
    }
    return link.link_report(hostvars, NODES, "10", "2026-11-26T10:00:00Z")


def test_result_has_each_pair_with_its_port():
    made = report("62.1")
    own, latest = made["files"].values()
    result = json.loads(latest)
    (pair,) = result.pop("pairs")
    expected = {"from": "node1", "to": "node2", "gbit_per_second": 62.1, "retransmits": 3}
    assert pair == {**expected, "rate_gbps": 100.0, "link_layer": "InfiniBand"}
    moment = "2026-11-26T10:00:00Z"
    assert own == latest and result == {"format": 1, "kind": "link", "measured_at": moment, "streams": 8, "seconds": 10}
    assert list(made["files"]) == ["link/20261126T100000Z.json", "link/latest.json"]
    nothing = link.link_report({"node1": {}}, ["node1"], 10, moment)
    assert nothing == {"files": {}, "lines": ["link: nothing measured"]}


@pytest.mark.parametrize(
    ("gbit", "target"), [(50, "target"), (49.9, "acceptable"), (30, "acceptable"), (20, "below"), (19.99, "critical")]
)
def test_both_readings_stand_side_by_side(gbit, target):
    row = report(gbit)["lines"][2]
    assert row.endswith(target) and "%.0f %%" % gbit in row and "%.2f" % gbit in row


@pytest.mark.parametrize(
    ("made", "words"),
    [
        # The targets are for InfiniBand.
        (report(9.4, ETHERNET), ["9.40", "94", "%", "3", "-"]),
        # The slower end is the port.
        (report(9.4, dict(ETHERNET, rate_gbps=40.0), ETHERNET), ["9.40", "94", "%", "3", "-"]),
        # The port is unknown.
        (report(9.4, {}, retransmits=None), ["9.40", "-"]),
    ],
)
def test_other_networks_have_no_target(made, words):
    assert made["lines"][2].split()[2:] == words and len(made["lines"]) == 3


@pytest.mark.parametrize(
    ("made", "remark"),
    [
        (report(90.0), None),
        (report(31.2), "node1 to node2: 31.20 Gbit/s, the port of ib0 has 100: look at its MTU (2044, mode datagram)"),
    ],
)
def test_slow_link_is_explained(made, remark):
    found = made["lines"][3:]
    assert [line.startswith(remark) for line in found] == [True] if remark else found == []
