# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""bootstrap.yml as it is run, with stubs of the package managers: only nodes without the Python get it."""

import json
import re
import sys

import pytest
from ansible_collections.thefermisea.llama_cluster.tests.unit.playbooks.simulation import (
    COLLECTIONS,
    ROOT,
    done,
    run_playbook,
)

# Says what it was asked for, and installs a Python.
STUB = (
    '#!/bin/sh\necho "$0 $*" >>"%(folder)s/calls"\ncase "$*" in *install*) : >"%(folder)s/python3.99"; /bin/chmod '
    '755 "%(folder)s/python3.99";; esac\n'
)


@pytest.mark.parametrize(
    "manager,calls",
    [("dnf", ["dnf -y install python3.99"]), ("apt-get", ["apt-get update -qq", "apt-get install -y -qq python3.99"])],
)
def test_who_lacks_the_python_gets_it(tmp_path, manager, calls):
    programs = tmp_path / "programs"
    programs.mkdir()
    (tmp_path / ("stub_" + manager)).write_text(STUB % {"folder": tmp_path})
    (tmp_path / ("stub_" + manager)).chmod(0o755)
    (programs / manager).symlink_to("../stub_" + manager)
    hosts = {
        "lacks": {"ansible_python_interpreter": str(tmp_path / "python3.99")},
        "old": {"ansible_python_interpreter": str(tmp_path / "old/python3.99")},
        "has": {"ansible_python_interpreter": sys.executable},
    }
    (tmp_path / "old").mkdir()
    (tmp_path / "old/python3.99").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "old/python3.99").chmod(0o755)
    settings = {"ansible_connection": "local", "ansible_become": False}
    (tmp_path / "hosts.json").write_text(json.dumps({"llama_nodes": {"hosts": hosts, "vars": settings}}))
    arguments = ("-i", str(tmp_path / "hosts.json"))
    output = done(
        run_playbook(
            ROOT / "playbooks/bootstrap.yml",
            *arguments,
            home=tmp_path,
            ANSIBLE_COLLECTIONS_PATH=COLLECTIONS,
            PATH=str(programs),
        )
    )
    found = [line[len(str(programs)) + 1 :] for line in (tmp_path / "calls").read_text().splitlines()]
    # One host after the other, or both side by side.
    assert found in (2 * calls, [call for call in calls for _host in range(2)])
    changed = {host: int(count) for host, count in re.findall(r"(\w+) +: ok=\d+ +changed=(\d)", output)}
    assert {host: changed[host] for host in hosts} == {"lacks": 1, "old": 1, "has": 0}
