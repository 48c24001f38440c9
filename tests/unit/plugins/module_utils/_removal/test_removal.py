# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Removal of managed files beside unmanaged ones under every managed name: no removal changes an unmanaged one."""

import errno
import fnmatch
import json
import os
import re
import stat
from pathlib import Path

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._fetch import journal as fetch_journal
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._fetch import manifest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._node.managed import (
    FIREWALL_FILES,
    GATEWAY_FILES,
    NODE_FILES,
)
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._node.units import Unit
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._removal import removal as removing
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._removal.removal import Removal
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._text import Refusal
from ansible_collections.thefermisea.llama_cluster.tests.unit.other_users import give_away

ROLES = Path(__file__).resolve().parents[5] / "roles"

OUR_UNIT = "[Service]\nEnvironment=LLAMA_CLUSTER_DIGEST=5c1d1f0c5e0a7b31\n"
BUILD = "b11434-cpu-01234567"


def inventory(top):
    """Returns {path: (mode, user, group, content)} of everything below a directory."""
    found = {}
    for folder, folders, files in os.walk(str(top)):
        for name in folders + files:
            path = os.path.join(folder, name)
            seen = os.lstat(path)
            content = os.readlink(path) if stat.S_ISLNK(seen.st_mode) else None
            if stat.S_ISREG(seen.st_mode):
                with open(path, "rb") as stream:
                    content = stream.read()
            found[os.path.relpath(path, str(top))] = (oct(seen.st_mode), seen.st_uid, seen.st_gid, content)
    return found


def write(path, text=""):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def plant(folder, *names):
    """Puts unmanaged entries into a directory: a file, a directory with a file, a link and a FIFO; and a FIFO or a link
    under each of these names."""
    write(folder / "notes.txt", "an operator's\n")
    write(folder / "theirs/data", "theirs\n")
    (folder / "link").symlink_to("notes.txt")
    os.mkfifo(str(folder / "pipe"))
    for number, name in enumerate(names):
        if number % 2:
            os.mkfifo(str(folder / name))
        else:
            (folder / name).symlink_to("notes.txt")


@pytest.fixture(name="units")
def fixture_units(tmp_path):
    folder = tmp_path / "system"
    plant(folder, "llama-rpc-linked.service", "llama-rpc-pipe.service")
    write(folder / "llama-rpc-test.service", "[Service]\nExecStart=/bin/true\n")
    write(folder / "llama-head.service", "[Service]\nExecStart=/usr/local/bin/llama-server\n")
    (folder / "llama-rpc.service").symlink_to("llama-rpc-test.service")
    return folder


def remove_units(units, *names, kept=()):
    removal = Removal(run=lambda *words: removal.removed.append(" ".join(words)))
    removal.units(names, kept, str(units))
    return [os.path.basename(path) for path in removal.removed]


def test_units_go_by_their_digest(units):
    before = inventory(units)
    write(units / "llama-rpc-chat.service", OUR_UNIT)
    write(units / "llama-head-chat.service", OUR_UNIT)
    names = sorted(os.listdir(str(units)))
    assert remove_units(units, *names) == ["llama-head-chat.service", "llama-rpc-chat.service", "daemon-reload"]
    assert inventory(units) == before and remove_units(units, *names) == []


def test_units_go_by_globs(units):
    for name in ("chat", "code", "kept"):
        write(units / ("llama-rpc-%s.service" % name), OUR_UNIT)
    write(units / "llama-head-chat.service", OUR_UNIT)
    removed = remove_units(units, "llama-rpc-*.service", kept=["llama-rpc-kept.service"])
    assert removed == ["llama-rpc-chat.service", "llama-rpc-code.service", "daemon-reload"]


def test_unit_goes_with_its_shaders(units, tmp_path):
    write(units / "llama-rpc-chat.service", OUR_UNIT)
    shaders = tmp_path / "var/cache/llama-cluster/shaders"
    for name in ("llama-rpc-chat", "llama-rpc-code"):
        write(shaders / name / "mesa_shader_cache/index", "")
    removal = Removal(True, str(tmp_path), run=lambda *_words: None)
    removal.units(["llama-rpc-*.service"], unit_dir=str(units))
    assert removal.removed == [str(units / "llama-rpc-chat.service"), str(shaders / "llama-rpc-chat")]
    removal = Removal(False, str(tmp_path), run=lambda *_words: None)
    removal.units(["llama-rpc-*.service"], unit_dir=str(units))
    assert os.listdir(str(shaders)) == ["llama-rpc-code"]


