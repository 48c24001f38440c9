# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Records that come back from a disk: of bundles, models, transfers, builds, the snapshot of a node's
configuration, and a trial."""

import json
import os

from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._fetch import bundle as fetch_bundle
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._fetch import journal as fetch_journal
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._fetch import manifest as fetch_manifest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._fetch import present
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._fetch import request as fetch_request
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._node import build as node_build
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._node import snapshot as node_snapshot
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._node import trials as node_trials
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._removal import removal as removal_removal
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._text import Refusal
from ansible_collections.thefermisea.llama_cluster.tests.unit.fuzz import damage
from ansible_collections.thefermisea.llama_cluster.tests.unit.fuzz.folder import FOLDER

DIGEST = "0" * 64
PIECE = {"size": 5, "sha256": DIGEST}
WANTED = {
    "model": "m",
    "quant": "Q8_0",
    "repo": "some/m-GGUF",
    "revision": "main",
    "urls": [],
    "files": ["m.gguf"],
    "sha256": [],
}
BUNDLE = {
    "version": 1,
    "models": [
        {
            "wanted": WANTED,
            "commit": "0" * 40,
            "gguf": {"tensors": 1},
            "files": [{"name": "m.gguf", "size": 5, "sha256": DIGEST, "pieces": [PIECE]}],
        }
    ],
    "builds": [{"name": "b1.tar.gz", "size": 5, "sha256": DIGEST}],
    "source": [{"name": "llama.cpp-b1.tar.gz", "size": 5, "sha256": DIGEST}],
}
SNAPSHOT = {
    "id": "b1-b2",
    "build": "b1-cpu",
    "files": {
        "etc/llama-cluster": {"directory": True, "mode": 493, "uid": 0, "gid": 0},
        "etc/llama-cluster/plan-chat.json": {"mode": 420, "uid": 0, "gid": 0, "content": "e30K"},
        "etc/systemd/system/llama-head-chat.service": {"mode": 420, "uid": 0, "gid": 0, "content": "W1VuaXRdCg=="},
        "etc/systemd/system/llama-head.service": {"link": "/etc/systemd/system/llama-head-chat.service"},
    },
}
TRIAL = {
    "service": "chat",
    "quant": "Q8_0",
    "was": "Q4_K_M",
    "until": "2026-11-24T08:00:00Z",
    "state": "running",
    "at": "",
    "reason": "",
    "model": "/opt/models/m.gguf",
    "files": {
        path: {"before": None, "after": SNAPSHOT["files"][path]} for path in list(SNAPSHOT["files"]) if "chat" in path
    },
}


def bundle_seeds(_files):
    return [json.dumps(BUNDLE)]


def bundle(data):
    folder = os.path.dirname(FOLDER.write(data, "bundle", "bundle.json"))
    try:
        record = fetch_bundle.read(folder)
        found = fetch_bundle.find(record, dict(WANTED, name="m.gguf"), folder)
        for path, one in fetch_bundle.contents(record):
            assert path.count("/") == 1 and ".." not in path and isinstance(one["size"], int), (path, one)
        fetch_bundle.sums(record, "{}")
        for line in fetch_bundle.lines(folder, record):
            assert line.isprintable(), line
        assert [one["name"] for one in found["files"]][0] == "m.gguf"
    except Refusal as error:
        return str(error)
    return None


def manifest_seeds(_files):
    path = FOLDER.write(b"GGUF.", "model", "m.gguf")
    request = fetch_request.Request(path, urls=["file://" + path]).identity()
    files = [fetch_manifest.file_entry("m.gguf", os.stat(path), [fetch_manifest.Part(**PIECE)]).as_dict()]
    return [
        json.dumps(
            {
                "version": 1,
                "request": request,
                "commit": None,
                "verified": "sha256",
                "gguf": {"tensors": 1},
                "files": files,
            }
        )
    ]


def manifest(data):
    """A record that is not one is no record: the model is fetched, or hashed, anew."""
    path = FOLDER.path("model", "m.gguf")
    record = FOLDER.write(data, "model", "m.gguf" + fetch_manifest.SUFFIX)
    try:
        if fetch_manifest.read_manifest(record) is None:
            return "no record"
        done = present.unchanged(fetch_request.Request(path, urls=["file://" + path]), fetch_request.Watch(), True)
    except Refusal as error:
        return str(error)
    return None if done else "no record of this"


def snapshot_seeds(_files):
    FOLDER.write(b"old\n", "node", "etc/llama-cluster/plan-chat.json")
    FOLDER.write(b"old\n", "node", "etc/systemd/system/llama-rpc-chat.service")
    return [json.dumps(SNAPSHOT)]


def snapshot(data):
    """Looked at, and put back as far as check mode goes: no file of this machine is written."""
    FOLDER.write(data, "rollback", "open.json")
    snapshots = node_snapshot.Snapshots(FOLDER.path("rollback"), FOLDER.path("prefix"), FOLDER.path("node"))
    try:
        snapshots.look()
        for _path, now, then in snapshots.restore("b1-b2", True):
            node_snapshot.text_of(now)
            node_snapshot.text_of(then)
    except Refusal as error:
        return str(error)
    return None


def trial_seeds(_files):
    return [json.dumps(TRIAL)]


def trial(data):
    """Looked at, as every run does; what would be put back is read."""
    FOLDER.write(data, "node", "var/lib/llama-cluster/trial-chat.json")
    trials = node_trials.Trials(FOLDER.path("node"))
    try:
        trials.told()
        trials.settle(check=True)
    except Refusal as error:
        return str(error)
    return None


def build_seeds(_files):
    FOLDER.write(b"elf", "prefix", "current", "bin/llama-server")
    return [json.dumps({"version": "b1", "files": {"bin/llama-server": DIGEST}})]


def build(data):
    FOLDER.write(data, "prefix", "current", "build.json")
    try:
        node_build.build_info(FOLDER.path("prefix"))
    except Refusal as error:
        return str(error)
    return None


def journal_seeds(_files):
    header = json.dumps({"identity": "m", "boot_id": fetch_journal.boot_id()}).encode()
    return [header + b"\nw 0 4096\nd 1\nw 4096 4096\nw 16384 4096\nd 3\n"]


def journal(data):
    """What cannot be read is as if it had not been written: these bytes are fetched again."""
    for first, last in fetch_journal.Journal(FOLDER.write(data, "journal")).load("m"):
        assert 0 <= first < last, (first, last)


def removal(data):
    """What teardown takes for a model's record, in check mode: it may name files of its own folder alone."""
    FOLDER.write(data, "models", "m.gguf" + fetch_manifest.SUFFIX)
    FOLDER.write(data, "models", "n.gguf.partial.journal")
    FOLDER.write(b"x", "models", "n.gguf.partial")
    found = removal_removal.Removal(True, FOLDER.path())
    for name in ("m.gguf", "n.gguf"):
        found.model(FOLDER.path("models", name))
    assert all(os.path.dirname(path).endswith("/models") for path in found.removed), found.removed


damaged = damage.json_of
