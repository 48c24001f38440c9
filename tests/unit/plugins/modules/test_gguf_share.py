# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

import os
import socket
import urllib.request
from unittest.mock import ANY

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._fetch.share import is_running


@pytest.fixture
def port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture
def present(port, tmp_path):
    (tmp_path / "m.gguf").write_bytes(b"GGUF")
    return {"port": port, "address": "127.0.0.1", "files": [str(tmp_path / "m.gguf")], "peers": ["127.0.0.1"]}


def test_lend_and_end_in_both_modes(run, port, present):
    url = "http://127.0.0.1:%d/" % port
    assert run(_ansible_check_mode=True, **present) == (0, {"changed": True, "url": url, "invocation": ANY})
    assert not is_running(port)
    code, done = run(**present)
    assert (code, done["changed"], done["url"], is_running(port)) == (0, True, url, True)
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(url + "m.gguf") as answer:
        assert answer.read() == b"GGUF"
    absent = {"state": "absent", "port": port}
    for check, changed, runs in ((True, True, True), (False, True, False), (True, False, False), (False, False, False)):
        assert run(_ansible_check_mode=check, **absent) == (0, {"changed": changed, "invocation": ANY})
        assert is_running(port) is runs
    os.waitpid(done["pid"], 0)


@pytest.mark.parametrize("check", [True, False])
def test_error_is_one_sentence_that_names_module(run, port, present, check):
    code, done = run(_ansible_check_mode=check, **dict(present, files=["/no/m.gguf"]))
    assert (code, done["msg"]) == (1, "gguf_share: files: /no/m.gguf: No such file or directory: run gguf_fetch for it")
    assert not is_running(port)


@pytest.mark.parametrize("missing", ["address", "files", "peers"])
def test_what_lending_needs(run, port, present, missing):
    del present[missing]
    code, done = run(**present)
    assert (code, missing in done["msg"], is_running(port)) == (1, True, False)
