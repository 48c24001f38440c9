# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Two keys of one name in an inventory: Ansible would take the last one."""

from ansible_collections.thefermisea.llama_cluster.tests.unit.playbooks.simulation import (
    COLLECTIONS,
    ROOT,
    playbook_lines,
)


def test_two_keys_of_one_name_stop_a_run(tmp_path):
    (tmp_path / "group_vars").mkdir()
    (tmp_path / "hosts.yml").write_text("llama_nodes: {hosts: {gpu1: {}}}\n")
    (tmp_path / "group_vars/all.yml").write_text("gateway_keys: {laptop: first-key, laptop: second-key}\n")
    environment = {
        "ANSIBLE_COLLECTIONS_PATH": COLLECTIONS,
        "ANSIBLE_STDOUT_CALLBACK": "thefermisea.llama_cluster.brief",
        "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
    }
    source = ("-i", str(tmp_path / "hosts.yml"))
    status, lines = playbook_lines(ROOT / "playbooks/plan.yml", *source, home=tmp_path, **environment)
    assert status != 0
    assert "duplicate" in lines[0].lower() and "laptop" in lines[0], lines
    assert "second-key" not in "".join(lines)
