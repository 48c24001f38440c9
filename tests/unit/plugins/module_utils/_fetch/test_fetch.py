# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Acquisition against real servers that misbehave: whatever happens, either the right file is there or none, and the
next run goes on."""

import errno
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._fetch import adopt as fetch_adopt
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._fetch import (
    existing,
    journal,
    resolve,
    transfer,
)
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._fetch import fetch as fetch_fetch
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._fetch import http as fetch_http
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._fetch import target as fetch_target
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._fetch.errors import Stopped
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._fetch.fetch import acquire
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._fetch.request import Request, Watch
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._removal.removal import Removal
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._text import Refusal
from ansible_collections.thefermisea.llama_cluster.tests.unit import gguf_files
from ansible_collections.thefermisea.llama_cluster.tests.unit.fake_hub import COMMIT, FakeHub, Handler
from ansible_collections.thefermisea.llama_cluster.tests.unit.other_users import give_away

MODEL = gguf_files.model(12)
OTHER = gguf_files.model(12, seed=2)
REPO = "owner/m-GGUF"
CUT = 7 << 20
PIECES = {"m.Q8_0.gguf.part1of2": MODEL[:CUT], "m.Q8_0.gguf.part2of2": MODEL[CUT:]}
FILES = list(PIECES)
HERE = os.path.dirname(os.path.abspath(fetch_fetch.__file__))


def sha(data):
    return hashlib.sha256(data).hexdigest()


@pytest.fixture
def fake():
    with FakeHub() as fake:
        fake.add_repo(REPO, PIECES)
        yield fake


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Small chunks, so that small files have many, and short waits between attempts."""
    monkeypatch.setattr(transfer, "_SMALLEST_CHUNK", 1 << 20)
    monkeypatch.setattr(transfer, "_LARGEST_CHUNK", 2 << 20)
    monkeypatch.setattr(transfer, "_FIRST_BACKOFF", 0.001)
    monkeypatch.setattr(transfer, "_TICK", 0.02)
    monkeypatch.setattr(fetch_http, "FIRST_WAIT", 0.01)


def request(dest, fake=None, **options):
    if fake is not None and "repo" in options:
        options["endpoint"] = fake.url
    return Request(str(dest), **options)


def fetch(dest, fake=None, check=False, stopping=None, **options):
    return acquire(request(dest, fake, **options), check, Watch(stopping=stopping))


def left(folder):
    return sorted(path.name for path in folder.iterdir())


def whole(path, data=MODEL):
    return path.read_bytes() == data and left(path.parent) == [path.name, path.name + ".manifest.json"]


def refused(dest, fake=None, **options):
    with pytest.raises(Refusal) as caught:
        fetch(dest, fake, **options)
    assert "\n" not in str(caught.value)
    assert not dest.exists()
    return str(caught.value)


# The straight way


def test_raw_pieces_of_hub_become_one_file(fake, tmp_path, monkeypatch):
    dest = tmp_path / "m.Q8_0.gguf"
    done = fetch(dest, fake, repo=REPO, files=FILES)
    assert whole(dest)
    assert (done["changed"], done["transferred"], done["resumed"], done["verified"], done["commit"]) == (
        True,
        len(MODEL),
        0,
        "sha256",
        COMMIT,
    )
    assert done["files"][0]["pieces"] == [{"size": len(data), "sha256": sha(data)} for data in PIECES.values()]
    assert (done["gguf"]["architecture"], done["gguf"]["expected_size"]) == ("llama", len(MODEL))
    # The next run neither contacts the hub nor reads the file.
    fake.log.clear()
    for module, name in ((existing, "hash_pieces"), (fetch_fetch, "read_header"), (resolve, "read_header")):
        monkeypatch.setattr(module, name, None)
    done = fetch(dest, fake, repo=REPO, files=FILES)
    assert (done["changed"], done["transferred"], done["files"][0]["path"], fake.log) == (False, 0, str(dest), [])


def test_every_byte_crosses_once_over_few_connections(fake, tmp_path):
    fetch(tmp_path / "m.Q8_0.gguf", fake, repo=REPO, files=FILES, connections=4)
    asked = [
        rng
        for _path, rng in fake.bytes_requests()
        if rng and int(rng.split("-")[1]) - int(rng.split("=")[1].split("-")[0]) >= 1
    ]
    header = 1 << 20  # the first window, read to check the header
    assert fake.sent <= len(MODEL) + header + 10
    assert len(asked) >= 7
    assert fake.servers["cdn"].connections <= 4 + 1  # keep-alive: one each, and the one that read the header


def test_token_goes_to_hub_and_never_to_cdn(fake, tmp_path):
    fake.token = "hf_secret"
    fake.add_repo(REPO, PIECES, gated=True)
    fetch(tmp_path / "m.Q8_0.gguf", fake, repo=REPO, files=FILES, token="hf_secret")
    assert {headers.get("Authorization") for server, _path, headers in fake.log if server == "hub"} == {
        "Bearer hf_secret"
    }
    assert {headers.get("Authorization") for server, _path, headers in fake.log if server == "cdn"} == {None}
    for path in tmp_path.iterdir():
        assert b"hf_secret" not in path.read_bytes()


def test_one_plain_url(fake, tmp_path):
    url = fake.add_plain("m.gguf", MODEL)
    done = fetch(str(tmp_path) + "/", urls=[url + "?X-Amz-Signature=secret"], token="hf_secret")
    assert {headers.get("Authorization") for _server, _path, headers in fake.log} == {None}
    assert whole(tmp_path / "m.gguf")
    assert (done["verified"], done["sha256"], done["commit"]) == ("size and header", sha(MODEL), None)
    assert "secret" not in (tmp_path / "m.gguf.manifest.json").read_text()


