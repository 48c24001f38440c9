# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules of the doctor as roles bring them. Private to the collection."""

from pathlib import Path
from typing import Any

from ansible.module_utils.common.yaml import yaml_load

from .._monitoring import dropped

# What a node and the judge need; fixtures stay here.
JUDGED = ("each", "scope", "when", "severity", "stays", "sentence", "cause", "fix", "command")


def load(roles: Path = dropped.ROLES) -> list[dict[str, Any]]:
    """All rules with their fixtures, by the names of their files."""
    found = []
    for one in dropped.doctor_rules(roles):
        told = yaml_load(one.path.read_text(encoding="utf-8"))
        found.append(dict(told, name=one.path.stem))
    return found


def doctor_rules(scope: str) -> list[dict[str, Any]]:
    """The same as the judge gets them: for node, or for cluster, which is judged over all nodes."""
    return [
        dict({key: rule[key] for key in JUDGED if key in rule}, name=rule["name"])
        for rule in load()
        if rule.get("scope", "node") == scope
    ]
