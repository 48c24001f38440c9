# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Steps that the keeper of jobs decides on, for its program. Private to the collection."""

from __future__ import annotations

from typing import NamedTuple, Union


class Submit(NamedTuple):
    service: str
    script: str


class Cancel(NamedTuple):
    """pending: only if it does not run yet."""

    service: str
    job_id: int
    pending: bool


class Drain(NamedTuple):
    service: str
    job_id: int


class Taken(NamedTuple):
    """A request of a person is in the state, and its file is to be removed."""

    service: str
    kind: str


class Say(NamedTuple):
    text: str


Action = Union[Submit, Cancel, Drain, Taken, Say]
