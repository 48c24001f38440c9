# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The record beside a published model: what was asked for, what is there, how it was proved.

NAME.gguf.manifest.json holds {version, request, commit, verified, gguf, files: [{name, size, mtime_ns, inode, pieces:
[{size, sha256}]}]}; sha256 is null where nobody has hashed the bytes. A model is taken as untouched while size, mtime and
inode of its files are those of the record: one stat() instead of reading 77 GB.
"""

import glob
import hashlib
import json
import os

from ._journal import write_atomically

VERSION = 1
SUFFIX = ".manifest.json"


def manifest_path(path):
    """Of the model whose (first) file is ``path``."""
    return path + SUFFIX


def read_manifest(path):
    """The record at ``path`` (of the manifest), or None when there is none that can be used."""
    try:
        with open(path) as stream:
            manifest = json.load(stream)
    except (OSError, ValueError):
        return None
    if not isinstance(manifest, dict) or manifest.get("version") != VERSION or not manifest.get("files"):
        return None
    return manifest


def find_manifests(folder, request):
    """[(model path, record)] of the models in ``folder`` that were published for this very request."""
    found = []
    for path in sorted(glob.glob(os.path.join(glob.escape(folder), "*" + SUFFIX))):
        manifest = read_manifest(path)
        if manifest is not None and manifest.get("request") == request:
            found.append((path[: -len(SUFFIX)], manifest))
    return found


def write_manifest(path, manifest):
    """Have ``manifest`` at ``path``, atomically and on disk."""
    write_atomically(path, json.dumps(dict(manifest, version=VERSION), indent=1, sort_keys=True) + "\n")


def file_entry(name, status, pieces):
    """The record of one file. status: os.stat_result; pieces: [{size, sha256}] in order."""
    return {"name": name, "size": status.st_size, "mtime_ns": status.st_mtime_ns, "inode": status.st_ino, "pieces": pieces}


def covers(pieces, wanted):
    """Whether recorded pieces [{size, sha256}] answer the wanted ones: the same stretches, with every digest that is wanted."""
    return [piece["size"] for piece in pieces] == [piece["size"] for piece in wanted] and all(
        need["sha256"] in (None, piece["sha256"]) for piece, need in zip(pieces, wanted)
    )


def untouched(entry, path):
    """Whether ``path`` is still the file that was recorded, by one stat(). FileNotFoundError when it is gone."""
    status = os.stat(path)
    return [status.st_size, status.st_mtime_ns, status.st_ino] == [entry["size"], entry["mtime_ns"], entry["inode"]]


def hash_pieces(path, sizes, advance=lambda count: None):
    """Hex sha256 of each run of ``sizes`` bytes of a file, in order. advance(bytes) is called as it goes."""
    digests = []
    buffer = memoryview(bytearray(1 << 20))
    with open(path, "rb", buffering=0) as stream:
        for size in sizes:
            digest, left = hashlib.sha256(), size
            while left:
                count = stream.readinto(buffer[:left])
                if not count:
                    raise OSError(0, "shorter than it was", path)
                digest.update(buffer[:count])
                left -= count
                advance(count)
            digests.append(digest.hexdigest())
    return digests
