# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which releases units name. Private to the collection."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any


def named(units: Iterable[Mapping[str, Any]], prefix: str) -> set[str]:
    """The paths of the releases that units name, anywhere in their command lines: a worker's program follows stdbuf,
    numactl or the guard of its cache."""
    pattern = re.compile(f"{re.escape(prefix)}/releases/[^/]+")
    found = (pattern.match(word) for unit in units for word in unit["arguments"])
    return {match.group() for match in found if match}
