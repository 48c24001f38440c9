# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Releases that the links and units of a node name. Private to the collection."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from .._intent.builds import named

RELEASE = re.compile(r"releases/[^/]+$")


def build_links(node: Mapping[str, Any], prefix: str, release: str, others: Iterable[str] = ()) -> dict[str, Any]:
    """Returns the state of the links below `prefix` once `release` is current.

    node: the fact llama_node with units and build; others: releases that services of the node are to run. strange:
    unmanaged links; linked: whether the path that operators know exists; used: paths of releases that stay; settled:
    whether nothing has to change.
    """
    build = node["build"]
    links = build["links"]
    wanted, current = "releases/" + release, links.get("current", "")
    # Current, previous and every release that a unit names stay: restarts, rollbacks and ends of trials need them.
    kept = {wanted, links.get("previous", "") if current == wanted else current}
    kept.update("releases/" + name for name in (*others, *build["kept"]))
    used = {f"{prefix}/{link}" for link in kept if link} | named(node["units"], prefix)
    unused = {f"{prefix}/releases/{name}" for name in build["releases"]} - used
    foreign = [name for name, target in links.items() if not RELEASE.match(target)]
    strange = [name for name in ("current", "previous") if name in foreign or name in build["taken"]]
    linked = "build" in links or "build" in build["taken"]
    return {
        "wanted": wanted,
        "current": current,
        "strange": strange,
        "linked": linked,
        "used": sorted(used),
        "settled": current == wanted and linked and not unused and not strange,
    }
