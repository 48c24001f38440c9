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
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._fetch import http as fetch_http
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._fetch import hub as fetch_hub
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._fetch import sources
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


def test_unknown_repo_names_its_neighbours(fake):
    fake.add_repo("owner/other", {})
    with pytest.raises(
        Refusal, match=r"owner/m-GUF: unknown or private .*, owner has owner/m-GGUF, owner/other: check the name$"
    ):
        hub(fake, "owner/m-GUF").commit("main")


def test_unknown_revision_names_known_ones(fake):
    with pytest.raises(Refusal, match="has no revision v2, it has main, v1"):
        hub(fake).commit("v2")


@pytest.mark.parametrize(
    ("name", "parsed"),
    [
        ("m.gguf.part1of2", ("m.gguf", 1, 2)),
        ("m.gguf.part-01-of-02", ("m.gguf", 1, 2)),
        ("m.gguf.part00", ("m.gguf", 0, None)),
        ("m.gguf-split-b", ("m.gguf", 1, None)),
        ("m.gguf", None),
        ("m-00001-of-00002.gguf", None),
    ],
)
def test_names_of_raw_pieces(name, parsed):
    assert piece_name(name) == parsed


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (["m.gguf.part1of2"], "piece 2 is missing"),
        (["m.gguf.part2of2"], "piece 1 is missing"),
        (["m.gguf.part00", "m.gguf.part02"], "piece 1 is missing"),
        (["m.gguf.part1of2", "n.gguf.part2of2"], "different models"),
        (["m.gguf.part1of2", "m.gguf.part1of2", "m.gguf.part2of2"], "every piece once"),
        (["a.gguf", "b.gguf"], "neither one file"),
        (["m.gguf.part2", "m.gguf.part3"], "piece 1 is missing, pieces 2, 3 are there: give all pieces"),
        (["m.gguf.part1", "m.gguf"], "neither one file nor the pieces or shards of one"),
        (["m-00001-of-00003.gguf", "m-00003-of-00003.gguf"], "2 of 3 shards given"),
        (["m-00001-of-00002.gguf", "n-00002-of-00002.gguf"], "m-00002-of-00002.gguf: missing"),
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


@pytest.mark.parametrize(
    ("quant", "found"),
    [
        ("Q4_K_M", ["m.Q4_K_M.gguf"]),
        ("q8_0", ["m.Q8_0.gguf.part1of2", "m.Q8_0.gguf.part2of2"]),
        ("IQ4_XS", ["m-IQ4_XS.gguf"]),
        ("Q6_K", ["Q6_K/m-00001-of-00002.gguf", "Q6_K/m-00002-of-00002.gguf"]),
    ],
)
def test_quant_is_found_by_name_or_folder(quant, found):
    files = listed(
        *FILES,
        "m.Q4_K_S.gguf",
        "m-IQ4_XS.gguf",
        "mmproj-m.Q8_0.gguf",
        "m.imatrix-Q6_K.gguf",
        "Q6_K/m-00002-of-00002.gguf",
        "Q6_K/m-00001-of-00002.gguf",
    )
    assert [entry.path for entry in select(files, "r", quant=quant)] == found


def test_missing_quant_names_ones_there():
    files = listed(*FILES, "m.i1-IQ2_XXS.gguf", "m-UD-Q4_K_XL.gguf", "m-BF16.gguf")
    with pytest.raises(Refusal, match="r: has no quant Q5_K_S, it has BF16, IQ2_XXS, Q4_K_M, Q8_0, UD-Q4_K_XL"):
        select(files, "r", quant="Q5_K_S")
    with pytest.raises(Refusal, match="r: has no quant Q4_K, it has"):
        select(files, "r", quant="Q4_K")
    with pytest.raises(Refusal, match="it has no GGUF file at all"):
        select(listed("README.md"), "r", quant="Q8_0")


def test_ambiguous_quant_lists_candidates():
    with pytest.raises(Refusal, match="Q8_0 fits a.Q8_0.gguf, b.Q8_0.gguf: name the one wanted with files"):
        select(listed("a.Q8_0.gguf", "b.Q8_0.gguf"), "r", quant="Q8_0")


