# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a caller asks for, and what it hears meanwhile."""

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._fetch import request
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._fetch.errors import Stopped
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._fetch.request import Request, Watch
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._text import Refusal

DIGEST = "0123456789abcdef" * 4


def test_two_requests_for_same_bytes_have_one_identity(tmp_path):
    dest = str(tmp_path / "m.gguf")
    assert Request(dest, urls=["https://h/m.gguf?token=a"], sha256=[DIGEST.upper()]).identity() == {
        "urls": ["https://h/m.gguf"],
        "sha256": [DIGEST],
        "pieces": [],
    }
    asked = {"repo": "o/r", "revision": "main", "files": [], "quant": "Q8_0", "sha256": [], "pieces": []}
    assert Request(dest, repo="o/r", quant="Q8_0", token="secret", connections=3).identity() == asked


@pytest.mark.parametrize("connections", [1, 16])
def test_as_many_connections_as_servers_take(tmp_path, connections):
    assert Request(str(tmp_path / "m.gguf"), urls=["/m"], connections=connections).connections == connections


@pytest.mark.parametrize("digest", [DIGEST[1:], DIGEST + "0", DIGEST[1:] + "g", ""])
@pytest.mark.parametrize("key", ["sha256", "pieces"])
def test_digest_that_is_none_is_refused(tmp_path, key, digest):
    given = {"sha256": [DIGEST, digest], "pieces": [{"size": 1, "sha256": DIGEST}, {"size": 1, "sha256": digest}]}
    with pytest.raises(Refusal, match="64 hexadecimal digits are needed"):
        Request(str(tmp_path / "m.gguf"), urls=["/m"], **{key: given[key]})


def test_destination_is_file_or_directory(tmp_path):
    for dest, into in ((tmp_path / "m.gguf", False), (tmp_path, True)):
        assert Request(str(dest), urls=["/m"]).into_folder is into
        assert Request(str(dest), urls=["/m"]).folder() == str(tmp_path)
    assert Request(str(tmp_path / "new") + "/", urls=["/m"]).folder() == str(tmp_path / "new")


def test_hashing_reports_each_second_and_stops(monkeypatch):
    clock, told, reasons = [100.0], [], [None, "enough"]
    monkeypatch.setattr(request.time, "monotonic", lambda: clock[0])
    advance = Watch(told.append, lambda: reasons.pop(0)).meter("/models/m.gguf", 1000)
    for seconds, count in ((0.5, 10), (0.25, 20), (0.25, 30), (0.75, 40)):
        clock[0] += seconds
        advance(count)
    state = {"phase": "hash", "done": 60, "total": 1000, "moved": 0, "rate": 60.0, "name": "m.gguf"}
    assert told == [state]
    clock[0] += 1.25
    with pytest.raises(Stopped, match="enough"):
        advance(50)
    assert told[1] == dict(state, done=150, rate=50.0)


@pytest.mark.parametrize("asked", [{"quant": "Q8_0"}, {"files": ["m.gguf"]}, {"quant": "Q8_0", "files": ["m.gguf"]}])
def test_repository_needs_quant_or_files_of_one_model(tmp_path, asked):
    dest = str(tmp_path / "m.gguf")
    assert Request(dest, repo="o/r", **asked).repo == "o/r"
    with pytest.raises(Refusal, match="^repo: o/r holds several models: name the quant, or the files of one"):
        Request(dest, repo="o/r")


def test_copy_needs_files_of_node_that_has_them(tmp_path):
    dest = str(tmp_path / "m.gguf")
    assert Request(dest, copy_of={"url": "http://n", "files": [{}], "commit": None}).copy_of["url"] == "http://n"
    with pytest.raises(Refusal, match="^copy_of: no files given"):
        Request(dest, copy_of={"url": "http://n", "files": [], "commit": None})


@pytest.mark.parametrize("connections", [0, 17])
def test_more_connections_than_servers_take(tmp_path, connections):
    with pytest.raises(Refusal, match="^connections: %d given, 1 to 16 are possible" % connections):
        Request(str(tmp_path / "m.gguf"), urls=["/m"], connections=connections)