@pytest.mark.parametrize("as_path", [True, False])
def test_files_of_node(tmp_path, as_path):
    sources = []
    for name, data in PIECES.items():
        (tmp_path / "from").mkdir(exist_ok=True)
        (tmp_path / "from" / name).write_bytes(data)
        sources.append(str(tmp_path / "from" / name) if as_path else (tmp_path / "from" / name).as_uri())
    (tmp_path / "to").mkdir()
    fetch(tmp_path / "to" / "m.gguf", urls=sources, sha256=[sha(data) for data in PIECES.values()])
    assert whole(tmp_path / "to" / "m.gguf")
    assert len(list((tmp_path / "from").iterdir())) == 2


def test_shards_stay_shards_and_are_named_by_first(fake, tmp_path):
    parts = dict(zip(["m-00001-of-00003.gguf", "m-00002-of-00003.gguf", "m-00003-of-00003.gguf"], gguf_files.shards(3)))
    fake.add_repo("owner/split", {"Q8_0/" + name: data for name, data in parts.items()})
    done = fetch(tmp_path / "whatever.gguf", fake, repo="owner/split", files=["Q8_0/m-00001-of-00003.gguf"])
    assert done["dest"] == str(tmp_path / "m-00001-of-00003.gguf")
    assert {path.name: path.read_bytes() for path in tmp_path.glob("*.gguf")} == parts
    assert left(tmp_path) == [*parts][:1] + ["m-00001-of-00003.gguf.manifest.json"] + [*parts][1:]
    assert (
        fetch(tmp_path / "whatever.gguf", fake, repo="owner/split", files=["Q8_0/m-00001-of-00003.gguf"])["changed"]
        is False
    )
    (tmp_path / "m-00002-of-00003.gguf").unlink()
    again = fetch(tmp_path / "whatever.gguf", fake, repo="owner/split", files=["Q8_0/m-00001-of-00003.gguf"])
    assert (again["changed"], again["transferred"]) == (True, len(parts["m-00002-of-00003.gguf"]))
    assert (tmp_path / "m-00002-of-00003.gguf").read_bytes() == parts["m-00002-of-00003.gguf"]


def copied(result, url):
    """The option copy_of for what another node said of its model."""
    return {"url": url, "files": result["files"], "commit": result["commit"]}


def test_copy_is_known_by_its_origin(fake, tmp_path, monkeypatch):
    first = fetch(tmp_path / "m.gguf", fake, repo=REPO, files=FILES)
    lender = fake.add_plain("m.gguf", MODEL).rpartition("/")[0]
    (tmp_path / "second").mkdir()
    dest = tmp_path / "second/m.gguf"
    fake.log.clear()
    planned = fetch(dest, fake, check=True, repo=REPO, files=FILES, copy_of=copied(first, lender))
    assert (planned["changed"], planned["size"], left(tmp_path / "second"), fake.log) == (True, len(MODEL), [], [])
    done = fetch(dest, fake, repo=REPO, files=FILES, copy_of=copied(first, lender + "/"))
    assert (whole(dest), done["transferred"], done["verified"]) == (True, len(MODEL), "sha256")
    assert (done["files"][0]["pieces"], done["commit"]) == (first["files"][0]["pieces"], COMMIT)
    assert {path for _server, path, _headers in fake.log} == {"/files/m.gguf"}
    monkeypatch.setattr(fetch_fetch, "Client", None)
    for again in ({}, {"copy_of": copied(first, "http://127.0.0.1:9/")}):
        assert fetch(dest, fake, repo=REPO, files=FILES, **again)["changed"] is False


def test_shards_are_copied_each_by_its_own_digest(fake, tmp_path):
    names = ["m-%05d-of-00003.gguf" % number for number in (1, 2, 3)]
    files = dict(zip(names, gguf_files.shards(3)))
    urls = [fake.add_plain(name, files[name]) for name in names]
    first = fetch(str(tmp_path) + "/", urls=urls)
    (tmp_path / "second").mkdir()
    done = fetch(
        str(tmp_path / "second") + "/",
        urls=["http://127.0.0.1:9/" + name for name in names],
        copy_of=copied(first, urls[0].rpartition("/")[0]),
    )
    assert (done["verified"], done["transferred"]) == ("sha256", sum(map(len, files.values())))
    assert all((tmp_path / "second" / name).read_bytes() == files[name] for name in names)


def test_check_mode_finds_out_and_changes_nothing(fake, tmp_path):
    done = fetch(tmp_path / "m.gguf", fake, check=True, repo=REPO, files=FILES)
    assert (done["changed"], done["transferred"], done["size"], done["gguf"]["quantization"]) == (
        True,
        0,
        len(MODEL),
        "F16",
    )
    assert left(tmp_path) == []
    assert fake.sent < 2 << 20
    done = fetch(tmp_path / "not" / "yet" / "there" / "m.gguf", fake, check=True, repo=REPO, files=FILES)
    assert (done["changed"], left(tmp_path)) == (True, [])


@pytest.mark.parametrize(
    ("make", "options", "words"),
    [
        (None, {"sha256": [sha(MODEL)]}, "copy_of: m.gguf has sha256 %s, %s needed" % (sha(OTHER), sha(MODEL))),
        (None, {"copy_of": {"url": "http://127.0.0.1:9/", "files": []}}, "copy_of: no files given"),
        ("found", {}, "copy_of: m.gguf has no sha256 on the node that has it, one is needed"),
    ],
)
def test_unusable_copies_are_refused(fake, tmp_path, make, options, words):
    url = fake.add_plain("m.gguf", OTHER)
    if make:
        (tmp_path / "m.gguf").write_bytes(OTHER)
    first = fetch(tmp_path / "m.gguf", urls=[url])
    (tmp_path / "second").mkdir()
    given = {"copy_of": copied(first, url.rpartition("/")[0]), **options}
    assert words in refused(tmp_path / "second/m.gguf", urls=[url], **given)
    hashed = fetch(tmp_path / "m.gguf", urls=[url], full=True)
    done = fetch(tmp_path / "second/m.gguf", urls=[url], copy_of=copied(hashed, url.rpartition("/")[0]))
    assert done["verified"] == "sha256"


