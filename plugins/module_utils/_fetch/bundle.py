# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A bundle: a directory with everything that site.yml would otherwise get from a network.

models/, builds/ and source/ hold the files, SHA256SUMS their digests for sha256sum -c, and bundle.json what they are:

  {version, models: [{wanted, commit, gguf, files: [{name, size, sha256, pieces: [{size, sha256}]}]}],
   builds: [{name, size, sha256}], source: [{name, size, sha256}]}

wanted is what the inventory asked for, {model, quant, urls, repo, revision, files, sha256}. The pieces of a file are
its verification on arrival; their sha256 are never null. The records that gguf_fetch keeps beside the models hold
inodes and times of the disk they are on, so they are no part of it.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable
from pathlib import Path
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
    """bundle.json of a bundle. Raises Refusal for a record that playbooks/bundle.yml does not write: its names become
    paths of root's on every node."""
    path = os.path.join(folder, RECORD)
    try:
        with open(path) as stream:
            record = json.loads(stream.read(MOST))
        good = record["version"] == VERSION and all(map(_is_model, record["models"]))
        good = good and all(
            is_file_name(one["name"]) and is_size(one["size"]) and is_digest(one["sha256"])
            for one in record["builds"] + record["source"]
        )
    except OSError as error:
        raise Refusal(
            f"bundle: {path} cannot be read ({error.strerror}): give a directory that playbooks/bundle.yml made"
        ) from None
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        good = False
    if not good:
        raise Refusal(
            f"bundle: {path} is damaged, or not of version {VERSION}: copy the bundle again, or make it again with "
            "playbooks/bundle.yml of this release"
        )
    return record


def _is_model(entry: dict[str, Any]) -> bool:
    files, wanted = entry["files"], entry["wanted"]
    texts = [wanted[key] for key in ("model", "quant", "repo", "revision")] + [entry["commit"] or ""]
    texts += [text for key in ("urls", "files", "sha256") for text in [] + wanted[key]]
    return (
        are_files(files)
        and all(is_digest(one["sha256"]) for one in files)
        and all(isinstance(text, str) for text in texts)
        and isinstance(entry["gguf"], dict)
    )


def _wanted(item: dict[str, Any]) -> dict[str, Any]:
    """The source that an inventory asks for, without secrets of URLs."""
    return {
        "repo": item.get("repo") or "",
        "revision": item.get("revision") or "main",
        "urls": [content_url(url) for url in item.get("urls") or []],
        "files": list(item.get("files") or []),
        "sha256": [digest.lower() for digest in item.get("sha256") or []],
    }


def find(record: dict[str, Any], item: dict[str, Any], folder: str) -> dict[str, Any]:
    """The model of a bundle whose (first) file is ``item``: {name, urls, repo, revision, files, sha256}. Raises
    Refusal.

    If the inventory gives sha256 they decide; else the source has to be the same.
    """
    again = "make it again with playbooks/bundle.yml for this inventory"
    entries = {entry["files"][0]["name"]: entry for entry in record["models"]}
    entry = entries.get(item["name"])
    if entry is None:
        known = [f"{one['wanted']['model']} {one['wanted']['quant']} ({name})" for name, one in sorted(entries.items())]
        have = printable(", ".join(known)) or "no model"
        raise Refusal(f"bundle: {folder} has no {item['name']}, it has {have}: {again}")
    wanted, has = _wanted(item), entry["wanted"]
    if wanted["sha256"]:
        pieces = [piece["sha256"] for one in entry["files"] for piece in one["pieces"]]
        same = wanted["sha256"] in (pieces, [one["sha256"] for one in entry["files"]])
    else:
        keys = ("repo", "revision", "files") if wanted["repo"] else ("repo", "urls")
        same = all(wanted[key] == has[key] for key in keys)
    if not same:
        seen = f"{item['name']} of {printable(_source(has))}, the inventory wants {_source(wanted)}"
        raise Refusal(f"bundle: {folder} has {seen}: {again}")
    return entry


