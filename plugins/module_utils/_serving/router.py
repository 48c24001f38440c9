# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The models of a router. No probe loads or unloads one. Private to the collection."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from .._llama.api import plain, table
from .._llama.args import Settings, parse_args
from .._llama.server import LOADED, Sample


class Model(NamedTuple):
    """state: unloaded, loading, loaded, sleeping; settings: of its server's command line; busy: its busy slots."""

    name: str
    state: str
    settings: Settings
    busy: int


def models(seen: Sample) -> list[Model]:
    """The models of a probed router, busy ones first, then loaded ones."""
    found = []
    for one in seen.entries:
        name, status = one.get("id"), table(one.get("status"))
        words = status.get("args")
        args = [word for word in words if isinstance(word, str)] if isinstance(words, list) else []
        if isinstance(name, str) and isinstance(status.get("value"), str):
            busy = sum(slot["model"] == name for slot in seen.working)
            found.append(Model(plain(name), plain(status["value"]), parse_args(args), busy))
    return sorted(found, key=lambda one: (not one.busy, one.state not in LOADED, one.name))


def state(found: Sequence[Model]) -> tuple[str, str]:
    """-> (ready or busy, why)"""
    loaded = [one.name for one in found if one.state in LOADED]
    loading = [one.name for one in found if one.state == "loading"]
    busy = sum(one.busy for one in found)
    words = ["%d slots work" % busy] if busy else []
    words.append(
        "%d of its %d models loaded%s" % (len(loaded), len(found), " (%s)" % ", ".join(loaded) if loaded else "")
    )
    words += [f"{' and '.join(loading)} is loading"] if loading else []
    return "busy" if busy or loading else "ready", ", ".join(words)


def refuse_answer(model: str, body: dict[str, Any]) -> str:
    return "a request for %s is answered by %s, the model's own name is needed: run site.yml" % (
        model,
        plain(body.get("model")),
    )
