# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What was fetched by hand is not fetched again; role model, run for real in a directory of the test's."""

import hashlib
import json
import sys

import pytest
from ansible_collections.thefermisea.llama_cluster.tests.unit import gguf_files
from ansible_collections.thefermisea.llama_cluster.tests.unit.playbooks.simulation import COLLECTIONS, run_playbook

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


def run(models, tasks_from):
    item = {"model": "m", "quant": "Q8_0", "dest": str(models / "m.gguf"), "repo": "", "files": [], "revision": "main"}
    item["urls"] = ["file://%s" % (models.parent / "source" / ("m.gguf.part%dof2" % number)) for number in (1, 2)]
    item["sha256"] = [hashlib.sha256(part).hexdigest() for part in PARTS]
    task = {"ansible.builtin.include_role": {"name": "thefermisea.llama_cluster.model", "tasks_from": tasks_from}}
    show = {"ansible.builtin.debug": {"msg": "{{ __model_fetched.results[0].msg }}"}}
    play = {"hosts": "localhost", "connection": "local", "gather_facts": False, "tasks": [task, show]}
    play["vars"] = {"model_items": [item], "model_dir": str(models), "ansible_python_interpreter": sys.executable}
    (models.parent / "play.yml").write_text(json.dumps([play]))
    return run_playbook(models.parent / "play.yml", "-i", "localhost,", home=models.parent, ANSIBLE_COLLECTIONS_PATH=COLLECTIONS)


def test_pieces_fetched_by_hand_become_the_model(models):
    for number, part in enumerate(PARTS, 1):
        (models / ("m.gguf.part%dof2" % number)).write_bytes(part)
    status, output = run(models, "fetch.yml")
    assert status == 0, output
    assert "adopted in " in output and "fetched" not in output.partition("m.gguf: ")[2]
    assert sorted(path.name for path in models.iterdir()) == ["m.gguf", "m.gguf.manifest.json"]
    assert (models / "m.gguf").read_bytes() == CONTENT


def test_an_unfinished_piece_stops_preflight(models):
    (models / "m.gguf.part1of2").write_bytes(PARTS[0][:-1])
    status, output = run(models, "preflight.yml")
    assert status != 0
    assert "m.gguf.part1of2 has 399,999 bytes, the pieces have" in output and "finish, move or remove it" in output


def test_a_file_of_the_same_size_is_named(models):
    (models / "by-hand.gguf").write_bytes(CONTENT)
    status, output = run(models, "preflight.yml")
    assert status == 0, output
    assert "m Q8_0: %s/by-hand.gguf of localhost has its size; if it is this model, `file: by-hand.gguf` in its quant's entry" % models in output