# Refused before the large transfer


TWO, THREE = gguf_files.shards(2), gguf_files.shards(3)


@pytest.mark.parametrize(
    ("pieces", "words"),
    [
        ({"m.gguf": MODEL[:CUT]}, "/files/m.gguf: 7,340,032 bytes present, {:,} bytes needed by its header"),
        ({"a": MODEL[:CUT], "b": OTHER[CUT:-1]}, "a piece is missing or belongs to another model"),
        ({"b": MODEL[CUT:], "a": MODEL[:CUT]}, "not a model, or a later piece of one"),
        ({"m-00001-of-00002.gguf": TWO[0], "m-00002-of-00002.gguf": THREE[1]}, "its header names 3 shards, 2 given"),
    ],
)
def test_header_refuses_wrong_pieces(fake, tmp_path, pieces, words):
    text = refused(tmp_path / "m.gguf", urls=[fake.add_plain(name, data) for name, data in pieces.items()])
    assert words.format(len(MODEL)) in text
    assert fake.sent <= (1 << 20) + 2 and left(tmp_path) == []


@pytest.mark.parametrize(
    ("name", "dest", "words"),
    [
        ("m.gguf", "model", "does not end in .gguf"),
        ("m.gguf", "none/m.gguf", "is not a directory: create it first"),
        *((name, "", "is hidden, has more than 220 bytes") for name in (".gguf", "a\nb.gguf", "a" * 300 + ".gguf")),
    ],
)
def test_unusable_destination_is_refused(fake, tmp_path, name, dest, words):
    with pytest.raises(Refusal, match=words):
        fetch(str(tmp_path) + "/" + dest, urls=[fake.add_plain(name, MODEL)])
    assert left(tmp_path) == []


def test_hub_digests_must_match_given_ones(fake, tmp_path):
    digests = [sha(data) for data in PIECES.values()]
    text = refused(tmp_path / "m.gguf", fake, repo=REPO, files=FILES, sha256=digests[::-1])
    assert text.startswith("m.Q8_0.gguf.part1of2: the hub reports sha256 %s, %s needed" % tuple(digests))
    text = refused(tmp_path / "m.gguf", fake, repo=REPO, files=FILES, sha256=digests[:1])
    assert text == "sha256: 1 digests given, owner/m-GGUF has 2 files: give one per file"


def test_full_disk_is_refused_before_first_byte(fake, tmp_path, monkeypatch):
    monkeypatch.setattr(fetch_target, "free_disk", lambda folder: 12300000)
    text = refused(tmp_path / "m.Q8_0.gguf", fake, repo=REPO, files=FILES)
    assert (
        text
        == "%s has 12.3 MB free, m.Q8_0.gguf needs 12.6 MB and 67.1 MB to spare: free space or set dest elsewhere"
        % tmp_path
    )
    assert left(tmp_path) == []


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"urls": ["ftp://host/m.gguf"]}, "an http, https or file URL is needed"),
        (
            {"urls": ["file:///no/such.gguf"]},
            " on %s: no such regular file: check the path there" % os.uname().nodename,
        ),
        ({"urls": ["file:///proc/self"]}, "no such regular file"),
        ({"urls": ["file:///a.gguf"], "sha256": ["abc"]}, "no sha256 digest"),
        ({"urls": ["file:///a.gguf"], "sha256": ["0" * 64] * 2}, "2 digests given for 1 urls"),
        ({"repo": "a/b"}, "may hold several models"),
        ({"urls": ["file:///a.gguf"], "connections": 17}, "connections: 17 given, 1 to 16 are possible"),
        ({"urls": ["file:///a.gguf"], "connections": 0}, "connections: 0 given, 1 to 16 are possible"),
        ({"urls": ["file:///m.gguf.part1of2"]}, "m.gguf: pieces [1] given, [1, 2] needed"),
        ({"urls": ["file:///m.gguf.part2of2", "file:///m.gguf.part1of2"]}, "are not in order: give them by number"),
        (
            {"urls": ["file:///m-00002-of-00002.gguf", "file:///m-00001-of-00002.gguf"]},
            "are not in order: give them by number",
        ),
    ],
)
def test_requests_that_cannot_be_met(tmp_path, options, words):
    assert words in refused(tmp_path / "m.gguf", **options)


# Faults in the middle


def test_broken_connections_are_continued(fake, tmp_path):
    fake.cuts = [300000, 0, 1500000, 10] * 3
    done = fetch(tmp_path / "m.gguf", fake, repo=REPO, files=FILES)
    assert (whole(tmp_path / "m.gguf"), done["transferred"]) == (True, len(MODEL))


def test_expired_signed_urls_are_resolved_again(fake, tmp_path):
    fake.expire_every = 5
    fetch(tmp_path / "m.gguf", fake, repo=REPO, files=FILES)
    assert whole(tmp_path / "m.gguf")
    assert fake.expired > 1


