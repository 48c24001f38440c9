# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

import functools
import os

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._text import Refusal
from ansible_collections.thefermisea.llama_cluster.plugins.modules import llama_recovery


@pytest.fixture(name="run")
def fixture_run(run, tmp_path):
    arguments = {"url": "http://127.0.0.1:1", "unit": "llama-head-chat.service", "timeout": 3}
    return functools.partial(run, armed_file=str(tmp_path / "armed"), **arguments)


def shown(monkeypatch, pid):
    monkeypatch.setattr(llama_recovery, "main_pid", lambda unit: pid)


def test_the_watch_gets_what_was_asked_for(run, monkeypatch, tmp_path):
    def watch(api, pid, timeout, armed, wanted, generate, embeddings, there):
        assert not wanted()
        armed()
        assert wanted()
        os.remove(str(tmp_path / "armed"))
        assert not wanted()
        return {
            "pid": pid,
            "answered_at": None,
            "seconds_to_token": None,
            "client": {"url": api.url, "timeout": timeout, "generate": generate, "embeddings": embeddings},
        }

    shown(monkeypatch, 948)
    monkeypatch.setattr(llama_recovery, "watch", watch)
    code, result = run(generate=True, embeddings=True)
    assert (code, result["pid"], result["changed"]) == (0, 948, False)
    seen = {"url": "http://127.0.0.1:1", "timeout": 3, "generate": llama_recovery.PROMPT, "embeddings": True}
    assert result["client"] == seen


def test_stopped_head_is_an_error(run, monkeypatch, tmp_path):
    shown(monkeypatch, 0)
    code, result = run()
    assert (code, "llama-head-chat.service has no process, a running head is needed" in result["msg"]) == (1, True)


def test_key_is_for_new_process(run, monkeypatch, tmp_path):
    (tmp_path / "key").write_text("k3y\n")
    keys, pids = [], iter([948, 949, 0])

    def main_pid(unit):
        pid = next(pids, None)
        if pid is None:
            raise Refusal("systemctl show answered nothing")
        return pid

    def watch(api, pid, *_arguments, there, **_more):
        keys.append((True, api.key, api._pid))
        for _look in range(3):
            keys.append((there(), api.key, api._pid))
        return {"pid": pid}

    monkeypatch.setattr(llama_recovery, "main_pid", main_pid)
    monkeypatch.setattr(llama_recovery, "watch", watch)
    code, result = run(api_key_file=str(tmp_path / "key"))
    assert (code, result["pid"]) == (0, 948)
    assert keys == [(True, "k3y", 948), (True, "k3y", 949), (False, None, None), (False, None, None)]
