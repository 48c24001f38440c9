# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._access.firewalld import changes

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
    listed = {"running": LISTED % (THEIRS, HEAD, THEIRS)}
    told = changes(["running public " + HEAD], listed, {HEAD: "internal"})
    assert told["calls"] == [
        ["firewall-cmd", "--zone=public", "--remove-rich-rule=" + HEAD],
        ["firewall-cmd", "--zone=internal", "--add-rich-rule=" + HEAD],
    ]
    assert (told["before"], told["after"]) == (
        ["running internal " + HEAD, "running public " + HEAD],
        ["running internal " + HEAD],
    )
    assert changes(["running public " + HEAD], listed, {HEAD: "public"}) == {
        "calls": [],
        "before": ["running public " + HEAD],
        "after": ["running public " + HEAD],
        "left": [],
    }


def test_rules_of_earlier_heads_leave_every_zone_and_those_of_others_stay():
    listed = {"permanent": LISTED % (EARLIER, EARLIER, THEIRS)}
    told = changes(["permanent %s %s" % (zone, EARLIER) for zone in ("public", "internal")], listed, {})
    gone = [
        ["firewall-cmd", "--permanent", "--zone=%s" % zone, "--remove-rich-rule=" + EARLIER]
        for zone in ("internal", "public")
    ]
    assert (told["calls"], told["after"]) == (gone, [])


def test_the_same_rule_of_an_operator_is_neither_recorded_nor_removed():
    listed = dict.fromkeys(("running", "permanent"), LISTED % (HEAD, THEIRS, EARLIER))
    told = changes([], listed, {HEAD: "public", EARLIER: "public"})
    assert told["calls"] == [
        ["firewall-cmd", "--permanent", "--zone=public", "--add-rich-rule=" + HEAD],
        ["firewall-cmd", "--zone=public", "--add-rich-rule=" + HEAD],
    ]
    assert told["after"] == ["permanent public " + HEAD, "running public " + HEAD]
    assert changes([], listed, {}) == {"calls": [], "before": [], "after": [], "left": []}


def test_what_the_configuration_keeps_is_not_closed_until_the_next_reload():
    listed = dict.fromkeys(("running", "permanent"), LISTED % (THEIRS, HEAD, THEIRS))
    assert changes(["running public " + HEAD], listed, {}) == {
        "calls": [],
        "before": ["running public " + HEAD],
        "after": [],
        "left": [],
    }


def test_what_is_added_for_a_while_is_in_no_configuration():
    told = changes([], {"running": LISTED % (THEIRS, THEIRS, THEIRS)}, {HEAD: "internal"}, "6h")
    assert told["calls"] == [["firewall-cmd", "--zone=internal", "--timeout=6h", "--add-rich-rule=" + HEAD]]
    assert told["after"] == ["running internal " + HEAD]


def test_rules_leave_the_configuration_of_a_firewalld_that_does_not_run():
    recorded = ["%s public %s" % (place, rule) for rule in (HEAD, EARLIER) for place in ("permanent", "running")]
    listed = LISTED % (THEIRS, HEAD, EARLIER)
    wanted = {HEAD: "public"}
    assert changes(recorded, {"stopped": listed}, wanted) == {
        "calls": [["firewall-offline-cmd", "--zone=public", "--remove-rich-rule=" + EARLIER]],
        "before": sorted(recorded),
        "after": recorded[:2],
        "left": [],
    }
    # Somebody removed it.
    told = changes(recorded[2:], {"stopped": LISTED % (THEIRS, HEAD, THEIRS)}, {})
    assert told == {"calls": [], "before": recorded[2:], "after": [], "left": []}
    # No command can.
    told = changes(recorded, {"stopped": None}, wanted)
    assert told == {
        "calls": [],
        "before": sorted(recorded),
        "after": sorted(recorded[:3]),
        "left": ["permanent public " + EARLIER],
    }
