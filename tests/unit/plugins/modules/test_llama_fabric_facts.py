# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

import os

import pytest
import yaml
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._node import fabric
from ansible_collections.thefermisea.llama_cluster.plugins.modules import llama_fabric_facts

ADDRESSES = "1: lo    inet 127.0.0.1/8 scope host lo\\       valid_lft forever preferred_lft forever"
ROUTE = "10.100.0.32 via 10.0.0.1 dev eth0 src 10.0.0.31 uid 0 \\    cache "


@pytest.fixture(name="ip")
def fixture_ip(tmp_path, monkeypatch):
    """A stub of `ip` on a node whose one address is that of lo, which every machine has in sysfs. -> the warnings"""
    tool = tmp_path / "ip"
    tool.write_text("#!/bin/sh\ncase \"$*\" in *addr*) echo '%s' ;; *) echo '%s' ;; esac\n" % (ADDRESSES, ROUTE))
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    # Newer cores hand a warning to the display where the controller's code is loaded too, or to the next module.
    shown = []
    monkeypatch.setattr(llama_fabric_facts.AnsibleModule, "warn", lambda _module, warning: shown.append(warning))
    return shown


def test_facts_and_warnings(run, ip):
    code, result = run(address="127.0.0.1", peers=["10.100.0.32"], interface="ib0")
    facts = result["ansible_facts"]["llama_fabric"]
    assert (code, result["changed"], facts["interface"], facts["link_layer"]) == (0, False, "lo", "loopback")
    assert [warning.partition(": ")[0] for warning in facts["warnings"]] == [
        "llama_fabric_interface",
        "llama_fabric_address",
    ]
    assert ip == facts["warnings"]


def test_without_ip_there_are_no_facts(run, monkeypatch):
    def missing(*_arguments, **_options):
        raise FileNotFoundError(2, "No such file or directory")

    monkeypatch.setattr(fabric.subprocess, "Popen", missing)
    code, result = run(address="127.0.0.1")
    assert code == 1
    assert result["msg"].startswith(
        "llama_fabric_facts: ip cannot be run (No such file or directory): install the package"
    )


@pytest.mark.usefixtures("ip")
def test_everything_returned_is_documented(run, tmp_path):
    contains = yaml.safe_load(llama_fabric_facts.RETURN)["ansible_facts"]["contains"]["llama_fabric"]["contains"]
    facts = run(address="127.0.0.1", peers=["10.100.0.32"])[1]["ansible_facts"]["llama_fabric"]
    assert set(facts) == set(contains)
    assert set(facts["peers"][0]) == set(contains["peers"]["contains"])
    assert set(facts["errors"]) == set(contains["errors"]["sample"])
    (tmp_path / "class/net/ib0/device/infiniband/mlx5_0").mkdir(parents=True)
    port = fabric.describe("ib0", str(tmp_path))["port"]
    assert set(port) == set(contains["port"]["contains"])
    assert set(port["errors"]) == set(contains["port"]["contains"]["errors"]["sample"])