def _source(wanted: dict[str, Any]) -> str:
    if wanted["sha256"]:
        return f"sha256 {', '.join(wanted['sha256'])}"
    return f"{wanted['repo']} at {wanted['revision']}" if wanted["repo"] else ", ".join(wanted["urls"])


def seal(
    folder: str,
    models: Iterable[dict[str, Any]],
    builds: Iterable[str],
    source: Iterable[str],
    check: bool = False,
) -> tuple[dict[str, Any], bool]:
    """Write bundle.json and SHA256SUMS of the files in the bundle -> (record, whether they differed before).

    models: what gguf_fetch returned in a loop over model_items, each with its item; builds and source: file names.
    check: files that do not exist yet have no digest, and nothing is written. Raises OSError.
    """
    try:
        before = read(folder)["models"]
    except Refusal:
        before = []
    known = {one["name"]: one for entry in before for one in entry["files"]}
    record: dict[str, Any] = {"version": VERSION, "models": []}
    for done in models:
        wanted = dict(_wanted(done["item"]), model=done["item"]["model"], quant=done["item"]["quant"])
        files = [_model_file(one, known, check) for one in done["files"]]
        entry = {"wanted": wanted, "commit": done["commit"], "gguf": done["gguf"], "files": files}
        # Several nodes may hold the same model.
        record["models"] += [entry] if entry not in record["models"] else []
    for kind, listed in (("builds", builds), ("source", source)):
        record[kind] = [_file(os.path.join(folder, kind, name), check) for name in sorted(listed)]
    text = json.dumps(record, indent=1, sort_keys=True) + "\n"
    changed = False
    for name, content in ((RECORD, text), (SUMS, sums(record, text))):
        path = os.path.join(folder, name)
        if not os.path.exists(path) or Path(path).read_text() != content:
            changed = True
            if not check:
                write_atomically(path, content.encode("utf-8"), mode=None, anywhere=True)
    return record, changed


def _model_file(one: dict[str, Any], known: dict[str, File], check: bool) -> File:
    """known: {name: file of the bundle before}."""
    name, pieces = os.path.basename(one["path"]), one["pieces"]
    before = known.get(name, {})
    if not all(piece["sha256"] for piece in pieces):
        pieces = [{"size": one["size"], "sha256": _digest(one["path"], check)}]
    # The pieces decide what the file is: its digest is computed once.
    if len(pieces) == 1:
        digest = pieces[0]["sha256"]
    else:
        digest = before["sha256"] if before.get("pieces") == pieces else _digest(one["path"], check)
    return {"name": name, "size": one["size"], "sha256": digest, "pieces": pieces}


def _file(path: str, check: bool) -> File:
    size = os.path.getsize(path) if os.path.exists(path) or not check else None
    return {"name": os.path.basename(path), "size": size, "sha256": _digest(path, check)}


def _digest(path: str, check: bool) -> str | None:
    return None if check and not os.path.exists(path) else sha256_file(path)


def contents(record: dict[str, Any]) -> list[tuple[str, File]]:
    """[(path in the bundle, its file entry)]"""
    found = [("models/" + one["name"], one) for entry in record["models"] for one in entry["files"]]
    return found + [(f"{kind}/{one['name']}", one) for kind in ("builds", "source") for one in record[kind]]


def sums(record: dict[str, Any], text: str) -> str:
    """SHA256SUMS for a bundle whose bundle.json is ``text``."""
    lines = [f"{one['sha256']}  {path}" for path, one in contents(record)]
    return "\n".join([*lines, f"{hashlib.sha256(text.encode('utf-8')).hexdigest()}  {RECORD}", ""])


def lines(folder: str, record: dict[str, Any]) -> list[str]:
    """The contents of a bundle for the operator, line by line."""
    listed = [f"  {path} ({human(one['size'])})" if one["size"] else "  " + path for path, one in contents(record)]
    if not record["builds"]:
        listed.append(
            "  no build: the site compiles the source; a build that site.yml made on nodes like the site's would be "
            "taken along"
        )
    return [f"bundle: {folder}", *listed, f"check a copy: cd {folder} && sha256sum -c {SUMS}"]
