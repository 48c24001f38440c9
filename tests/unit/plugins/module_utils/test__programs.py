# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

import os
import subprocess
import sys
from pathlib import Path

from ansible_collections.thefermisea.llama_cluster.plugins.module_utils import _programs, backoff

SOURCES = {"__init__.py": "", "hello.py": "import os, sys\nprint('hello', sys.argv[1:], os.getcwd())\n"}


def install(folder, sources, check=False):
    changes, digest = _programs.install(str(folder), sources, sys.executable, check)
    return [os.path.basename(change["after_header"].split()[0]) for change in changes], digest


def test_a_program_runs_as_installed(tmp_path):
    assert install(tmp_path, SOURCES)[0] == ["llama-program", "__init__.py", "hello.py"]
    (tmp_path / "os.py").write_text("raise SystemExit('taken from the working directory')")
    output = subprocess.check_output([str(tmp_path / "bin/llama-program"), "hello", "a b"], cwd=str(tmp_path), universal_newlines=True)
    assert output == "hello ['a b'] /\n"
    assert sorted(os.listdir(str(tmp_path / "lib/llama_cluster"))) == ["__init__.py", "hello.py"], "no bytecode"


def test_what_differs_is_replaced_and_what_is_no_part_of_it_goes(tmp_path):
    digest = install(tmp_path, SOURCES)[1]
    assert install(tmp_path, SOURCES) == ([], digest)
    folder = tmp_path / "lib/llama_cluster"
    (folder / "hello.py").write_text("print('damaged')\n")
    (folder / "old.py").write_text("")
    assert install(tmp_path, SOURCES, check=True)[0] == ["hello.py", "old.py"]
    assert (folder / "hello.py").read_text() == "print('damaged')\n"
    assert install(tmp_path, SOURCES) == (["hello.py", "old.py"], digest)
    assert install(tmp_path, SOURCES) == ([], digest)
    os.chmod(str(tmp_path / "bin/llama-program"), 0o644)
    assert install(tmp_path, SOURCES)[0] == ["llama-program"]


def test_the_digest_stands_for_content_and_place(tmp_path):
    digests = {install(tmp_path, SOURCES)[1], install(tmp_path, dict(SOURCES, **{"hello.py": "1"}))[1], install(tmp_path / "other", SOURCES)[1]}
    assert len(digests) == 3


def test_a_program_brings_what_it_imports():
    sources = _programs.loaded_sources()
    assert sources["backoff.py"] == Path(backoff.__file__).read_text()
    assert {"__init__.py", "_notify.py", "_units.py", "_bytes.py"} <= set(sources)
    assert "_programs.py" not in sources
