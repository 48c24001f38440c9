# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Refusals of a host of Prometheus."""

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._access.monitoring import monitoring_refusals

EXTERNAL = "set monitoring_prometheus to external, which writes configuration and rules for it"
SOCKET = 'LISTEN 0 4096 %s:%d 0.0.0.0:* users:(("%s",pid=%d,fd=6))\n'


def refusals(listeners="", processes=(), **changes):
    asked = {
        "prometheus": "install",
        "os_family": "Debian",
        "running": [],
        "pids": [],
        "managed": False,
        "ports": {"monitoring_port": 9090, "monitoring_alertmanager_port": "9093"},
        "listen": "127.0.0.1",
        "changes": ["head"],
    }
    node = {"listeners": listeners, "managed_processes": dict(processes)}
    return monitoring_refusals("ctl", dict(asked, **changes), node)


def test_new_and_managed_hosts_are_accepted():
    assert refusals() == []
    managed = SOCKET % ("127.0.0.1", 9090, "prometheus", 7)
    assert refusals(managed, managed=True, running=["prometheus.service"], pids=[7]) == []


def test_unmanaged_prometheus_is_refused():
    assert refusals(SOCKET % ("*", 9090, "prometheus", 7), running=["prometheus.service"], pids=[7]) == [
        "monitoring_prometheus: install seen, and prometheus.service of somebody else runs on ctl, none may: "
        + EXTERNAL
    ]


def test_packages_are_those_of_debian():
    assert refusals(os_family="RedHat") == [
        "monitoring_prometheus: install seen on ctl of family RedHat, Debian or Ubuntu is needed, whose packages it "
        "takes: " + EXTERNAL
    ]


@pytest.mark.parametrize("managed", [False, True])
def test_holder_of_a_monitoring_port_is_named(managed):
    listeners = SOCKET % ("0.0.0.0", 9090, "cockpit-tls", 9) + SOCKET % ("127.0.0.1", 9093, "x", 11)
    assert refusals(listeners, managed=managed, running=["prometheus.service"] * managed, pids=[7] * managed) == [
        "monitoring_port: port 9090 of 127.0.0.1 is in use by cockpit-tls (pid 9), a free port is needed: stop that "
        "process or choose another port",
        "monitoring_alertmanager_port: port 9093 of 127.0.0.1 is in use by x (pid 11), a free port is needed: stop "
        "that process or choose another port",
    ]
    assert refusals(SOCKET % ("10.0.0.5", 9090, "cockpit-tls", 9)) == []


def test_external_prometheus_needs_no_port():
    listeners = SOCKET % ("0.0.0.0", 9090, "prometheus", 7)
    assert refusals(listeners, prometheus="external", os_family="RedHat", running=["prometheus.service"]) == []


def test_monitoring_port_of_a_moved_service_is_free():
    listeners, managed = SOCKET % ("127.0.0.1", 9090, "llama-server", 9), {"9": "llama-head-chat.service"}
    assert refusals(listeners, managed) == []
    (sentence,) = refusals(listeners, managed, changes=[])
    assert "belongs to our llama-head-chat.service" in sentence and "adopt.yml" not in sentence
