# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The readers of samples, their access through the firewall, and mistakes of monitoring."""

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._intent import check, monitoring
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._intent.services import node_rpc, node_serving
from ansible_collections.thefermisea.llama_cluster.tests.unit import intents

GROUPS = dict(intents.GROUPS, llama_monitoring=["ctl"])
CTL = {"ansible_host": "ctl", "llama_address": "10.0.0.5"}


def hostvars(on="ctl", **variables):
    found = {**intents.HOSTVARS, "ctl": CTL}
    return dict(found, **{on: dict(found[on], **variables)})


def node_clients(node, groups, hostvars):
    return node_serving(intents.SERVICES, intents.MODELS, node, groups, hostvars, "/m")["clients"]


def reported(groups=None, services=None, on="ctl", **variables):
    return check.intent_errors(
        services or intents.SERVICES, intents.MODELS, groups or GROUPS, hostvars(on, **variables)
    )


def test_only_the_monitoring_hosts_read_samples():
    assert monitoring.monitoring_addresses("node1", GROUPS, hostvars()) == ["10.0.0.5"]
    assert monitoring.sampler_access("node1", GROUPS, hostvars()) == ["10.0.0.5/32:9754"]
    assert monitoring.sampler_access("node1", GROUPS, hostvars("node1", monitoring_sampler_port=9800)) == [
        "10.0.0.5/32:9800"
    ]
    # All addresses that such a host may come from.
    both = dict(GROUPS, llama_monitoring=["node2"])
    assert monitoring.monitoring_addresses("node1", both, hostvars()) == ["10.0.0.32", "10.100.0.32"]


def test_a_monitoring_host_reads_its_own_samples():
    own = dict(GROUPS, llama_monitoring=["node1", "ctl"])
    assert monitoring.monitoring_addresses("node1", own, hostvars()) == ["127.0.0.1", "10.0.0.31", "10.0.0.5"]
    assert monitoring.sampler_access("node1", own, hostvars()) == ["10.0.0.5/32:9754"]


@pytest.mark.parametrize("groups", [intents.GROUPS, dict(GROUPS, llama_monitoring=[])])
def test_no_access_without_monitoring_host(groups):
    assert monitoring.hosts(groups) == monitoring.monitoring_addresses("node1", groups, hostvars()) == []
    assert "clients" not in node_rpc(intents.SERVICES, "node1", groups, hostvars())["access"]


def test_firewall_protects_samples_and_heads():
    def clients(node, groups):
        return node_rpc(intents.SERVICES, node, groups, hostvars())["access"]["clients"]

    assert clients("node1", GROUPS) == clients("node2", GROUPS) == ["10.0.0.5/32:9754"]
    behind = dict(GROUPS, llama_gateway=["node3"])
    assert clients("node2", behind) == ["10.0.0.5/32:9754"]
    assert "10.0.0.5/32:8000" in clients("node1", behind) and "10.0.0.5/32:9754" in clients("node1", behind)


def test_firewall_admits_monitoring_beside_clients():
    named = hostvars("node1", llama_clients=["192.168.1.0/24"])
    assert node_clients("node1", GROUPS, named) == ["192.168.1.0/24", "10.0.0.5/32"]
    assert node_clients("node1", intents.GROUPS, named) == ["192.168.1.0/24"]
    # An empty list is the whole network of the head.
    assert node_clients("node1", GROUPS, hostvars()) == []
    behind = dict(GROUPS, llama_gateway=["node3"])
    assert "10.0.0.5/32" in node_clients("node1", behind, hostvars())


def test_monitoring_without_a_mistake():
    assert reported() == []
    assert (
        reported(
            monitoring_listen="10.0.0.5",
            monitoring_port="19090",
            monitoring_interval="15",
            monitoring_retention="1y6w",
            monitoring_webhooks=["https://user:word@hooks.example/x?y=z", "http://127.0.0.1:9999/alerts"],
        )
        == []
    )
    # Not a setting.
    assert reported(dict(GROUPS, llama_monitoring=[]), monitoring_interval=0) == []
    assert reported(monitoring_prometheus="external", monitoring_listen="0.0.0.0", monitoring_port=0) == []


