# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How much context llama-server gives a slot: what the header says, unless the service says otherwise. Private to the
collection.

server-context.cpp (n_ctx_slot) caps each slot at the context the model was trained with. llama-context.cpp
(llama_init_from_model) sets that to yarn_orig_ctx * rope_scale where YaRN scales otherwise than the header (llama.cpp
#28030); before, only override_kv changes it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .._model.memory import Shape

# #28030 was merged on 30 August 2026; b10754 is the first release that is known to have it.
YARN_RAISES = 10754


def allowed_context(service: Mapping[str, Any], shape: Shape, build: int | None) -> int:
    """Tokens that a slot may have; 0 if not known. build: number of the llama.cpp release, None for the
    newest."""
    allowed = overridden(service, shape) or shape.context_length
    if (
        service.get("rope_scaling") == "yarn"
        and service.get("rope_scale", 1) != 1
        and (build or YARN_RAISES) >= YARN_RAISES
    ):
        return int((service.get("yarn_orig_ctx") or allowed) * service["rope_scale"])
    return allowed


def overridden(service: Mapping[str, Any], shape: Shape) -> int:
    """The context length that override_kv puts in the header's place, 0 for none."""
    prefix = f"{shape.architecture}.context_length=int:"
    found = [one[len(prefix) :] for one in service.get("override_kv") or [] if one.startswith(prefix)]
    return int(found[-1]) if found and found[-1].isdigit() else 0


def way_out(shape: Shape, tokens: int, build: int | None) -> str:
    """Words for the settings that would allow ``tokens``."""
    length = shape.context_length
    override = "override_kv: ['%s.context_length=int:%d']" % (shape.architecture, tokens)
    if not length:
        return f"set {override}"
    yarn = "rope_scaling: yarn, rope_scale: %d, yarn_orig_ctx: %d" % (-(-tokens // length), length)
    if shape.rope_scaling:
        return f"set {override}, its header scales already"
    if (build or YARN_RAISES) < YARN_RAISES:
        return f"set {yarn} and {override}"
    return f"set {yarn}, or for a model that needs no scaling {override}"
