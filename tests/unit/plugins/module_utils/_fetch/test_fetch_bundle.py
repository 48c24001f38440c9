# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

import hashlib
import json
import subprocess

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._fetch import bundle
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._text import Refusal

A, B = b"first half, ", b"second half"
WANTED = {
    "model": "m",
    "quant": "Q8_0",
    "urls": [],
    "repo": "some/m-GGUF",
    "revision": "main",
    "files": ["a", "b"],
    "sha256": [],
}


def sha(data):
    return hashlib.sha256(data).hexdigest()


@pytest.fixture
def folder(tmp_path):
    for name, data in (("models/m.gguf", A + B), ("builds/b.tar.gz", b"build"), ("source/s.tar.gz", b"source")):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_bytes(data)
    return tmp_path


def model(folder, *pieces, **wanted):
    files = [{"path": str(folder / "models/m.gguf"), "size": len(A + B), "pieces": list(pieces)}]
    return {"files": files, "commit": "c" * 40, "gguf": {}, "item": dict(WANTED, dest="/opt/models/m.gguf", **wanted)}


JOINED = ({"size": len(A), "sha256": sha(A)}, {"size": len(B), "sha256": sha(B)})


def seal(folder, *models, check=False):
    return bundle.seal(str(folder), list(models), ["b.tar.gz"], ["s.tar.gz"], check)


def test_sums_are_those_that_sha256sum_takes(folder):
    _record, changed = seal(folder, model(folder, *JOINED))
    assert changed
    checked = subprocess.run(
        ["sha256sum", "-c", "SHA256SUMS"], cwd=str(folder), stdout=subprocess.PIPE, text=True, check=True
    ).stdout.splitlines()
    assert checked == [
        "%s: OK" % name for name in ("models/m.gguf", "builds/b.tar.gz", "source/s.tar.gz", "bundle.json")
    ]
    (folder / "models/m.gguf").write_bytes(b"other bytes")
    assert subprocess.run(["sha256sum", "-c", "--status", "SHA256SUMS"], cwd=str(folder), check=False).returncode == 1


def test_second_time_reads_no_model_and_changes_nothing(folder):
    seal(folder, model(folder, *JOINED))
    before = [(folder / name).stat().st_mtime_ns for name in ("bundle.json", "SHA256SUMS")]
    (folder / "models/m.gguf").unlink()
    record, changed = seal(folder, model(folder, *JOINED))
    assert (changed, record["models"][0]["files"][0]["sha256"]) == (False, sha(A + B))
    assert [(folder / name).stat().st_mtime_ns for name in ("bundle.json", "SHA256SUMS")] == before


def test_unknown_pieces_are_hashed(folder):
    record, _changed = seal(folder, model(folder, {"size": len(A + B), "sha256": None}))
    assert record["models"][0]["files"][0]["pieces"] == [{"size": len(A + B), "sha256": sha(A + B)}]


def test_model_of_two_nodes_is_one(folder):
    record, _changed = seal(folder, model(folder, *JOINED), model(folder, *JOINED))
    assert len(record["models"]) == 1


def test_check_mode_tells_truth_and_writes_nothing(tmp_path, folder):
    empty = tmp_path / "empty"
    empty.mkdir()
    assert seal(empty, model(empty, *JOINED), check=True)[1] is True
    assert list(empty.iterdir()) == []
    seal(folder, model(folder, *JOINED))
    assert seal(folder, model(folder, *JOINED), check=True)[1] is False


def test_lines_name_every_file_and_a_missing_build(folder):
    record, _changed = seal(folder, model(folder, *JOINED))
    assert bundle.lines(str(folder), record)[1:4] == [
        "  models/m.gguf (23 bytes)",
        "  builds/b.tar.gz (5 bytes)",
        "  source/s.tar.gz (6 bytes)",
    ]
    assert not [line for line in bundle.lines(str(folder), record) if "no build" in line]
    assert [
        line
        for line in bundle.lines(str(folder), dict(record, builds=[]))
        if "no build: the site compiles the source" in line
    ]


@pytest.mark.parametrize(
    "wanted",
    [
        {},
        {"sha256": [sha(A), sha(B)], "repo": "mirror/m-GGUF"},
        {"sha256": [sha(A + B).upper()], "repo": "", "urls": ["http://nowhere.example/m.gguf"]},
    ],
)
def test_find(folder, wanted):
    seal(folder, model(folder, *JOINED))
    found = bundle.find(bundle.read(str(folder)), dict(WANTED, name="m.gguf", **wanted), str(folder))
    assert found["files"][0]["pieces"] == list(JOINED)