@pytest.mark.parametrize(
    ("names", "quant", "found"),
    [
        (["m-Q4_K_M.gguf", "m-UD-Q4_K_M.gguf"], "Q4_K_M", "m-Q4_K_M.gguf"),
        (["m-Q4_K_M.gguf", "m-UD-Q4_K_M.gguf"], "UD-Q4_K_M", "m-UD-Q4_K_M.gguf"),
        (["m.Q6_K.gguf", "i1/m.i1-Q6_K.gguf"], "q6_k", "m.Q6_K.gguf"),
        (["m-Balanced.gguf", "m-I-Balanced.gguf"], "Balanced", "m-Balanced.gguf"),
        (["m-UD-Q4_K_XL.gguf"], "Q4_K_XL", "m-UD-Q4_K_XL.gguf"),
        # The words before the quant are of another model, or two are as exact as each other.
        (["m-it-Q4_K_M.gguf", "m-Q4_K_M.gguf"], "Q4_K_M", None),
        (["m-UD-Q4_K_M.gguf", "m-i1-Q4_K_M.gguf"], "Q4_K_M", None),
        (["m-Q4_K_M.gguf", "sub/m-Q4_K_M.gguf", "m-UD-Q4_K_M.gguf"], "Q4_K_M", None),
    ],
)
def test_exact_quant_comes_before_part_of_one(names, quant, found):
    if found:
        assert [entry.path for entry in select(listed(*names), "r", quant=quant)] == [found]
    else:
        with pytest.raises(Refusal, match="name the one wanted with files"):
            select(listed(*names), "r", quant=quant)


@pytest.mark.parametrize(
    "companion",
    ["m-mmproj-Q8_0.gguf", "m.mmproj-q8_0.gguf", "mmproj/Q8_0.gguf", "MMPROJ-m-Q8_0.gguf", "m-MTP-Q8_0.gguf"]
    + ["m-DFlash-Q8_0.gguf", "draft/m-Q8_0.gguf", "m-eagle3-Q8_0.gguf", "m-lora-Q8_0.gguf", "m.imatrix-Q8_0.gguf"]
    + ["m-NextN-Q8_0.gguf", "m-control-vector-Q8_0.gguf", "m-adapter-Q8_0.gguf.part1of1"],
)
def test_what_goes_with_model_is_not_chosen(companion):
    files = listed("m-Q4_K_M.gguf", companion)
    with pytest.raises(Refusal, match="has no quant Q8_0, it has Q4_K_M"):
        select(files, "owner/m-GGUF", quant="Q8_0")
    files += listed("m-Q8_0.gguf")
    assert [entry.path for entry in select(files, "owner/m-GGUF", quant="Q8_0")] == ["m-Q8_0.gguf"]
    # By its own name it can be had.
    assert [entry.path for entry in select(files, "owner/m-GGUF", [companion])] == [companion]


@pytest.mark.parametrize("repo", ["owner/m-DRAFT-GGUF", "owner/m-GGUF"])
def test_repository_of_drafts_has_models(repo):
    files = listed("m-DRAFT-Q8_0.gguf", "mmproj-m-Q8_0.gguf")
    assert [entry.path for entry in select(files, repo, quant="Q8_0")] == ["m-DRAFT-Q8_0.gguf"]


SIBLING = {"rfilename": "m.Q8_0.gguf", "size": 5, "lfs": {"sha256": "a" * 64, "size": 5, "pointerSize": 130}}


@pytest.mark.parametrize("status", [404, 405, 410, 501])
def test_mirror_without_tree_lists_by_revision(fake, monkeypatch, status):
    fake.siblings = [SIBLING, {"rfilename": "m.Q4_K_M.gguf"}, {"rfilename": "README.md", "size": 3}]
    monkeypatch.setattr(HubHandler, "tree", lambda self, repo, start: self.answer(status, {}, b"no such API"))
    assert hub(fake).files(COMMIT) == [
        HubFile("m.Q8_0.gguf", 5, "a" * 64),
        HubFile("m.Q4_K_M.gguf", None, None),
        HubFile("README.md", 3, None),
    ]


@pytest.mark.parametrize(
    "siblings", [None, [], "text", [{}], [{"rfilename": "../m.gguf"}], [dict(SIBLING, size=-1, lfs=0)]]
)
def test_mirror_without_listing_is_named(fake, monkeypatch, siblings):
    fake.siblings = siblings
    monkeypatch.setattr(HubHandler, "tree", lambda self, repo, start: self.answer(404, {}, b"no such API"))
    with pytest.raises(Refusal, match="lists no files of it, /tree/ answered 404 and /revision/ has no siblings"):
        hub(fake).files(COMMIT)


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


def test_answer_that_ends_early_is_asked_for_again(fake, monkeypatch):
    monkeypatch.setattr(fetch_http, "FIRST_WAIT", 0)
    monkeypatch.setattr(sources, "FIRST_WAIT", 0)
    broken = ["5\r\n[{", "zz\r\n"]
    tree = HubHandler.tree

    def break_off(self, repo, start):
        if not broken:
            return tree(self, repo, start)
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.wfile.write(broken.pop().encode())
        self.close_connection = True
        return None

    monkeypatch.setattr(HubHandler, "tree", break_off)
    assert len(hub(fake).files(COMMIT)) == len(FILES)
    assert broken == []


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


