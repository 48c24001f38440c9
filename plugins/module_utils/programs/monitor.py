# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""llama-cluster-monitor: what runs, live. A monitoring host shows all nodes, another host itself.

--once prints it once, --json as JSON for programs. Ctrl-C ends it. Exit status: 0, or 2 for wrong usage.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import sys
import time

from .._monitor.read import Follower, look, once, sources
from .._monitor.state import Row, put_together, verdicts
from .._monitor.view import lines, painted, show

ENTER, LEAVE, HOME, REST = "\033[?1049h\033[?25l", "\033[?25h\033[?1049l", "\033[H", "\033[J"


# Seconds between two pictures.
INTERVAL = 1.0


def as_json(cluster: Row) -> str:
    return (
        json.dumps(dict(cluster, services=verdicts(cluster["endpoints"], cluster["kept"])), indent=2, sort_keys=True)
        + "\n"
    )


def _leave(*_given: object) -> None:
    raise SystemExit(0)


def live(followed: list[Follower], colour: bool) -> None:
    """Runs until a signal ends it. Lines are overwritten: clearing the terminal makes it flicker."""
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
            time.sleep(max(0.1, INTERVAL - (time.monotonic() - began)))
    finally:
        show(LEAVE)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="llama-cluster-monitor", description="What runs, live.")
    parser.add_argument("--once", action="store_true", help="print it once and end")
    parser.add_argument("--json", action="store_true", help="print it once, as JSON")
    parser.add_argument("--width", type=int, metavar="COLUMNS", help="width of --once (default: the terminal's)")
    given = parser.parse_args(arguments)
    if given.width is not None and given.width < 1:
        parser.error("--width: %d seen, at least 1 is needed" % given.width)
    followed = [Follower(source) for source in sources()]
    if given.once or given.json or not sys.stdout.isatty():
        once(followed)
        cluster = put_together(followed)
        width = given.width or shutil.get_terminal_size((80, 24)).columns
        colour = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
        show(as_json(cluster) if given.json else painted(lines(cluster, width, time.time()), colour))
        return 0
    live(followed, not os.environ.get("NO_COLOR"))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
