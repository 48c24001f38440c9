# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

import os
import stat

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._snapshot import SnapshotError, Snapshots, text_of

HEAD = "etc/systemd/system/llama-head-chat.service"
WANTED_BY = "etc/systemd/system/multi-user.target.wants/llama-head-chat.service"
ALIAS = "etc/systemd/system/llama-head.service"
DROP_IN = "etc/systemd/system/llama-head-chat.service.d/site.conf"
PLAN = "etc/llama-cluster/plan-chat.json"
KEYS = "etc/llama-cluster/keys/chat"
FIREWALL = "etc/llama-cluster/firewall.nft"


@pytest.fixture(name="node")
def fixture_node(tmp_path):
    node = tmp_path / "node"
    for path, text in ((HEAD, "old\n"), (DROP_IN, "[Service]\n"), (PLAN, "{}\n"), (KEYS, "secret\n"), ("etc/systemd/system/ssh.service", "theirs\n")):
        (node / path).parent.mkdir(parents=True, exist_ok=True)
        (node / path).write_text(text)
    (node / KEYS).chmod(0o600)
    (node / WANTED_BY).parent.mkdir()
    for link in (WANTED_BY, ALIAS):
        (node / link).symlink_to("/" + HEAD)
    (tmp_path / "prefix/releases/b1").mkdir(parents=True)
    (tmp_path / "prefix/current").symlink_to("releases/b1")
    return node


@pytest.fixture(name="snapshots")
def fixture_snapshots(node, tmp_path):
    return Snapshots(str(tmp_path / "rollback"), str(tmp_path / "prefix"), str(node))


def content(node):
    """{path: what is there} of the whole node."""
    found = {}
    for path in sorted(node.rglob("*")):
        name = str(path.relative_to(node))
        if path.is_symlink():
            found[name] = os.readlink(path)
        elif path.is_file():
            found[name] = (path.read_text(), stat.S_IMODE(path.stat().st_mode))
    return found


def spoil(node):
    """What a switch may do to a node."""
    (node / HEAD).write_text("new\n")
    (node / PLAN).unlink()
    (node / KEYS).write_text("another\n")
    (node / KEYS).chmod(0o644)
    (node / ALIAS).unlink()
    (node / ALIAS).symlink_to("/etc/systemd/system/llama-head-other.service")
    (node / WANTED_BY).unlink()
    (node / "etc/llama-cluster/plan-other.json").write_text("{}\n")


def test_everything_comes_back(snapshots, node):
    before = content(node)
    assert snapshots.open("one")
    spoil(node)
    assert sorted(path for path, _now, _then in snapshots.restore("one")) == sorted(
        [HEAD, PLAN, KEYS, ALIAS, WANTED_BY, "etc/llama-cluster/plan-other.json"],
    )
    assert content(node) == before
    assert snapshots.restore("one") == []


def test_a_look_tells_what_is_there_and_what_differs(snapshots, node):
    assert snapshots.look() == {"open": None, "last": None, "differs": []}
    snapshots.open("one")
    (node / HEAD).write_text("new\n")
    assert snapshots.look() == {"open": {"id": "one", "build": "b1", "units": ["llama-head-chat.service"]}, "last": None, "differs": [HEAD]}


def test_an_open_snapshot_is_kept_under_the_new_name(snapshots, node):
    before = content(node)
    snapshots.open("one")
    spoil(node)
    assert snapshots.open("two")
    assert not snapshots.open("two")
    snapshots.restore("two")
    assert content(node) == before


def test_a_closed_one_is_the_last_one_and_a_dropped_one_leaves_the_last_one_alone(snapshots, node):
    assert not snapshots.close() and not snapshots.drop()
    snapshots.open("one")
    assert snapshots.close()
    spoil(node)
    snapshots.open("two")
    assert snapshots.drop()
    assert snapshots.look()["open"] is None and snapshots.look()["last"]["id"] == "one"


def test_what_is_put_back_is_open_until_it_is_proved(snapshots, node):
    snapshots.open("one")
    snapshots.close()
    spoil(node)
    snapshots.restore("one")
    assert snapshots.look()["open"]["id"] == "one" and snapshots.look()["last"] is None


def test_what_it_lacks_and_others_need_stays(snapshots, node):
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


def test_check_mode_changes_nothing(snapshots, node):
    assert snapshots.open("one", check=True)
    assert snapshots.look()["open"] is None
    snapshots.open("one")
    snapshots.close()
    spoil(node)
    spoiled = content(node)
    assert snapshots.restore("one", check=True)
    assert content(node) == spoiled and snapshots.look()["last"]["id"] == "one"


def test_nobody_but_root_reads_it_and_a_diff_shows_no_secret(snapshots, node, tmp_path):
    snapshots.open("one")
    assert stat.S_IMODE((tmp_path / "rollback/open.json").stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "rollback").stat().st_mode) == 0o700
    (node / KEYS).write_text("another\n")
    _path, now, then = snapshots.restore("one", check=True)[0]
    assert "not shown" in text_of(now) and text_of(now) != text_of(then) and "secret" not in text_of(then)
    assert text_of(None) == ""


def test_a_name_that_is_not_there(snapshots):
    with pytest.raises(SnapshotError, match="holds no snapshot one: run site.yml"):
        snapshots.restore("one")


def test_a_file_of_somebody_else_is_not_believed(snapshots, tmp_path, monkeypatch):
    snapshots.open("one")
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(SnapshotError, match="does not belong to user id"):
        snapshots.look()


def test_a_broken_file_is_named(snapshots, tmp_path):
    snapshots.open("one")
    (tmp_path / "rollback/open.json").write_text("{")
    with pytest.raises(SnapshotError, match="is no snapshot"):
        snapshots.look()
