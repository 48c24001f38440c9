# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

import json
import os
import stat

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._node.snapshot import Snapshots, text_of
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._text import Refusal
from ansible_collections.thefermisea.llama_cluster.tests.unit.strangers import give_away

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
        ("etc/systemd/system/ssh.service", "theirs\n"),
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
    (node / WANTED_BY).unlink()
    (node / "etc/llama-cluster/plan-other.json").write_text('[{"devices": []}]\n')


def test_a_template_that_the_snapshot_lacks_goes_with_a_unit_of_ours(snapshots, node):
    (node / HEAD).write_text("Environment=LLAMA_CLUSTER_DIGEST=0123456789abcdef\n")
    assert snapshots.open("one")
    names = ["etc/llama-cluster/template-%s.jinja" % name for name in ("chat", "chat.kept", "theirs")]
    for name in names:
        (node / name).write_text("{{ messages }}\n")
    assert [path for path, _now, _then in snapshots.restore("one")] == names[:1]
    assert [(node / name).exists() for name in names] == [False, True, True]


def test_a_template_of_a_routers_model_goes_with_its_unit(snapshots, node):
    unit = node / "etc/systemd/system/llama-router-fast.service"
    unit.write_text("Environment=LLAMA_CLUSTER_DIGEST=0123456789abcdef\n")
    assert snapshots.open("one")
    (node / "etc/llama-cluster/template-fast.big.jinja").write_text("{{ messages }}\n")
    (node / "etc/llama-cluster/preset-fast.ini").write_text("; Written by the collection from llama_services: x\n")
    assert sorted(path for path, _now, _then in snapshots.restore("one")) == [
        "etc/llama-cluster/preset-fast.ini",
        "etc/llama-cluster/template-fast.big.jinja",
    ]


def test_everything_comes_back(snapshots, node):
    before = content(node)
    assert snapshots.open("one")
    spoil(node)
    assert sorted(path for path, _now, _then in snapshots.restore("one")) == sorted(
        [HEAD, PLAN, KEYS, WANTED_BY, "etc/llama-cluster/plan-other.json"],
    )
    assert content(node) == before
    assert snapshots.restore("one") == []


def test_a_look_tells_what_is_there_and_what_differs(snapshots, node):
    assert snapshots.look() == {"open": None, "last": None, "differs": []}
    snapshots.open("one")
    (node / HEAD).write_text("new\n")
    assert snapshots.look() == {
        "open": {"id": "one", "build": "b1", "releases": [], "units": ["llama-head-chat.service"]},
        "last": None,
        "differs": [HEAD],
    }


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


def test_a_unit_that_did_not_start_at_boot_does_not_again(snapshots, node):
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
    # Of a node that was held it says nothing.
    assert restored(held=True)


def test_a_snapshot_of_an_earlier_version_leaves_links(snapshots, node, tmp_path):
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


def test_nobody_but_root_reads_it_and_a_diff_shows_no_secret(snapshots, node, tmp_path):
    snapshots.open("one")
    assert stat.S_IMODE((tmp_path / "rollback/open.json").stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "rollback").stat().st_mode) == 0o700
    (node / KEYS).write_text("another\n")
    _path, now, then = snapshots.restore("one", check=True)[0]
    assert "not shown" in text_of(now) and text_of(now) != text_of(then) and "secret" not in text_of(then)
    assert text_of(None) == ""


def test_a_diff_shows_what_everybody_may_read(snapshots, node):
    snapshots.open("one")
    (node / HEAD).write_text("new\n")
    _path, now, then = snapshots.restore("one", check=True)[0]
    assert (text_of(now), text_of(then)) == ("new\n", "old\n")
    assert text_of({"link": "/etc/x"}) == "link to /etc/x\n"
    assert text_of({"directory": True, "mode": 0o755, "uid": 0, "gid": 0}) == ""


def test_a_name_that_is_not_there(snapshots):
    with pytest.raises(Refusal, match="holds no snapshot one: run site.yml"):
        snapshots.restore("one")


