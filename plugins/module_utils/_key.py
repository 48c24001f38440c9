# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A row of the table of settings. Private to the collection."""

from __future__ import annotations

from re import Pattern
from typing import Any, NamedTuple

# [(first build, {value: words of the command line})].
Words = tuple[tuple[int, dict[Any, list[str]]], ...]


class Key(NamedTuple):
    """A key of a service."""

    name: str
    type: Any  # of its value, or a tuple of types; float takes whole numbers too
    text: str  # a sentence for docs/settings.md; for a required key its part before the colon is the value needed
    default: Any = None  # the value without the key, None for llama-server's own
    own: Any = None  # llama-server's own, if something is computed from it
    required: bool = False
    choices: tuple[str, ...] = ()
    # Lowest and highest of a number, None for the largest of llama-server's.
    bounds: tuple[float, float | None] = (1, None)
    # (pattern, its description, the next step) for a text, or for each text of a list.
    form: tuple[Pattern[str], str, str] | None = None
    empty: bool = False  # whether an empty list has a meaning
    flag: None | str | Words = None  # llama-server's
    memory: bool = False  # whether a memory plan depends on it
    kinds: tuple[str, ...] = ("server",)  # the kinds of service that know it
    family: bool = False  # whether it may stand in the model's entry too, for all services of that model
