# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files of group_vars and host_vars that belong to nobody."""

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._intent.stray_files import stray_files
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._intent.variables import (
    known,
    variable_mistakes,
)

GROUPS = {"all": ["gpu1"], "llama_nodes": ["gpu1"], "llama_gateway": ["gpu1"]}


def found(tmp_path, path, text="gateway_port: 8443\n"):
    (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / path).write_text(text)
    return stray_files([str(tmp_path)], GROUPS, ["gpu1"], known())


@pytest.mark.parametrize(
    "path", ["group_vars/gateway.yml", "group_vars/gateway", "group_vars/gateway.yaml", "group_vars/gateway/vars.yml"]
)
def test_a_file_of_no_group_is_told(tmp_path, path):
    (sentence,) = found(tmp_path, path)
    assert sentence == (
        "%s: no group of this inventory is called gateway, so nothing reads it, did you mean llama_gateway?"
        % "/".join(path.split("/")[:2])
    )


def test_a_file_of_no_host_is_told(tmp_path):
    (sentence,) = found(tmp_path, "host_vars/frontend.yml")
    assert sentence.endswith(
        "no host of this inventory is called frontend, so nothing reads it: rename it to the host that it is for"
    )


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("group_vars/all/gateway.yml", "gateway_port: 1"),
        ("group_vars/llama_gateway.yml", "gateway_port: 1"),
        ("host_vars/gpu1.yml", "gateway_port: 1"),
        # Of another inventory in the same directory.
        ("group_vars/webservers.yml", "nginx_port: 80"),
        ("group_vars/.gateway.swp", "gateway_port: 1"),
    ],
)
def test_other_files_are_nobodys_matter(tmp_path, path, text):
    assert found(tmp_path, path, text) == []


def test_the_warning_is_beside_those_of_variables(tmp_path):
    found(tmp_path, "group_vars/gateway.yml")
    hostvars = {"gpu1": {"groups": GROUPS, "inventory_dir": str(tmp_path)}}
    (sentence,) = variable_mistakes(hostvars, ["gpu1"])["unknown"]
    assert sentence.startswith("group_vars/gateway.yml: ")
