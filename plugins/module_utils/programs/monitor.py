# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""llama-cluster-monitor: what runs, live. On a monitoring host over all nodes, on another host its own.

--once prints it once, --json as JSON for programs; --interval SECONDS between two looks at a node. Ctrl-C ends it. Exit
status: 0, or 2 where it was called wrongly.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import sys
import time
from typing import Any

from .._monitor.read import Follower, look, once, sources
from .._monitor.state import Cluster, put_together, verdicts
from .._monitor.view import lines, painted, show

ENTER, LEAVE, HOME, REST = "\033[?1049h\033[?25l", "\033[?25h\033[?1049l", "\033[H", "\033[J"


def as_json(cluster: Cluster) -> str:
    told: dict[str, Any] = {"services": [one._asdict() for one in verdicts(cluster.endpoints)]}
    for name, value in cluster._asdict().items():
        told[name] = [one._asdict() for one in value] if isinstance(value, list) else value
    return json.dumps(told, indent=2, sort_keys=True) + "\n"


def _leave(*_given: object) -> None:
    raise SystemExit(0)


def live(followed: list[Follower], interval: float, colour: bool) -> None:
    """Until a signal ends it. Lines are written over: a terminal that is cleared flickers."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _leave)
    show(ENTER)
    try:
        while True:
            began = time.monotonic()
            look(followed)
            size = os.get_terminal_size(sys.stdout.fileno())
            shown = lines(put_together(followed), size.columns, time.time())[: max(1, size.lines - 1)]
            show(HOME + painted(shown, colour).replace("\n", "\033[K\r\n") + REST)
            time.sleep(max(0.1, interval - (time.monotonic() - began)))
    finally:
        show(LEAVE)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="llama-cluster-monitor", description="What runs, live.")
    parser.add_argument("--once", action="store_true", help="print it once and end")
    parser.add_argument("--json", action="store_true", help="print it once, as JSON")
    parser.add_argument("--interval", type=float, default=1.0, metavar="SECONDS", help="between two looks (default: 1)")
    parser.add_argument("--width", type=int, metavar="COLUMNS", help="of what --once prints (default: the terminal's)")
    given = parser.parse_args(arguments)
    if not 0 < given.interval <= 3600:
        parser.error(f"--interval: {given.interval:g} seen, more than 0 and at most 3600 is needed")
    if given.width is not None and given.width < 1:
        parser.error("--width: %d seen, at least 1 is needed" % given.width)
    followed = [Follower(source) for source in sources()]
    if given.once or given.json or not sys.stdout.isatty():
        once(followed, looks=2)
        cluster = put_together(followed)
        width = given.width or shutil.get_terminal_size((80, 24)).columns
        colour = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
        show(as_json(cluster) if given.json else painted(lines(cluster, width, time.time()), colour))
        return 0
    live(followed, given.interval, not os.environ.get("NO_COLOR"))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
