# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A list of files, directories and links: written if it differs, the same in check mode, and never
half-written."""

import grp
import os
import pwd
import stat
import sys

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._node.files import Files
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._text import Refusal
from ansible_collections.thefermisea.llama_cluster.tests.unit.other_users import OTHER_USER, give_away

ME = {"owner": pwd.getpwuid(os.geteuid()).pw_name, "group": grp.getgrgid(os.getegid()).gr_name}
DEFAULTS = {
    "state": "file",
    "content": "",
    "mode": None,
    "target": None,
    "validate": None,
    "mark": None,
    "hidden": False,
    "kept": False,
    **ME,
}


def apply(*entries, check=False):
    """-> (names of what changed, the diff)"""
    files = Files(check)
    for entry in entries:
        files.apply(
            dict(
                DEFAULTS, **{name: str(value) if name in ("path", "target") else value for name, value in entry.items()}
            )
        )
    return [os.path.basename(path) for path in files.paths], files.changes


def seen(path):
    return path.read_text(), oct(stat.S_IMODE(path.stat().st_mode))


def test_a_list_is_written_once(tmp_path):
    folder = tmp_path / "a/b"
    entries = [
        {"path": folder, "state": "directory", "mode": "0750"},
        {"path": folder / "file", "content": "text\n"},
        {"path": folder / "other", "content": "more\n", "mode": "0640"},
        {"path": folder / "link", "state": "link", "target": "file"},
        {"path": folder / "gone", "state": "absent"},
    ]
    names, changes = apply(*entries, check=True)
    assert names == ["b", "file", "other", "link"] and list(tmp_path.iterdir()) == []
    assert apply(*entries) == (names, changes)
    assert seen(folder / "file") == ("text\n", "0o644") and seen(folder / "other") == ("more\n", "0o640")
    assert os.readlink(folder / "link") == "file" and oct(stat.S_IMODE(folder.stat().st_mode)) == "0o750"
    assert [one["before_header"].endswith(" (absent)") for one in changes] == [True] * 4
    assert sorted(path.name for path in folder.iterdir()) == ["file", "link", "other"]
    assert apply(*entries) == apply(*entries, check=True) == ([], [])


def test_diff_has_no_control_characters(tmp_path):
    path = tmp_path / "file"
    path.write_text("old\x1b[2J\n")
    _names, changes = apply({"path": path, "content": "a\tb\x9b\u202e\n"})
    assert [(one["before"], one["after"]) for one in changes] == [("old?[2J\n", "a\tb??\n")]
    assert path.read_text() == "a\tb\x9b\u202e\n"


def test_what_differs_is_changed_and_shown(tmp_path):
    path, link = tmp_path / "file", tmp_path / "link"
    path.write_text("old\n")
    link.symlink_to("elsewhere")
    entries = [{"path": path, "content": "new\n"}, {"path": link, "state": "link", "target": "file"}]
    names, changes = apply(*entries, check=True)
    assert (names, path.read_text(), os.readlink(link)) == (["file", "link"], "old\n", "elsewhere")
    assert [(one["before"], one["after"]) for one in changes] == [
        ("old\n", "new\n"),
        ("link to elsewhere\n", "link to file\n"),
    ]
    apply(*entries)
    assert (path.read_text(), os.readlink(link)) == ("new\n", "file")


@pytest.mark.parametrize("state", ["file", "directory"])
def test_mode_is_changed_too(tmp_path, state):
    path = tmp_path / "x"
    path.write_text("") if state == "file" else path.mkdir()
    path.chmod(0o600)
    mode = "0644" if state == "file" else "0755"
    names, changes = apply({"path": path, "state": state, "mode": mode}, check=True)
    assert names == ["x"] and changes[0]["after_header"] == "%s (owner or mode)" % path
    assert changes[0]["before"] == changes[0]["after"] and stat.S_IMODE(path.stat().st_mode) == 0o600
    apply({"path": path, "state": state, "mode": mode})
    assert stat.S_IMODE(path.stat().st_mode) == int(mode, 8)
    assert apply({"path": path, "state": state}) == ([], [])


def test_link_is_replaced_not_followed(tmp_path):
    (tmp_path / "theirs").write_text("theirs")
    path = tmp_path / "file"
    path.symlink_to("theirs")
    apply({"path": path, "content": "own"})
    assert not path.is_symlink() and (tmp_path / "theirs").read_text() == "theirs"


@pytest.mark.parametrize(
    "entry,said",
    [
        ({"state": "link", "target": "y"}, "no link, one to y is needed"),
        ({"state": "directory"}, "no directory, one is needed"),
    ],
)
def test_what_somebody_else_made_stays(tmp_path, entry, said):
    path = tmp_path / "x"
    path.write_text("theirs")
    for check in (True, False):
        with pytest.raises(Refusal, match=said):
            apply(dict(entry, path=path), check=check)
    assert path.read_text() == "theirs"
    path.unlink()
    path.mkdir()
    with pytest.raises(Refusal, match="a directory seen, a file is needed"):
        apply({"path": path})
    for check in (True, False):
        with pytest.raises(Refusal, match="a directory seen, a file is needed"):
            apply({"path": path, "state": "absent"}, check=check)
    assert path.is_dir()


def test_directory_of_another_user_is_refused(tmp_path):
    path = tmp_path / "x"
    path.mkdir()
    give_away(path)
    for entry in ({"path": path, "state": "directory"}, {"path": path, "state": "directory", "mode": "0700"}):
        for check in (True, False):
            with pytest.raises(Refusal, match="x: it belongs to user id 4711, .* is needed: look at who made it, then"):
                apply(entry, check=check)
    assert path.stat().st_uid == OTHER_USER
    with pytest.raises(Refusal, match="it belongs to user id 4711"):
        apply({"path": path, "state": "directory", "group": "no-such-group"}, check=True)
    assert apply({"path": path, "state": "directory", "kept": True}) == ([], [])


def test_directory_of_root_gets_its_owner(tmp_path):
    path = tmp_path / "x"
    path.mkdir()
    give_away(path)
    os.chown(path, 0, 0)
    entry = {"path": path, "state": "directory", "owner": "nobody"}
    assert apply(entry)[0] == ["x"] and path.stat().st_uid == pwd.getpwnam("nobody").pw_uid
    assert apply(entry) == ([], []) and apply(dict(entry, mode="0700"))[0] == ["x"]


def test_kept_directory_stays(tmp_path):
    path = tmp_path / "models"
    (tmp_path / "there").mkdir(mode=0o700)
    path.symlink_to("there")
    assert apply({"path": path, "state": "directory", "kept": True}) == ([], [])
    path.unlink()
    assert apply({"path": path, "state": "directory", "kept": True})[0] == ["models"]
    path.chmod(0o700)
    assert apply({"path": path, "state": "directory", "kept": True}) == ([], [])


@pytest.mark.parametrize("planted", ["directory", "link"])
def test_directory_is_made_on_no_way_of_others(tmp_path, planted):
    """Its owner could have it lead to any directory of root's while it is made."""
    way = tmp_path / "ai"
    way.mkdir() if planted == "directory" else way.symlink_to("/etc")
    give_away(way)
    if planted == "link":
        give_away(tmp_path)
    for check in (True, False):
        for entry in ({}, {"kept": True, "owner": "nobody"}):
            with pytest.raises(Refusal, match=": it belongs to user id 4711, 0 is needed because root uses it"):
                apply({"path": way / "llama/logs", "state": "directory", **entry}, check=check)
    assert list(way.glob("llama*")) == []