@pytest.mark.parametrize("how", ["owner", "directory", "above", "link", "fifo"])
def test_a_file_that_somebody_else_put_there_is_not_believed(snapshots, tmp_path, how):
    """As somebody would who may write the folder above: directories are renamed, and a link leads to a file of root's
    with text of others."""
    snapshots.open("one")
    folder, path = tmp_path / "rollback", tmp_path / "rollback/open.json"
    (tmp_path / "theirs").write_text(path.read_text().replace("old", "evil"))
    if how == "owner":
        give_away(path)
    elif how == "above":
        tmp_path.chmod(0o777)
    else:
        if how == "directory":
            folder.rename(tmp_path / "away")
            folder.mkdir()
            give_away(folder)
        else:
            path.unlink()
        if how == "fifo":
            os.mkfifo(str(path), 0o600)
        else:
            path.symlink_to(tmp_path / "theirs")
    for act in (
        snapshots.look,
        snapshots.close,
        snapshots.drop,
        lambda: snapshots.open("two"),
        lambda: snapshots.restore("one"),
    ):
        with pytest.raises(Refusal, match=r"(belongs to user id 4711|mode 0777|no regular file)"):
            act()
    tmp_path.chmod(0o700)


def test_a_fifo_beside_the_configuration_is_left_alone(snapshots, node):
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


def spoiled_entry(snapshots, tmp_path, path, change):
    """Opens a snapshot and changes one entry of its file."""
    snapshots.open("one")
    snapshot = json.loads((tmp_path / "rollback/open.json").read_text())
    entry = dict(snapshot["files"][HEAD], **change)
    snapshot["files"][path] = {key: value for key, value in entry.items() if value is not ...}
    (tmp_path / "rollback/open.json").write_text(json.dumps(snapshot))


@pytest.mark.parametrize(
    ("path", "change"),
    [
        ("/" + HEAD, {}),
        ("etc/passwd", {}),
        ("etc/systemd/system", {}),
        ("etc/systemd/systemd/x", {}),
        ("etc/llama-cluster-more/x", {}),
        ("etc/llama-cluster/../passwd", {}),
        ("etc/llama-cluster//x", {}),
        ("etc/llama-cluster/a\nb", {}),
        *((HEAD, {key: ...}) for key in ("mode", "uid", "gid", "content")),
        *((HEAD, {key: value}) for key in ("mode", "uid", "gid") for value in (-1, 1 << 32, "0", None, 0.0)),
        (HEAD, {"mode": 0o10000}),
        *((HEAD, {"content": value}) for value in (None, 7, "bmV3Cg=", "bmV3Cg==\n")),
        *((HEAD, {"link": value}) for value in (None, 7, "a\nb")),
    ],
)
def test_an_entry_that_no_snapshot_holds_is_refused(snapshots, node, tmp_path, path, change):
    spoiled_entry(snapshots, tmp_path, path, change)
    before = content(node)
    with pytest.raises(Refusal, match=r"open.json is no snapshot"):
        snapshots.restore("one")
    assert content(node) == before


@pytest.mark.parametrize(
    "change",
    [
        {"mode": 0o7777, "uid": 0xFFFFFFFF, "gid": 0xFFFFFFFF},
        {"mode": 0, "uid": 0, "gid": 0},
        {"directory": True, "content": ...},
        {"link": "/" + HEAD, "mode": None},
    ],
)
def test_an_entry_that_a_snapshot_may_hold(snapshots, tmp_path, change):
    spoiled_entry(snapshots, tmp_path, "etc/llama-cluster/x", change)
    assert [path for path, _now, _then in snapshots.restore("one", check=True)] == ["etc/llama-cluster/x"]


def test_what_others_have_put_there_since_stays(snapshots, node):
    snapshots.open("one")
    (node / HEAD).write_text("new\n")
    added = (
        "etc/llama-cluster/plan-notes.json",
        "etc/llama-cluster/keys/by-hand",
        "etc/llama-cluster/notes.txt",
        DROP_IN + ".d/mine.conf",
        "etc/llama-cluster/a/b",
    )
    for path in added:
        (node / path).parent.mkdir(parents=True, exist_ok=True)
        (node / path).write_text("theirs\n")
    (node / "etc/llama-cluster/plan-link.json").symlink_to("notes.txt")
    (node / "etc/systemd/system/llama-rpc-by-hand.service").write_text("[Service]\n")
    (node / "etc/systemd/system/llama-rpc.service").symlink_to("llama-rpc-by-hand.service")
    before = content(node)
    snapshots.restore("one")
    assert content(node) == dict(before, **{HEAD: ("old\n", before[HEAD][1])})
