# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which releases of a node its links and units name. Private to the collection."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from .._intent.releases import named

RELEASE = re.compile(r"releases/[^/]+$")


def build_links(node: Mapping[str, Any], prefix: str, release: str, others: Iterable[str] = ()) -> dict[str, Any]:
    """What becomes of the links below `prefix` when `release` is made current.

    node: the fact llama_node with units and build; others: releases that services of the node are to run. strange:
    links that are not ours; linked: whether the path that operators know is there; used: releases that stay, by their
    paths; settled: whether nothing is to be done.
    """
    build = node["build"]
    links = build["links"]
    wanted, current = "releases/" + release, links.get("current", "")
    # Current and previous stay, and so does what a unit still names: its service would not come back from a crash
    # without it; nor would a rollback or the end of a trial without what its units name.
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
