# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The key of benchmark.yml at the gateway, read from root's file."""

import json
import sys

import pytest
from ansible_collections.thefermisea.llama_cluster.tests.unit.playbooks.simulation import COLLECTIONS, run_playbook

READ = "thefermisea.llama_cluster.gateway"


@pytest.fixture(name="key")
def fixture_key(tmp_path):
    """key(text of the file or None, **variables) -> (status, output, the key)"""

    def key(text, **variables):
        path, found = tmp_path / "curl-header", tmp_path / "found"
        if text is not None:
            path.write_text(text)
        host = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable, **variables}
        (tmp_path / "hosts.json").write_text(json.dumps({"llama_gateway": {"hosts": {"gateway1": host}}}))
        tasks = [
            {
                "ansible.builtin.include_role": {"name": READ, "tasks_from": "client_key.yml"},
                "vars": {"__gateway_curl_header": str(path)},
            },
            {"ansible.builtin.copy": {"content": "{{ gateway_client_key }}", "dest": str(found)}, "no_log": True},
        ]
        (tmp_path / "play.yml").write_text(json.dumps([{"hosts": "all", "gather_facts": False, "tasks": tasks}]))
        status, output = run_playbook(
            tmp_path / "play.yml",
            *("-v", "-i", str(tmp_path / "hosts.json")),
            home=tmp_path,
            ANSIBLE_COLLECTIONS_PATH=COLLECTIONS,
        )
        return status, " ".join(output.split()), found.read_text() if found.exists() else None

    return key


def test_key_is_read_and_not_shown(key):
    status, output, found = key("Authorization: Bearer k3y-Of-Clients\n")
    assert (status, found) == (0, "k3y-Of-Clients"), output
    assert "k3y-Of-Clients" not in output


def test_missing_client_key_is_refused(key):
    status, output, _found = key(None)
    assert status != 0
    assert "curl-header: cannot be read on gateway1, the key that clients have is needed: run site.yml" in output


def test_no_key_with_log_only(key):
    status, output, found = key(None, gateway_auth="log_only")
    assert (status, found) == (0, ""), output
