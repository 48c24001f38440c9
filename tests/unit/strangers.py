# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Somebody else on the node, for tests that plant what is his."""

import os

import pytest

STRANGER = 4711


def give_away(path):
    """Has a file or directory belong to another user; the test is skipped where this is not possible."""
    if os.geteuid() != 0:
        pytest.skip("only root gives a file away")
    os.chown(str(path), STRANGER, STRANGER, follow_symlinks=False)
