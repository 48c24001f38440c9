# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A bundle: a directory with everything that site.yml would otherwise get from a network.

models/, builds/ and source/ hold the files, SHA256SUMS their digests for sha256sum -c, and bundle.json what they are:

  {version, models: [{wanted, commit, gguf, files: [{name, size, sha256, pieces: [{size, sha256}]}]}],
   builds: [{name, size, sha256}], source: [{name, size, sha256}]}

wanted is what the inventory asked for, {model, quant, urls, repo, revision, files, sha256}. The pieces of a file are
what it is proved by on arrival; their sha256 are never null. The records that gguf_fetch keeps beside the models hold
inodes and times of the disk they are on, so they are no part of it.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable
from typing import Any

from .._files import sha256_file, write_atomically
from .._text import Refusal, human, printable
from .manifest import MOST, are_files, is_digest, is_file_name, is_size
from .urls import content_url

# {name, size, sha256}, of a model with its pieces; size and digest are None of one that is not there yet.
File = dict[str, Any]

VERSION = 1
RECORD = "bundle.json"
SUMS = "SHA256SUMS"


def read(folder: str) -> dict[str, Any]:
    """bundle.json of a bundle. Raises Refusal."""
    path = os.path.join(folder, RECORD)
    try:
        with open(path) as stream:
            record = json.loads(stream.read(MOST))
    except OSError as error:
        raise Refusal(
            f"bundle: {path} cannot be read ({error.strerror}): give a directory that playbooks/bundle.yml made"
        ) from None
    except (ValueError, RecursionError):
        raise Refusal(f"bundle: {path} is damaged: copy the bundle again") from None
    if not isinstance(record, dict) or record.get("version") != VERSION:
        raise Refusal(
            "bundle: %s is not of version %d: make the bundle again with playbooks/bundle.yml of this release"
            % (path, VERSION)
        )
    problem = _problem(record)
    if problem:
        raise Refusal(
            f"bundle: {path}: {problem}: make the bundle again with playbooks/bundle.yml, and ask who changed this one"
        )
    return record


def _problem(record: dict[str, Any]) -> str | None:
    """What of bundle.json cannot be what playbooks/bundle.yml writes, or None. Its names become paths of root's on
    every node."""
    try:
        for entry in record["models"]:
            files, wanted = entry["files"], entry["wanted"]
            if not are_files(files) or not all(is_digest(one["sha256"]) for one in files):
                return f"files {_names(files)} are not all NAME.gguf with size and sha256"
            texts = (
                [wanted[key] for key in ("model", "quant", "repo", "revision")]
                + wanted["urls"]
                + wanted["files"]
                + wanted["sha256"]
            )
            if not all(
                isinstance(text, str) for text in texts + ([entry["commit"]] if entry["commit"] else [])
            ) or not isinstance(entry["gguf"], dict):
                return f"the entry of {_names(files)} is not one of a model"
        for one in record["builds"] + record["source"]:
            if not is_file_name(one["name"]) or not is_size(one["size"]) or not is_digest(one["sha256"]):
                return f"{_names([one])} is not the name of an archive with size and sha256"
    except (LookupError, TypeError, AttributeError):
        return "a part is missing or of another kind"
    return None


def _names(files: Iterable[File]) -> str:
    """The names as they stand there, so that an odd one is seen."""
    return printable(", ".join(json.dumps(one["name"]) for one in files))


def find(record: dict[str, Any], wanted: dict[str, Any], folder: str) -> dict[str, Any]:
    """The model of a bundle whose (first) file is ``wanted``: {name, urls, repo, revision, files, sha256}. Raises
    Refusal.

    Where the inventory gives sha256 they decide, wherever the bundle's maker fetched it from; else the source has to be
    the same.
    """
    here = {entry["files"][0]["name"]: entry for entry in record["models"]}
    entry = here.get(wanted["name"])
    if entry is None:
        known = ", ".join(
            f"{one['wanted']['model']} {one['wanted']['quant']} ({name})" for name, one in sorted(here.items())
        )
        raise Refusal(
            "bundle: %s has no %s, it has %s: make it again with playbooks/bundle.yml for this inventory"
            % (folder, wanted["name"], printable(known) or "no model")
        )
    if not _is(entry, wanted):
        raise Refusal(
            "bundle: %s has %s of %s, the inventory wants %s: make it again with playbooks/bundle.yml for this "
            "inventory"
            % (folder, wanted["name"], printable(_told(entry["wanted"])), _told(dict(wanted, urls=_origin(wanted))))
        )
    return entry


def _is(entry: dict[str, Any], wanted: dict[str, Any]) -> bool:
    if not wanted.get("sha256"):
        return _origin(wanted) == _told_origin(entry["wanted"])
    pieces = [piece["sha256"] for one in entry["files"] for piece in one["pieces"]]
    return [digest.lower() for digest in wanted["sha256"]] in (pieces, [one["sha256"] for one in entry["files"]])


def _origin(wanted: dict[str, Any]) -> list[Any]:
    """What decides the content where no sha256 does."""
    return _told_origin(dict(wanted, urls=[content_url(url) for url in wanted.get("urls") or []]))


