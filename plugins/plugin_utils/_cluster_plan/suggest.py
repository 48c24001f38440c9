# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Changes that would make a service fit, each verified by a plan. Private to the collection."""

from __future__ import annotations

from ...module_utils._model.left import leaving
from ...module_utils._model.memory import Shape
from ...module_utils._plan.place import Case
from ...module_utils._plan.suggest import nearest
from .._intent.check import weights
from . import refusals
from .cluster import Cluster, Misfit


def own_words(case: Case, whole: Shape, force: bool) -> list[str]:
    """Words for the automatic split if that fits, or for the most layers on the cards. whole: the model with the layers
    that stay in main memory."""
    automatic = case._replace(counts=None).plan(force)
    if case.counts and automatic.fits:
        rows = [row for row in automatic.devices if row.layers or row.kind == "GPU"]
        return ["set tensor_split to auto (%s)" % ", ".join("%s %d" % (row.node, row.layers) for row in rows)]
    for blocks in range(case.shape.block_count - 1, 0, -1) if case.shape.left else ():
        if case._replace(shape=leaving(whole, whole.block_count - blocks)).plan().fits:
            return ["lower n_gpu_layers to %d" % (blocks + 1)]
    return []


def misfit_sentence(cluster: Cluster, one: Misfit) -> str:
    """Why a service does not fit, and what would."""
    model, words = cluster.models[one.described.model], list(one.words)
    if not words and len(cluster.heads(one.name)) > 1:
        words = [f"leave {one.described.node} out of head"]
    if not one.words:
        sizes = {quant: weights(model, quant)[0] for quant in model["quants"]}
        words += nearest(one.case, sizes.pop(one.described.quant), sizes)
    return refusals.does_not_fit(one.name, cluster.services[one.name], one.described, words, one.beside)