@pytest.mark.parametrize("check", [False, True])
def test_our_units_are_stopped_and_disabled(check):
    called = []
    shown = [
        Unit("a", managed=True, enabled=True, active_state="active"),
        Unit("b", managed=True, active_state="inactive"),
        Unit("c", active_state="active", enabled=True),
        Unit("kept", managed=True, enabled=True, active_state="active"),
    ]
    removal = Removal(check, run=lambda *words: called.append(" ".join(words)), look=lambda _patterns: shown)
    assert [unit.name for unit in removal.stop(["*"], ["kept"])] == ["a", "b"]
    assert removal.removed == ["stop a", "disable a"] and called == ([] if check else removal.removed)


def build(prefix, name, **more):
    release = prefix / "releases" / name
    for program in ("llama-server", "ggml-rpc-server"):
        write(release / "bin" / program, program)
    (release / "bin/rpc-server").symlink_to("ggml-rpc-server")
    files = dict(
        {"bin/%s" % program: "0" * 64 for program in ("llama-server", "ggml-rpc-server", "rpc-server")}, **more
    )
    write(release / "build.json", json.dumps({"build": BUILD, "files": files}))
    return release


def remove_builds(prefix, *kept):
    removal = Removal()
    removal.builds(str(prefix), [str(one) for one in kept])
    return removal.removed


def test_builds_go_with_what_their_record_lists(tmp_path):
    prefix = tmp_path / "llama.cpp"
    build(prefix, BUILD)
    build(prefix, BUILD + ".partial")
    (prefix / "current").symlink_to("releases/" + BUILD)
    (prefix / "build").symlink_to("current")
    remove_builds(prefix)
    assert not prefix.exists()
    assert remove_builds(prefix) == []


def test_unmanaged_files_in_builds_stay(tmp_path):
    prefix = tmp_path / "llama.cpp"
    plant(prefix, "current", "previous", "build")
    plant(prefix / "releases")
    plant(prefix / "releases" / BUILD / "bin")
    write(prefix / "releases/manual/bin/llama-server", "theirs")
    # A copy of a managed record under another name, and one that lists files outside of it.
    write(tmp_path / "precious", "theirs")
    write(prefix / "releases/copy/build.json", json.dumps({"build": BUILD, "files": {"bin/x": ""}}))
    write(prefix / "releases/copy/bin/x", "theirs")
    (prefix / "releases" / BUILD / "lib").symlink_to(str(tmp_path))
    before = inventory(tmp_path)
    build(
        prefix,
        BUILD,
        **{"../../../precious": "", str(tmp_path / "precious"): "", "lib/precious": "", "bin/theirs": "", "bin": ""},
        **{"bin//notes.txt": "", "./bin/link": "", "bin/../bin/pipe": ""},
    )
    assert len(remove_builds(prefix)) == 4
    assert inventory(tmp_path) == before


def test_builds_go_but_a_linked_disk_stays(tmp_path):
    prefix = tmp_path / "llama.cpp"
    write(tmp_path / "disk/notes.txt", "an operator's\n")
    prefix.mkdir()
    (prefix / "releases").symlink_to("../disk")
    before = inventory(tmp_path)
    build(prefix, BUILD)
    remove_builds(prefix)
    assert inventory(tmp_path) == before


def test_releases_in_use_stay_with_their_links(tmp_path):
    used = build(tmp_path, BUILD)
    (tmp_path / "current").symlink_to("releases/" + BUILD)
    before = inventory(tmp_path)
    assert remove_builds(tmp_path, used) == []
    assert inventory(tmp_path) == before


def model(folder, *names, **entry):
    """A model with its record, as gguf_fetch leaves it."""
    for name in names:
        write(folder / name, "weights")
    files = [dict({"name": name, "size": 7, "mtime_ns": 0, "inode": 0, "pieces": []}, **entry) for name in names]
    write(folder / (names[0] + manifest.SUFFIX), json.dumps({"version": 1, "files": files}))


def unfinished(folder, name):
    write(folder / (name + ".partial"), "half")
    journal = fetch_journal.Journal(str(folder / (name + ".partial.journal")))
    journal.start(["one"], fetch_journal.Ranges())
    journal.close()


