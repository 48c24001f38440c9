# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files of group_vars and host_vars that Ansible reads for no host. Private to the collection."""

import re
from collections.abc import Collection, Iterable
from pathlib import Path

from .values import near

ENDINGS = ("", ".yml", ".yaml", ".json")
WORD = re.compile(r"^([A-Za-z_]\w*) *:", re.MULTILINE)
# Bytes of a file that are looked at.
MOST = 1 << 20


def stray_files(
    folders: Iterable[str], groups: Collection[str], hosts: Collection[str], ours: Collection[str]
) -> list[str]:
    """A sentence for each file or directory that is called like no group or host, and holds variables of ours or is
    called nearly so. folders: of inventories; several inventories of one folder share its files."""
    found = []
    for folder in sorted(set(folders)):
        for kind, known in (("group", groups), ("host", hosts)):
            for path in sorted(Path(folder, kind + "_vars").glob("*")):
                name = path.stem if path.suffix in ENDINGS else path.name
                if name in known or path.name in known or name.startswith("."):
                    continue
                close = near(name, known)
                if close or _variables(path) & set(ours):
                    found.append(
                        "%s_vars/%s: no %s of this inventory is called %s, so nothing reads it%s"
                        % (kind, path.name, kind, name, close or ": rename it to the %s that it is for" % kind)
                    )
    return found


def _variables(path: Path) -> set[str]:
    """The variables that a file, or the files of a directory, set; those of a vault are not known."""
    files = [one for one in path.rglob("*") if one.is_file()] if path.is_dir() else [path]
    found: set[str] = set()
    for one in files[:100]:
        try:
            with one.open(encoding="utf-8", errors="replace") as text:
                found.update(WORD.findall(text.read(MOST)))
        except OSError:
            continue
    return found
