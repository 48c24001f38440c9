# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How long a service that never served waits for its next start. Private to the collection."""

# Seconds before the next run, by runs in a row that never served; then the last.
DELAYS = (0, 10, 30, 60, 120, 300, 600)


def delay(failures: int) -> int:
    """Seconds to wait after that many runs that never served."""
    return DELAYS[min(failures, len(DELAYS)) - 1] if failures else 0
