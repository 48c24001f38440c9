# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How a node gets a quant that does not fit beside the one it has. Private to the collection."""

import os
import re
from collections.abc import Iterable, Mapping
from typing import Any

from .._intent.models import model_file
from .._intent.records import Groups, Models, Services
from .._intent.services import managed

SHARD = re.compile(r"-\d{5}-of-\d{5}\.gguf\Z")


def way(
    item: Mapping[str, str],
    disk: Mapping[str, int],
    files: Iterable[Mapping[str, Any]],
    services: Services,
    models: Models,
    host: str,
    groups: Groups,
) -> str:
    """The commands that give a node a model for which its disk is too small, as the end of a sentence; empty where
    another quant of it makes no room.

    item: {model, quant} of model_items(); disk: {free, missing} of gguf_fetch; files: [{path, size}] of the models
    directory.
    """
    there = {os.path.basename(one["path"]): one["size"] for one in files}
    own = [
        one.name for one in managed(services, groups) if host in one.heads and one.settings["model"] == item["model"]
    ]
    service = next((name for name in own if services[name]["quant"] == item["quant"]), None)
    model = models[item["model"]]
    for quant in sorted(model["quants"]) if service else []:
        name = model_file(model, quant)
        stem = SHARD.sub("", name)
        freed = sum(size for other, size in there.items() if SHARD.sub("", other) == stem)
        if quant != item["quant"] and name in there and disk["free"] + freed >= disk["missing"]:
            words = (
                "; or set llama_services.%s.quant to %s, which is there, and run site.yml, then switch_model.yml "
                "-e service=%s -e quant=%s -e retire=first"
            )
            return words % (service, quant, service, item["quant"])
    return ""
