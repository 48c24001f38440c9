# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Errors of a transfer. Private to the collection."""

from __future__ import annotations

from typing import Any

from .._text import Refusal


class Transient(Exception):
    """A failure that may not occur again. wait: seconds the server asked for, or None."""

    def __init__(self, text: str, wait: float | None = None) -> None:
        super().__init__(text)
        self.wait = wait


class DiskTooSmall(Refusal):
    """A model does not fit the disk. disk: {folder, free, missing}, bytes."""

    def __init__(self, message: str, folder: str, free: int, missing: int) -> None:
        super().__init__(message)
        self.disk: dict[str, Any] = {"folder": folder, "free": free, "missing": missing}


class Stopped(Exception):
    """The run was asked to stop; it can be resumed."""
