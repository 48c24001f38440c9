# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""trial SERVICE: ends a service's trial when its time is over and restores the head's configuration.

A timer starts it, also after each boot; before the end of the trial it does nothing.
"""

from __future__ import annotations

import signal
import sys

from .._node.notify import say
from .._node.trials import Record, Trials
from .._text import Refusal


def outcome(record: Record) -> str:
    """The line for the journal."""
    end = f"{record['service']}: the trial of {record['quant']} was not kept until {record['until']}"
    if record["state"] == "failed":
        return f"{end}, and {record['was']} cannot come back: {record['reason']}"
    return f"{end}: {record['was']} is back{', ' + record['reason'] if record['reason'] else ''}"


def main(arguments: list[str]) -> int | str:
    if len(arguments) != 1:
        return "usage: trial SERVICE"
    # A restoration is not interrupted: half of it would be no configuration.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        record = Trials().revert(arguments[0])
    except Refusal as refusal:
        return f"trial of {arguments[0]}: {refusal}"
    if record:
        say(outcome(record))
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
