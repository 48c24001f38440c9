# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

import email.message
import hashlib
import json
import os
import re
from collections import namedtuple

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._fetch import hub as fetch_hub
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._fetch.errors import Transient
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._fetch.http import Client
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._fetch.hub import (
    Hub,
    HubFile,
    read_token,
    select,
)
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._fetch.names import (
    order_files,
    piece_name,
)
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._text import Refusal
from ansible_collections.thefermisea.llama_cluster.tests.unit.fake_hub import COMMIT, FakeHub, HubHandler

FILES = {
    "README.md": b"text",
    "m.Q4_K_M.gguf": b"four",
    "m.Q8_0.gguf.part1of2": b"eight",
    "m.Q8_0.gguf.part2of2": b"more",
}


@pytest.fixture
def fake():
    with FakeHub() as fake:
        fake.add_repo("owner/m-GGUF", FILES)
        yield fake


def hub(fake, repo="owner/m-GGUF", token=None):
    return Hub(Client(5), repo, fake.url, token)


def listed(*names):
    return [HubFile(name, 1, "0" * 64) for name in names]


def test_listing_gives_size_and_sha256_pinned_to_commit(fake):
    assert hub(fake).commit("main") == COMMIT
    found = {entry.path: entry for entry in hub(fake).files(COMMIT)}
    assert sorted(found) == sorted(FILES)
    assert found["m.Q4_K_M.gguf"] == HubFile("m.Q4_K_M.gguf", 4, hashlib.sha256(b"four").hexdigest())
    assert hub(fake).source(COMMIT, found["m.Q4_K_M.gguf"]).url == "%s/owner/m-GGUF/resolve/%s/m.Q4_K_M.gguf" % (
        fake.url,
        COMMIT,
    )


def test_all_pages_are_read(fake):
    fake.page = 2
    assert sorted(entry.path for entry in hub(fake).files(COMMIT)) == sorted(FILES)
    assert len(fake.log) == 3


@pytest.mark.parametrize("most", ["_MAX_PAGES", "_MAX_FILES"])
def test_endless_listing_is_refused(fake, monkeypatch, most):
    fake.page = 2
    monkeypatch.setattr(fetch_hub, most, 2)
    with pytest.raises(Refusal, match="lists more than [0-9]+ pages or [0-9]+ files: check endpoint"):
        hub(fake).files(COMMIT)
    assert len(fake.log) == 2


@pytest.mark.parametrize(
    ("name", "parsed"),
    [
        ("m.gguf.part1of2", ("m.gguf", 1, 2)),
        ("m.gguf.part-01-of-02", ("m.gguf", 1, 2)),
        ("m.gguf.part00", ("m.gguf", 0, 0)),
        ("m.gguf-split-b", ("m.gguf", 1, 0)),
        ("m.gguf", None),
        ("m-00001-of-00002.gguf", None),
    ],
)
def test_names_of_raw_pieces(name, parsed):
    assert piece_name(name) == parsed


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (["m.gguf.part1of2"], r"m.gguf: pieces \[1\] given, \[1, 2\] needed: give every piece once"),
        (["m.gguf.part2of2"], r"pieces \[2\] given, \[1, 2\] needed"),
        (["m.gguf.part00", "m.gguf.part02"], r"pieces \[0, 2\] given, \[0, 1, 2\] needed"),
        (["m.gguf.part1of2", "m.gguf.part1of2", "m.gguf.part2of2"], r"pieces \[1, 1, 2\] given"),
        (["m.gguf.part2", "m.gguf.part3"], r"pieces \[2, 3\] given, \[1, 2, 3\] needed"),
        (["m-00001-of-00003.gguf", "m-00003-of-00003.gguf"], r"m: pieces \[1, 3\] given, \[1, 2, 3\] needed"),
        (["m.gguf.part1of2", "n.gguf.part2of2"], "are not one file, or its pieces or shards"),
        (["a.gguf", "b.gguf"], "are not one file"),
        (["m.gguf.part1", "m.gguf"], "are not one file"),
        (["m-00001-of-00002.gguf", "n-00002-of-00002.gguf"], "are not one file"),
    ],
)
def test_incomplete_sets_are_refused(names, words):
    with pytest.raises(Refusal, match=words):
        order_files(names)


