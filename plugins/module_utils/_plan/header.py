# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The shape of a model from its header, and which models of a list are there. Private to the collection."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from typing import Any

from .._fetch.existing import unchanged
from .._fetch.http import Client
from .._fetch.request import Request, Watch
from .._fetch.resolve import resolve
from .._model.companion import Companion, read_companion
from .._model.describe import check_shards, shard_names
from .._model.gguf import Header, read_path
from .._model.memory import Shape, read_shape
from .._text import Refusal


class NoModel(Refusal):
    """Raised for a file that lies beside a model."""

    def __init__(self, problem: Refusal, companion: Companion) -> None:
        super().__init__(str(problem))
        self.companion = companion


def local_shape(path: str) -> Shape:
    """Shape of the model on this machine that ``path`` (any shard) belongs to. Raises OSError, Refusal."""
    folder, base = os.path.split(path)
    paths = [os.path.join(folder, name) for name in shard_names(base)]
    headers = [read_path(name) for name in paths]
    check_shards(headers, paths)
    return _shape(headers)


def remote_shape(**asked: Any) -> Shape:
    """Shape of a model on servers or in a hub's repository; asked: as for _fetch/request.Request, without dest. Only
    headers are read.

    Raises Refusal.
    """
    client = Client()
    try:
        return _shape([header for header in resolve(Request("/model.gguf", **asked), client).headers if header])
    finally:
        client.close()


def _shape(headers: list[Header]) -> Shape:
    try:
        return read_shape(headers)
    except Refusal as problem:
        companion = read_companion(headers)
        raise NoModel(problem, companion) if companion else problem from None


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
    return dict(done, there=True, shape=_shape_at(done["dest"]))


def _shape_at(path: str) -> dict[str, Any] | None:
    try:
        return local_shape(path).as_dict()
    except (OSError, Refusal):
        return None


def _has_mode(path: str, mode: int) -> bool:
    return stat.S_IMODE(os.lstat(path).st_mode) == mode
