# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The shape of a model from its header, wherever the model is. Private to the collection."""

import os
from typing import Any

from .._fetch.http import Client
from .._fetch.request import Request
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