def test_lost_access_ends_run_resumably(fake, tmp_path):
    def lose(name, start, end):
        if fake.sent > 4 << 20:
            fake.token, fake.signature = "hf_other", fake.signature + 1

    fake.token = "hf_secret"
    fake.add_repo(REPO, PIECES, gated=True)
    fake.on_bytes = lose
    assert "answered 401" in refused(tmp_path / "m.gguf", fake, repo=REPO, files=FILES, token="hf_secret")
    fake.on_bytes, fake.token = None, "hf_secret"
    done = fetch(tmp_path / "m.gguf", fake, repo=REPO, files=FILES, token="hf_secret")
    assert done["resumed"] > 0
    assert done["resumed"] + done["transferred"] == len(MODEL)


class Dripping:
    """From four MiB on, some connections of a fake hub send single bytes until the client closes them."""

    def __init__(self, monkeypatch, fake, connections=1):
        self.left, self.slowed = connections, []
        send_body = Handler.send_body

        def drip(handler, view, cut):
            with fake.lock:
                slow = len(view) > 1 and fake.sent > 4 << 20 and self.left > 0
                self.left -= slow
            if not slow:
                return send_body(handler, view, cut)
            self.slowed.append(len(view))
            handler.close_connection = True
            for position in range(len(view)):
                handler.wfile.write(view[position : position + 1])
                time.sleep(0.02)
            return None

        monkeypatch.setattr(Handler, "send_body", drip)


def test_dripping_connection_is_continued(fake, tmp_path, monkeypatch):
    monkeypatch.setattr(fetch_http, "_LOWEST_OVER", 0.2)
    slow = Dripping(monkeypatch, fake, connections=2)
    done = fetch(tmp_path / "m.gguf", urls=[fake.add_plain("m.gguf", MODEL)], connections=1)
    assert (whole(tmp_path / "m.gguf"), done["transferred"], len(slow.slowed)) == (True, len(MODEL), 2)


def test_file_replaced_during_transfer_is_not_spliced(fake, tmp_path):
    url = fake.add_plain("m.gguf", MODEL)

    def replace(name, start, end):
        if fake.sent > 4 << 20:
            fake.on_bytes = None
            fake.add_plain("m.gguf", OTHER)

    fake.on_bytes = replace
    assert "changed on the server" in refused(tmp_path / "m.gguf", urls=[url])
    fetch(tmp_path / "m.gguf", urls=[url])
    assert whole(tmp_path / "m.gguf", OTHER)


def interrupted(fake, dest, **options):
    """Run until some bytes are there, then stop; -> bytes the server has sent."""
    fake.rate = 4 << 20
    with pytest.raises(Stopped):
        fetch(dest, fake, stopping=lambda: "stopped" if fake.sent > 6 << 20 else None, connections=4, **options)
    fake.rate = 0
    assert not dest.exists()
    return fake.sent


def test_stopped_run_is_resumed_without_fetching_again(fake, tmp_path):
    sent = interrupted(fake, tmp_path / "m.gguf", repo=REPO, files=FILES)
    assert left(tmp_path) == ["m.gguf.partial", "m.gguf.partial.journal"]
    done = fetch(tmp_path / "m.gguf", fake, repo=REPO, files=FILES)
    assert whole(tmp_path / "m.gguf")
    assert done["resumed"] + done["transferred"] == len(MODEL)
    assert done["resumed"] > sent - (5 << 20)


def test_file_replaced_between_two_runs_starts_over(fake, tmp_path):
    url = fake.add_plain("m.gguf", MODEL)
    interrupted(fake, tmp_path / "m.gguf", urls=[url])
    fake.add_plain("m.gguf", OTHER)
    assert fetch(tmp_path / "m.gguf", urls=[url])["resumed"] == 0
    assert whole(tmp_path / "m.gguf", OTHER)


def test_without_validator_and_digest_nothing_is_resumed(fake, tmp_path):
    fake.validators = False
    url = fake.add_plain("m.gguf", MODEL)
    interrupted(fake, tmp_path / "m.gguf", urls=[url])
    assert fetch(tmp_path / "m.gguf", urls=[url])["resumed"] == 0
    assert whole(tmp_path / "m.gguf")


def test_after_reboot_only_what_was_flushed_is_trusted(fake, tmp_path, monkeypatch):
    monkeypatch.setattr(transfer.Transfer, "_keep", lambda self: None)  # the machine dies without a last flush
    interrupted(fake, tmp_path / "m.gguf", repo=REPO, files=FILES)
    with open(tmp_path / "m.gguf.partial", "r+b") as partial:
        partial.write(bytes(len(MODEL)))  # what had not reached the disk is lost
    monkeypatch.setattr(journal, "boot_id", lambda: "another boot")
    done = fetch(tmp_path / "m.gguf", fake, repo=REPO, files=FILES)
    assert (done["resumed"], done["transferred"]) == (0, len(MODEL))
    assert whole(tmp_path / "m.gguf")


def fail_once(monkeypatch, function, path, after):
    """From when ``after()`` holds, the next call of os.``function`` for ``path`` fails as a disk does: later ones say
    that all is well. -> calls that failed"""
    real, failed = getattr(os, function), []

    def call(fd):
        if not failed and os.readlink("/proc/self/fd/%d" % fd) == str(path) and after():
            failed.append(fd)
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return real(fd)

    monkeypatch.setattr(os, function, call)
    return failed