def test_file_is_validated_before_it_is_written(tmp_path):
    program = "import sys; text = open(sys.argv[1]).read(); print('line 1: ' + text); sys.exit(text != 'right')"
    path, validate = tmp_path / "file", [sys.executable, "-c", program, "%s"]
    apply({"path": path, "content": "right", "validate": validate})
    for check in (True, False):
        with pytest.raises(Refusal, match=r"refuses it \(line 1: wrong\): correct what it is made of"):
            apply({"path": path, "content": "wrong", "validate": validate}, check=check)
    assert path.read_text() == "right" and [one.name for one in tmp_path.iterdir()] == ["file"]
    # As it is, it was read before.
    assert apply({"path": path, "content": "right", "validate": ["/nonexistent", "%s"]}) == ([], [])
    with pytest.raises(
        Refusal,
        match=r"/nonexistent cannot be run \(No such file or directory\), it has to read the file first: install it",
    ):
        apply({"path": path, "content": "other", "validate": ["/nonexistent", "%s"]})
    # Its package was only pretended to be installed.
    assert apply({"path": path, "content": "other", "validate": ["/nonexistent", "%s"]}, check=True)[0] == ["file"]


def test_check_mode_counts_files_of_missing_account(tmp_path):
    path = tmp_path / "keys"
    path.mkdir()
    entry = {"path": path, "state": "directory", "group": "no-such-group"}
    assert apply(entry, check=True)[0] == ["keys"]
    with pytest.raises(
        Refusal, match="no account .* or no group no-such-group on this node, both are needed: run with --tags node"
    ):
        apply(entry)


def test_nothing_of_a_hidden_file_is_shown(tmp_path):
    path = tmp_path / "key"
    for content in ("one-key\n", "another-key\n"):
        changes = apply({"path": path, "content": content, "hidden": True, "mode": "0640"})[1]
        assert "key\n" not in str(changes) and changes[0]["before"] != changes[0]["after"]
    changes = apply({"path": path, "state": "absent", "hidden": True})[1]
    assert "another" not in str(changes) and not path.exists()


def test_a_file_that_has_not_our_mark_stays(tmp_path):
    path = tmp_path / "page.md"
    entry = {"path": path, "content": "# Page\n<!-- mark -->\n", "mark": "<!-- mark -->"}
    assert apply(entry)[0] == ["page.md"] and apply(entry)[0] == []
    assert apply(dict(entry, content="another <!-- mark -->\n"))[0] == ["page.md"]
    path.write_text("# Page of somebody else\n")
    with pytest.raises(Refusal, match="a file that the collection has not written seen, none .*: rename it"):
        apply(entry)
    assert path.read_text() == "# Page of somebody else\n"
    path.unlink()
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(Refusal, match="has not written"):
        apply(entry)


def test_refusal_of_hidden_file_has_no_url(tmp_path):
    program = "import sys; sys.exit('field url not found: %s' % open(sys.argv[1]).read())"
    entry = {"path": tmp_path / "file", "validate": [sys.executable, "-c", program, "%s"], "hidden": True}
    with pytest.raises(Refusal) as caught:
        apply(dict(entry, content='"HTTPS://chat.test/hooks/%zz?token=x" ' + "in the root route " * 40))
    assert "refuses it (" in str(caught.value) and "in the root route" in str(caught.value)
    with pytest.raises(Refusal, match=r"refuses it \(field url not found: \"URL of all\): correct"):
        apply(dict(entry, content='"https://chat.test/hooks/secret" of all'))
    assert "chat.test" not in str(caught.value) and "token" not in str(caught.value)
