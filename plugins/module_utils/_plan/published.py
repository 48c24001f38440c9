# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which models of a list are there, untouched since they were published, and what their headers say. Private to the
collection."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from typing import Any

from .._fetch.existing import unchanged
from .._fetch.request import Request, Watch
from .._text import Refusal
from .header import local_shape

# The options of gguf_fetch that decide the content of a model.
ASKED = ("urls", "repo", "files", "revision", "sha256")


def look(item: Mapping[str, Any], mode: int) -> dict[str, Any]:
    """{item, there}, and for a model that is there what gguf_fetch returns for it and its `shape`, as llama_plan
    returns it; None for one that it cannot read.

    item: of model_items(). mode: that its files must have. Nothing is hashed: what would have to be is not there, and
    gguf_fetch says more.
    """
    try:
        request = Request(item["dest"], **{name: item[name] for name in ASKED if item.get(name)})
        found = _look(request, mode)
    except (OSError, Refusal):
        found = {"there": False}
    return dict(found, item=item)


def _look(request: Request, mode: int) -> dict[str, Any]:
    done = unchanged(request, Watch(), check=True, hashing=False)
    if done is None or not all(_has_mode(entry["path"], mode) for entry in done["files"]):
        return {"there": False}
    return dict(done, there=True, shape=_shape(done["dest"]))


def _shape(path: str) -> dict[str, Any] | None:
    try:
        return local_shape(path).as_dict()
    except (OSError, Refusal):
        return None


def _has_mode(path: str, mode: int) -> bool:
    return stat.S_IMODE(os.lstat(path).st_mode) == mode
