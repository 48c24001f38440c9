# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""llama-doctor: what is wrong on this node, why, and how to fix it.

`llama-doctor [--json] [--since 6h] [--explain UNIT]`. Exit status: 0 healthy, 1 findings, 2 something could not be
checked. It changes nothing, loads no model and opens no connection to an RPC port.
"""

import argparse
import json
import os
import sys
import time
from typing import Any

from .. import _files
from .._doctor import evidence, explain
from .._doctor.judge import end_of, judge, lines_of, needed
from .._node import paths
from .._node.notify import say
from .._text import Refusal

RULES_MOST = 4 << 20
FOUND, NOT_LOOKED = 1, 2


def rules_of(path: str = paths.DOCTOR) -> list[dict[str, Any]]:
    """The rules as the role has written them. Errors: Refusal."""
    try:
        rules = json.loads(_files.read_trusted(path, RULES_MOST).decode("utf-8"))["rules"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise Refusal(f"{path}: cannot be used ({error}), rules are needed: run site.yml") from None
    return list(rules)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="llama-doctor", description="What is wrong on this node, and the fix.")
    parser.add_argument("--json", action="store_true", help="for programs: evidence and findings")
    parser.add_argument("--since", default="6h", metavar="TIME", help="how far back: 10m, 6h, 2d (default: 6h)")
    parser.add_argument("--explain", metavar="UNIT", help="show the last failure of a unit or service instead")
    given = parser.parse_args(arguments)
    node = os.uname().nodename
    try:
        if os.geteuid():
            raise Refusal("user %d seen, root is needed: run sudo llama-doctor" % os.geteuid())
        since = explain.since_of(given.since, time.time())
        if given.explain:
            say("\n".join(explain.timeline_of(given.explain, explain.events_of(given.explain, since, node), since)))
            return 0
        rules = rules_of()
        seen = evidence.collect(rules, since, node)
        findings = judge(rules, seen)
        code = FOUND if needed(findings) else NOT_LOOKED if seen["failed"] else 0
    except Refusal as error:
        sys.stderr.write(f"llama-doctor: {error}\n")
        return NOT_LOOKED
    if given.json:
        say(json.dumps({"evidence": seen, "findings": findings}, indent=2, sort_keys=True))
    else:
        end = [] if code == NOT_LOOKED else [end_of(findings, seen["at"] - since)]
        say("\n".join(lines_of(findings, seen["failed"]) + end))
    return code


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
