# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._firewalld import changes

HEAD = 'rule family="ipv4" source address="10.1.0.1" port port="50052" protocol="tcp" accept'
EARLIER = HEAD.replace("10.1.0.1", "10.1.0.9")
THEIRS = HEAD.replace("50052", "22")
# firewall-cmd --list-all-zones of firewalld 1.3.
LISTED = """\
internal
  target: default
  rich rules:
\t%s

public (active)
  target: default
  interfaces: eth0
  rich rules:
\t%s
\t%s

trusted
  target: ACCEPT
  rich rules:
"""


def test_a_rule_goes_to_the_zone_of_its_interface_and_leaves_others():
    listed = LISTED % (THEIRS, HEAD, THEIRS)
    assert changes(listed, [HEAD], {HEAD: "internal"}) == [["--zone=internal", "--add-rich-rule=" + HEAD], ["--zone=public", "--remove-rich-rule=" + HEAD]]
    assert changes(listed, [HEAD], {HEAD: "public"}) == []


def test_rules_of_earlier_heads_leave_every_zone_and_those_of_others_stay():
    listed = LISTED % (EARLIER, EARLIER, THEIRS)
    gone = [["--permanent", "--zone=%s" % zone, "--remove-rich-rule=" + EARLIER] for zone in ("internal", "public")]
    assert changes(listed, [EARLIER], {}, ["--permanent"]) == gone