def test_failed_flush_keeps_only_flushed_bytes(fake, tmp_path, monkeypatch):
    monkeypatch.setattr(transfer, "_FLUSH_EVERY", 0.05)
    fake.rate = 4 << 20
    url = fake.add_plain("m.gguf", MODEL)
    failed = fail_once(monkeypatch, "fdatasync", tmp_path / "m.gguf.partial", lambda: fake.sent > 6 << 20)
    assert refused(tmp_path / "m.gguf", urls=[url], connections=2).endswith(
        "m.gguf.partial: cannot be written: Input/output error"
    )
    assert failed
    lines = (tmp_path / "m.gguf.partial.journal").read_bytes().splitlines()[1:]
    kept = sum(int(line.split()[2]) for line in lines if line.startswith(b"w"))
    assert 0 < kept < fake.sent - (1 << 18)
    assert lines[-1] == b"d %d" % (len(lines) - 1)
    fake.rate = 0
    assert fetch(tmp_path / "m.gguf", urls=[url])["resumed"] == kept
    assert whole(tmp_path / "m.gguf")


def test_failed_last_flush_publishes_nothing(fake, tmp_path, monkeypatch):
    url = fake.add_plain("m.gguf", MODEL)
    failed = fail_once(monkeypatch, "fdatasync", tmp_path / "m.gguf.partial", lambda: fake.sent >= len(MODEL))
    assert refused(tmp_path / "m.gguf", urls=[url]).endswith("cannot be written: Input/output error")
    assert failed
    assert fetch(tmp_path / "m.gguf", urls=[url])["resumed"] == 0
    assert whole(tmp_path / "m.gguf")


@pytest.mark.parametrize("check", [True, False])
def test_other_source_without_digest_is_refused(fake, tmp_path, check):
    fetch(tmp_path / "m.gguf", urls=[fake.add_plain("m.gguf", MODEL) + "?X-Amz-Signature=secret"])
    assert "secret" not in (tmp_path / "m.gguf.manifest.json").read_text()
    # Two trainings of one model have one header.
    with pytest.raises(Refusal, match="is there from another source, and without a sha256 it may differ"):
        fetch(tmp_path / "m.gguf", check=check, urls=[fake.add_plain("n.gguf", OTHER)])
    with pytest.raises(Refusal, match="is there, but its header is not that of n.gguf"):
        url = fake.add_plain("n.gguf", gguf_files.model(12, name="mine model"))
        fetch(tmp_path / "m.gguf", check=check, urls=[url])


def test_dropped_digest_is_same_source(fake, tmp_path):
    url = fake.add_plain("m.gguf", MODEL)
    fetch(tmp_path / "m.gguf", urls=[url], sha256=[hashlib.sha256(MODEL).hexdigest()])
    done = fetch(tmp_path / "m.gguf", urls=[url])
    assert done["msg"].endswith("is there and has the source's size and header")
    assert fetch(tmp_path / "m.gguf", urls=[url])["msg"].endswith("untouched since it was published")


def test_wrong_digest_publishes_nothing_and_keeps_good_piece(fake, tmp_path):
    first, second = PIECES
    damaged = PIECES[second][:-9] + bytes([PIECES[second][-9] ^ 4]) + PIECES[second][-8:]
    urls = [fake.add_plain(first, PIECES[first]), fake.add_plain(second, damaged)]
    needed = [sha(data) for data in PIECES.values()]
    text = refused(tmp_path / "m.gguf", urls=urls, sha256=needed)
    assert text == "%s: sha256 is %s, %s needed: source or transfer is damaged, the next run fetches it again" % (
        second,
        sha(damaged),
        needed[1],
    )
    fake.add_plain(second, PIECES[second])
    done = fetch(tmp_path / "m.gguf", urls=urls, sha256=needed)
    assert done["transferred"] >= len(PIECES[second])
    assert whole(tmp_path / "m.gguf")


def test_two_runs_do_not_meet(fake, tmp_path):
    with fetch_fetch.lock(str(tmp_path / "m.gguf")):
        text = refused(tmp_path / "m.gguf", fake, repo=REPO, files=FILES)
    assert text == "%s: another run is fetching it: wait for that one" % (tmp_path / "m.gguf")
    assert left(tmp_path) == []


RUN = """
import json, sys
sys.path.insert(0, %r)
from module_utils._fetch import target, transfer
from module_utils._fetch.fetch import acquire
from module_utils._fetch.request import Request, Watch
from module_utils._text import Refusal
transfer._FLUSH_EVERY = 0.05
%s
print(json.dumps(acquire(Request(**json.loads(sys.argv[1])))))
"""


