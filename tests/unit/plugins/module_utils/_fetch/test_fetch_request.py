# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A request, and the progress that its caller gets."""

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
    }
    asked = {"repo": "o/r", "revision": "main", "files": ["m.gguf"], "sha256": []}
    assert Request(dest, repo="o/r", files=["m.gguf"], token="secret", connections=3).identity() == asked


def test_other_query_is_other_content(tmp_path):
    urls = [f"https://h/get?file={name}.gguf&token=a" for name in "mn"]
    first, second = (Request(str(tmp_path / "m.gguf"), urls=[url]).identity()["urls"] for url in urls)
    assert first != second and "file" not in first[0]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        *(({"urls": ["/m"], "connections": number}, "connections: %d given, 1 to 16" % number) for number in (0, 17)),
        *(
            ({"urls": ["/m"], "sha256": [DIGEST, digest]}, "64 hexadecimal digits are needed")
            for digest in (DIGEST[1:], DIGEST + "0", DIGEST[1:] + "g", "")
        ),
        ({"repo": "o/r"}, "repo: o/r may hold several models: name the files of one"),
        ({"copy_of": {"url": "http://n", "files": []}}, "copy_of: no files given"),
        *(({"urls": ["/m"], "connections": number}, None) for number in (1, 16)),
    ],
)
def test_requests_without_sense_are_refused(tmp_path, options, words):
    if words is None:
        assert Request(str(tmp_path / "m.gguf"), **options).connections == options["connections"]
    else:
        with pytest.raises(Refusal, match=words):
            Request(str(tmp_path / "m.gguf"), **options)


def test_destination_is_file_or_directory(tmp_path):
    for dest, into in ((tmp_path / "m.gguf", False), (tmp_path, True)):
        assert Request(str(dest), urls=["/m"]).into_folder is into
        assert Request(str(dest), urls=["/m"]).folder() == str(tmp_path)
    assert Request(str(tmp_path / "new") + "/", urls=["/m"]).folder() == str(tmp_path / "new")


def test_hashing_reports_each_second_and_stops(monkeypatch):
    clock, states, reasons = [100.0], [], [None, "enough"]
    monkeypatch.setattr(request.time, "monotonic", lambda: clock[0])
    advance = Watch(states.append, lambda: reasons.pop(0)).meter("/models/m.gguf", 1000)
    for seconds, count in ((0.5, 10), (0.25, 20), (0.25, 30), (0.75, 40)):
        clock[0] += seconds
        advance(count)
    state = {"phase": "hash", "done": 60, "total": 1000, "moved": 0, "rate": 60.0, "name": "m.gguf"}
    assert states == [state]
    clock[0] += 1.25
    with pytest.raises(Stopped, match="enough"):
        advance(50)
    assert states[1] == dict(state, done=150, rate=50.0)
