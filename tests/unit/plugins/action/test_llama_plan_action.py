# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Progress while a header does not arrive."""

import threading
from unittest import mock

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.action import llama_plan
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils import _progress


def ask(monkeypatch, args, patience, wait):
    """-> (result, lines) of a module that ends once something was said, or after so many seconds."""
    said, lines = threading.Event(), []
    monkeypatch.setattr(llama_plan, "PATIENCE", patience)
    monkeypatch.setattr(_progress.display, "display", lambda line, **_options: (lines.append(line), said.set()))
    task = mock.MagicMock(args=args, async_val=0)
    action = llama_plan.ActionModule(task, mock.MagicMock(), mock.MagicMock(), None, None, None)
    monkeypatch.setattr(action, "_execute_module", lambda **_options: {"shape": {}, "said": said.wait(wait)})
    return action.run(task_vars={"inventory_hostname": "node1"}), lines


@pytest.mark.parametrize(
    ("args", "origin"),
    [
        ({"urls": ["https://me:secret@models.example:8443/m.gguf?token=secret"]}, "https://models.example:8443"),
        ({"url": "http://models.example/m.gguf"}, "http://models.example"),
        ({"repo": "some/m-GGUF", "files": ["m.gguf"]}, "https://huggingface.co"),
        ({"repo": "some/m-GGUF", "endpoint": "https://mirror.example/hf"}, "https://mirror.example"),
    ],
)
def test_the_server_is_named_after_a_while(monkeypatch, args, origin):
    result, lines = ask(monkeypatch, args, 0.01, 60)
    assert lines == ["node1: waits for %s, which has the header of a model" % origin]
    assert result["shape"] == {}


@pytest.mark.parametrize(
    "args",
    [
        {"path": "/opt/models/m.gguf"},
        {"urls": ["file:///srv/m.gguf"]},
        {"url": "http://[models.example/m.gguf"},
        {"url": "http://models.example:port/m.gguf"},
    ],
)
def test_files_and_other_words_show_no_progress(monkeypatch, args):
    assert ask(monkeypatch, args, 0.01, 0.1)[1] == []


def test_nothing_is_said_of_a_server_that_answers(monkeypatch):
    before = threading.active_count()
    assert ask(monkeypatch, {"url": "http://models.example/m.gguf"}, 60, 0)[1] == []
    for thread in [one for one in threading.enumerate() if isinstance(one, threading.Timer)]:
        thread.join(10)
    assert threading.active_count() <= before


def test_silent_server_is_waited_for_once(monkeypatch):
    """In a loop over models; a local file is read nevertheless."""
    monkeypatch.setattr(llama_plan.ActionModule, "silent", {})
    asked = []

    def execute(module_args=None, **_options):
        asked.append(module_args)
        if module_args and module_args["path"] == "/there.gguf":
            return {"shape": {}}
        return {"failed": True, "msg": "http://hub/a: cannot be reached, 4 times: check the network and run again"}

    def run(**args):
        task = mock.MagicMock(args=args, async_val=0)
        action = llama_plan.ActionModule(task, mock.MagicMock(), mock.MagicMock(), None, None, None)
        monkeypatch.setattr(action, "_execute_module", execute)
        return action.run(task_vars={"inventory_hostname": "node1"})

    first = run(path="/a.gguf", repo="o/a", files=["a.gguf"], endpoint="http://hub")
    second = run(path="/b.gguf", repo="o/b", files=["b.gguf"], endpoint="http://hub")
    assert first["msg"] == second["msg"] and second["failed"]
    assert asked == [None, {"path": "/b.gguf", "endpoint": "http://hub"}]
    assert run(path="/there.gguf", repo="o/c", files=["c.gguf"], endpoint="http://hub")["shape"] == {}
    assert run(urls=["http://hub/d.gguf"])["msg"] == first["msg"] and len(asked) == 3
    run(path="/e.gguf", urls=["http://other/e.gguf"])
    assert asked[-1] is None
