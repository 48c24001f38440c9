# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the roles tell firewalld, by their own tasks: every rule in the zone of the interface that packets come in on."""

import pytest
from ansible_collections.thefermisea.llama_cluster.tests.unit.firewalld_node import FirewalldNode

RULE = 'rule family="ipv4" source address="%s" port port="%d" protocol="tcp" accept'


@pytest.fixture(name="node")
def fixture_node(tmp_path):
    return FirewalldNode(tmp_path)


def test_a_model_is_lent_in_the_zone_of_the_fabric(node):
    lent = {"model_share_port": 50099, "__model_borrowers": ["10.1.0.32", "10.0.0.33"]}
    status, output = node.play("model", "firewalld.yml", __model_rule=["--timeout=6h", "--add-rich-rule"], **lent)
    assert status == 0, output
    assert node.rules() == {"internal": [RULE % ("10.1.0.32", 50099)], "public": [RULE % ("10.0.0.33", 50099)]}
    status, output = node.play("model", "firewalld.yml", __model_rule=["--remove-rich-rule"], **lent)
    assert status == 0, output
    assert node.rules() == {}
