# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""bundle.yml in check mode, and what it refuses; that it gathers: scenario bundle."""

import json

from ansible_collections.thefermisea.llama_cluster.tests.unit import gguf_files
from ansible_collections.thefermisea.llama_cluster.tests.unit.playbooks.simulation import (
    COLLECTIONS,
    ROOT,
    done,
    refused,
    run_playbook,
)


def bundle(folder, *arguments):
    (folder / "m.gguf").write_bytes(gguf_files.model())
    (folder / "source.tar.gz").touch()
    service = {"model": "m", "quant": "F16", "head": "node1", "port": 8000}
    settings = {
        "llama_services": {"chat": service},
        "llama_models": {"m": {"quants": {"F16": {"urls": ["file://%s/m.gguf" % folder], "file": "m.gguf"}}}},
        "llama_builds": {"default": {"version": "b11434", "source": str(folder / "source.tar.gz")}},
        "llama_cpp_cache": str(folder / "none"),
    }
    (folder / "hosts.json").write_text(json.dumps({"llama_nodes": {"hosts": {"node1": {}}, "vars": settings}}))
    arguments = ("-i", str(folder / "hosts.json"), *arguments)
    return run_playbook(ROOT / "playbooks/bundle.yml", *arguments, home=folder, ANSIBLE_COLLECTIONS_PATH=COLLECTIONS)


def test_check_mode_makes_nothing(tmp_path):
    done(bundle(tmp_path, "--check", "-e", "bundle_dir=%s/bundle" % tmp_path))
    assert not (tmp_path / "bundle").exists()


def test_a_relative_directory_is_refused(tmp_path):
    assert (
        "bundle_dir: bundle seen, the absolute path of a directory on this machine is needed: run with -e "
        "bundle_dir=/media/disk/llama-bundle"
    ) in refused(bundle(tmp_path, "-e", "bundle_dir=bundle"))
