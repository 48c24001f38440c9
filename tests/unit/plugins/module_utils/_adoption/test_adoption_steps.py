# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Saving, stopping, putting aside and restoring units on a tree that looks like a node."""

import os

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._adoption import servers, steps
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._adoption.steps import Adoption
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._text import Refusal

RPC_UNIT = "[Service]\nUser=root\nExecStart=/opt/llama.cpp/build/bin/rpc-server --host 0.0.0.0 --port 50052\n"
MANAGED = "[Service]\nExecStart=/opt/llama.cpp/releases/b1/bin/llama-server\nEnvironment=LLAMA_CLUSTER_DIGEST=1\n"
SERVES = {"host": "0.0.0.0", "port": 8000, "rpc": ["10.1.0.2:50052"]}
EVERY = ("save", "put_aside", "finish", "put_back", "forget")


class Node:
    """Units that systemd reports as active or not; called: of systemctl."""

    def __init__(self, path):
        self.path, self.units, self.called, self.active = path, path / "system", [], "active"
        (self.units / "multi-user.target.wants").mkdir(parents=True)
        (path / "proc").mkdir()
        (path / "build/bin").mkdir(parents=True)
        self.write("llama-rpc.service", RPC_UNIT)
        self.write("llama-rpc.service.d/limits.conf", "[Service]\nLimitNOFILE=65535\n", 0o600)
        (self.units / "multi-user.target.wants/llama-rpc.service").symlink_to(self.units / "llama-rpc.service")
        (self.units / "rpc.service").symlink_to(self.units / "llama-rpc.service")
        self.write("ssh.service", "[Service]\nExecStart=/usr/sbin/sshd -D\n")
        self.write("llama-head-chat.service", MANAGED)

    def write(self, name, text, mode=0o644):
        (self.units / name).parent.mkdir(exist_ok=True)
        (self.units / name).write_text(text)
        (self.units / name).chmod(mode)

    def show(self, names, _properties=None):
        """An alias is the unit that it stands for."""
        names = {"llama-rpc.service" if name == "rpc.service" else name for name in names}
        return "\n\n".join(
            "Id=%s\nFragmentPath=%s\nActiveState=%s" % (name, self.units / name, self.active) for name in sorted(names)
        )

    def adoption(self, check=False):
        return Adoption(
            str(self.path / "adopted"),
            lambda: (servers.find(str(self.units), str(self.path / "proc"), self.show)[0], [], []),
            [str(self.path / "build")],
            check,
            str(self.units),
            lambda *words: self.called.append(" ".join(words)),
            self.show,
        )

    def run(self, *names, check=False):
        actions = []
        for name in names:
            step, _space, kind = name.partition(" ")
            adoption = self.adoption(check)
            getattr(adoption, step)(*filter(None, [kind]))
            actions += adoption.actions
        return actions

    def files(self):
        found = {}
        for path in sorted(self.path.rglob("*")):
            seen = path.lstat()
            if path.is_symlink():
                found[str(path)] = os.readlink(path)
            elif path.is_file() and "adopted" not in path.parts:
                found[str(path)] = (path.read_bytes(), seen.st_mode, seen.st_uid, seen.st_mtime_ns)
        return found


@pytest.fixture(name="node")
def fixture_node(tmp_path):
    return Node(tmp_path)


def test_restored_files_are_those_of_before(node, tmp_path):
    before = node.files()
    node.run("save", "stop head")
    assert node.files() == before and node.called == []
    assert [path.stat().st_mode & 0o777 for path in (tmp_path / "adopted", tmp_path / "adopted/files")] == [0o700] * 2
    node.run("stop worker", "put_aside", "finish")
    assert node.called == ["stop llama-rpc.service", "daemon-reload", "reset-failed llama-rpc.service"]
    left = sorted(path.name for path in node.units.rglob("*"))
    assert left == ["llama-head-chat.service", "multi-user.target.wants", "ssh.service"]
    assert not (tmp_path / "build").exists()
    # Managed files give way, also after an undo that died.
    (tmp_path / "build").symlink_to("current")
    node.write("llama-rpc.service", MANAGED)
    (node.units / ".rpc.service.partial").symlink_to("half")
    node.active = "inactive"
    node.run("put_back", "start head", "start worker")
    assert node.files() == before and node.called[3:] == ["daemon-reload", "start llama-rpc.service"]
    assert (node.units / "llama-rpc.service.d").stat().st_mode & 0o777 == 0o755
    node.run("forget")
    assert not (tmp_path / "adopted").exists()


def test_repeated_steps_do_nothing(node):
    for step in ("save", "put_aside", "finish", "put_back"):
        assert node.run(step), step
        assert node.run(step) == [], step


