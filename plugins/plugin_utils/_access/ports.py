# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Checks of the ports of services on a node. Private to the collection."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence

from ...module_utils._node.units import unit_kind
from .._intent.values import plain

# A listener of `ss -Hltnp`, and one of its holders. A process chooses its own name, a line feed in it too, up to 15
# bytes: too few to hold the start of a listener, or the end of one holder and the start of the next.
LISTENER = re.compile(r'^LISTEN[ \t]+\d+[ \t]+\d+[ \t]+([^\s"]+):(\d+)[ \t]', re.MULTILINE)
HOLDER = re.compile(r'\("(.{0,15})",pid=(\d+),fd=\d+\)', re.DOTALL)
# Servers that adopt.yml stops.
SERVERS = ("llama-server", "ggml-rpc-server", "rpc-server")
# Units of role gateway.
GATEWAY = ("nginx.service", "llama-gateway.service")
ADOPT = "run adopt.yml, which takes over unmanaged servers,"


def port_conflicts(
    wanted: Sequence[tuple[str, str, int]],
    listeners: str,
    free: Collection[int],
    managed: Mapping[str, str] | None = None,
) -> list[str]:
    """Sentences for wanted (entry, address, port) triples that a process listens on.

    listeners: the text of `ss -Hltnp`; free: the processes that will have given up their ports;
    managed: {process: unit} of the collection's units on that node.
    """
    found = []
    _before, *parts = LISTENER.split(listeners)
    for local, port, rest in zip(parts[::3], parts[1::3], parts[2::3], strict=True):
        address = local.strip("[]").split("%")[0]
        holders = HOLDER.findall(rest)
        if any(int(pid) in free for _name, pid in holders):
            continue
        for entry, wanted_address, wanted_port in wanted:
            if port == str(wanted_port) and address in (wanted_address, "0.0.0.0", "*", "::"):
                found.append(f"{entry}: port {port} of {wanted_address} {_held(holders, managed or {})}")
    return found


def _held(holders: Sequence[tuple[str, str]], managed: Mapping[str, str]) -> str:
    units = [managed[pid] for _name, pid in holders if pid in managed]
    if units:
        tags = "rpc,head,router" if unit_kind(units[0])[0] else "gateway" if units[0] in GATEWAY else "monitoring"
        return (
            "belongs to our %s, which this run does not move before it needs the port, a free one is needed: run "
            "site.yml --tags %s first, or choose another port" % (units[0], tags)
        )
    holder = f"{plain(holders[0][0])} (pid {holders[0][1]})" if holders else "another process"
    step = ADOPT if holders and holders[0][0] in SERVERS else "stop that process"
    return f"is in use by {holder}, a free port is needed: {step} or choose another port"


def processes_of(kinds: Collection[str], managed: Mapping[str, str]) -> set[int]:
    """Processes of managed units of these kinds: rpc, head and router."""
    return {int(pid) for pid, unit in managed.items() if unit_kind(unit)[0] in kinds}
