# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The projector and the adapters of a service in the plan. Private to the collection."""

from __future__ import annotations

from typing import Any, NamedTuple

from ...module_utils._companion_keys import ADAPTER, PROJECTOR, companions, projects_on_card
from ...module_utils._model import companion as headers
from ...module_utils._model.kv_cache import Projector, Settings
from ...module_utils._model.memory import Shape
from ...module_utils._text import Refusal
from .._intent.records import Settings as Entry
from .cluster import Cluster


class Loaded(NamedTuple):
    """A model with the files beside it. inputs: what a kept plan has to equal; refused: sentences without their
    entry."""

    shape: Shape
    settings: Settings
    inputs: list[list[Any]]
    refused: list[tuple[str, str]]


def load(cluster: Cluster, service: Entry, shape: Shape, settings: Settings) -> Loaded:
    """service: resolved. Errors: Refusal, for a header that was not read."""
    model, inputs, refused = service["model"], list[list[Any]](), list[tuple[str, str]]()
    for name in companions(service):
        try:
            found = cluster.companion(model, name)
        except Refusal as problem:
            raise Refusal(f"{name} of {model}: {problem}") from None
        key = "mmproj" if name == PROJECTOR else f"lora.{name[len(ADAPTER) :]}"
        if found.kind != (headers.PROJECTOR if name == PROJECTOR else headers.ADAPTER):
            refused.append(
                (
                    key,
                    f"the file of {'an' if found.kind == headers.ADAPTER else 'a'} {found.kind} seen, "
                    "another is needed: correct its files in llama_models",
                )
            )
        elif name == PROJECTOR:
            compute = found.compute if settings.flash_attn else found.compute_plain
            projector = Projector(found.whole, compute, projects_on_card(service))
            settings = settings._replace(projector=projector)
            inputs.append([PROJECTOR, *projector])
        elif found.architecture != shape.architecture or len(found.blocks) > shape.block_count:
            refused.append(
                (
                    key,
                    "an adapter for %d layers of %s seen, one for the %d of %s is needed: choose one that "
                    "was made for this model"
                    % (len(found.blocks), found.architecture, shape.block_count, shape.architecture),
                )
            )
        else:
            shape = found.added_to(shape)
            inputs.append(["lora", name[len(ADAPTER) :], found.whole])
    return Loaded(shape, settings, inputs, refused)
