# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

import json
import os
import stat

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._node import paths
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._node.build import kept_releases
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._node.snapshot import Snapshots, text_of
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._text import Refusal
from ansible_collections.thefermisea.llama_cluster.tests.unit.other_users import give_away

HEAD = "etc/systemd/system/llama-head-chat.service"
WANTED_BY = "etc/systemd/system/multi-user.target.wants/llama-head-chat.service"
DROP_IN = "etc/systemd/system/llama-head-chat.service.d/site.conf"
PLAN = "etc/llama-cluster/plan-chat.json"
KEYS = "etc/llama-cluster/keys/chat"
FIREWALL = "etc/llama-cluster/firewall.nft"


@pytest.fixture(name="node")
def fixture_node(tmp_path):
    node = tmp_path / "node"
    for path, text in (
        (HEAD, "old\n"),
        (DROP_IN, "[Service]\n"),
        (PLAN, "{}\n"),
        (KEYS, "secret\n"),
        ("etc/systemd/system/ssh.service", "unmanaged\n"),
    ):
        (node / path).parent.mkdir(parents=True, exist_ok=True)
        (node / path).write_text(text)
    (node / KEYS).chmod(0o600)
    (node / WANTED_BY).parent.mkdir()
    (node / WANTED_BY).symlink_to("/" + HEAD)
    (tmp_path / "prefix/releases/b1").mkdir(parents=True)
    (tmp_path / "prefix/current").symlink_to("releases/b1")
    return node


@pytest.fixture(name="snapshots")
def fixture_snapshots(node, tmp_path):
    return Snapshots(str(tmp_path / "rollback"), str(tmp_path / "prefix"), str(node))


def content(node):
    """{path: content} of the node."""
    found = {}
    for path in sorted(node.rglob("*")):
        name = str(path.relative_to(node))
        if path.is_symlink():
            found[name] = os.readlink(path)
        elif path.is_file():
            found[name] = (path.read_text(), stat.S_IMODE(path.stat().st_mode))
    return found


def spoil(node):
    """Change the configuration as a switch does."""
    (node / HEAD).write_text("new\n")
    (node / PLAN).unlink()
    (node / KEYS).write_text("another\n")
    (node / KEYS).chmod(0o644)
    (node / WANTED_BY).unlink()
    (node / "etc/llama-cluster/plan-other.json").write_text('[{"devices": []}]\n')


def test_new_template_of_managed_unit_is_removed(snapshots, node):
    (node / HEAD).write_text("Environment=LLAMA_CLUSTER_DIGEST=0123456789abcdef\n")
    assert snapshots.open("one")
    names = ["etc/llama-cluster/template-%s.jinja" % name for name in ("chat", "chat.kept", "other")]
    for name in names:
        (node / name).write_text("{{ messages }}\n")
    assert [path for path, _now, _then in snapshots.restore("one")] == names[:1]
    assert [(node / name).exists() for name in names] == [False, True, True]


def test_new_template_of_router_model_is_removed(snapshots, node):
    unit = node / "etc/systemd/system/llama-router-fast.service"
    unit.write_text("Environment=LLAMA_CLUSTER_DIGEST=0123456789abcdef\n")
    assert snapshots.open("one")
    (node / "etc/llama-cluster/template-fast.big.jinja").write_text("{{ messages }}\n")
    (node / "etc/llama-cluster/preset-fast.ini").write_text("; Written by the collection from llama_services: x\n")
    assert sorted(path for path, _now, _then in snapshots.restore("one")) == [
        "etc/llama-cluster/preset-fast.ini",
        "etc/llama-cluster/template-fast.big.jinja",
    ]


def test_restore_of_everything(snapshots, node):
    before = content(node)
    assert snapshots.open("one")
    spoil(node)
    assert sorted(path for path, _now, _then in snapshots.restore("one")) == sorted(
        [HEAD, PLAN, KEYS, WANTED_BY, "etc/llama-cluster/plan-other.json"],
    )
    assert content(node) == before
    assert snapshots.restore("one") == []


def test_look_reports_snapshots_and_differences(snapshots, node):
    assert snapshots.look() == {"open": None, "last": None, "differs": [], "scripts": {}}
    snapshots.open("one")
    (node / HEAD).write_text("new\n")
    assert snapshots.look() == {
        "open": {"id": "one", "build": "b1", "releases": [], "units": ["llama-head-chat.service"], "scripts": {}},
        "last": None,
        "differs": [HEAD],
        "scripts": {},
    }