@pytest.fixture(name="models")
def fixture_models(tmp_path):
    """A directory of models that also has unmanaged files."""
    folder = tmp_path / "models"
    plant(
        folder,
        "linked.gguf",
        "pipe.gguf",
        "linked.gguf.manifest.json",
        "pipe.gguf.manifest.json",
        "l.gguf.partial.journal",
        "p.gguf.partial.journal",
    )
    write(tmp_path / "precious.gguf", "weights")
    for name in (
        "Qwen3-0.6B-Q8_0.gguf",
        "Qwen3.gguf.bak",
        "odd.gguf.manifest.json",
        "manual.gguf.partial",
        "Qwen3-00009-of-00009.gguf",
    ):
        write(folder / name, "theirs")
    write(folder / "list.gguf.manifest.json", "[]")
    write(
        folder / "far.gguf.manifest.json",
        json.dumps({"version": 1, "files": [{"name": "../precious.gguf", "size": 7}, {"name": 7}, 7]}),
    )
    return folder


def remove_models(models):
    removal = Removal()
    removal.models(str(models))
    return removal.removed


def test_models_go_by_their_records(models):
    before = inventory(models.parent)
    model(models, "Qwen3.gguf")
    model(models, "Big-00001-of-00002.gguf", "Big-00002-of-00002.gguf")
    unfinished(models, "other.gguf")
    assert len(remove_models(models)) == 7
    assert inventory(models.parent) == before


def test_empty_directory_of_models_goes(tmp_path):
    model(tmp_path / "models", "m.gguf")
    remove_models(tmp_path / "models")
    assert not (tmp_path / "models").exists()


def test_found_or_exchanged_model_file_stays(models):
    write(models / "found.gguf", "weights")
    write(models / "exchanged.gguf", "another model")
    before = inventory(models)
    model(models, "found.gguf", found=True)
    model(models, "exchanged.gguf")
    write(models / "exchanged.gguf", "another model")
    remove_models(models)
    assert inventory(models) == before


@pytest.mark.parametrize("how", ["model", "models", "retire"])
@pytest.mark.parametrize("when", ["record", "file"])
def test_exchanged_folder_is_not_followed(tmp_path, monkeypatch, when, how):
    """Another user with write access above the folder replaces it by a link to other models after a look-up."""
    folder, theirs = tmp_path / "models", tmp_path / "theirs"
    for place in (folder, theirs):
        model(place, "m.gguf", "n.gguf")
        unfinished(place, "o.gguf")
    before = inventory(theirs)

    def exchanged(real, name):
        def call(*arguments, **options):
            if not folder.is_symlink() and str(arguments[0]).endswith(name):
                folder.rename(tmp_path / "moved")
                folder.symlink_to(theirs)
            return real(*arguments, **options)

        return call

    if when == "record":
        monkeypatch.setattr(removing, "record_of", exchanged(removing.record_of, ".manifest.json"))
    else:
        look = "_unlike" if how == "retire" else "_is_file"
        monkeypatch.setattr(removing, look, exchanged(getattr(removing, look), "m.gguf"))
    removal = Removal()
    getattr(removal, how)(str(folder if how == "models" else folder / "m.gguf"))
    assert folder.is_symlink() and inventory(theirs) == before
    left = set() if how == "models" else {"o.gguf.partial", "o.gguf.partial.journal"}
    assert set(os.listdir(str(tmp_path / "moved"))) == left
    assert str(folder / "m.gguf") in removal.removed


def test_failed_removal_names_the_path(models, monkeypatch):
    model(models, "m.gguf")

    def refuse(_path):
        raise PermissionError(errno.EPERM, "Operation not permitted", _path)

    monkeypatch.setattr(os, "unlink", refuse)
    with pytest.raises(PermissionError) as caught:
        Removal().model(str(models / "m.gguf"))
    assert caught.value.filename == str(models / "m.gguf")


def retire(models, name, check=False):
    """Returns (removed names, files of the record)."""
    removal = Removal(check)
    recorded = removal.retire(str(models / name))
    return [os.path.basename(path) for path in removal.removed], recorded


def test_retired_model_goes_once_with_its_record(models):
    before = inventory(models)
    model(models, "Big-00001-of-00002.gguf", "Big-00002-of-00002.gguf", found=True)
    names = ["Big-00001-of-00002.gguf", "Big-00002-of-00002.gguf", "Big-00001-of-00002.gguf.manifest.json"]
    predicted, recorded = retire(models, names[0], check=True)
    assert (models / names[1]).exists() and [entry["size"] for entry in recorded] == [7, 7]
    assert retire(models, names[0])[0] == predicted == names
    assert inventory(models) == before
    assert retire(models, names[0]) == ([], [])
    assert retire(models / "none", "m.gguf") == ([], [])