def test_check_mode_changes_nothing(node):
    before = node.files()
    actions = node.run("save", "stop worker", "put_aside", check=True)
    assert "save %s" % (node.units / "llama-rpc.service") in actions and "stop llama-rpc.service" in actions
    node.run("save", "put_aside")
    after, called = node.files(), list(node.called)
    for step, count in (("put_back", 2), ("start worker", 0), ("finish", 1), ("put_aside", 0), ("forget", 1)):
        assert len(node.run(step, check=True)) == count, step
    assert node.files() == after != before and node.called == called


def test_nothing_of_others_gives_way(node, tmp_path):
    node.run("save", "put_aside")
    (tmp_path / "build").symlink_to("another")
    with pytest.raises(Refusal, match=r"build.by-hand: cannot move it back because .*build is there"):
        node.run("put_back")
    os.unlink(str(tmp_path / "build"))
    node.write("llama-rpc.service", "[Service]\nExecStart=/bin/true\n")
    with pytest.raises(Refusal, match="llama-rpc.service: another file is in its place: move it away"):
        node.run("put_back")
    (tmp_path / "adopted/notes.txt").write_text("theirs")
    node.run("forget")
    assert os.listdir(str(tmp_path / "adopted")) == ["notes.txt"]


def test_unit_that_changed_after_adoption_is_refused(node):
    node.run("save", "finish")
    node.write("llama-rpc.service", RPC_UNIT.replace("50052", "50053"))
    with pytest.raises(Refusal, match=r"llama-rpc.service: it differs from the one that was saved at .*: undo that"):
        node.run("save")


def test_unit_that_appeared_after_the_save_is_refused(node):
    node.run("save")
    node.write("rpc2.service", RPC_UNIT)
    with pytest.raises(Refusal, match=r"^rpc2.service: it appeared after everything was saved: run again"):
        node.run("stop worker")
    assert node.called == []


def test_name_for_the_moved_directory_must_be_free(node, tmp_path):
    (tmp_path / "build.by-hand").mkdir()
    with pytest.raises(Refusal, match=r"build.by-hand: cannot move .*build aside because that name is taken"):
        node.run("save")


def test_fifo_among_the_drop_ins_stays(node):
    fifo = node.units / "llama-rpc.service.d/fifo"
    os.mkfifo(str(fifo))
    node.run(*EVERY)
    assert fifo.is_fifo() and (node.units / "llama-rpc.service.d/limits.conf").exists()


def test_record_that_others_could_write_is_refused(node, tmp_path):
    node.run("save")
    (tmp_path / "adopted").chmod(0o777)
    for step in EVERY:
        with pytest.raises(Refusal, match="its mode 0777"):
            node.run(step)
    assert (node.units / "llama-rpc.service").exists()


@pytest.mark.parametrize("text", ["{", "[]", '{"format": 1}'])
def test_damaged_record_names_the_copies(node, tmp_path, text):
    node.run("save")
    (tmp_path / "adopted/record.json").write_text(text)
    with pytest.raises(Refusal, match=r"not a record of an adoption .*: restore the files in .*adopted yourself"):
        node.adoption().read()


def test_summary_has_the_heads_that_ran(node, monkeypatch):
    assert node.adoption().summary() is None
    units = [
        {"name": name, "kind": kind, "serves": serves}
        for name, kind, serves in (("a", "head", SERVES), ("idle", "head", None), ("rpc", "worker", SERVES))
    ]
    adoption = node.adoption()
    monkeypatch.setattr(adoption, "read", lambda: {"created": "then", "finished": True, "units": units})
    heads = [{"name": "a", "url": "http://127.0.0.1:8000", "rpc_endpoints": ["10.1.0.2:50052"]}]
    assert adoption.summary() == {"created": "then", "finished": True, "heads": heads}


@pytest.mark.parametrize("mode", [0o755, 0o640, 0o4711])
def test_file_or_link_is_compared_by_content(tmp_path, mode):
    path, link = tmp_path / "a", tmp_path / "b"
    path.write_text("x")
    path.chmod(mode)
    link.symlink_to("a")
    one, two = steps.path_record(str(path)), steps.path_record(str(link))
    assert (one["mode"], two) == (mode, {"path": str(link), "link": "a"})
    assert steps.holds(one) and steps.holds(two) and not steps.holds(dict(two, link="c"))
    path.write_text("y")
    link.unlink()
    assert not steps.holds(one) and not steps.holds(two)
    link.write_text("x")
    assert not steps.holds(two) and steps.holds(dict(one, path=str(link))), "a file is not a link"
