# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._reports.logs import log_lines


def line(at, text="", unit="llama-head-chat.service", folded=0):
    return {"at": at, "unit": unit, "text": text, "folded": folded}


def test_hosts_are_merged_by_the_microsecond():
    said = {
        "node1": {"lines": [line(1795292605.766978, "one"), line(1795292605.766980, "three")], "more": False},
        "node22": {"lines": [line(1795292605.766979, "two", "llama-watchdog.service")], "more": True},
    }
    hostvars = {host: {"logs_said": log} for host, log in said.items()}
    assert log_lines(hostvars, ["node1", "gone", "node22"], ["node1", "node22"]) == [
        "times are UTC, by each host's own clock",
        "2026-11-21 20:23:25.766978  node1   llama-head-chat  one",
        "2026-11-21 20:23:25.766979  node22  llama-watchdog   two",
        "2026-11-21 20:23:25.766980  node1   llama-head-chat  three",
        "node22: older lines are left out, the newest are shown: -e lines=NUMBER shows more",
        "gone: could not be asked, its lines are missing",
    ]


def test_what_was_counted_is_explained():
    lines = [line(0.5, folded=1), line(1, folded=37), line(2, "x\x1b[2J")]
    shown = log_lines({"n": {"logs_said": {"lines": lines, "more": False}}}, ["n"], ["n"])
    assert [one.rpartition("  ")[2] for one in shown[1:4]] == ["(1 line)", "(37 lines)", "x?[2J"]
    assert shown[4:] == ["(NUMBER lines): what servers write while all is well, -e all=true shows it"]


def test_empty_log_and_missing_host_are_named():
    hostvars = {"n": {"logs_said": {"lines": [], "more": False}}}
    assert log_lines(hostvars, ["n"], ["n"])[1:] == ["no managed unit logged anything in this time"]
    assert log_lines({}, ["n"], [])[1:] == ["n: could not be asked, its lines are missing"]
