# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How a service drafts tokens that its model checks at once: the types of `draft`, their keys and their flags. Private
to the collection."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

# The first build whose flags for types are known, and the last one before it whose flags for a draft model are.
TYPED = 11434
UNTYPED = 7772
DRAFTS_UNKNOWN = range(UNTYPED + 1, TYPED)
OLD_FLAGS = {"max": "--draft-max", "min": "--draft-min"}


class Kind(NamedTuple):
    """A type of `draft`."""

    spec: str  # of --spec-type
    flags: Mapping[str, str]  # by key
    most: int  # tokens that it drafts at a time, without `max`
    limit: int  # of `max`
    model: bool = False  # a model of its own drafts


def _map(name: str, *more: str) -> Kind:
    flag = f"--spec-{name}-"
    own = {"match": f"{flag}size-n", "max": f"{flag}size-m", "hits": f"{flag}min-hits"}
    return Kind(name, {key: own[key] for key in ("match", "max", *more)}, 48, 1024)


# Without a type a model drafts. ngram-simple does not read its --spec-ngram-simple-min-hits.
MODEL = ""
DRAFT_TYPES = {
    MODEL: Kind("draft-simple", {"max": "--spec-draft-n-max", "min": "--spec-draft-n-min"}, 3, 64, True),
    "ngram-simple": _map("ngram-simple"),
    "ngram-map-k": _map("ngram-map-k", "hits"),
    "ngram-map-k4v": _map("ngram-map-k4v", "hits"),
    "ngram-mod": Kind(
        "ngram-mod",
        {
            "match": "--spec-ngram-mod-n-match",
            "max": "--spec-ngram-mod-n-max",
            "min": "--spec-ngram-mod-n-min",
        },
        64,
        1024,
    ),
    "ngram-cache": Kind("ngram-cache", {}, 8, 8),
}

# llama.cpp's types that were not tried, without their `draft-`: what b11434 wants for each.
UNTRIED = {
    "mtp": "a model whose header has nextn_predict_layers and whose last block has the tensor nextn.eh_proj",
    "eagle3": "a second file, of architecture eagle3, whose header has three target_layers",
}


def kind_of(draft: Mapping[str, Any]) -> Kind:
    return DRAFT_TYPES[draft.get("type", MODEL)]


def model_of(draft: Mapping[str, Any] | None) -> tuple[str, str] | None:
    """(model, quant) that drafts; None without one."""
    return (draft["model"], draft["quant"]) if draft and kind_of(draft).model else None


def most(draft: Mapping[str, Any] | None) -> int:
    """Tokens that are drafted at a time, at most."""
    return int(draft.get("max", kind_of(draft).most)) if draft else 0


def words(draft: Mapping[str, Any], build: int) -> list[str]:
    """llama-server's words beside those for a draft model's file and devices, for a build (a number)."""
    kind = kind_of(draft)
    flags = kind.flags if build >= TYPED else OLD_FLAGS
    # b11434 drafts nothing without --spec-type, and logs that at info level.
    found = ["--spec-type", kind.spec] if build >= TYPED else []
    return found + [word for key, flag in flags.items() if key in draft for word in (flag, str(draft[key]))]