def test_first_shard_stands_for_all():
    files = listed("q/m-00001-of-00002.gguf", "q/m-00002-of-00002.gguf")
    assert [entry.path for entry in select(files, "r", ["q/m-00001-of-00002.gguf"])] == [
        "q/m-00001-of-00002.gguf",
        "q/m-00002-of-00002.gguf",
    ]
    with pytest.raises(Refusal, match="q/m-00002-of-00002.gguf: missing in the repository"):
        select(files[:1], "r", ["q/m-00001-of-00002.gguf"])


def test_missing_file_names_closest():
    with pytest.raises(Refusal, match="r: has no file m.Q4_KM.gguf, it has m.Q4_K_M.gguf"):
        select(listed(*FILES), "r", ["m.Q4_KM.gguf"])


def test_token_file(tmp_path):
    path = tmp_path / "token"
    assert read_token(None) is None
    path.write_text("hf_secret\n")
    path.chmod(0o600)
    assert read_token(str(path)) == "hf_secret"
    path.chmod(0o400)
    assert read_token(str(path)) == "hf_secret"
    path.chmod(0o600)
    for content in ("", "two tokens\n", "two\nlines\n", "h\u00fc\n", "\x1b[2J"):
        path.write_text(content)
        with pytest.raises(Refusal, match="one token on one line"):
            read_token(str(path))
    with pytest.raises(Refusal, match=r"model_token_file: .*none on \S+ cannot be read"):
        read_token(str(tmp_path / "none"))


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o660, 0o602, 0o601])
def test_token_that_others_may_read_is_refused(tmp_path, mode):
    path = tmp_path / "token"
    path.write_text("hf_secret\n")
    path.chmod(mode)
    with pytest.raises(Refusal) as caught:
        read_token(str(path))
    text = (
        "model_token_file: %s has mode %04o and user id %d, mode 0600 and root's or your own are needed: correct "
        "both, others may have read the token"
    )
    assert str(caught.value) == text % (path, mode, os.geteuid())


def test_fifo_as_token_is_refused(tmp_path):
    os.mkfifo(str(tmp_path / "token"), 0o600)
    with pytest.raises(Refusal, match="does not hold one token"):
        read_token(str(tmp_path / "token"))


def test_token_stays_with_its_origin(fake, monkeypatch):
    fake.token, fake.page = "hf_secret", 2
    with FakeHub() as original:
        original.add_repo("owner/m-GGUF", FILES)
        # A mirror that passes on the Link of the hub that it mirrors.
        monkeypatch.setattr(fake.servers["hub"].__class__, "origin", property(lambda server: original.url))
        found = hub(fake, token="hf_secret").files(COMMIT)
        assert sorted({entry.path for entry in found}) == sorted(FILES)
        assert [headers.get("Authorization") for _server, _path, headers in fake.log] == ["Bearer hf_secret"]
        assert original.log and {headers.get("Authorization") for _server, _path, headers in original.log} == {None}


LISTED = {"type": "file", "path": "m.Q8_0.gguf", "size": 5, "oid": "0" * 40}