def process(options, setup="", prefix=()):
    code = RUN % (os.path.dirname(os.path.dirname(HERE)), setup)
    return subprocess.Popen(
        [*prefix, sys.executable, "-c", code, json.dumps(options)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_kill_loses_only_bytes_in_flight(fake, tmp_path):
    options = {"dest": str(tmp_path / "m.gguf"), "repo": REPO, "files": FILES, "endpoint": fake.url, "connections": 4}
    fake.rate = 2 << 20
    running = process(options)
    while fake.sent < 6 << 20:
        time.sleep(0.01)
        assert running.poll() is None, running.communicate()
    running.send_signal(signal.SIGKILL)
    running.communicate()
    sent, fake.rate = fake.sent, 0
    done = json.loads(process(options).communicate(timeout=120)[0])
    assert whole(tmp_path / "m.gguf")
    # A block and what the sockets held, per connection.
    assert done["resumed"] >= sent - (1 << 20) - 4 * ((1 << 20) + (1 << 19))
    assert done["resumed"] + done["transferred"] == len(MODEL)


MOUNT_OWN_TMPFS = (
    "unshare",
    "--user",
    "--map-root-user",
    "--mount",
    "sh",
    "-c",
    'mount -t tmpfs -o size=24m,mode=0755 tmpfs "$0" && exec "$@"',
)


def namespaces():
    unshare = ["unshare", "--user", "--map-root-user", "--mount", "true"]
    return shutil.which("unshare") and subprocess.run(unshare, check=False, capture_output=True).returncode == 0


@pytest.mark.skipif(not namespaces(), reason="no user namespaces")
def test_disk_that_fills_up_meanwhile_ends_run_resumably(fake, tmp_path):
    # As on a file system that cannot reserve blocks, another writer takes the space; afterwards it goes away again.
    setup = """
import contextlib, os
target._allocate = lambda fd, size: os.ftruncate(fd, size)
target.MARGIN = 0
options = json.loads(sys.argv[1])
other = os.path.dirname(options["dest"]) + "/other"
def fill(state):
    if not os.path.exists(other):
        # Its own failure, where much was fetched before, is not the run's.
        with contextlib.suppress(OSError), open(other, "wb", buffering=0) as stream:
            stream.write(bytes(20 << 20))
try:
    acquire(Request(**options), watch=Watch(fill))
except Refusal as error:
    print(error, os.listdir(os.path.dirname(options["dest"])))
os.unlink(other)
"""
    fake.rate = 4 << 20
    options = {"dest": str(tmp_path / "m.gguf"), "repo": REPO, "files": FILES, "endpoint": fake.url, "connections": 4}
    out, err = process(options, setup, [*MOUNT_OWN_TMPFS, str(tmp_path)]).communicate(timeout=120)
    assert err == ""
    first, second = out.splitlines()
    assert "m.gguf.partial: the disk is full (" in first
    assert "free space and run again, what was fetched is kept [" in first
    assert first.count("m.gguf.partial'") == first.count("m.gguf.partial.journal'") == first.count("'other'") == 1
    assert ".journal.partial" not in first
    done = json.loads(second)
    assert done["resumed"] > 0
    assert done["resumed"] + done["transferred"] == len(MODEL)


# Existing files


def test_good_file_of_operator_gets_manifest(fake, tmp_path):
    (tmp_path / "m.gguf").write_bytes(MODEL)
    done = fetch(tmp_path / "m.gguf", fake, repo=REPO, files=FILES)
    assert (done["changed"], done["transferred"], done["verified"]) == (True, 0, "sha256")
    assert whole(tmp_path / "m.gguf")
    assert fetch(tmp_path / "m.gguf", fake, repo=REPO, files=FILES)["changed"] is False
    # The record tells it from one that was fetched, also after it was hashed again.
    fetch(tmp_path / "m.gguf", fake, repo=REPO, files=FILES, full=True)
    removal = Removal()
    removal.models(str(tmp_path))
    assert left(tmp_path) == ["m.gguf"]


@pytest.mark.parametrize("check", [True, False])
def test_another_file_under_name_is_refused_and_left(fake, tmp_path, check):
    url = fake.add_plain("m.gguf", MODEL)
    for data, words in (
        (MODEL[:-1], "is there with {:,} bytes".format(len(MODEL) - 1)),
        (OTHER, "its sha256 is not that of m.gguf"),
    ):
        (tmp_path / "m.gguf").write_bytes(data)
        with pytest.raises(Refusal, match=words):
            fetch(tmp_path / "m.gguf", check=check, urls=[url], sha256=[sha(MODEL)])
        assert (tmp_path / "m.gguf").read_bytes() == data
        assert left(tmp_path) == ["m.gguf"]


def test_without_digest_the_header_decides(fake, tmp_path):
    url = fake.add_plain("m.gguf", gguf_files.model(12, name="mine model"))
    (tmp_path / "m.gguf").write_bytes(MODEL)
    with pytest.raises(Refusal, match="its header is not that of m.gguf"):
        fetch(tmp_path / "m.gguf", urls=[url])
    assert fetch(tmp_path / "m.gguf", urls=[fake.add_plain("m.gguf", MODEL)])["verified"] == "size and header"


def flip(path):
    with open(path, "r+b") as stream:
        stream.seek(-5, os.SEEK_END)
        stream.write(b"X")


def cut(path):
    os.truncate(path, 1000)


def grow(path):
    with open(path, "ab") as stream:
        stream.write(b"more")


@pytest.mark.parametrize("damage", [flip, cut, grow, lambda path: os.truncate(path, 0)])
def test_damaged_published_model_is_fetched_again(fake, tmp_path, damage):
    dest = tmp_path / "m.gguf"
    fetch(dest, fake, repo=REPO, files=FILES)
    damage(dest)
    data = dest.read_bytes()
    foretold = fetch(dest, fake, check=True, repo=REPO, files=FILES)
    assert (foretold["changed"], dest.read_bytes()) == (True, data)
    assert foretold["msg"].endswith("would be fetched again, because what is there is damaged")
    done = fetch(dest, fake, repo=REPO, files=FILES)
    assert (done["transferred"], done["changed"], whole(dest)) == (len(MODEL), True, True)
    assert done["msg"].endswith("in the place of a damaged file")
    assert fetch(dest, fake, repo=REPO, files=FILES)["changed"] is False


def test_damage_under_unchanged_time_is_found_by_hashing(fake, tmp_path):
    dest = tmp_path / "m.gguf"
    fetch(dest, fake, repo=REPO, files=FILES)
    os.utime(dest, (1, 1))
    before = (tmp_path / "m.gguf.manifest.json").read_text()
    for check, words in ((True, "hashed again"), (False, "hashed again"), (False, "untouched since it was published")):
        assert ((tmp_path / "m.gguf.manifest.json").read_text() == before) or not check
        assert fetch(dest, fake, check=check, repo=REPO, files=FILES)["msg"].endswith(words)
    flip(dest)
    os.utime(dest, (1, 1))
    assert fetch(dest, fake, repo=REPO, files=FILES)["changed"] is False
    assert fetch(dest, fake, repo=REPO, files=FILES, full=True)["changed"] is True
    assert whole(dest)


def test_damaged_model_goes_first_where_disk_holds_one(fake, tmp_path, monkeypatch):
    dest = tmp_path / "m.gguf"
    fetch(dest, fake, repo=REPO, files=FILES)
    flip(dest)
    room = len(MODEL) + fetch_target.MARGIN

    def free(folder):
        return room - (os.stat(dest).st_blocks * 512 if dest.exists() else 0)

    monkeypatch.setattr(fetch_fetch, "free_disk", free)
    monkeypatch.setattr(fetch_target, "free_disk", free)
    assert fetch(dest, fake, check=True, repo=REPO, files=FILES)["changed"] is True
    assert dest.exists()
    assert fetch(dest, fake, repo=REPO, files=FILES)["changed"] is True
    assert whole(dest)


@pytest.mark.parametrize("number", [0, 2])
def test_damaged_shard_leaves_whole_ones(fake, tmp_path, monkeypatch, number):
    names = ["m-0000%d-of-00003.gguf" % (place + 1) for place in range(3)]
    files = dict(zip(names, gguf_files.shards(3)))
    fake.add_repo("owner/s-GGUF", files)
    fetch(tmp_path / "m.gguf", fake, repo="owner/s-GGUF", files=names)
    os.truncate(tmp_path / names[number], 500)
    monkeypatch.setattr(existing, "hash_pieces", None)  # the whole ones are known by the record
    done = fetch(tmp_path / "m.gguf", fake, repo="owner/s-GGUF", files=names)
    assert done["transferred"] == len(files[names[number]])
    assert [(tmp_path / name).read_bytes() for name in names] == list(files.values())


def test_same_content_from_another_source_only_renews_manifest(fake, tmp_path, monkeypatch):
    fetch(tmp_path / "m.gguf", fake, repo=REPO, files=FILES)
    monkeypatch.setattr(existing, "hash_pieces", None)  # the digests are in the manifest
    done = fetch(tmp_path / "m.gguf", fake, repo=REPO, files=sorted(PIECES))
    assert (done["changed"], done["transferred"]) == (False, 0)
    assert json.loads((tmp_path / "m.gguf.manifest.json").read_text())["request"]["files"] == sorted(PIECES)


OTHERS = {
    "owner": give_away,
    "group": lambda path: os.chmod(path, 0o775),
    "all": lambda path: os.chmod(path, 0o757),
}


@pytest.mark.parametrize("check", [True, False])
@pytest.mark.parametrize("spoil", OTHERS.values(), ids=list(OTHERS))
def test_folder_of_others_is_refused(fake, tmp_path, spoil, check):
    folder = tmp_path / "models"
    folder.mkdir()
    spoil(folder)
    with pytest.raises(Refusal, match="^%s: it.*root" % folder):
        fetch(folder / "m.gguf", fake, check=check, repo=REPO, files=FILES)
    assert (left(folder), fake.log) == ([], [])


def rename_away(path):
    """Put another file in the place of a model: it has another inode."""
    path.rename(path.parent / "kept")
    path.write_bytes(MODEL[:1000])


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (give_away, "a regular file of root's with one name is needed: chown root it"),
        (lambda path: (path.rename(path.parent / "x"), path.symlink_to(path.parent / "x")), "a regular file of root's"),
        (lambda path: os.link(path, path.parent / "x"), "a regular file of root's with one name"),
        (rename_away, "has 1,000 bytes, .* were published: remove it and run again"),
    ],
    ids=["owner", "link", "second-name", "inode"],
)
@pytest.mark.parametrize("check", [True, False])
def test_model_that_was_replaced_is_refused(fake, tmp_path, spoil, words, check):
    dest = tmp_path / "m.gguf"
    fetch(dest, fake, repo=REPO, files=FILES)
    spoil(dest)
    with pytest.raises(Refusal, match=words):
        fetch(dest, fake, check=check, repo=REPO, files=FILES)
    assert os.path.lexists(dest)


