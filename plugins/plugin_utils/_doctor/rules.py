# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Loads the doctor's rules from the roles. Private to the collection."""

from pathlib import Path
from typing import Any

from ansible.module_utils.common.yaml import yaml_load

from .._monitoring import dropped

# Keys that the judge needs.
JUDGED = ("each", "scope", "when", "severity", "stays", "sentence", "cause", "fix", "command")


def load(roles: Path = dropped.ROLES) -> list[dict[str, Any]]:
    """All rules with their fixtures."""
    found = []
    for one in dropped.doctor_rules(roles):
        rule = yaml_load(one.path.read_text(encoding="utf-8"))
        found.append(dict(rule, name=one.path.stem))
    return found


def doctor_rules(scope: str) -> list[dict[str, Any]]:
    """Rules of a scope, node or cluster, for the judge."""
    return [
        dict({key: rule[key] for key in JUDGED if key in rule}, name=rule["name"])
        for rule in load()
        if rule.get("scope", "node") == scope
    ]
