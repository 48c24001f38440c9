# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""llama-cluster-monitor: what runs, live. On a monitoring host over all nodes, on a node its own.

--once prints it once, --json as JSON for programs; --interval SECONDS between two looks. Ctrl-C ends it. Exit status:
0, or 2 where it was called wrongly.
"""

import argparse
import contextlib
import json
import os
import shutil
import signal
import sys
import time
from typing import Any, List, Optional

from .._monitor.read import Follower, once, sources
from .._monitor.state import Cluster, put_together, verdicts
from .._monitor.view import lines, painted

ENTER, LEAVE, HOME, REST = "\033[?1049h\033[?25l", "\033[?25h\033[?1049l", "\033[H", "\033[J"


def as_json(cluster: Cluster) -> str:
    told = {
        name: [one._asdict() for one in value] for name, value in cluster._asdict().items() if name != "alerts_known"
    }
    told["services"] = [one._asdict() for one in verdicts(cluster)]
    return json.dumps(told, indent=2, sort_keys=True) + "\n"


def text(cluster: Cluster, width: int, height: Optional[int], colour: bool) -> str:
    shown = lines(cluster, width, time.time())
    return painted(shown if height is None else shown[: max(1, height - 1)], colour)


def live(followed: List[Follower], interval: float, colour: bool) -> None:
    """Until somebody ends it. Lines are written over: a terminal that is cleared flickers."""
    for one in followed:
        one.start()
    sys.stdout.write(ENTER)
    try:
        while True:
            size = shutil.get_terminal_size()
            content = text(put_together(followed), size.columns, size.lines, colour)
            sys.stdout.write(HOME + content.replace("\n", "\033[K\n") + REST)
            sys.stdout.flush()
            time.sleep(min(interval, 1.0))
    finally:
        sys.stdout.write(LEAVE)
        sys.stdout.flush()


def main(arguments: Optional[List[str]] = None) -> int:
    parser = argparse.ArgumentParser(prog="llama-cluster-monitor", description="What runs, live.")
    parser.add_argument("--once", action="store_true", help="print it once and end")
    parser.add_argument("--json", action="store_true", help="print it once, as JSON")
    parser.add_argument("--interval", type=float, default=2.0, metavar="SECONDS", help="between two looks (default: 2)")
    parser.add_argument("--width", type=int, metavar="COLUMNS", help="of what --once prints (default: the terminal's)")
    given = parser.parse_args(arguments)
    if given.interval <= 0:
        parser.error("--interval: %g seen, more than 0 is needed" % given.interval)
    followed = [Follower(source, given.interval) for source in sources()]
    terminal = sys.stdout.isatty()
    colour = terminal and not os.environ.get("NO_COLOR")
    if given.once or given.json or not terminal:
        once(followed)
        cluster = put_together(followed)
        width = given.width or shutil.get_terminal_size((80, 24)).columns
        sys.stdout.write(as_json(cluster) if given.json else text(cluster, max(20, width), None, colour))
        return 0
    signal.signal(signal.SIGTERM, _end)
    with contextlib.suppress(KeyboardInterrupt):
        live(followed, given.interval, colour)
    return 0


def _end(_number: int, _frame: Any) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