@pytest.mark.parametrize(
    ("variables", "sentence"),
    [
        (
            {"llama_address": "ctl"},
            "llama_monitoring: ctl comes to its nodes from ctl, an IPv4 address is needed: give it llama_address in "
            "hosts.yml",
        ),
        (
            {"monitoring_listen": "0.0.0.0"},
            "monitoring_listen: 0.0.0.0 seen, one private address of ctl is needed, since Prometheus has no password: "
            "write 127.0.0.1, or one of a private network",
        ),
        (
            {"monitoring_listen": "8.8.8.8"},
            "monitoring_listen: 8.8.8.8 seen, one private address of ctl is needed, since Prometheus has no password: "
            "write 127.0.0.1, or one of a private network",
        ),
        (
            {"monitoring_listen": "localhost"},
            "monitoring_listen: 'localhost' seen, an IPv4 address of ctl is needed: write 127.0.0.1, or one of a "
            "private network",
        ),
        (
            {"monitoring_interval": 60},
            "monitoring_interval: 60 seen, 1 to 15 is needed: choose another number",
        ),
        (
            {"monitoring_interval": "5s"},
            "monitoring_interval: '5s' seen, a whole number is needed: write only digits",
        ),
        ({"monitoring_retention": 15}, "monitoring_retention: '15' seen, a duration is needed: write 15d"),
        (
            {"monitoring_webhooks": "https://hooks.example/secret"},
            "monitoring_webhooks: no list seen, a list of URLs is needed: write [URL]",
        ),
        (
            {"monitoring_webhooks": ["https://hooks.example/x", "hooks.example/secret"]},
            "monitoring_webhooks: no URL seen in place 2, http:// or https:// and a host are needed: correct it",
        ),
        (
            {"monitoring_webhooks": ["https://[secret/"]},
            "monitoring_webhooks: no URL seen in place 1, http:// or https:// and a host are needed: correct it",
        ),
        ({"monitoring_port": 70000}, "monitoring_port: 70000 seen, 1 to 65535 is needed: choose another number"),
        (
            {"monitoring_alertmanager_port": 9090},
            "monitoring_alertmanager_port: 9090 on ctl is taken by monitoring_port, a port of its own is needed: "
            "choose another",
        ),
    ],
)
def test_what_a_host_of_monitoring_gets_wrong(variables, sentence):
    assert reported(**variables) == [sentence]


@pytest.mark.parametrize(
    ("on", "variables", "sentence"),
    [
        ("node1", {"monitoring_sampler_port": 8000}, "node1 is taken by llama_services.reasoning.port"),
        ("node2", {"monitoring_sampler_port": 50052}, "node2 is taken by llama_services.reasoning.rpc_port"),
        ("ctl", {"monitoring_sampler_port": 9090}, "ctl is taken by monitoring_port"),
        ("ctl", {"monitoring_sampler_port": 8000}, "ctl is taken by gateway_port"),
    ],
)
def test_the_sampler_has_a_port_of_its_own(on, variables, sentence):
    groups = dict(GROUPS, llama_gateway=["ctl"])
    (port,) = variables.values()
    (said,) = reported(groups, on=on, **variables)
    assert said == "monitoring_sampler_port: %d on %s, a port of its own is needed: choose another" % (port, sentence)
    # As a file it needs none.
    assert reported(groups, on=on, monitoring_export="textfile", **variables) == []


def test_prometheus_has_port_of_its_own_on_node():
    groups = dict(GROUPS, llama_monitoring=["node1"])
    assert reported(groups, on="node1", monitoring_port=8000) == [
        "monitoring_port: 8000 on node1 is taken by llama_services.reasoning.port, a port of its own is needed: choose "
        "another"
    ]


@pytest.mark.parametrize(
    ("variables", "entries"),
    [
        ({"monitoring_journal_max_use": "900M", "monitoring_journal_days": "3"}, []),
        (
            {"monitoring_journal_max_use": "2 GB", "monitoring_journal_days": 0},
            [
                "monitoring_journal_max_use: '2 GB' seen, a size is needed: write 2G",
                "monitoring_journal_days: 0 seen, at least 1 is needed: raise it or remove the key",
            ],
        ),
        (
            {"monitoring_journal_days": "2w"},
            ["monitoring_journal_days: '2w' seen, a whole number is needed: write only digits"],
        ),
    ],
)
def test_what_journald_would_not_read(variables, entries):
    assert reported(on="node1", **variables) == entries
