# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Clients that are connected to a port of this node. Private to the collection."""

import ipaddress
import os
import struct
from collections.abc import Collection

ESTABLISHED = "01"
TABLES = ("tcp", "tcp6")
# Tailscale's addresses of hosts.
TAILNET = ipaddress.ip_network("100.64.0.0/10")


def address(text: str) -> str:
    """An address of /proc/net/tcp, words of 32 bits in the byte order of the machine; IPv4 also where a socket of IPv6
    has it."""
    data = b"".join(struct.pack("=I", int(text[at : at + 8], 16)) for at in range(0, len(text), 8))
    found = ipaddress.ip_address(data)
    mapped = getattr(found, "ipv4_mapped", None)
    return str(mapped or found)


def clients_of(ports: Collection[int], proc: str = "/proc") -> list[dict[str, object]]:
    """Returns [{port, address}] of the established connections from other hosts, sorted."""
    seen: set[tuple[int, str]] = set()
    for table in TABLES:
        try:
            with open(os.path.join(proc, "net", table), encoding="ascii", errors="replace") as stream:
                lines = stream.readlines()[1:]
        except OSError:
            continue
        for line in lines:
            local, remote, state = line.split()[1:4]
            own, _colon, port = local.rpartition(":")
            other = remote.rpartition(":")[0]
            # A connection within this node has the same address at both ends.
            if state == ESTABLISHED and int(port, 16) in ports and own != other:
                seen.add((int(port, 16), address(other)))
    return [{"port": port, "address": client} for port, client in sorted(seen)]


def in_tailnet(address: str) -> bool:
    found = ipaddress.ip_address(address)
    return found.version == 4 and found in TAILNET