def test_file_on_node_is_used_where_it_lies(tmp_path):
    (tmp_path / "m.gguf").write_bytes(MODEL)
    inode = (tmp_path / "m.gguf").stat().st_ino
    for changed in (True, False):
        done = fetch(tmp_path / "m.gguf", urls=["file://%s/m.gguf" % tmp_path])
        assert (done["changed"], done["transferred"]) == (changed, 0)
    assert (tmp_path / "m.gguf").stat().st_ino == inode and whole(tmp_path / "m.gguf")


# Adoption of pieces


def loose(tmp_path, *names):
    """Put these pieces, all without names, into the folder. -> their paths"""
    paths = []
    for name in names or PIECES:
        (tmp_path / name).write_bytes(PIECES[name])
        paths.append(str(tmp_path / name))
    return paths


@pytest.mark.parametrize("names", [FILES, FILES[:1], FILES[1:]])
def test_loose_pieces_become_file(fake, tmp_path, names):
    paths = loose(tmp_path, *names)
    adopted = sum(len(PIECES[name]) for name in names)
    done = fetch(tmp_path / "m.gguf", fake, repo=REPO, files=FILES, adopt=paths)
    assert whole(tmp_path / "m.gguf")
    assert (done["adopted"], done["transferred"]) == (adopted, len(MODEL) - adopted)
    assert fetch(tmp_path / "m.gguf", fake, repo=REPO, files=FILES, adopt=paths)["changed"] is False


