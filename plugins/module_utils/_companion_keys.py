# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files that a service loads beside its model: the projector of its pictures, and LoRA adapters. Rows of the table of
settings. Private to the collection."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ._key import Key

# Names of these files, in the place of a quant.
PROJECTOR = "mmproj"
ADAPTER = "lora "
SCALES = (-10, 10)
MMPROJ = (re.compile(r"^cpu\Z"), "true, cpu or false", "write one of them")

COMPANIONS = (
    Key(
        "mmproj",
        (bool, str),
        "Whether it reads pictures with the `mmproj` of its model's entry, as it does without this key: [pictures and "
        "adapters](inventory.md#pictures-and-adapters).",
        form=MMPROJ,
    ),
    Key(
        "lora",
        dict,
        "Adapters of `loras` in its model's entry, each with its scale: `{NAME: 1.0}`.",
    ),
)


def with_projector(model: Mapping[str, Any] | None, entry: dict[str, Any]) -> dict[str, Any]:
    """The entry with `mmproj` if it reads pictures, and without it if not."""
    texts = not (entry.get("embeddings") or entry.get("reranking"))
    wanted = entry.get("mmproj", bool(model and model.get("mmproj")) and texts)
    found = {name: value for name, value in entry.items() if name != "mmproj"}
    return dict(found, mmproj=wanted) if wanted else found


def projects_on_card(service: Mapping[str, Any]) -> bool:
    """Whether its projector lies on the first card of its head, if that has one. With workers llama-server could take
    one of them."""
    return service.get("mmproj") is True and "workers" not in service and service.get("cards") != []


def companions(service: Mapping[str, Any]) -> list[str]:
    """The names of the files beside its model."""
    return [PROJECTOR] * bool(service.get("mmproj")) + [ADAPTER + str(name) for name in service.get("lora") or {}]