def test_open_snapshot_is_renamed(snapshots, node):
    before = content(node)
    snapshots.open("one")
    spoil(node)
    assert snapshots.open("two")
    assert not snapshots.open("two")
    snapshots.restore("two")
    assert content(node) == before


def test_closed_snapshot_of_that_name_opens_again(snapshots, node):
    """A run ended between the snapshots of nodes and that of jobs."""
    snapshots.open("a")
    snapshots.close()
    (node / HEAD).write_text("new\n")
    assert snapshots.open("a", check=True) and snapshots.look()["open"] is None
    assert snapshots.open("a")
    assert snapshots.look()["open"]["id"] == "a" and snapshots.look()["last"] is None
    snapshots.restore("a")
    assert (node / HEAD).read_text() == "old\n"


def test_close_makes_last_and_drop_keeps_it(snapshots, node):
    assert not snapshots.close() and not snapshots.drop()
    snapshots.open("one")
    assert snapshots.close()
    spoil(node)
    snapshots.open("two")
    assert snapshots.drop()
    assert snapshots.look()["open"] is None and snapshots.look()["last"]["id"] == "one"


def test_restored_snapshot_is_open(snapshots, node):
    snapshots.open("one")
    snapshots.close()
    spoil(node)
    snapshots.restore("one")
    assert snapshots.look()["open"]["id"] == "one" and snapshots.look()["last"] is None


def test_new_units_hold_and_firewall_stay(snapshots, node):
    snapshots.open("one")
    more = (
        "etc/systemd/system/llama-rpc-more.service",
        "etc/systemd/system/multi-user.target.wants/llama-rpc-more.service",
        "etc/llama-cluster/held.json",
        FIREWALL,
    )
    for path in more:
        (node / path).write_text("more\n")
    assert snapshots.restore("one") == []
    assert all((node / path).exists() for path in more)


def test_new_boot_link_is_removed(snapshots, node):
    link = node / WANTED_BY

    def restored(held):
        link.unlink(missing_ok=True)
        if held:
            (node / "etc/llama-cluster/held.json").write_text("{}")
        snapshots.open("one")
        (node / HEAD).write_text("Environment=LLAMA_CLUSTER_DIGEST=0123\n")
        link.symlink_to("/" + HEAD)
        snapshots.restore("one")
        snapshots.drop()
        return link.is_symlink()

    assert not restored(held=False)
    # A held node runs nothing.
    assert restored(held=True)


def test_snapshot_of_earlier_version_leaves_links(snapshots, node, tmp_path):
    (node / WANTED_BY).unlink()
    snapshots.open("one")
    path = tmp_path / "rollback/open.json"
    path.write_text(json.dumps({key: part for key, part in json.loads(path.read_text()).items() if key != "held"}))
    (node / HEAD).write_text("Environment=LLAMA_CLUSTER_DIGEST=0123\n")
    (node / WANTED_BY).symlink_to("/" + HEAD)
    snapshots.restore("one")
    assert (node / WANTED_BY).is_symlink()


def test_check_mode_changes_nothing(snapshots, node):
    assert snapshots.open("one", check=True)
    assert snapshots.look()["open"] is None
    snapshots.open("one")
    snapshots.close()
    spoil(node)
    spoiled = content(node)
    assert snapshots.restore("one", check=True)
    assert content(node) == spoiled and snapshots.look()["last"]["id"] == "one"


def test_modes_and_texts_of_diffs(snapshots, node, tmp_path):
    snapshots.open("one")
    assert stat.S_IMODE((tmp_path / "rollback/open.json").stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "rollback").stat().st_mode) == 0o700
    (node / KEYS).write_text("another\n")
    _path, now, then = snapshots.restore("one", check=True)[0]
    assert "not shown" in text_of(now) and text_of(now) != text_of(then) and "secret" not in text_of(then)
    assert text_of(None) == ""
    (node / HEAD).write_text("new\n")
    changes = {path: (text_of(now), text_of(then)) for path, now, then in snapshots.restore("one", check=True)}
    assert changes[HEAD] == ("new\n", "old\n")
    assert text_of({"link": "/etc/x"}) == "link to /etc/x\n"


