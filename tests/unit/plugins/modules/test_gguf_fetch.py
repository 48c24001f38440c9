# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

import json
import os

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._plan import header
from ansible_collections.thefermisea.llama_cluster.tests.unit import companion_files, gguf_files

MODEL = gguf_files.model(1)


def test_twice_and_check_mode(run, fake, tmp_path):
    options = {"urls": [fake.add_plain("m.gguf", MODEL)], "dest": str(tmp_path / "m.gguf"), "mode": "0640"}
    for check, changed, there in ((True, True, False), (False, True, True), (True, False, True), (False, False, True)):
        code, result = run(_ansible_check_mode=check, **options)
        assert (code, result["changed"], result["there"], (tmp_path / "m.gguf").exists()) == (
            0,
            changed,
            not changed,
            there,
        )
    assert os.stat(tmp_path / "m.gguf").st_mode & 0o777 == 0o640


def test_files_beside_model_are_fetched_like_it(run, fake, tmp_path):
    for name, files in (("tone.gguf", companion_files.adapter(blocks=1)), ("sees.gguf", companion_files.projector())):
        options = {"urls": [fake.add_plain(name, gguf_files.file_bytes(*files))], "dest": str(tmp_path / name)}
        done = [run(**options)[1] for _time in range(2)]
        assert [one["changed"] for one in done] == [True, False]
        assert header.look(options, 0o644)["there"]


def test_changed_mode_is_no_new_transfer(run, fake, tmp_path):
    options = {"urls": [fake.add_plain("m.gguf", MODEL)], "dest": str(tmp_path / "m.gguf")}
    run(**options)
    for mode in ("0600", "u=rw,go=r"):
        done = [run(_ansible_check_mode=check, mode=mode, **options)[1] for check in (True, False, False)]
        assert [(one["changed"], one["transferred"]) for one in done] == [(True, 0), (True, 0), (False, 0)]
    assert run(mode="rwx", **options)[0] == 1


def test_token_is_in_no_output(run, fake, tmp_path):
    fake.token = "hf_secret"
    fake.add_repo("owner/m", {"m.Q8_0.gguf": MODEL}, gated=True)
    (tmp_path / "token").write_text("hf_secret\n")
    (tmp_path / "token").chmod(0o600)
    options = {"repo": "owner/m", "files": ["m.Q8_0.gguf"], "endpoint": fake.url, "dest": str(tmp_path / "m.gguf")}
    options["token_file"] = str(tmp_path / "token")
    code, result = run(**options)
    assert (code, "hf_secret" in json.dumps(result)) == (0, False)
    (tmp_path / "token").write_text("hf_wrong\n")
    code, result = run(**{**options, "dest": str(tmp_path / "n.gguf")})
    assert (code, "the token was refused" in result["msg"], "hf_wrong" in json.dumps(result)) == (1, True, False)


def test_error_is_one_sentence_that_names_module(run, fake, tmp_path):
    url = fake.add_plain("m.gguf", MODEL[:-5])
    code, result = run(urls=[url], dest=str(tmp_path / "m.gguf"))
    assert (code, result["msg"]) == (
        1,
        "gguf_fetch: {}: {:,} bytes present, {:,} bytes needed by its header: it is not complete at its source, "
        "name all of its pieces or use another source".format(url, len(MODEL) - 5, len(MODEL)),
    )


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"urls": ["a"], "repo": "b"},
        {"urls": ["a"], "files": ["b"]},
        {"urls": ["a"], "bundle": "/b", "adopt": ["c"]},
    ],
)
def test_options_that_exclude_each_other(run, tmp_path, options):
    assert run(dest=str(tmp_path / "m.gguf"), **options)[0] == 1


def test_job_leaves_its_result_in_state_file(run, fake, tmp_path):
    options = {
        "urls": [fake.add_plain("m.gguf", MODEL)],
        "dest": str(tmp_path / "m.gguf"),
        "_job": str(tmp_path / "async" / "job.json"),
    }
    code, asked = run(_ask=True, **options)
    assert (code, asked["wanted"], asked["live"], asked["state"]) == (0, True, False, options["_job"])
    code, result = run(**options)
    state = json.loads((tmp_path / "async" / "job.json").read_text())
    assert (code, state["phase"], state["result"]["changed"], state["result"]["msg"]) == (0, "end", True, result["msg"])


def test_failed_job_leaves_its_sentence(run, fake, tmp_path):
    options = {
        "urls": [fake.url + "/files/none"],
        "dest": str(tmp_path / "m.gguf"),
        "_job": str(tmp_path / "async" / "job.json"),
    }
    run(_ask=True, **options)
    assert run(**options)[0] == 1
    state = json.loads((tmp_path / "async" / "job.json").read_text())
    assert state["result"] == {
        "failed": True,
        "changed": False,
        "msg": "gguf_fetch: %s/files/none: answered 404 Not Found: check the address" % fake.url,
    }
