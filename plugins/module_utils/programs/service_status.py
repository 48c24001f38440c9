# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""llama-service-status [SERVICE]: one line for each service, and an exit status for scripts.

0: every service that is to run answers, over all of its workers; 1: one does not; 2: one is loading, the others answer;
3: it cannot be told, because samples are old or a node does not answer. Wrong use ends with 64. On a monitoring host
over all nodes, on a node of its own.
"""

import argparse
import json
import sys
from typing import List, Optional

from .._monitor.read import Follower, once, sources
from .._monitor.state import UNKNOWN, code_of, put_together, verdicts
from .._text import printable

WRONG_USE = 64


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> None:  # type: ignore[override]
        """Not 2, which says that something loads."""
        sys.stderr.write("%s: %s\n" % (self.prog, message))
        sys.exit(WRONG_USE)


def main(arguments: Optional[List[str]] = None) -> int:
    parser = Parser(
        prog="llama-service-status",
        description="Whether services answer. Exit status: 0 all do, 1 one does not, 2 one loads, 3 it cannot be told.",
    )
    parser.add_argument("service", nargs="?", help="one service (default: all)")
    parser.add_argument("--json", action="store_true", help="for programs")
    given = parser.parse_args(arguments)
    followed = [Follower(source, 1.0) for source in sources() if source.kind == "node"]
    once(followed)
    cluster = put_together(followed)
    found = verdicts(cluster)
    if given.service is not None:
        found = [one for one in found if one.service == given.service]
    code = code_of(found, cluster)
    lost = [node for node in cluster.nodes if node.error]
    # A node that is gone says nothing of a service that answers elsewhere.
    if given.service is not None and found:
        code = found[0].code
    if given.json:
        told = {"code": code, "services": [one._asdict() for one in found]}
        told["unknown"] = [{"node": node.name, "reason": node.error} for node in lost]
        sys.stdout.write(json.dumps(told, indent=2, sort_keys=True) + "\n")
        return code
    for one in found:
        sys.stdout.write("%s: %s\n" % (one.service, one.words))
    for node in lost:
        sys.stdout.write("%s: no samples (%s): see systemctl status llama-sampler there\n" % (node.name, node.error))
    if not found and not lost:
        name = printable(given.service) if given.service else "no service"
        sys.stdout.write("%s: not known here: see llama_services\n" % name)
        return UNKNOWN
    return code


if __name__ == "__main__":
    sys.exit(main())
