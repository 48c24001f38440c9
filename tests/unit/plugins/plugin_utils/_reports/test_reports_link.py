# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is kept and printed of links."""

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._reports import link

IPOIB = {"link_layer": "InfiniBand", "rate_gbps": 100.0, "interface": "ib0", "mtu": 2044, "ipoib_mode": "datagram"}
ETHERNET = {"link_layer": "Ethernet", "rate_gbps": 10.0, "interface": "eth1", "mtu": 1500, "ipoib_mode": None}
NODES = ("node1", "node2")


def report(gbit, fabric=None, other=None, failures=(), **changes):
    fabric = IPOIB if fabric is None else fabric
    one = {"from": "node1", "to": "node2", "gbit_per_second": gbit, "retransmits": 3, "limited": None}
    hostvars = {
        "node1": {"acceptance_link": [dict(one, **changes)], "ansible_facts": {"llama_fabric": fabric}},
        "node2": {"acceptance_link_failures": list(failures), "ansible_facts": {"llama_fabric": other or fabric}},
    }
    return link.link_report(hostvars, NODES, "10", "2026-11-26T10:00:00Z")


def test_a_result_has_every_pair_with_its_port():
    made = report("62.1")
    assert made["result"] == {
        "format": 1,
        "kind": "link",
        "measured_at": "2026-11-26T10:00:00Z",
        "streams": 8,
        "seconds": 10,
        "pairs": [
            {
                "from": "node1",
                "to": "node2",
                "gbit_per_second": 62.1,
                "retransmits": 3,
                "limited": None,
                "rate_gbps": 100.0,
                "link_layer": "InfiniBand",
            }
        ],
    }
    assert (made["name"], made["refused"]) == ("20261126T100000Z", [])


@pytest.mark.parametrize(
    ("gbit", "target"),
    [
        (50.01, "met (> 50)"),
        (50, "acceptable (> 30)"),
        (30, "missed (> 30 is acceptable)"),
        (20, "missed (> 30 is acceptable)"),
        (19.99, "critical (< 20)"),
    ],
)
def test_both_readings_stand_side_by_side(gbit, target):
    row = report(gbit)["lines"][2]
    assert row.endswith(target) and "%.0f %%" % gbit in row and "%.2f" % gbit in row


def test_the_targets_are_those_of_infiniband_alone():
    row = report(9.4, ETHERNET)["lines"][2]
    assert row.split() == ["node1", "node2", "9.40", "94", "%", "3", "-"]


def test_a_link_slower_than_its_port_is_told():
    assert report(90.0)["lines"][3:] == []
    assert report(31.2)["lines"][3:] == [
        "node1 to node2: 31.20 Gbit/s seen, the port of ib0 has 100: look at its MTU (2044, mode datagram), its errors "
        "with llama_fabric_facts, and the processors of both nodes"
    ]


def test_the_slower_end_is_the_port():
    made = report(9.4, dict(ETHERNET, rate_gbps=40.0), ETHERNET)
    assert made["result"]["pairs"][0]["rate_gbps"] == 10.0 and len(made["lines"]) == 3


def test_a_processor_that_was_the_limit_is_told_instead():
    (remark,) = report(31.2, limited=99)["lines"][3:]
    assert remark.startswith("node1 to node2: one processor was busy at 99 % with all streams")


def test_a_port_that_tells_no_rate():
    made = report(9.4, {}, retransmits=None)
    assert made["lines"][2].split() == ["node1", "node2", "9.40", "-", "-", "-"] and len(made["lines"]) == 3


def test_what_was_not_measured_is_refused():
    made = report(62.1, failures=["node2 and node1: iperf3: not found"])
    assert made["refused"] == ["node2 and node1: iperf3: not found"]
    nothing = link.link_report({"node1": {}}, ["node1"], 10, "2026-11-26T10:00:00Z")
    assert nothing["lines"] == ["link: nothing measured"]
