# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The layers whose tensors go into the caches of workers. Private to the collection."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import accumulate
from typing import Any

from ...module_utils._forms import SEEDED
from ...module_utils._node import paths
from .hosts import expand
from .records import Groups, HostVars, Models, Services
from .services import head_instances


def rpc_seeds(
    services: Services,
    models: Models,
    groups: Groups,
    hostvars: HostVars,
    models_dir: str,
    plan: Mapping[str, Any] | None = None,
) -> list[dict[str, Any]]:
    """The workers whose services have rpc_cache: seeded and whose layers are known.

    -> [{node, service, head: node of the head, model_path: there, layers: [its first one, the one after its last],
    output: whether it has the output layer, program: ggml-rpc-server of its build}]
    """
    wanted = {name: one for name, one in services.items() if one.get("rpc_cache") == SEEDED}
    found = []
    for name, one in wanted.items():
        (host,) = expand(one["head"], groups)
        for head in head_instances({name: one}, models, host, groups, hostvars, models_dir, plan):
            if any(share.layers is None for share in head.shares):
                continue
            counts = [head.layers[node] for node in head.workers]
            # In the order of --rpc; the head's own layers, if it has any, come last.
            for share, end, count in zip(head.shares, accumulate(counts), counts, strict=True):
                found.append(
                    {
                        "node": share.node,
                        "service": name,
                        "head": head.node,
                        "model_path": head.model_path,
                        "layers": [end - count, end],
                        "output": count > 0 and end == sum(head.layers.values()),
                        "program": f"{paths.BUILDS}/releases/{share.build}/bin/ggml-rpc-server",
                    }
                )
    return found