@pytest.mark.parametrize(("limit", "value"), [("_MAX_PAGES", 2), ("_MAX_FILES", 3)])
def test_endless_listing_is_refused(fake, monkeypatch, limit, value):
    fake.page = 1
    monkeypatch.setattr(fetch_hub, limit, value)
    with pytest.raises(Refusal, match="lists more than [0-9]+ pages or [0-9]+ files"):
        hub(fake).files(COMMIT)


@pytest.mark.parametrize(
    ("status", "code", "token", "words"),
    [
        (401, "GatedRepo", None, "gated, no token was given: accept its terms there and set model_token_file"),
        (403, "GatedRepo", "hf", "gated, the token has no access: ask for access with the account"),
        (403, "", "hf", r"answered 403 Teapot \(it says: no rights\): the token may not read it"),
        (403, "", None, r"answered 403 Teapot \(it says: no rights\): a token in model_token_file may be needed"),
        (403, "RepoDisabled", None, r"answered 403 Teapot \(it says: no rights\): "),
        (404, "EntryNotFound", None, r"answered 404 Teapot \(it says: no rights\): check repo and endpoint"),
        (429, "", None, r"answered 429 Teapot \(it says: no rights\)"),
        (404, "RevisionNotFound", "hf", "has no revision v1, it has main"),
        (
            401,
            "",
            "hf",
            r"the token was refused \(status 401, it says: no rights\): put a valid token into model_token_file",
        ),
        (401, "RepoNotFound", "hf", r"unknown \(it says: no rights\), its neighbours"),
        (401, "", None, r"unknown or private \(it says: no rights\), its neighbours"),
        (404, "RepoNotFound", None, r"unknown or private \(it says: no rights\), its neighbours"),
        (404, "", "hf", r"unknown \(it says: no rights\), its neighbours"),
        (418, "", None, r"answered 418 Teapot \(it says: no rights\): check repo and endpoint"),
    ],
)
def test_why_repository_does_not_open(monkeypatch, status, code, token, words):
    repository = Hub(None, "owner/m", "http://127.0.0.1:1", token)
    monkeypatch.setattr(repository, "_revisions", lambda: "main")
    monkeypatch.setattr(repository, "_neighbours", lambda: "its neighbours")
    headers = {"X-Error-Code": code} if code else {}
    refusal = repository._refusal(answered(status, headers, said="no rights"), "v1")
    assert isinstance(refusal, Transient if status == 429 else Refusal) and re.match(
        "http://127.0.0.1:1/owner/m: " + words, str(refusal)
    )


@pytest.mark.parametrize(
    ("there", "told"),
    [
        (["owner/m-GGUF", "owner/other"], "owner/m-GGUF"),
        (["owner/m%d" % number for number in range(9)], "5 of them"),
        (["z/%02d" % number for number in range(12, 0, -1)], ", ".join("z/%02d" % number for number in range(1, 11))),
        ([], None),
    ],
)
def test_nearest_names_or_some_are_told(monkeypatch, there, told):
    repository = Hub(None, "owner/m-GUF", "http://127.0.0.1:1")
    answer = answered(200, parsed=[{"id": name} for name in there] + [7, {"id": 7}])
    monkeypatch.setattr(repository, "_get_json", lambda _url: answer)
    words = repository._neighbours()
    if told == "5 of them":
        assert words.count("owner/m") == 5
    else:
        assert told is None or ("has %s" % told in words and words.endswith(": check the name"))
        assert ("lists no models of owner" in words) is (told is None)


@pytest.mark.parametrize(("size", "read"), [(0, True), (-1, True), (1, False)])
def test_answer_of_hub_has_limit(monkeypatch, size, read):
    body = b"[%s]" % (b" " * ((8 << 20) - 2 + size))
    response = namedtuple("Response", "status headers read isclosed")(200, {}, lambda most: body[:most], lambda: True)
    monkeypatch.setattr(fetch_hub, "get_following", lambda client, url, headers, token: (response, url))
    repository = Hub(None, "owner/m", "http://127.0.0.1:1")
    if read:
        assert repository._get_json("http://127.0.0.1:1/x") == (response, [], "")
    else:
        with pytest.raises(Refusal, match="answers more than 8,388,608 bytes: check endpoint"):
            repository._get_json("http://127.0.0.1:1/x")
