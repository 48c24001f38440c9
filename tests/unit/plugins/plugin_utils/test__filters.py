# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The wrapper of filters."""

from ansible_collections.thefermisea.llama_cluster.plugins.filter import intent
from ansible_collections.thefermisea.llama_cluster.tests.unit.intents import GROUPS, HOSTVARS, MODELS, SERVICES


def test_each_host_and_variable_is_computed_once():
    """Ansible puts a host's variables together, and renders each of them, anew each time."""
    asked = []

    class Counted(dict):
        def __init__(self, values, place=()):
            super().__init__(values)
            self.place = place

        def __getitem__(self, key):
            found = super().__getitem__(key)
            asked.append((*self.place, key))
            return found if self.place else Counted(found, (key,))

    filters = intent.FilterModule().filters()
    serving = filters["node_serving"](SERVICES, MODELS, "node1", GROUPS, Counted(HOSTVARS), "/m")
    assert serving == filters["node_serving"](SERVICES, MODELS, "node1", GROUPS, HOSTVARS, "/m")
    hosts = [one for one in asked if len(one) == 1]
    assert sorted(hosts) == [("node1",), ("node2",), ("node3",)]
    assert len(set(asked)) == len(asked) > len(hosts)
    asked.clear()
    filters["node_rpc"](SERVICES, "node2", GROUPS, Counted(HOSTVARS))
    assert sorted(one for one in asked if len(one) == 1) == [("node1",), ("node2",)]
