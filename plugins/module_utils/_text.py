# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What others wrote, fit for a terminal. Private to the collection."""


def printable(text, most=200):
    """One line of a report: what a terminal would act on, and a line feed, is a question mark. most: characters that are shown, None for all."""
    text = str(text)
    shown = "".join(letter if letter.isprintable() else "?" for letter in text[:most])
    return shown + "..." if len(text) > len(shown) else shown