@pytest.mark.parametrize(
    "answer",
    [
        ["text"],
        [None],
        [5],
        {"type": "file"},
        [{"type": "file"}],
        [dict(LISTED, path=None)],
        [dict(LISTED, path=["m.gguf"])],
        [dict(LISTED, path="/etc/m.gguf")],
        [dict(LISTED, path="../m.gguf")],
        [dict(LISTED, path="a/../m.gguf")],
        [dict(LISTED, path="m.gguf\nX")],
        [dict(LISTED, path="\ud800.gguf")],
        [dict(LISTED, size="5")],
        [dict(LISTED, size=-1)],
        [dict(LISTED, lfs="lfs")],
        [dict(LISTED, lfs={"oid": 5, "size": 5})],
        [dict(LISTED, lfs={"oid": "../../x", "size": 5})],
        "[" * 100000,
        "[1e999999, " + "9" * 5000 + "]",
    ],
)
def test_listing_of_odd_types_is_one_sentence(fake, monkeypatch, answer):
    text = answer if isinstance(answer, str) and answer.startswith("[") else json.dumps(answer)
    monkeypatch.setattr(HubHandler, "tree", lambda self, repo, start: self.answer(200, {}, text.encode()))
    with pytest.raises(
        Refusal,
        match=r"^http://127.0.0.1:[0-9]+/api/models/owner/m-GGUF/tree/[0-9a-f]{40}: does not answer as a model hub "
        r"does: check",
    ):
        hub(fake).files(COMMIT)


def answered(status, headers=(), parsed=None, said=""):
    message = email.message.Message()
    for name, value in dict(headers).items():
        message[name] = value
    response = namedtuple("Response", "status headers reason")(status, message, "Teapot")
    return fetch_hub._Answer(response, parsed, said)


@pytest.mark.parametrize(
    ("names", "ordered"),
    [
        (["m.gguf-split-b", "m.gguf-split-a"], ["m.gguf-split-a", "m.gguf-split-b"]),
        (["m.gguf.part1"], ["m.gguf.part1"]),
        (["m.gguf.part00"], ["m.gguf.part00"]),
        (["m.gguf"], ["m.gguf"]),
        (["m.gguf.part%dof11" % n for n in (11, 2, 1, 3, 4, 5, 6, 7, 8, 9, 10)],)
        + (["m.gguf.part%dof11" % n for n in range(1, 12)],),
        (["x/m.gguf.part01", "x/m.gguf.part00"], ["x/m.gguf.part00", "x/m.gguf.part01"]),
        (["b-00002-of-00002.gguf", "b-00001-of-00002.gguf"], ["b-00001-of-00002.gguf", "b-00002-of-00002.gguf"]),
    ],
)
def test_files_of_one_model_in_order(names, ordered):
    assert order_files(names) == ordered


@pytest.mark.parametrize(
    ("status", "code", "token", "words"),
    [
        (401, "GatedRepo", None, "gated, no token was given: accept its terms there and set model_token_file"),
        (403, "GatedRepo", "hf", "gated, the token has no access: ask for access with the account"),
        (403, "", "hf", r"answered 403 Teapot \(it says: no rights\): a token with access may be needed"),
        (403, "", None, r"answered 403 Teapot \(it says: no rights\): a token with access may be needed"),
        (403, "RepoDisabled", None, r"answered 403 Teapot \(it says: no rights\): "),
        (404, "EntryNotFound", None, r"answered 404 Teapot \(it says: no rights\): check repo and endpoint"),
        (429, "", None, r"answered 429 Teapot \(it says: no rights\)"),
        (404, "RevisionNotFound", "hf", "has no revision v1: check revision"),
        (
            401,
            "",
            "hf",
            r"the token was refused \(status 401\) \(it says: no rights\): put a valid token into model_token_file",
        ),
        (401, "RepoNotFound", "hf", r"unknown \(it says: no rights\): check repo and endpoint"),
        (401, "", None, r"unknown or private \(it says: no rights\): check repo and endpoint"),
        (404, "RepoNotFound", None, r"unknown or private \(it says: no rights\): check repo and endpoint"),
        (404, "", "hf", r"unknown \(it says: no rights\): check repo and endpoint"),
        (418, "", None, r"answered 418 Teapot \(it says: no rights\): check repo and endpoint"),
    ],
)
def test_why_repository_does_not_open(status, code, token, words):
    repository = Hub(None, "owner/m", "http://127.0.0.1:1", token)
    headers = {"X-Error-Code": code} if code else {}
    refusal = repository._refusal(answered(status, headers, said="no rights"), "v1")
    assert isinstance(refusal, Transient if status == 429 else Refusal) and re.match(
        "http://127.0.0.1:1/owner/m: " + words, str(refusal)
    )