def test_retired_model_without_a_file_loses_the_rest(models):
    before = inventory(models)
    model(models, "a.gguf", "b.gguf")
    (models / "a.gguf").unlink()
    assert retire(models, "a.gguf")[0] == ["b.gguf", "a.gguf.manifest.json"]
    assert inventory(models) == before


def others(path):
    give_away(path)


def longer(path):
    path.write_text("another model")


def linked(path):
    path.unlink()
    path.symlink_to("notes.txt")


def named_twice(path):
    os.link(str(path), str(path) + ".backup")


def a_directory(path):
    path.unlink()
    write(path / "precious", "theirs")


@pytest.mark.parametrize("check", [True, False])
@pytest.mark.parametrize(
    "exchange, seen",
    [
        (others, "a file of user id 4711"),
        (longer, "a file of 13 bytes, not of 7,"),
        (linked, "a link"),
        (named_twice, "a file with 2 names"),
        (a_directory, "a directory"),
    ],
)
def test_retired_model_with_a_foreign_file_stays(models, exchange, seen, check):
    model(models, "a.gguf", "b.gguf")
    exchange(models / "b.gguf")
    before = inventory(models)
    with pytest.raises(Refusal) as refused:
        retire(models, "a.gguf", check)
    assert str(refused.value) == (
        "%s: %s seen, the file of root's that its record names is needed: look who changed it, then run site.yml "
        "--tags model, which proves it, or leave -e retire out" % (models / "b.gguf", seen)
    )
    assert inventory(models) == before


@pytest.mark.parametrize("check", [True, False])
def test_model_without_a_record_is_not_retired(models, check):
    write(models / "m.gguf", "weights")
    before = inventory(models)
    with pytest.raises(Refusal, match="m.gguf.manifest.json: no record of root's seen, one is needed"):
        retire(models, "m.gguf", check)
    assert inventory(models) == before


def test_other_models_stay(models):
    model(models, "Other.gguf")
    unfinished(models, "Big-00001-of-00002.gguf")
    before = inventory(models)
    model(models, "Qwen3.gguf")
    unfinished(models, "Qwen3.gguf")
    removal = Removal()
    removal.model(str(models / "Qwen3.gguf"))
    assert inventory(models) == before


def test_all_shards_of_an_unfinished_model_go(models):
    before = inventory(models)
    unfinished(models, "Big-00001-of-00002.gguf")
    unfinished(models, "Big-00002-of-00002.gguf")
    removal = Removal()
    removal.model(str(models / "Big-00001-of-00002.gguf"))
    assert inventory(models) == before


def test_record_of_another_user_removes_nothing(models):
    model(models, "forged.gguf", "victim.gguf")
    unfinished(models, "begun.gguf")
    model(models, "own.gguf")
    unfinished(models, "half.gguf")
    for name in ("forged.gguf.manifest.json", "begun.gguf.partial.journal", "own.gguf", "half.gguf.partial"):
        give_away(models / name)
    assert remove_models(models) == [
        str(models / name) for name in ("own.gguf.manifest.json", "half.gguf.partial.journal")
    ]


