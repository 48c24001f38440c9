# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files of another user, for tests of files that root must not trust."""

import os

import pytest

OTHER_USER = 4711


def give_away(path):
    """Gives a file or directory to another user; skips the test without root."""
    if os.geteuid() != 0:
        pytest.skip("only root gives a file away")
    os.chown(str(path), OTHER_USER, OTHER_USER, follow_symlinks=False)
