# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs a real playbook that installs a model from a bundle on a local node."""

import json
import os
import sys

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.action import gguf_fetch
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._fetch import bundle
from ansible_collections.thefermisea.llama_cluster.tests.unit import gguf_files
from ansible_collections.thefermisea.llama_cluster.tests.unit.playbooks.simulation import playbook_lines

MODEL = gguf_files.model(40)  # more than one stretch
NOWHERE = "http://127.0.0.1:9/m.gguf"

PLAY = """
- hosts: all
  gather_facts: false
  tasks:
    - thefermisea.llama_cluster.gguf_fetch:
        urls: [{url}]
        dest: {folder}/models/{name}
        bundle: {folder}/bundle
      register: done
      ignore_errors: true  # the next task writes down what came of it
    - copy:
        content: "{{{{ done | to_json }}}}"
        dest: {folder}/outcome
      check_mode: false
"""


class Site:
    """A node on this machine and a bundle with m.gguf."""

    def __init__(self, folder):
        self.folder = folder
        for name in ("models", "bundle/models"):
            (folder / name).mkdir(parents=True)
        self.bundled = folder / "bundle/models/m.gguf"
        self.bundled.write_bytes(MODEL)
        files = [{"path": str(self.bundled), "size": len(MODEL), "pieces": [{"size": len(MODEL), "sha256": None}]}]
        item = {"model": "m", "quant": "F16", "urls": [NOWHERE]}
        bundle.seal(str(folder / "bundle"), [{"files": files, "commit": None, "gguf": {}, "item": item}], [], [])

    def run(self, *options, url=NOWHERE, name="m.gguf"):
        """-> (what was printed, the module's result)"""
        (self.folder / "play.yml").write_text(PLAY.format(url=url, folder=self.folder, name=name))
        variables = {
            "ansible_connection": "local",
            "ansible_python_interpreter": sys.executable,
            "ansible_async_dir": str(self.folder / "async"),
        }
        _status, lines = playbook_lines(
            self.folder / "play.yml",
            *("-i", "node1,", "-e", json.dumps(variables), *options),
            home=self.folder,
            HOME=str(self.folder),
        )
        return "\n".join(lines), json.loads((self.folder / "outcome").read_text())

    def left(self):
        return sorted(path.name for path in (self.folder / "models").iterdir())


@pytest.fixture
def site(tmp_path):
    return Site(tmp_path)


def test_model_comes_from_bundle_once(site):
    output, outcome = site.run("--check")
    assert (outcome["changed"], outcome["transferred"], site.left()) == (True, 0, []), output
    output, outcome = site.run()
    assert (outcome["changed"], outcome["verified"]) == (True, "sha256"), output
    assert (site.folder / "models/m.gguf").read_bytes() == MODEL
    assert site.left() == ["m.gguf", "m.gguf.manifest.json"]
    assert list((site.folder / "async").iterdir()) == []
    site.bundled.unlink()
    output, outcome = site.run()
    assert outcome["changed"] is False, output


def test_sent_bytes_are_not_sent_again(site):
    (site.folder / "models/m.gguf.sent").write_bytes(MODEL[: 35 << 20])
    damaged = bytearray(MODEL)
    damaged[1000] ^= 1
    # The first part is not sent again, so its damage here does not matter.
    site.bundled.write_bytes(damaged)
    output, outcome = site.run()
    assert outcome["changed"] is True, output
    assert (site.folder / "models/m.gguf").read_bytes() == MODEL


def test_flipped_byte_is_one_sentence_and_leaves_nothing(site):
    damaged = bytearray(MODEL)
    damaged[1000] ^= 1
    site.bundled.write_bytes(damaged)
    output, outcome = site.run()
    assert outcome["failed"] is True
    assert outcome["msg"].startswith("gguf_fetch: bundle: m.gguf arrived with sha256 "), output
    assert site.left() == []


def test_file_cut_short_is_not_even_sent(site):
    site.bundled.write_bytes(MODEL[:-1])
    output, outcome = site.run()
    assert (
        "m.gguf is {:,} bytes, {:,} bytes are needed by bundle.json: copy".format(len(MODEL) - 1, len(MODEL))
        in outcome["msg"]
    ), output
    assert site.left() == []


def test_what_bundle_has_not_is_one_sentence(site):
    for options in ((), ("--check",)):
        output, outcome = site.run(*options, name="n.gguf")
        assert (
            "gguf_fetch: bundle: %s/bundle has no n.gguf, it has m F16 (m.gguf): make it again" % site.folder
            in outcome["msg"]
        ), output
    output, outcome = site.run(url="http://127.0.0.1:9/other.gguf")
    assert (
        "has m.gguf of http://127.0.0.1:9/m.gguf, the inventory wants http://127.0.0.1:9/other.gguf" in outcome["msg"]
    ), output


def test_place_that_cannot_be_written_is_one_sentence(site):
    (site.folder / "models").rmdir()
    output, outcome = site.run()
    assert (
        "models/m.gguf.sent on the node cannot be written (No such file or directory): run again, it continues"
        in outcome["msg"]
    ), output


def test_fifo_in_place_is_one_sentence(site):
    os.mkfifo(site.folder / "models/m.gguf.sent")
    output, outcome = site.run()
    assert "m.gguf.sent on the node cannot be written (No such device or address): run again" in outcome["msg"], output


def test_bundle_that_leaves_its_directory_is_refused(site):
    path = site.folder / "bundle/bundle.json"
    record = json.loads(path.read_text())
    record["models"][0]["files"].append(dict(record["models"][0]["files"][0], name="../../../victim.gguf"))
    path.write_text(json.dumps(record))
    output, outcome = site.run()
    assert "bundle.json is damaged, or not of version 1: copy the bundle again" in outcome["msg"], output
    assert site.left() == []


def test_model_fills_options_that_are_not_given():
    model = {"model": "m", "dest": "/m/m.gguf", "urls": [], "repo": "o/m", "files": ["m.gguf"], "source": ""}
    asked = {"dest": "/m/m.gguf", "repo": "o/m", "files": ["m.gguf"], "mode": "0644"}
    assert gguf_fetch.expanded({"model": model, "mode": "0644"}) == asked
    assert gguf_fetch.expanded({"model": model, "dest": "/b/m.gguf"})["dest"] == "/b/m.gguf"
    assert gguf_fetch.expanded(asked) == asked
