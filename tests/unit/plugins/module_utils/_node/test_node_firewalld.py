# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
import sys

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._node.firewalld import NOTHING, apply, changes
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._text import Refusal

HEAD = 'rule family="ipv4" source address="10.1.0.1" port port="50052" protocol="tcp" accept'
EARLIER = HEAD.replace("10.1.0.1", "10.1.0.9")
OTHER = HEAD.replace("50052", "22")
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


def test_rule_moves_to_the_zone_of_its_interface():
    listed = {"running": LISTED % (OTHER, HEAD, OTHER)}
    actions = changes(["running public " + HEAD], listed, {HEAD: "internal"})
    assert actions.calls == [
        ["firewall-cmd", "--zone=public", "--remove-rich-rule=" + HEAD],
        ["firewall-cmd", "--zone=internal", "--add-rich-rule=" + HEAD],
    ]
    assert (actions.before, actions.after) == (
        ["running internal " + HEAD, "running public " + HEAD],
        ["running internal " + HEAD],
    )
    assert changes(["running public " + HEAD], listed, {HEAD: "public"}) == (
        [],
        ["running public " + HEAD],
        ["running public " + HEAD],
        [],
    )


def test_only_recorded_rules_are_removed():
    listed = {"permanent": LISTED % (EARLIER, EARLIER, OTHER)}
    actions = changes(["permanent %s %s" % (zone, EARLIER) for zone in ("public", "internal")], listed, {})
    gone = [
        ["firewall-cmd", "--permanent", "--zone=%s" % zone, "--remove-rich-rule=" + EARLIER]
        for zone in ("internal", "public")
    ]
    assert (actions.calls, actions.after) == (gone, [])


def test_same_rule_of_an_operator_stays():
    listed = dict.fromkeys(("running", "permanent"), LISTED % (HEAD, OTHER, EARLIER))
    actions = changes([], listed, {HEAD: "public", EARLIER: "public"})
    assert actions.calls == [
        ["firewall-cmd", "--permanent", "--zone=public", "--add-rich-rule=" + HEAD],
        ["firewall-cmd", "--zone=public", "--add-rich-rule=" + HEAD],
    ]
    assert actions.after == ["permanent public " + HEAD, "running public " + HEAD]
    assert changes([], listed, {}) == NOTHING


def test_rule_of_the_configuration_stays_in_force():
    listed = dict.fromkeys(("running", "permanent"), LISTED % (OTHER, HEAD, OTHER))
    assert changes(["running public " + HEAD], listed, {}) == ([], ["running public " + HEAD], [], [])


def test_rule_with_timeout_is_not_permanent():
    actions = changes([], {"running": LISTED % (OTHER, OTHER, OTHER)}, {HEAD: "internal"}, "6h")
    assert actions.calls == [["firewall-cmd", "--zone=internal", "--timeout=6h", "--add-rich-rule=" + HEAD]]
    assert actions.after == ["running internal " + HEAD]


COMMAND = """#!%s
import os, sys

with open(os.environ["CALLS"], "a") as calls:
    print(*sys.argv[1:], file=calls)
if "--get-default-zone" in sys.argv:
    print("public")
elif "--get-zone-of-interface=ib0" in sys.argv:
    print("internal")
elif sys.argv[1].startswith("--get-zone-of-interface"):
    print("no zone")
    sys.exit(2)
elif any(os.environ["DIES_AT"] in word for word in sys.argv):
    print("Error: COMMAND_FAILED")
    sys.exit(13)
"""


@pytest.fixture(name="calls")
def fixture_calls(tmp_path, monkeypatch):
    """Calls of firewall-cmd, a line for each."""
    commands = tmp_path / "bin"
    commands.mkdir()
    (commands / "firewall-cmd").write_text(COMMAND % sys.executable)
    (commands / "firewall-cmd").chmod(0o755)
    monkeypatch.setenv("PATH", str(commands))
    monkeypatch.setenv("CALLS", str(tmp_path / "calls"))
    monkeypatch.setenv("DIES_AT", "nothing")
    return lambda: (tmp_path / "calls").read_text().splitlines()


def test_interface_without_zone_has_the_default_zone(calls, tmp_path):
    apply(str(tmp_path / "record"), {HEAD: "ib0", EARLIER: "eth0", OTHER: ""})
    zones = {line.rpartition("rich-rule=")[2]: line.split()[0] for line in calls() if line.startswith("--zone=")}
    assert zones == {HEAD: "--zone=internal", EARLIER: "--zone=public", OTHER: "--zone=public"}


def test_check_mode_changes_nothing(calls, tmp_path):
    record = tmp_path / "record"
    actions = apply(str(record), {HEAD: "ib0"}, check_mode=True)
    assert [call[-1] for call in actions.calls] == ["--add-rich-rule=" + HEAD] * 2
    assert not record.exists() and not any("--add" in line for line in calls())


def test_no_rules_and_no_record_make_no_call(calls, tmp_path):
    assert apply(str(tmp_path / "record"), {}) == NOTHING and not (tmp_path / "calls").exists()


def test_node_without_firewalld_needs_no_record(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert apply(str(tmp_path / "none/record"), {HEAD: "ib0"}) == NOTHING


def test_stopped_firewalld_keeps_record_and_names_rules(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    lines = [f"{place} public {rule}" for rule in (HEAD, EARLIER) for place in ("permanent", "running")]
    (tmp_path / "record").write_text("\n".join(lines))
    assert apply(str(tmp_path / "record"), {HEAD: "ib0"}).left == ["permanent public " + EARLIER]
    assert (tmp_path / "record").read_text() == "\n".join(lines)


def test_failed_call_keeps_the_record(calls, tmp_path, monkeypatch):
    monkeypatch.setenv("DIES_AT", "--add-rich-rule=" + HEAD)
    record = tmp_path / "record"
    with pytest.raises(Refusal) as refused:
        apply(str(record), {HEAD: "ib0"}, timeout="6h")
    assert str(refused.value) == (
        "firewall-cmd --zone=internal --timeout=6h '--add-rich-rule=%s': it ended with status 13 (Error: "
        "COMMAND_FAILED), 0 is needed: run it on the node" % HEAD
    )
    assert record.read_text().splitlines()[1:] == ["running internal " + HEAD]
    assert record.stat().st_mode & 0o777 == 0o644
