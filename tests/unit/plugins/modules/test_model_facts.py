# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which models of a list are there: what gguf_fetch would say without a look at a single byte, and what llama_plan
would."""

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.modules import gguf_fetch, llama_plan
from ansible_collections.thefermisea.llama_cluster.tests.unit import gguf_files

NUMBERS = {
    "block_count": 2,
    "context_length": 64,
    "embedding_length": 32,
    "feed_forward_length": 64,
    "attention.head_count": 2,
}
HEADER = [
    ("general.architecture", gguf_files.STRING, "llama"),
    *(("llama." + name, gguf_files.U32, value) for name, value in NUMBERS.items()),
]
HEADER.append(("tokenizer.ggml.tokens", gguf_files.ARRAY, (gguf_files.STRING, ["a", "b", "c"])))
# A model that can be planned.
MODEL = gguf_files.file_bytes(
    HEADER, [("token_embd.weight", (32, 3), 1), ("blk.0.weight", (32, 64), 1), ("blk.1.weight", (32, 64), 1)]
)


@pytest.fixture(name="item")
def fixture_item(run, tmp_path):
    """A model that was fetched."""
    (tmp_path / "source.gguf").write_bytes(MODEL)
    item = {
        "model": "m",
        "quant": "Q8_0",
        "dest": str(tmp_path / "m.gguf"),
        "urls": ["file://%s/source.gguf" % tmp_path],
        "files": [],
        "repo": "",
    }
    fetched = run(gguf_fetch, dest=item["dest"], urls=item["urls"], mode="0644")[1]
    assert fetched["changed"]
    return item


def look(run, *items):
    return run(models=list(items))[1]["models"]


def test_existing_model_has_facts_of_fetch_and_plan(run, item):
    other = dict(item, dest=item["dest"].replace("m.gguf", "other.gguf"))
    there, missing = look(run, item, other)
    assert missing == {"item": other, "there": False}
    again = run(gguf_fetch, dest=item["dest"], urls=item["urls"], mode="0644")[1]
    assert there["there"] and there["item"] == item
    assert {name: there[name] for name in ("files", "commit", "dest", "size")} == {
        name: again[name] for name in ("files", "commit", "dest", "size")
    }
    assert there["shape"] == run(llama_plan, path=item["dest"])[1]["shape"]


@pytest.mark.parametrize("change", ["touched", "mode", "removed", "another source", "another digest", "wrong digest"])
def test_uncertain_model_is_not_there(run, item, tmp_path, change):
    path = tmp_path / "m.gguf"
    if change == "touched":
        path.touch()
    elif change == "mode":
        path.chmod(0o600)
    elif change == "removed":
        path.unlink()
    elif change == "another source":
        item = dict(item, urls=["file:///elsewhere/source.gguf"])
    else:
        item = dict(item, sha256=["0" * 64 if change == "another digest" else "no digest"])
    assert look(run, item) == [{"item": item, "there": False}]


def test_header_that_no_plan_can_be_made_of(run, tmp_path):
    (tmp_path / "source.gguf").write_bytes(gguf_files.model(1))
    item = {"dest": str(tmp_path / "m.gguf"), "urls": ["file://%s/source.gguf" % tmp_path]}
    run(gguf_fetch, mode="0644", **item)
    (found,) = look(run, item)
    assert found["there"] and found["shape"] is None
