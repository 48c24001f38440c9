# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""trial SERVICE: puts back what a service's head was before its trial, once the time is over. A timer starts it.

It is asked too early after each boot, and then does nothing. While a playbook changes what serves it waits for the end
of that, which may be the end of the trial too; not for ever, since a run may have died.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import Callable

from .._node import paths
from .._node.notify import say
from .._node.trials import Record, Trials, instant
from .._text import Refusal

# Seconds: what is nearer is waited for, because the timer does not start what runs.
NEAR = 120
# How long a playbook may take.
LONG = 3600
STEP = 5


def is_due(service: str, trials: Trials, sleep: Callable[[float], None] = time.sleep) -> bool:
    """Whether the time of a trial is over, of one without a record too: its units are to go. Waits for a time that is
    near."""
    record = trials.read(service)
    left = instant(record["until"]) - trials.clock() if record and record["state"] == "running" else 0
    if left > NEAR:
        return False
    if left > 0:
        sleep(left)
    return True


def wait_for_others(service: str, opened: str, sleep: Callable[[float], None] = time.sleep) -> None:
    """As long as a switch is under way."""
    for waited in range(0, LONG, STEP):
        if not os.path.exists(opened):
            return
        if not waited:
            say(f"{service}: its trial is over, and waits for the switch that is under way")
        sleep(STEP)
    say(f"{service}: a switch that began more than an hour ago is waited for no longer")


def said(record: Record) -> str:
    """What was done, for the journal."""
    end = f"{record['service']}: the trial of {record['quant']} was not kept until {record['until']}"
    if record["state"] == "failed":
        return f"{end}, and {record['was']} cannot come back: {record['reason']}"
    return f"{end}: {record['was']} is back{', ' + record['reason'] if record['reason'] else ''}"


def main(arguments: list[str]) -> int | str:
    if len(arguments) != 1:
        return "usage: trial SERVICE"
    service, trials = arguments[0], Trials()
    try:
        if not is_due(service, trials):
            return 0
        wait_for_others(service, paths.OPEN_SNAPSHOT)
        # Who ends the trial just now waits for it: half of it would be nobody's configuration.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        record = trials.revert(service)
    except Refusal as refusal:
        return f"trial of {service}: {refusal}"
    if record:
        say(said(record))
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