# Files of the roles, one for each mark in NODE_FILES and FIREWALL_FILES.
WRITTEN = {
    "etc/llama-cluster/selector.json": '{"base_url": "http://10.0.0.5:8000", "paths": {}}\n',
    "usr/local/bin/llama-model-selector": "#!/bin/sh\n# llama-model-selector TASK: the model that answers\n",
    "etc/llama-cluster/firewall.nft": "# Ansible managed\ntable inet llama_cluster\ndelete table inet "
    "llama_cluster\ntable inet llama_cluster {\n}\n",
    "etc/llama-cluster/salt": "llama-cluster 0123456789abcdefABCDEF0123456789",
    "etc/llama-cluster/held.json": '{"since": "2026-10-01T08:00:00Z"}\n',
    "etc/llama-cluster/plan-chat.json": '[\n    {\n        "devices": [],\n        "item": "chat"\n    }\n]\n',
    "etc/llama-cluster/preset-fast.ini": "; Written by the collection from llama_services: change the inventory.\n",
    "etc/llama-cluster/watchdog/rpc-chat.json": '{\n    "kind": "rpc",\n    "unit": "llama-rpc-chat.service"\n}\n',
    "etc/systemd/journald.conf.d/90-llama-cluster.conf": "# Limits of the journal that this node does not set; written "
    "by role monitoring of thefermisea.llama_cluster.\n[Journal]\nStorage=persistent\n",
    "etc/systemd/system/llama-firewall.service": OUR_UNIT,
    "etc/systemd/system/llama-watchdog.service": OUR_UNIT,
    "etc/systemd/system/llama-sampler.service": OUR_UNIT,
    "etc/llama-cluster/sampler.json": '{\n    "fabric_address": ""\n}\n',
    "etc/llama-cluster/doctor.json": '{"rules": []}\n',
    "usr/local/bin/llama-cluster-monitor": "#!/bin/sh\n# llama-cluster-monitor: what runs, live.\n",
    "usr/local/bin/llama-service-status": "#!/bin/sh\n# llama-service-status [SERVICE]: whether services answer.\n",
    "usr/local/bin/llama-jobs": "#!/bin/sh\n# Ansible managed\n# llama-jobs list | hold SERVICE: services as jobs.\n",
    "usr/local/bin/llama-doctor": "#!/bin/sh\n# llama-doctor: what is wrong on this node.\n",
    "run/llama-cluster/samples.prom": "# HELP llama_sampler_info The sampler.\n",
    "run/llama-cluster/repairs/llama-head-chat.json": '{"count": 1}\n',
    "etc/systemd/system/nftables.service.d/llama-cluster.conf": "[Service]\nExecStartPost=-/bin/systemctl "
    "try-reload-or-restart llama-firewall.service\n",
    "opt/llama-cluster/bin/llama-program": "cd / && PYTHONPATH=/opt/llama-cluster/lib exec python3 -s -B -m "
    'llama_cluster."$name" "$@"\n',
    "opt/llama-cluster/lib/llama_cluster/__init__.py": "",
    "opt/llama-cluster/lib/llama_cluster/_text.py": "# Copyright: The Fermi Sea\n",
    "opt/llama-cluster/lib/llama_cluster/programs/__init__.py": "",
    "opt/llama-cluster/lib/llama_cluster/programs/backoff.py": "# Copyright: The Fermi Sea\n",
    "run/llama-cluster/backoff/llama-head-chat.service": '{"failures": 0, "started": 1.0}\n',
    "run/llama-cluster/digests/llama-head-chat.service": "5c1d1f0c5e0a7b31\n",
    "run/llama-cluster/served/llama-head-chat.service": "4711 12.5\n",
    "run/llama-share-rules": '# Rules of firewalld that were added here\nrunning public rule family="ipv4"\n',
    "run/llama-link-rules": '# Rules of firewalld that were added here\nrunning public rule family="ipv4"\n',
    "var/lib/llama-cluster/baseline-chat.json": '{\n    "measured_at": "2026-10-01T08:00:00Z"\n}\n',
    "var/lib/llama-cluster/monitoring-read": "",
    "var/lib/llama-cluster/prompt-chat.json": '{\n    "inputs": [],\n    "measured_at": "2026-11-24T08:00:00Z"\n}\n',
    "var/lib/llama-cluster/rollback/last.json": '{"build": "b1", "files": {}, "id": "x"}',
    "var/lib/llama-cluster/rollback/open.json": '{"build": null, "files": {}, "id": "x"}',
    "opt/docs/architecture-decisions.md": "# Architecture decisions\n\n<!-- Written by the collection "
    "thefermisea.llama_cluster: playbooks/decisions.yml writes it anew. -->\n",
    "var/lib/llama-cluster/trial-chat.json": '{"at": "", "files": {}, "until": "2026-11-24T08:00:00Z"}',
}
FOLDERS = sorted(
    {os.path.dirname(path) for path in WRITTEN} | {"etc/llama-cluster/keys", "var/lib/llama-cluster/adopted"}
)


def remove_node_files(root, check=False):
    removal = Removal(check, str(root))
    removal.marked("firewall")
    removal.marked("node_files")
    return removal.removed


def test_every_file_of_the_roles_is_known(tmp_path):
    for folder in FOLDERS:
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
    for path, text in WRITTEN.items():
        write(tmp_path / path, text)
    before = inventory(tmp_path)
    predicted = remove_node_files(tmp_path, check=True)
    assert inventory(tmp_path) == before
    assert remove_node_files(tmp_path) == predicted
    left = ["etc", "etc/systemd", "etc/systemd/system", "opt", "run", "usr", "usr/local"]
    assert sorted(inventory(tmp_path)) == [*left, "usr/local/bin", "var", "var/lib"]


