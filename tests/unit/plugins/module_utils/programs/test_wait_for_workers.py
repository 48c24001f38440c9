# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

import os
import pwd

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._llama import handshake
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils.programs import wait_for_workers
from ansible_collections.thefermisea.llama_cluster.tests.unit.rpc_workers import Worker


@pytest.fixture(name="worker")
def fixture_worker():
    workers = []

    def make(*arguments):
        workers.append(Worker(*arguments))
        return workers[-1]

    yield make
    for one in workers:
        one.close()


def test_the_release_names_the_build(worker, capsys):
    assert wait_for_workers.main(["--build", "b11434-cpu-5f27b0c4", worker(handshake.NEW).endpoint]) == 0
    assert capsys.readouterr().out == ""
    assert (
        wait_for_workers.main(
            [
                "--build",
                "b11434",
                worker(handshake.NEW).endpoint,
                worker(handshake.NEW, (5, 1, 0)).endpoint,
            ]
        )
        == 0
    )
    assert "different llama.cpp builds: 127.0.0.1" in capsys.readouterr().out


def test_it_gives_up_what_it_does_not_need(worker, monkeypatch):
    entry, done = pwd.getpwuid(os.getuid()), []
    for name in ("setgroups", "setgid", "setuid"):
        monkeypatch.setattr(wait_for_workers.os, name, lambda value, name=name: done.append((name, value)))
    monkeypatch.setattr(wait_for_workers, "wait_for_rules", lambda announce: done.append("rules"))
    assert wait_for_workers.main(["--user", entry.pw_name, "--build", "b11434", worker(handshake.NEW).endpoint]) == 0
    assert done == ["rules", ("setgroups", []), ("setgid", entry.pw_gid), ("setuid", entry.pw_uid)], (
        "the user last: then nothing else may be changed"
    )


def test_head_waits_for_firewall_rules(tmp_path):
    loaded, said = tmp_path / "loaded", []
    wait_for_workers.wait_for_rules(
        said.append, lambda _seconds: loaded.touch() if said else None, ["test", "-e", str(loaded)]
    )
    assert len(said) == 1 and "llama-firewall" in said[0]
    wait_for_workers.wait_for_rules(said.append, None, ["true"])
    assert len(said) == 1, "nothing is said where they are there"
