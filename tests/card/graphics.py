# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""This machine's cards of AMD and Intel, by the code of the collection that reads them on nodes."""

from __future__ import annotations

import sys

from machine import CHECKOUT

sys.path.insert(0, str(CHECKOUT))
from plugins.module_utils._node import drm  # noqa: E402


def graphics(usage=False):
    """-> the cards on which services may compute, as drm.cards() has them, and with usage {slot: {process id: MiB}}"""
    seen = drm.collect(usage=usage)
    cards = [one for one in seen["cards"] if drm.computes(one)]
    return (cards, seen["processes"]) if usage else cards


def used():
    """-> MiB in use of the first card; None where its driver does not tell"""
    return drm.memory(graphics()[0])[1]
