# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Downloaded pieces are not fetched again; role model, run for real in a directory of the test."""

import hashlib
import json
import sys

import pytest
from ansible_collections.thefermisea.llama_cluster.tests.unit import gguf_files
from ansible_collections.thefermisea.llama_cluster.tests.unit.playbooks.simulation import (
    COLLECTIONS,
    done,
    refused,
    run_playbook,
)

CONTENT = gguf_files.model(1)
PARTS = (CONTENT[:400000], CONTENT[400000:])


@pytest.fixture(name="models")
def fixture_models(tmp_path):
    """A models directory, and a source of the model in two pieces."""
    for folder in ("source", "models"):
        (tmp_path / folder).mkdir()
    for number, part in enumerate(PARTS, 1):
        (tmp_path / "source" / ("m.gguf.part%dof2" % number)).write_bytes(part)
    return tmp_path / "models"


def run(models, tasks_from, hashed=True):
    item = {"model": "m", "quant": "Q8_0", "dest": str(models / "m.gguf"), "repo": "", "files": [], "revision": "main"}
    item["urls"] = ["file://%s" % (models.parent / "source" / ("m.gguf.part%dof2" % number)) for number in (1, 2)]
    item["sha256"] = [hashlib.sha256(part).hexdigest() for part in PARTS] if hashed else []
    return play(models.parent, tasks_from, model_items=[item], model_dir=str(models))


def play(folder, tasks_from, **variables):
    """Runs a task file of role model here -> (exit status, output)."""
    task = {"ansible.builtin.include_role": {"name": "thefermisea.llama_cluster.model", "tasks_from": tasks_from}}
    show = {"ansible.builtin.debug": {"msg": "{{ __model_fetched.results[0].msg }}"}}
    one = {"hosts": "localhost", "connection": "local", "gather_facts": False, "tasks": [task, show]}
    one["vars"] = dict(variables, ansible_python_interpreter=sys.executable)
    (folder / "play.yml").write_text(json.dumps([one]))
    return run_playbook(folder / "play.yml", "-i", "localhost,", home=folder, ANSIBLE_COLLECTIONS_PATH=COLLECTIONS)


def test_downloaded_pieces_become_model(models):
    for number, part in enumerate(PARTS, 1):
        (models / ("m.gguf.part%dof2" % number)).write_bytes(part)
    output = done(run(models, "fetch.yml"))
    assert "adopted in " in output and "fetched" not in output.partition("m.gguf: ")[2]
    assert sorted(path.name for path in models.iterdir()) == ["m.gguf", "m.gguf.manifest.json"]
    assert (models / "m.gguf").read_bytes() == CONTENT


def test_unfinished_piece_stops_preflight(models):
    (models / "m.gguf.part1of2").write_bytes(PARTS[0][:-1])
    output = refused(run(models, "preflight.yml"))
    assert "m.gguf.part1of2 has 399,999 bytes, 400,000 bytes needed" in output and "finish, move or remove it" in output


def test_piece_without_digest_stops_preflight(models):
    (models / "m.gguf.part1of2").write_bytes(PARTS[0])
    assert (
        "m.gguf.part1of2: no sha256 of m.gguf.part1of2 is known, one is needed to use it: give that sha256, or move "
        "the file away"
    ) in refused(run(models, "preflight.yml", hashed=False))


def test_piece_others_may_write_stops_preflight(models):
    piece = models / "m.gguf.part1of2"
    piece.write_bytes(PARTS[0])
    piece.chmod(0o664)
    assert "%s: its mode 0664 lets others than its owner write it" % piece in refused(run(models, "preflight.yml"))