def _told_origin(wanted: dict[str, Any]) -> list[Any]:
    """The same for an entry of bundle.json, whose URLs have lost their secrets."""
    if wanted.get("repo"):
        return [wanted["repo"], wanted.get("revision") or "main", wanted.get("files") or []]
    return wanted["urls"]


def _told(wanted: dict[str, Any]) -> str:
    """What is wanted, in a few words."""
    if wanted.get("sha256"):
        return f"sha256 {', '.join(wanted['sha256'])}"
    if wanted.get("repo"):
        return f"{wanted['repo']} at {wanted.get('revision') or 'main'}"
    return ", ".join(wanted["urls"])


def seal(
    folder: str,
    models: Iterable[dict[str, Any]],
    builds: Iterable[str],
    source: Iterable[str],
    check: bool = False,
) -> tuple[dict[str, Any], bool]:
    """Have bundle.json and SHA256SUMS say what is in the bundle -> (record, whether they said something else before).

    models: what gguf_fetch returned in a loop over model_items, each with its item; builds and source: file names.
    check: what is not there yet has no digest, and nothing is written. Raises OSError.
    """
    try:
        before = read(folder)
    except Refusal:
        before = {"models": [], "builds": [], "source": []}
    known = {one["name"]: one for entry in before["models"] for one in entry["files"]}
    record: dict[str, Any] = {
        "version": VERSION,
        "models": [_model(done, known, check) for done in models],
        "builds": [_file(os.path.join(folder, "builds", name), check) for name in sorted(builds)],
        "source": [_file(os.path.join(folder, "source", name), check) for name in sorted(source)],
    }
    # Several nodes may hold the same model.
    record["models"] = [
        entry for number, entry in enumerate(record["models"]) if entry not in record["models"][:number]
    ]
    text = json.dumps(record, indent=1, sort_keys=True) + "\n"
    changed = False
    for name, content in ((RECORD, text), (SUMS, sums(record, text))):
        path, data = os.path.join(folder, name), content.encode("utf-8")
        if _content(path) != data:
            changed = True
            if not check:
                write_atomically(path, data, mode=None, anywhere=True)
    return record, changed


def _content(path: str) -> bytes | None:
    try:
        with open(path, "rb") as stream:
            return stream.read()
    except OSError:
        return None


def _model(done: dict[str, Any], known: dict[str, File], check: bool) -> dict[str, Any]:
    files: list[File] = []
    for one in done["files"]:
        name = os.path.basename(one["path"])
        pieces = one["pieces"]
        if all(piece["sha256"] for piece in pieces):
            # The pieces say what the file is: its digest is hashed once.
            same = known.get(name, {}).get("pieces") == pieces
            whole = (
                pieces[0]["sha256"]
                if len(pieces) == 1
                else known[name]["sha256"]
                if same
                else _digest(one["path"], check)
            )
        else:
            whole = _digest(one["path"], check)
            pieces = [{"size": one["size"], "sha256": whole}]
        files.append({"name": name, "size": one["size"], "sha256": whole, "pieces": pieces})
    asked = done["item"]
    wanted = {
        "model": asked["model"],
        "quant": asked["quant"],
        "repo": asked.get("repo", ""),
        "revision": asked.get("revision", "main"),
    }
    wanted.update(
        urls=[content_url(url) for url in asked.get("urls") or []],
        files=asked.get("files") or [],
        sha256=asked.get("sha256") or [],
    )
    return {"wanted": wanted, "commit": done["commit"], "gguf": done["gguf"], "files": files}


def _file(path: str, check: bool) -> File:
    absent = check and not os.path.exists(path)
    return {
        "name": os.path.basename(path),
        "size": None if absent else os.path.getsize(path),
        "sha256": _digest(path, check),
    }


def _digest(path: str, check: bool) -> str | None:
    return None if check and not os.path.exists(path) else sha256_file(path)


def contents(record: dict[str, Any]) -> list[tuple[str, File]]:
    """[(path in the bundle, its file entry)]"""
    found = [("models/" + one["name"], one) for entry in record["models"] for one in entry["files"]]
    return found + [(f"{kind}/{one['name']}", one) for kind in ("builds", "source") for one in record[kind]]


def sums(record: dict[str, Any], text: str) -> str:
    """SHA256SUMS for a bundle whose bundle.json is ``text``."""
    lines = [f"{one['sha256']}  {path}" for path, one in contents(record)]
    return "\n".join(lines + [f"{hashlib.sha256(text.encode('utf-8')).hexdigest()}  {RECORD}"]) + "\n"


def lines(folder: str, record: dict[str, Any]) -> list[str]:
    """What an operator should know of a bundle, line by line."""
    said = [f"bundle: {folder}"]
    said += [f"  {path} ({human(one['size'])})" if one["size"] else "  " + path for path, one in contents(record)]
    if not record["builds"]:
        said.append(
            "  no build: the site compiles the source; a build that site.yml made on nodes like the site's would be "
            "taken along"
        )
    said.append(f"check a copy: cd {folder} && sha256sum -c {SUMS}")
    return said