def test_unknown_name_is_refused(snapshots):
    with pytest.raises(Refusal, match="holds no snapshot one: run site.yml"):
        snapshots.restore("one")


@pytest.mark.parametrize("how", ["owner", "above", "link"])
def test_snapshot_of_another_user_is_refused(snapshots, tmp_path, how):
    snapshots.open("one")
    path = tmp_path / "rollback/open.json"
    (tmp_path / "other").write_text(path.read_text())
    if how == "owner":
        give_away(path)
    elif how == "above":
        tmp_path.chmod(0o777)
    else:
        path.unlink()
        path.symlink_to(tmp_path / "other")
    for act in (snapshots.look, snapshots.drop, lambda: snapshots.restore("one")):
        with pytest.raises(Refusal, match=r"(belongs to user id 4711|mode 0777|no regular file)"):
            act()
    tmp_path.chmod(0o700)


def test_fifo_is_skipped(snapshots, node):
    os.mkfifo(str(node / "etc/llama-cluster/fifo"))
    snapshots.open("one")
    assert snapshots.look()["differs"] == [] == snapshots.restore("one")
    assert (node / "etc/llama-cluster/fifo").is_fifo()


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"id": "one", "build": null, "files": []}'])
def test_file_that_is_no_snapshot_is_refused(snapshots, tmp_path, text):
    snapshots.open("one")
    (tmp_path / "rollback/open.json").write_text(text)
    with pytest.raises(Refusal, match=r"open.json is no snapshot \(.*\): remove it"):
        snapshots.look()


def test_unmanaged_files_stay(snapshots, node):
    snapshots.open("one")
    (node / HEAD).write_text("new\n")
    added = (
        "etc/llama-cluster/plan-notes.json",
        "etc/llama-cluster/keys/manual",
        "etc/llama-cluster/notes.txt",
        DROP_IN + ".d/mine.conf",
        "etc/llama-cluster/a/b",
    )
    for path in added:
        (node / path).parent.mkdir(parents=True, exist_ok=True)
        (node / path).write_text("unmanaged\n")
    (node / "etc/llama-cluster/plan-link.json").symlink_to("notes.txt")
    (node / "etc/systemd/system/llama-rpc-manual.service").write_text("[Service]\n")
    (node / "etc/systemd/system/llama-rpc.service").symlink_to("llama-rpc-manual.service")
    before = content(node)
    snapshots.restore("one")
    assert content(node) == dict(before, **{HEAD: ("old\n", before[HEAD][1])})


def test_scripts_of_jobs_have_their_own_snapshot(snapshots, node, tmp_path):
    """The snapshot of a node has no part of it."""
    config = {"services": {"deep": {"script": "/share/run-deep.slurm", "digest": "old"}}}
    script = node / "share/run-deep.slurm"
    script.parent.mkdir()
    script.write_text("exec %s/releases/b7/bin/llama-server\n" % paths.BUILDS)
    (node / "etc/llama-cluster/jobs.json").write_text(json.dumps(config))
    jobs = Snapshots(str(tmp_path / "rollback-jobs"), str(tmp_path / "prefix"), str(node), jobs=True)
    jobs.open("one")
    opened = jobs.look()["open"]
    assert opened["scripts"] == {"deep": "/share/run-deep.slurm"} and opened["releases"] == ["b7"]
    script.write_text("new\n")
    (node / "etc/llama-cluster/jobs.json").write_text(json.dumps(config).replace("old", "new"))
    (node / PLAN).write_text("new\n")
    snapshots.open("one")
    # The keeper submits the script as soon as its configuration changes.
    changed = [path for path, _now, _then in jobs.restore("one")]
    assert sorted(changed) == ["etc/llama-cluster/jobs.json", "share/run-deep.slurm"]
    assert "b7" in script.read_text() and (node / PLAN).read_text() == "new\n"
    assert snapshots.look()["differs"] == []


def test_builds_of_scripts_are_kept(snapshots, tmp_path):
    snapshots.open("one", releases=["b7", "b7"])
    (tmp_path / "var/lib/llama-cluster").mkdir(parents=True)
    (tmp_path / "rollback").rename(tmp_path / "var/lib/llama-cluster/rollback")
    assert kept_releases(str(tmp_path)) == ["b1", "b7"]
