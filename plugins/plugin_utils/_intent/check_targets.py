# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is wrong with llama_targets, one sentence a mistake. Private to the collection."""

from typing import Any

from .records import Services
from .values import is_a, near, plain, shown, type_errors, unknown_key

# metric -> whether less is better.
METRICS = {"tokens_per_second": False, "first_token_seconds": True}
LEVELS = ("target", "acceptable", "critical")


def target_errors(targets: Any, services: Services) -> list[str]:
    """targets: {SERVICE: {metric: {target, acceptable, critical, source}}}"""
    found = type_errors("llama_targets", targets, dict)
    for name, own in {} if found else targets.items():
        entry = f"llama_targets.{plain(name)}"
        if name not in services:
            step = near(name, services, ": correct the name")
            found.append(f"{entry}: no service of that name, one of {', '.join(services)} is needed{step}")
            continue
        found += type_errors(entry, own, dict)
        for metric, levels in own.items() if isinstance(own, dict) else ():
            if metric not in METRICS:
                found.append(unknown_key(entry, metric, METRICS))
            else:
                found += _level_errors(f"{entry}.{metric}", levels, METRICS[metric])
    return found


def _level_errors(entry: str, levels: Any, less: bool) -> list[str]:
    found = type_errors(entry, levels, dict)
    if found:
        return found
    found = [unknown_key(entry, key, (*LEVELS, "source")) for key in levels if key not in (*LEVELS, "source")]
    for level in LEVELS:
        if not is_a(levels.get(level), float) or levels[level] <= 0:
            found.append(
                "%s.%s: %s seen, a number above 0 is needed: write target, acceptable and critical"
                % (entry, level, shown(levels.get(level)))
            )
    if not found and [levels[level] for level in LEVELS] != sorted(
        (levels[level] for level in LEVELS), reverse=not less
    ):
        found.append(
            "%s: %g, %g, %g seen, target, acceptable and critical in that order are needed, the best first: exchange "
            "them" % (entry, *(levels[level] for level in LEVELS))
        )
    return found
