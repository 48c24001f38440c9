# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hosts of an inventory that are one machine."""

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._intent.check_shared import machine_errors
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._intent.inventory import Inventory

GROUPS = {"llama_nodes": ["a", "b"], "llama_gateway": ["g"], "llama_monitoring": ["m"]}
FACTS = {name: {"ansible_host": "10.0.0.%d" % number} for number, name in enumerate("abgm", 1)}


def reported(**changes):
    hostvars = {name: dict(facts, **changes.get(name, {})) for name, facts in FACTS.items()}
    return machine_errors(Inventory({}, {}, GROUPS, hostvars))


@pytest.mark.parametrize(("one", "other"), [("b", "a"), ("g", "b"), ("m", "g")])
def test_two_names_of_one_machine_are_refused(one, other):
    address = FACTS[other]["ansible_host"]
    (sentence,) = reported(**{one: {"ansible_host": address}})
    assert sentence.startswith("ansible_host: %s seen for %s and %s, " % (address, other, one))


@pytest.mark.parametrize(
    "facts",
    [
        # Behind one address of a router, or of a jump host.
        {"ansible_port": 2222},
        {"ansible_ssh_common_args": "-o ProxyJump=other"},
        {"ansible_connection": "local"},
        {"ansible_connection": "community.docker.docker"},
        {"ansible_host": ""},
    ],
)
def test_machines_with_other_ports_are_accepted(facts):
    assert reported(b=dict({"ansible_host": FACTS["a"]["ansible_host"]}, **facts)) == []


def test_shared_client_address_is_refused():
    (sentence,) = reported(a={"llama_address": "10.9.9.9"}, b={"llama_address": "10.9.9.9"})
    assert sentence == "llama_address: 10.9.9.9 seen for a and b, an address of its own is needed: correct it"
    # A gateway may be one of the nodes under another address.
    assert reported(a={"llama_address": "10.9.9.9"}, g={"llama_address": "10.9.9.9"}) == []
