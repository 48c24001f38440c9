# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The models of a router. No probe loads or unloads one. Private to the collection."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from .._llama.api import LlamaApi, NoAnswer, plain, rows, table
from .._llama.args import Settings, parse_args
from .._llama.server import AWAKE, LOADED
from .._llama.server import models as listed


class Model(NamedTuple):
    """state: unloaded, loading, loaded, sleeping; settings: of its server's command line; busy: slots at work, None if
    unknown."""

    name: str
    state: str
    settings: Settings
    slots: int | None = None
    busy: int | None = None


def models(api: LlamaApi, timeout: float) -> list[Model]:
    """The models of a router, busy ones first, then loaded ones; none of another server. Errors: NoAnswer, Refusal."""
    found = []
    for one in listed(api, timeout)[1]:
        name, state = one.get("id"), table(one.get("status")).get("value")
        if isinstance(name, str) and isinstance(state, str):
            words = table(one.get("status")).get("args")
            args = [word for word in words if isinstance(word, str)] if isinstance(words, list) else []
            own = Model(plain(name), plain(state), parse_args(args))
            found.append(_at_work(api, own, timeout) if state == AWAKE else own)
    return sorted(found, key=lambda one: (not one.busy, one.state not in LOADED, one.name))


def _at_work(api: LlamaApi, one: Model, timeout: float) -> Model:
    try:
        status, body = api.of(one.name).get("/slots", timeout, of_model=True)
    except NoAnswer:
        return one
    slots = rows(body) if status == 200 else None
    if slots is None:
        return one
    return one._replace(slots=len(slots), busy=sum(1 for slot in slots if slot.get("is_processing")))


def describe(api: LlamaApi, result: dict[str, Any], timeout: float) -> tuple[list[Model], bool]:
    """Fills in models, slots and slots_busy -> (the models, whether it is too busy to respond)."""
    try:
        found = models(api, timeout)
    except NoAnswer as error:
        return [], error.kind == "timeout"
    result["models"] = {one.name: one.state for one in found}
    result["slots"] = sum(one.slots or 0 for one in found) or None
    result["slots_busy"] = sum(one.busy or 0 for one in found)
    return found, False


def state(found: Sequence[Model]) -> tuple[str, str]:
    """-> (ready or busy, why)"""
    loaded = [one.name for one in found if one.state in LOADED]
    loading = [one.name for one in found if one.state == "loading"]
    busy = sum(one.busy or 0 for one in found)
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