def test_records_of_open_firewalld_rules_stay(tmp_path):
    for name in ("client-rules", "rpc-rules"):
        (tmp_path / "var/lib/llama-cluster").mkdir(parents=True, exist_ok=True)
        write(
            tmp_path / "var/lib/llama-cluster" / name,
            '# Rules of firewalld that were added here\npermanent public rule family="ipv4"\n',
        )
    before = inventory(tmp_path)
    assert remove_node_files(tmp_path) == []
    assert inventory(tmp_path) == before


@pytest.mark.parametrize("kind", ["text", "fifo", "link", "directory"])
def test_unmanaged_file_with_a_managed_name_stays(tmp_path, kind):
    write(tmp_path / "elsewhere/precious", "".join(WRITTEN.values()))
    for folder in FOLDERS:
        plant(tmp_path / folder)
    for path, text in WRITTEN.items():
        if kind == "text":
            write(tmp_path / path, "theirs\n")
        elif kind == "fifo":
            os.mkfifo(str(tmp_path / path))
        elif kind == "directory":
            (tmp_path / path).mkdir()
        else:
            write(tmp_path / "elsewhere" / path.replace("/", "-"), text)
            (tmp_path / path).symlink_to(str(tmp_path / "elsewhere" / path.replace("/", "-")))
    before = inventory(tmp_path)
    assert remove_node_files(tmp_path) == []
    assert inventory(tmp_path) == before


def test_unmanaged_files_in_managed_directories_stay(tmp_path):
    for folder in FOLDERS:
        plant(tmp_path / folder)
    write(tmp_path / "etc/llama-cluster/keys/manual", "sk-1\n")
    before = inventory(tmp_path)
    for path, text in WRITTEN.items():
        write(tmp_path / path, text)
    assert len(remove_node_files(tmp_path)) == len(WRITTEN)
    assert inventory(tmp_path) == before


def test_every_mark_is_tested():
    assert len(NODE_FILES) + 3 == len(WRITTEN)


GATEWAY = {
    "etc/llama-cluster/gateway/gateway.json": '{\n    "auth": "required",\n    "unknown_model": "404"\n}\n',
    "etc/llama-cluster/gateway/keys.json": '{\n    "clients": {\n        "generated": "k"\n    }\n}\n',
    "etc/llama-cluster/gateway/curl-header": "Authorization: Bearer k\n",
    "etc/llama-cluster/gateway/nginx-clients.conf": "# Ansible managed\n# Whether a request has a key of keys.json.\n",
    "etc/llama-cluster/gateway/nginx-services.conf": "# Ansible managed\n# The keys of the tiers' services, never\n",
    "etc/llama-cluster/gateway/llama_cluster_gateway.cil": "; nginx may connect to a socket that systemd holds\n",
    "etc/nginx/conf.d/llama-cluster.conf": "# Ansible managed\n# Ports, paths and TLS of the gateway; who answers\n",
    "etc/systemd/system/llama-gateway.socket": "Documentation=https://github.com/thefermisea/ansible-llama-cluster\n",
    "etc/systemd/system/llama-gateway-tls.path": "Documentation=https://github.com/thefermisea/ansible-llama-cluster\n",
    "var/lib/llama-cluster/draining.json": '{\n  "endpoints": []\n}\n',
    "var/lib/llama-cluster/gateway-read": "",
    "var/lib/llama-cluster/nginx-switched-on": "nginx.service was not enabled before\n",
}


@pytest.mark.parametrize("theirs", ["", "etc/nginx/conf.d/llama-cluster.conf", "etc/llama-cluster/gateway/keys.json"])
def test_only_managed_gateway_files_go(tmp_path, theirs):
    for path, text in GATEWAY.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        write(tmp_path / path, "somebody else's\n" if path == theirs else text)
    removals = [Removal(check, str(tmp_path)) for check in (True, False)]
    for removal in removals:
        removal.marked("gateway")
    assert removals[0].removed == removals[1].removed
    left = [str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()]
    assert left == ([theirs] if theirs else [])


@pytest.mark.parametrize("template", sorted(ROLES.glob("*/templates/*.j2")), ids=lambda path: path.stem)
def test_templates_contain_their_mark(template):
    marks = [
        mark
        for path, mark in FIREWALL_FILES + GATEWAY_FILES + NODE_FILES
        if not path.startswith("/run/") and fnmatch.fnmatchcase(template.stem, os.path.basename(path))
    ]
    text = template.read_text()
    assert not marks or any(re.search(mark, text, re.MULTILINE) for mark in marks), marks
