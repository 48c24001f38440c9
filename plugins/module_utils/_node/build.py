# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The builds of llama.cpp on a node, compared with their manifests. Private to the collection."""

from __future__ import annotations

import base64
import glob
import json
import os
import re
import stat
from typing import Any

from .._files import directory, may_change, sha256_file, text_of
from .._text import Refusal, printable
from . import paths


def build_info(prefix: str, release: str | None = None) -> dict[str, Any]:
    """The build that PREFIX/current points to (or PREFIX/releases/RELEASE), compared with its build.json.

    Returns current_build (release directory name), build_sha256 (of build.json), build_identity (its commit, or its
    version if the commit is unknown), build_kind (the architecture and distribution that it is for), build_intact,
    build_broken (relative paths that are missing, differ, are not listed or writable by others); None for unknown
    values. Errors: Refusal, also if others may exchange the release.
    """
    asked = os.path.join(prefix, "releases", release) if release else os.path.join(prefix, "current")
    current = os.path.realpath(asked)
    info: dict[str, Any] = dict.fromkeys(
        ("current_build", "build_sha256", "build_identity", "build_kind", "build_intact", "build_broken")
    )
    if not os.path.isdir(current):
        return info
    info["current_build"] = os.path.basename(current)
    manifest = os.path.join(current, "build.json")
    if not os.path.isfile(manifest):
        return info
    try:
        with directory(asked):
            pass
        with open(manifest, encoding="utf-8") as stream:
            listed = json.load(stream)
        files = listed["files"]
        if not isinstance(files, dict):
            raise ValueError("files is not a map")
        commit = listed.get("commit", "unknown")
        info["build_identity"] = printable(str(listed.get("version") if commit == "unknown" else commit))
        info["build_kind"] = printable(
            " ".join(str(listed.get(key) or "?") for key in ("architecture", "distribution"))
        )
        info["build_sha256"] = sha256_file(manifest)
        found, changeable = contents(current)
        found.discard("build.json")
        broken = [
            name for name in files if name not in found or not is_intact(os.path.join(current, name), files[name])
        ]
        broken += [name for name in found if name not in files]
        info["build_broken"] = sorted(broken + [f"{name} (others may change it)" for name in changeable])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise Refusal(f"{manifest} is not a build manifest ({error}): install the build again") from None
    except PermissionError as error:
        raise Refusal("%s is not readable for user id %d: run with become" % (error.filename, os.geteuid())) from None
    info["build_intact"] = not info["build_broken"]
    return info


def is_intact(path: str, sha256: str) -> bool:
    """Whether the file exists, has this sha256 (hex) and no special rights; a link only to a file beside it."""
    if not os.path.isfile(path) or os.path.islink(path) and "/" in os.readlink(path):
        return False
    return not os.stat(path).st_mode & (stat.S_ISUID | stat.S_ISGID) and sha256_file(path) == sha256


def contents(release: str) -> tuple[set[str], set[str]]:
    """Relative paths of all files below a release, and of what others than root may change. Links are not followed."""
    found: set[str] = set()
    changeable: set[str] = set()
    for folder, folders, names in os.walk(release):
        seen = {name: os.lstat(os.path.join(folder, name)) for name in folders + names}
        below = {name: os.path.relpath(os.path.join(folder, name), release) for name in seen}
        found.update(below[name] for name in seen if name in names or stat.S_ISLNK(seen[name].st_mode))
        changeable.update(below[name] for name in seen if may_change(seen[name]))
    return found, changeable


NAMED = re.compile(r"%s/releases/([^/\s\"]+)" % re.escape(paths.BUILDS))


def kept_releases(root: str = "/") -> list[str]:
    """The names of releases that snapshots and trials restore. Damaged records are skipped."""
    found: set[str] = set()
    for pattern in (paths.OPEN_SNAPSHOT, paths.LAST_SNAPSHOT, paths.TRIALS):
        for path in glob.glob(os.path.join(root, pattern.lstrip("/"))):
            try:
                record = json.loads(text_of(path) or "{}")
                found.update(releases_in(record))
            except (ValueError, RecursionError):
                continue
            if isinstance(record, dict) and isinstance(record.get("build"), str):
                found.add(record["build"])
            # Scripts of jobs, on another host, name them.
            if isinstance(record, dict) and isinstance(record.get("kept"), list):
                found.update(map(str, record["kept"]))
    return sorted(found)


def releases_in(record: Any) -> set[str]:
    """The releases named by the files of a record, whose content is base64."""
    if not isinstance(record, (dict, list)):
        return set()
    found: set[str] = set()
    for one in record.values() if isinstance(record, dict) else record:
        found.update(releases_in(one))
    content = record.get("content") if isinstance(record, dict) else None
    if isinstance(content, str):
        found.update(NAMED.findall(base64.b64decode(content).decode("utf-8", "replace")))
    return found
