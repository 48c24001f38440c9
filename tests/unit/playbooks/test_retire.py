# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A model that leaves a node takes its own files with it; run for real, in a directory of the test's."""

import json
import sys

from ansible_collections.thefermisea.llama_cluster.tests.unit.other_users import give_away
from ansible_collections.thefermisea.llama_cluster.tests.unit.playbooks.simulation import (
    COLLECTIONS,
    ROOT,
    done,
    refused,
    run_playbook,
)


def retire(tmp_path, *names, forged=False, times=1):
    models = tmp_path / "models"
    models.mkdir(exist_ok=True)
    for name in ("old.gguf", "other.gguf"):
        if not (models / name).is_dir():
            (models / name).write_text("weights")
    (tmp_path / "precious.gguf").write_text("theirs")
    record = {
        "version": 1,
        "files": [{"name": name, "size": 7, "pieces": [{"size": 7, "sha256": None}]} for name in names],
    }
    (models / "old.gguf.manifest.json").write_text(json.dumps(record))
    if forged:
        give_away(models / "old.gguf.manifest.json")
    variables = {"model_old": str(models / "old.gguf"), "ansible_python_interpreter": sys.executable}
    play = {"hosts": "localhost", "connection": "local", "gather_facts": False, "vars": variables}
    play["tasks"] = [{"ansible.builtin.include_tasks": str(ROOT / "roles/model/tasks/retire.yml")}] * times
    (tmp_path / "play.yml").write_text(json.dumps([play]))
    return run_playbook(tmp_path / "play.yml", "-i", "localhost,", home=tmp_path, ANSIBLE_COLLECTIONS_PATH=COLLECTIONS)


def test_a_model_leaves_with_its_record(tmp_path):
    # switch_model.yml asks again at its end, also when the model went first.
    done(retire(tmp_path, "old.gguf", times=2))
    assert [path.name for path in (tmp_path / "models").iterdir()] == ["other.gguf"]


def test_a_record_that_names_other_places_removes_nothing(tmp_path):
    assert (
        'old.gguf.manifest.json: "../precious.gguf" seen, names of .gguf files in its directory are needed'
        in refused(retire(tmp_path, "old.gguf", "../precious.gguf"))
    )
    assert (tmp_path / "precious.gguf").exists() and len(list((tmp_path / "models").iterdir())) == 3


def test_a_record_of_another_user_removes_nothing(tmp_path):
    assert "old.gguf.manifest.json: no record of root's seen, one is needed to remove that model" in refused(
        retire(tmp_path, "old.gguf", "other.gguf", forged=True)
    )
    assert len(list((tmp_path / "models").iterdir())) == 3


def test_directory_named_like_model_stays(tmp_path):
    (tmp_path / "models/old.gguf").mkdir(parents=True)
    (tmp_path / "models/old.gguf/precious").write_text("theirs")
    assert "old.gguf: a directory seen, the file of root's that its record names is needed" in refused(
        retire(tmp_path, "old.gguf")
    )
    assert (tmp_path / "models/old.gguf/precious").exists()
