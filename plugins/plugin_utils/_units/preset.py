# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The preset file of a router: the command line of each of its models as llama.cpp's INI. Private to the collection."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

# Characters that end a value in the INI, quoted or not. Only JSON values contain them, where an escape works too.
ENDS = {";": "\\u003b", "#": "\\u0023"}


def preset(models: Iterable[Mapping[str, Any]]) -> str:
    """models: of Head.models."""
    found = ["; Written by the collection from llama_services: change the inventory.", "version = 1"]
    found += ["", "[*]", "metrics = true"]
    for one in models:
        found += ["", f"[{one['model']}]", *_lines(one["args"])]
    return "\n".join(found) + "\n"


def _lines(args: Sequence[str]) -> list[str]:
    """Returns a line for each flag. A negative number is a value, not a flag."""
    found: list[str] = []
    for word in args:
        if word.startswith("--"):
            found.append(f"{word[2:]} = true")
        else:
            found[-1] = found[-1][: -len("true")] + "".join(ENDS.get(letter, letter) for letter in word)
    return found
