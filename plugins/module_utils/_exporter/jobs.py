# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The jobs of services, as their keeper knows them, on the host that submits them. Private to the collection."""

from __future__ import annotations

import os
import time

from .._node import paths
from .._slurm import facts, state
from .exposition import Family
from .metrics import Families

HELD = "held"


def look() -> list[Family]:
    """Nothing on a host without a keeper. One that does not run says nothing of its jobs. Errors: Refusal, OSError."""
    found = Families()
    if not os.path.exists(paths.KEEPER_CONFIG):
        return found.all()
    content = state.read(paths.KEEPER)
    alive = not facts.mistrust(content, time.time())
    found.add("llama_keeper_alive", int(alive))
    # The user of the jobs could name any service in its file.
    services = state.configuration(paths.KEEPER_CONFIG).services if alive else {}
    for service, one in sorted(state.known_of(content).items()):
        if service not in services or (one.state == state.NONE and not one.wanted):
            continue
        seen = HELD if one.held and one.state == state.NONE else one.state
        found.add("llama_job_state", 1, service=service, state=seen)
        found.add("llama_job_serves", int(one.serves), service=service)
        found.add("llama_job_failures", int(one.failures), service=service)
    return found.all()
