# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

import os
import subprocess
import sys

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.modules import llama_bench
from ansible_collections.thefermisea.llama_cluster.tests.unit import fake_llama_server as fake

STREAM = 'data: {"choices":[{"delta":{"content":"a"},"finish_reason":"length"}]}\n\ndata: [DONE]\n\n'
PROMPTS = [{"name": "short", "text": "Name a color."}, {"name": "code", "text": "Write a loop."}]


@pytest.fixture(name="run")
def fixture_run(run, server):
    server.responses["/v1/chat/completions"] = (200, STREAM)
    return lambda **options: run(**{"url": server.url + "/v1", "prompts": PROMPTS, "requests": 2, **options})


def test_prompt_depth_and_concurrency_make_a_cell(run, server, tmp_path):
    (tmp_path / "key").write_text("# a key\nk3y\n")
    server.responses["/tokenize"] = (200, {"tokens": list(range(20))})
    code, result = run(depths=[0, 40], concurrency=[1, 2], api_key_file=str(tmp_path / "key"), warmup=3)
    assert (code, result["changed"], result["disturbed"]) == (0, False, False)
    seen = [(one["prompt"], one["depth"], one["concurrency"]) for one in result["cells"]]
    assert seen == [(name, depth, many) for name in ("short", "code") for depth in (0, 40) for many in (1, 2)]
    assert len(server.asked("/v1/chat/completions")) == 8 * 2 + 3
    assert {one.get("Authorization") for one in server.headers} == {"Bearer k3y"}


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"requests": 0}, "requests 0 seen, at least 1 is needed"),
        ({"concurrency": [1, 0]}, "concurrency 0 seen, at least 1 is needed"),
        ({"depths": [-1]}, "depths -1 seen, at least 0 is needed"),
        ({"url": "ftp://x"}, "http://HOST:PORT is needed"),
        ({"api_key_file": "/no/such/key"}, "api_key_file /no/such/key cannot be read"),
    ],
)
def test_bad_input_is_one_sentence(run, options, sentence):
    code, result = run(**options)
    assert code == 1 and sentence in result["msg"]


def test_wrong_key_is_refused(run, server):
    server.responses["/v1/chat/completions"] = fake.NO_KEY
    code, result = run(api_key="wrong")
    assert code == 1 and "it answers 401 (Invalid API Key)" in result["msg"]


def test_unit_key_goes_only_to_its_process(run, server, monkeypatch):
    unit, asked = "llama-head-chat.service", []
    monkeypatch.setattr(llama_bench, "key_of", lambda name: asked.append(name) or "k3y")
    monkeypatch.setattr(llama_bench, "main_pid", lambda name: asked.append(name) or os.getpid())
    assert run(unit=unit)[0] == 0
    # Once for each cell: a head may have restarted.
    assert asked == [unit] * 3
    assert {one.get("Authorization") for one in server.headers} == {"Bearer k3y"}
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        monkeypatch.setattr(llama_bench, "main_pid", lambda name: other.pid)
        server.headers.clear()
        code, result = run(unit=unit)
        other.communicate(b"\n")
    assert code == 1 and "process %d of the unit does not listen there: it gets no key" % other.pid in result["msg"]
    assert [one for one in server.headers if one.get("Authorization")] == []


def test_down_server_fails_each_request(run, server):
    server.stop()
    code, result = run(warmup=0)
    assert (code, result["cells"][0]["figures"]["errors"]) == (0, 2)
    assert list(result["cells"][0]["figures"]["reasons"]) == ["no connection (Connection refused)"]
    code, result = run()
    assert code == 1 and "a request is not answered: no connection (Connection refused)" in result["msg"]