def test_adoption_needs_one_piece_of_extra_disk(fake, tmp_path, monkeypatch):
    paths = loose(tmp_path)
    peaks = []

    def blocks():
        peaks.append(sum(path.stat().st_blocks * 512 for path in tmp_path.iterdir()))

    unlink, fdatasync = os.unlink, os.fdatasync
    monkeypatch.setattr(os, "unlink", lambda path, **folder: (blocks(), unlink(path, **folder)))
    monkeypatch.setattr(os, "fdatasync", lambda fd: (blocks(), fdatasync(fd)))
    fetch(tmp_path / "m.gguf", fake, repo=REPO, files=FILES, adopt=paths)
    assert max(peaks) <= len(MODEL) + len(MODEL) - CUT + (1 << 20)


def test_damaged_loose_piece_consumes_nothing(fake, tmp_path):
    paths = loose(tmp_path)
    data = bytearray(PIECES["m.Q8_0.gguf.part2of2"])
    data[1000] ^= 1
    (tmp_path / "m.Q8_0.gguf.part2of2").write_bytes(bytes(data))
    text = refused(tmp_path / "m.gguf", fake, repo=REPO, files=FILES, adopt=paths)
    assert text.startswith("adopt: %s has sha256 " % paths[1])
    assert left(tmp_path) == FILES and (tmp_path / "m.Q8_0.gguf.part2of2").read_bytes() == bytes(data)


def test_file_with_name_of_no_piece_is_refused(fake, tmp_path):
    paths = loose(tmp_path)
    os.rename(paths[1], tmp_path / "other.gguf")
    given = [paths[0], str(tmp_path / "other.gguf")]
    text = refused(tmp_path / "m.gguf", fake, repo=REPO, files=FILES, adopt=given)
    assert text == "adopt: %s: no missing piece has this name, they are %s: rename, move or remove it" % (
        given[1],
        ", ".join(FILES),
    )
    assert left(tmp_path) == [FILES[0], "other.gguf"]
    os.rename(given[1], paths[1])
    fetch(tmp_path / "m.gguf", fake, repo=REPO, files=FILES, adopt=paths)
    (tmp_path / "other.gguf").write_bytes(b"x")
    assert fetch(tmp_path / "m.gguf", fake, repo=REPO, files=FILES, adopt=given, full=True)["adopted"] == 0


@pytest.mark.parametrize("change", [flip, cut, lambda path: os.truncate(path, 0)], ids=["flip", "cut", "empty"])
def test_piece_that_changes_meanwhile_is_kept(fake, tmp_path, monkeypatch, change):
    paths = loose(tmp_path)
    verify = fetch_adopt._verify
    monkeypatch.setattr(fetch_adopt, "_verify", lambda piece, advance: (verify(piece, advance), change(paths[1])))
    text = refused(tmp_path / "m.gguf", fake, repo=REPO, files=FILES, adopt=paths[1:])
    assert text == "adopt: %s changed while it was read: run again" % paths[1]
    assert os.path.exists(paths[1])
    (tmp_path / FILES[1]).write_bytes(PIECES[FILES[1]])
    monkeypatch.setattr(fetch_adopt, "_verify", verify)
    fetch(tmp_path / "m.gguf", fake, repo=REPO, files=FILES, adopt=paths)
    assert whole(tmp_path / "m.gguf")


@pytest.mark.parametrize(
    ("data", "words"), [(b"x", "has 1 bytes, 12,"), (MODEL, "no sha256 of m.gguf is known, one is needed to use it: ")]
)
def test_unusable_loose_file_is_refused(fake, tmp_path, data, words):
    (tmp_path / "loose").mkdir()
    (tmp_path / "loose/m.gguf").write_bytes(data)
    url = fake.add_plain("m.gguf", MODEL)
    text = refused(tmp_path / "m.gguf", urls=[url], adopt=[str(tmp_path / "loose/m.gguf")])
    assert text.startswith("adopt: %s/loose/m.gguf" % tmp_path) and words in text
    assert left(tmp_path) == ["loose"] and left(tmp_path / "loose") == ["m.gguf"]


@pytest.mark.parametrize(
    "spoil",
    [
        give_away,
        lambda path: os.chmod(path, 0o664),
        lambda path: (os.rename(path, path + "x"), os.symlink(path + "x", path)),
        lambda path: (os.unlink(path), os.mkfifo(path)),
    ],
    ids=["owner", "mode", "link", "fifo"],
)
def test_piece_that_others_may_change_is_refused(fake, tmp_path, spoil):
    paths = loose(tmp_path)
    spoil(paths[0])
    text = refused(tmp_path / "m.gguf", fake, repo=REPO, files=FILES, adopt=paths)
    assert text.startswith(paths[0] + ": ")
    assert os.path.lexists(paths[0]) and os.path.lexists(paths[1])


def test_piece_with_second_name_is_copied(fake, tmp_path):
    paths = loose(tmp_path)
    os.link(paths[0], tmp_path / "kept")
    fetch(tmp_path / "m.gguf", fake, repo=REPO, files=FILES, adopt=paths)
    assert (tmp_path / "kept").read_bytes() == MODEL[:CUT]
    assert (tmp_path / "m.gguf").read_bytes() == MODEL and not os.path.exists(paths[0])


def test_model_from_another_folder_moves(fake, tmp_path):
    (tmp_path / "old").mkdir()
    (tmp_path / "new").mkdir()
    (tmp_path / "old" / "m.gguf").write_bytes(MODEL)
    inode = (tmp_path / "old" / "m.gguf").stat().st_ino
    fetch(
        tmp_path / "new" / "m.gguf",
        urls=[fake.add_plain("m.gguf", MODEL)],
        sha256=[sha(MODEL)],
        adopt=[str(tmp_path / "old" / "m.gguf")],
    )
    assert whole(tmp_path / "new" / "m.gguf")
    assert (left(tmp_path / "old"), (tmp_path / "new" / "m.gguf").stat().st_ino) == ([], inode)


# Progress and stopping
