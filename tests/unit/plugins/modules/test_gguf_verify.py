# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

import hashlib
import json

import pytest
from ansible.module_utils.testing import patch_module_args
from ansible_collections.thefermisea.llama_cluster.plugins.modules import gguf_verify
from ansible_collections.thefermisea.llama_cluster.tests.unit import gguf_files
from ansible_collections.thefermisea.llama_cluster.tests.unit.fake_hub import FakeHub

MODEL = gguf_files.model(1)


def run(capsys, **options):
    with patch_module_args(options), pytest.raises(SystemExit) as stop:
        gguf_verify.main()
    return stop.value.code, json.loads(capsys.readouterr().out)


@pytest.fixture
def path(tmp_path):
    (tmp_path / "m.gguf").write_bytes(MODEL)
    return str(tmp_path / "m.gguf")


def test_every_model_has_an_entry_in_order(capsys, path, tmp_path):
    (tmp_path / "n.gguf").write_bytes(gguf_files.model(2))
    code, result = run(capsys, paths=[str(tmp_path / "n.gguf"), path])
    assert (code, result["changed"]) == (0, False)
    assert [(model["path"], model["tensors"]) for model in result["models"]] == [
        (str(tmp_path / "n.gguf"), 2),
        (path, 1),
    ]


def test_one_bad_model_fails_and_all_are_returned(capsys, path, tmp_path):
    (tmp_path / "short.gguf").write_bytes(MODEL[:1000])
    code, result = run(capsys, paths=[path, str(tmp_path / "short.gguf"), str(tmp_path / "none.gguf")])
    assert code == 1
    assert [model["complete"] for model in result["models"]] == [True, False, False]
    assert result[
        "msg"
    ] == "gguf_verify: %s/short.gguf: 1,000 bytes present, %s bytes needed by its header: fetch it again; %s" % (
        tmp_path,
        "{:,}".format(len(MODEL)),
        "%s/none.gguf: No such file or directory: fetch it, or correct the path" % tmp_path,
    )


def test_digests_belong_to_paths(capsys, path):
    digest = hashlib.sha256(MODEL).hexdigest()
    assert run(capsys, path=[path], sha256=[digest])[1]["models"][0]["sha256"] == digest
    assert run(capsys, path=[path], sha256=["0" * 64])[0] == 1
    code, result = run(capsys, path=[path], sha256=[digest, digest])
    assert (code, result["msg"]) == (1, "gguf_verify: sha256: 2 digests given, paths has 1 files: give one for each")


def test_urls(capsys):
    with FakeHub() as fake:
        code, result = run(capsys, url=[fake.add_plain("m.gguf", MODEL)])
    assert (code, result["models"][0]["quantization"]) == (0, "F16")


@pytest.mark.parametrize("options", [{}, {"paths": ["a"], "urls": ["b"]}, {"urls": ["a"], "sha256": ["b"]}])
def test_options_that_exclude_each_other(capsys, options):
    assert run(capsys, **options)[0] == 1
