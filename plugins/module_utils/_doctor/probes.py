# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs probes, each with a time limit, none of them fatal. Private to the collection."""

import threading
from typing import Any, Callable


def gather(probes: dict[str, tuple[float, Callable[[], Any]]]) -> tuple[dict[str, Any], dict[str, str]]:
    """Runs {name: (seconds, function)} in parallel -> ({name: result}, {name: error}).

    A probe that hangs, as on a lost share, is left behind: its thread ends with the process.
    """
    seen: dict[str, Any] = {}
    failed: dict[str, str] = {}

    def look(name: str, probe: Callable[[], Any]) -> None:
        try:
            seen[name] = probe()
        except Exception as error:  # the other probes go on
            failed[name] = str(error) or type(error).__name__

    threads = []
    for name, (seconds, probe) in probes.items():
        thread = threading.Thread(target=look, args=(name, probe), daemon=True)
        thread.start()
        threads.append((name, seconds, thread))
    for name, seconds, thread in threads:
        thread.join(seconds)
        if name not in seen and name not in failed:
            failed[name] = f"no answer in {seconds:g} s"
    # Copies: late threads do not change them.
    return dict(seen), dict(failed)
