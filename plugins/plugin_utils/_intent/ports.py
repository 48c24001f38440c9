# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The ports of services that give none. Private to the collection."""

import zlib

from .records import Services

# The first default port, and the number of different default ports.
FIRST_PORT, PORTS = 18080, 1000


def ports(services: Services) -> dict[str, int]:
    """{service: the port of its endpoint}, for those that give none one that follows from the name, so that services
    which come or go do not move it. Where a name leads to a port that something in the inventory has, or a name before
    it in the alphabet, it takes the next one."""
    found = {name: service["port"] for name, service in services.items() if "port" in service}
    taken = set(found.values()) | {service["rpc_port"] for service in services.values() if "rpc_port" in service}
    for name in sorted(set(services) - set(found)):
        port = FIRST_PORT + zlib.crc32(name.encode()) % PORTS
        while port in taken:
            port += 1
        taken.add(port)
        found[name] = port
    return found