def test_url_is_compared_without_its_secrets(folder):
    seal(folder, model(folder, *JOINED, repo="", files=[], urls=["https://mirror.example/m.gguf?signature=1"]))
    bundle.find(
        bundle.read(str(folder)), {"name": "m.gguf", "urls": ["https://user:secret@mirror.example/m.gguf"]}, "x"
    )


def test_url_with_other_query_is_not_found(folder):
    seal(folder, model(folder, *JOINED, repo="", files=[], urls=["https://mirror.example/get?file=m"]))
    with pytest.raises(Refusal, match="the inventory wants"):
        bundle.find(bundle.read(str(folder)), {"name": "m.gguf", "urls": ["https://mirror.example/get?file=n"]}, "x")


@pytest.mark.parametrize(
    ("wanted", "sentence"),
    [
        (
            {"name": "n.gguf"},
            "bundle: FOLDER has no n.gguf, it has m Q8_0 (m.gguf): make it again with playbooks/bundle.yml for this "
            "inventory",
        ),
        (
            {"revision": "v2"},
            "bundle: FOLDER has m.gguf of some/m-GGUF at main, the inventory wants some/m-GGUF at v2: make it again",
        ),
        (
            {"sha256": ["0" * 64]},
            "bundle: FOLDER has m.gguf of some/m-GGUF at main, the inventory wants sha256 %s: make it again"
            % ("0" * 64),
        ),
    ],
)
def test_what_is_not_in_it_is_one_sentence(folder, wanted, sentence):
    seal(folder, model(folder, *JOINED))
    with pytest.raises(Refusal) as caught:
        bundle.find(bundle.read(str(folder)), dict(WANTED, **dict({"name": "m.gguf"}, **wanted)), "FOLDER")
    assert str(caught.value).startswith(sentence)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (None, "cannot be read (No such file or directory): give a directory that playbooks/bundle.yml made"),
        ("{", "is damaged, or not of version 1: copy the bundle again"),
        ("[" * 100000, "is damaged, or not of version 1"),
        (json.dumps({"version": 99}), "or not of version 1"),
    ],
)
def test_no_bundle_is_one_sentence(tmp_path, content, sentence):
    if content is not None:
        (tmp_path / "bundle.json").write_text(content)
    with pytest.raises(Refusal) as caught:
        bundle.read(str(tmp_path))
    assert str(caught.value).startswith("bundle: %s/bundle.json " % tmp_path) and sentence in str(caught.value)


def changed(record, *path, **values):
    """The record with other values in the part that ``path`` leads to."""
    record = json.loads(json.dumps(record))
    part = record
    for step in path:
        part = part[step]
    part.update(values)
    return record


FILE = ("models", 0, "files", 0)


@pytest.mark.parametrize(
    ("path", "values"),
    [
        (FILE, {"name": name})
        for name in (
            "../../etc/cron.d/llama",
            "../x.gguf",
            "/etc/x.gguf",
            "a/b.gguf",
            "..",
            ".x.gguf",
            "",
            "x",
            "x.gguf\n",
            "\ud800.gguf",
            5,
            None,
        )
    ]
    + [(FILE, {"size": size}) for size in (-1, "5", 5.0, True, None, len(A), 10**30)]
    + [(FILE, {"sha256": digest}) for digest in (None, "", "0" * 63, "0" * 64 + "\n", 5, "../" + "0" * 61)]
    + [(FILE, {"pieces": pieces}) for pieces in (None, [], "x", [None], [{}], [{"size": len(A + B), "sha256": None}])]
    + [(("models", 0), {key: value}) for key in ("files", "wanted", "gguf") for value in (None, 5, "text", [5])]
    + [
        (("models", 0, "wanted"), {key: value})
        for key in ("urls", "files", "sha256", "repo")
        for value in (None, 5, [5], {})
    ]
    + [((), {key: value}) for key in ("models", "builds", "source") for value in (None, 5, "text", [5], [{}])]
    + [((kind, 0), {"name": name}) for kind in ("builds", "source") for name in ("../x", "/x", "..", None)],
)
def test_record_that_no_bundle_has_is_refused(folder, path, values):
    record, _changed = seal(folder, model(folder, *JOINED))
    assert bundle.read(str(folder)) == record
    (folder / "bundle.json").write_text(json.dumps(changed(record, *path, **values)))
    with pytest.raises(Refusal) as caught:
        bundle.read(str(folder))
    assert str(caught.value).startswith("bundle: %s/bundle.json is damaged, or not of version 1: " % folder)
