# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The output of logs.yml. Private to the collection."""

import datetime
from collections.abc import Mapping, Sequence
from typing import Any

from ...module_utils._text import counted, printable

EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)


def log_lines(hostvars: Mapping[str, Any], hosts: Sequence[str], asked: Sequence[str]) -> list[str]:
    """The log lines of all hosts in the order of time, and the missing hosts.

    hostvars: `logs_said` of each host that answered, a result of node_history.
    """
    logs = {host: hostvars[host]["logs_said"] for host in hosts if host in asked}
    merged = sorted(
        ((line["at"], host, line) for host, log in logs.items() for line in log["lines"]), key=lambda one: one[0]
    )
    rows = [(_time(at), host, _unit(line), _text(line)) for at, host, line in merged]
    widths = [max((len(row[column]) for row in rows), default=0) for column in (1, 2)]
    shown = ["%s  %-*s  %-*s  %s" % (at, widths[0], host, widths[1], unit, text) for at, host, unit, text in rows]
    notes = ["no managed unit logged anything in this time"] if logs and not merged else []
    notes += [
        f"{host}: older lines are left out, the newest are shown: -e lines=NUMBER shows more"
        for host, log in logs.items()
        if log["more"]
    ]
    notes += [f"{host}: not read: {log['missing']}" for host, log in logs.items() if log.get("missing")]
    if any(line["folded"] for _at, _host, line in merged):
        notes.append("(NUMBER lines): what servers write while all is well, -e all=true shows it")
    notes += [f"{host}: could not be asked, its lines are missing" for host in hosts if host not in asked]
    return ["times are UTC, by each host's own clock", *shown, *notes]


def _time(at: float) -> str:
    # In whole microseconds: a float of seconds would be cut.
    return (EPOCH + datetime.timedelta(microseconds=round(at * 1e6))).strftime("%Y-%m-%d %H:%M:%S.%f")


def _unit(line: Mapping[str, Any]) -> str:
    return printable(line["unit"].removesuffix(".service"), 60)


def _text(line: Mapping[str, Any]) -> str:
    if line["folded"]:
        return f"({counted(line['folded'], 'line')})"
    return printable(line["text"], None)
