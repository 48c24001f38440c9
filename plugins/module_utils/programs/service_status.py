# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""llama-service-status [SERVICE]: one line for each service, and an exit status for scripts.

0: every service that should run responds, with all of its workers; 1: one does not; 2: one is loading, the others
respond; 3: unknown, because samples are old or a node does not respond; 64: wrong usage. A monitoring host covers all
nodes, another host itself.
"""

from __future__ import annotations

import argparse
import json
import sys

from .._monitor.read import Follower, once, sources
from .._monitor.state import code_of, put_together, verdicts
from .._monitor.view import show
from .._text import printable

WRONG_USE = 64


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> None:  # type: ignore[override]
        """Status 2 would mean that a service loads."""
        sys.stderr.write(f"{self.prog}: {message}\n")
        raise SystemExit(WRONG_USE)


def main(arguments: list[str] | None = None) -> int:
    parser = Parser(
        prog="llama-service-status",
        description="Whether services respond. Exit status: 0 all do, 1 one does not, 2 one loads, 3 unknown.",
    )
    parser.add_argument("service", nargs="?", help="one service (default: all)")
    parser.add_argument("--json", action="store_true", help="for programs")
    given = parser.parse_args(arguments)
    followed = [Follower(source) for source in sources() if source.kind == "node"]
    once(followed)
    cluster = put_together(followed)
    found = [one for one in verdicts(cluster["endpoints"], cluster["kept"]) if given.service in (None, one["service"])]
    lost = [node for node in cluster["nodes"] if node["error"]]
    # A service that other nodes report is known.
    code = code_of(found, bool(lost) and not (given.service and found))
    if given.json:
        unknown = [{"node": node["name"], "reason": node["error"]} for node in lost]
        result = {"code": code, "services": found, "unknown": unknown}
        show(json.dumps(result, indent=2, sort_keys=True) + "\n")
        return code
    lines = ["{service}: {words}".format(**one) for one in found]
    lines += ["{name}: no samples ({error}): see systemctl status llama-sampler there".format(**one) for one in lost]
    if not lines:
        lines = [f"{printable(given.service or 'a service')}: not known here: see llama_services"]
    show("".join(line + "\n" for line in lines))
    return code


if __name__ == "__main__":
    raise SystemExit(main())
