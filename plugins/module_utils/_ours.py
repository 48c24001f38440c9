# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What on a node is this collection's, and how it is removed. Private to the collection.

A name is no proof: others choose names like ours. Units carry our digest, builds and models are listed by a record beside them, and the node's other
files say what they are. Links, FIFOs and directories under the name of such a file are somebody else's. A directory goes when it is empty.
"""

import contextlib
import fnmatch
import glob
import json
import os
import re

from ._journal import is_ours, read_ours
from ._manifest import SUFFIX, is_file_name, manifest_path
from ._units import MOST_TEXT, UNIT_DIR, file_digest, text_of, unit_kind

SHARD = re.compile(r"^(.+)-\d{5}-of-(\d{5})\.gguf\Z")
PARTIAL = ".partial"
JOURNAL = PARTIAL + ".journal"
RELEASE_LINK = re.compile(r"^releases/[^/]+\Z")
# What the roles write on a node beside units, builds, models and caches, and what the text of each says. The lists of rules that were added to firewalld
# go with the last of those rules: without them nobody would know what is still open.
FIREWALL_FILES = (
    ("etc/llama-cluster/firewall.nft", r"^table inet llama_cluster \{"),
    ("etc/systemd/system/llama-firewall.service", r"^Environment=LLAMA_CLUSTER_DIGEST="),
    ("etc/systemd/system/nftables.service.d/llama-cluster.conf", r" llama-firewall\.service$"),
)
NODE_FILES = (
    ("etc/llama-cluster/held.json", r'"since": '),
    ("etc/llama-cluster/plan-*.json", r'"devices": '),
    ("etc/llama-cluster/salt", r"\Allama-cluster [A-Za-z0-9]{32}\Z"),
    ("etc/llama-cluster/watchdog/*.json", r'"unit": "llama-(rpc|head)-'),
    ("etc/systemd/system/llama-watchdog.service", r"^Environment=LLAMA_CLUSTER_DIGEST="),
    ("opt/llama-cluster/bin/llama-program", r" -m llama_cluster\."),
    ("opt/llama-cluster/lib/llama_cluster/__init__.py", r"\A\Z"),
    ("opt/llama-cluster/lib/llama_cluster/*.py", r"\A# Copyright: The Fermi Sea\n"),
    ("run/llama-cluster/backoff/llama-*.service", r'"failures": '),
    ("run/llama-cluster/digests/llama-*.service", r"\A[0-9a-f]{16}\n\Z"),
    ("run/llama-cluster/served/llama-*.service", r"\A\d+ [0-9.]+\n\Z"),
    ("run/llama-lending-rules", r"\A# Rules of firewalld "),
    ("var/lib/llama-cluster/baseline-*.json", r'"measured_at": '),
    ("var/lib/llama-cluster/rollback/last.json", r'\A\{"build": '),
    ("var/lib/llama-cluster/rollback/open.json", r'\A\{"build": '),
)
# Their directories, the deepest first.
FIREWALL_FOLDERS = ("etc/systemd/system/nftables.service.d",)
NODE_FOLDERS = (
    "etc/llama-cluster/keys",
    "etc/llama-cluster/watchdog",
    "etc/llama-cluster",
    "opt/llama-cluster/bin",
    "opt/llama-cluster/lib/llama_cluster",
    "opt/llama-cluster/lib",
    "opt/llama-cluster",
    "run/llama-cluster/backoff",
    "run/llama-cluster/digests",
    "run/llama-cluster/served",
    "run/llama-cluster",
    "var/lib/llama-cluster/adopted/files",
    "var/lib/llama-cluster/adopted",
    "var/lib/llama-cluster/rollback",
    "var/lib/llama-cluster",
)


def record_of(path):
    """The JSON object in a file of root's, or of who runs this, None where there is none: others may write a directory of models."""
    try:
        record = json.loads(read_ours(path, MOST_TEXT).decode("utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None


def recorded_files(record):
    """What the record of a model, by its path, says of its files."""
    listed = (record_of(record) or {}).get("files")
    return [entry for entry in listed if isinstance(entry, dict)] if isinstance(listed, list) else []


def is_our_unit(path):
    """Whether a unit file is the collection's, by its text."""
    return file_digest(text_of(path) or "") is not None


def is_our_alias(path, root="/"):
    """Whether a short name is our link: one to a unit of ours in the same directory, or to one of our names that is gone."""
    if not os.path.islink(path):
        return False
    folder, name = os.path.split(path)
    target = os.readlink(path)
    target = os.path.normpath(os.path.join(root, target[1:]) if target.startswith("/") else os.path.join(folder, target))
    kind = unit_kind(os.path.basename(target))[0]
    same = os.path.dirname(target) == os.path.normpath(folder) and name == "llama-%s.service" % kind
    return same and (not os.path.lexists(target) or is_our_unit(target))


def is_our_file(path, root="/"):
    """Whether a path (without the root) is one that the roles write, and its text says so."""
    marks = [mark for pattern, mark in FIREWALL_FILES + NODE_FILES if fnmatch.fnmatchcase(path, pattern)]
    text = text_of(os.path.join(root, path)) if marks else None
    return text is not None and any(re.search(mark, text, re.MULTILINE) for mark in marks)


class Removal(object):
    """Removes what is ours and keeps a list of it. check: only the list; root: where / is, other than in tests."""

    def __init__(self, check=False, root="/"):
        self.check = check
        self.root = root
        self.removed = []

    def units(self, names, unit_dir=UNIT_DIR):
        """Unit files, and short names that stand for them, of these names."""
        paths = [os.path.join(unit_dir, name) for name in names]
        # Whose a link is can only be seen while its unit is there.
        for path in [path for path in paths if is_our_alias(path)] + [path for path in paths if is_our_unit(path)]:
            self._file(path)

    def builds(self, prefix, kept=()):
        """What the build.json of each release below ``prefix`` lists, but for the directories in ``kept``; without any of those our links too."""
        releases = os.path.join(prefix, "releases")
        for name in _names(releases):
            release = os.path.join(releases, name)
            record = record_of(os.path.join(release, "build.json")) or {}
            build, files = record.get("build"), record.get("files")
            if (
                release in kept
                or os.path.islink(release)
                or not isinstance(build, str)
                or not build
                or name not in (build, build + PARTIAL)
                or not isinstance(files, dict)
            ):
                continue
            self._build(release, [one for one in files if one.isprintable() and os.path.normpath(one) == one and not one.startswith(("/", ".."))])
        if kept:
            return
        for name, target in (("current", RELEASE_LINK), ("previous", RELEASE_LINK), ("build", re.compile(r"^current\Z"))):
            path = os.path.join(prefix, name)
            if os.path.islink(path) and target.match(os.readlink(path)):
                self._file(path)
        self._folder(releases)
        self._folder(prefix)

    def _build(self, release, files):
        folders = {os.path.dirname(os.path.join(release, name)) for name in files}
        own = [folder for folder in folders if os.path.realpath(folder) == os.path.join(os.path.realpath(release), os.path.relpath(folder, release))]
        for path in sorted(os.path.join(release, name) for name in files):
            if os.path.dirname(path) in own and os.path.lexists(path) and not os.path.isdir(path):
                self._file(path)
        # Last: without it nothing would know the rest.
        self._file(os.path.join(release, "build.json"))
        for folder in sorted(own, reverse=True) + [release]:
            self._folder(folder)

    def model(self, path):
        """A model, by the name of its (first) file: what its record says was fetched, and what was being fetched."""
        folder, name = os.path.split(path)
        record = manifest_path(path)
        for entry in self._entries(record):
            one = os.path.join(folder, entry["name"])
            if not entry.get("found") and _is_file(one, entry.get("size")):
                self._file(one)
        if self._entries(record):
            self._file(record)
        shard = SHARD.match(name)
        names = ["%s-%05d-of-%s.gguf" % (shard.group(1), number, shard.group(2)) for number in range(1, int(shard.group(2)) + 1)] if shard else [name]
        for one in names:
            self._unfinished(os.path.join(folder, one))

    def models(self, folder):
        """Every model that a record in a directory tells of, what was being fetched there, and the directory when nothing else is in it."""
        for path in sorted(glob.glob(os.path.join(glob.escape(folder), "*.gguf" + SUFFIX))):
            self.model(path[: -len(SUFFIX)])
        for path in sorted(glob.glob(os.path.join(glob.escape(folder), "*.gguf" + JOURNAL))):
            self._unfinished(path[: -len(JOURNAL)])
        self._folder(folder)

    def _entries(self, record):
        """The files that the record of a model lists, those that name nothing outside of its directory."""
        entries = recorded_files(record)
        return [entry for entry in entries if is_file_name(entry.get("name")) and entry["name"].endswith(".gguf")]

    def _unfinished(self, path):
        with contextlib.suppress(OSError, ValueError, TypeError, RecursionError):
            header = json.loads(read_ours(path + JOURNAL, MOST_TEXT).split(b"\n")[0].decode("utf-8"))
            if {"identity", "boot_id"} <= set(header):
                for one in (path + PARTIAL, path + JOURNAL):
                    if _is_file(one):
                        self._file(one)

    def firewall(self):
        """The files of the firewall; its unit is down."""
        self._marked(FIREWALL_FILES, FIREWALL_FOLDERS)

    def node_files(self):
        """What else the roles have written on a node, and the directories that they made."""
        self._marked(NODE_FILES, NODE_FOLDERS)

    def _marked(self, files, folders):
        for pattern, _mark in files:
            for path in sorted(glob.glob(os.path.join(glob.escape(self.root), pattern))):
                if is_our_file(os.path.relpath(path, self.root), self.root):
                    self._file(path)
        for folder in folders:
            self._folder(os.path.join(self.root, folder))

    def _file(self, path):
        if path not in self.removed:
            self.removed.append(path)
            if not self.check:
                os.unlink(path)

    def _folder(self, path):
        left = [name for name in _names(path) if os.path.join(path, name) not in self.removed]
        if left or os.path.islink(path) or not os.path.isdir(path):
            return
        with contextlib.suppress(OSError):  # a mount point, or somebody puts something there right now
            if not self.check:
                os.rmdir(path)
            self.removed.append(path)


def _names(folder):
    return sorted(os.listdir(folder)) if os.path.isdir(folder) else []


def _is_file(path, size=None):
    """Whether there is a regular file of root's, or of who runs this, of that size where one is given."""
    try:
        seen = os.lstat(path)
    except OSError:
        return False
    return is_ours(seen) and size in (None, seen.st_size)
