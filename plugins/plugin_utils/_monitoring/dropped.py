# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The files of roles/NAME/observed/, wherever the collection is installed: a new role only adds its files. Private to
the collection."""

from pathlib import Path
from typing import NamedTuple

ROLES = Path(__file__).resolve().parents[3] / "roles"
# The role for all nodes and services; its rules and panels come first.
GENERAL = "monitoring"


class Dropped(NamedTuple):
    """A file of a role."""

    role: str
    path: Path

    @property
    def name(self) -> str:
        """A unique file name: ROLE.yml, or ROLE-RULE.yml for a doctor rule."""
        if self.path.parent.name == "doctor":
            return f"{self.role}-{self.path.name}"
        return f"{self.role}{self.path.suffix}"


def rules(roles: Path = ROLES) -> list[Dropped]:
    """Prometheus rule files."""
    return _dropped(roles, "rules.yml")


def dashboards(roles: Path = ROLES) -> list[Dropped]:
    """Rows of panels, which dashboards.py makes dashboards of."""
    return _dropped(roles, "dashboard.yml")


def doctor_rules(roles: Path = ROLES) -> list[Dropped]:
    """Rules of the doctor, one file each."""
    return _dropped(roles, "doctor/*.yml")


def _dropped(roles: Path, pattern: str) -> list[Dropped]:
    """By role, the general ones first."""
    found = [Dropped(path.relative_to(roles).parts[0], path) for path in roles.glob("*/observed/" + pattern)]
    return sorted(found, key=lambda one: (one.role != GENERAL, one.role, one.path.name))
