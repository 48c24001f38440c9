# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

import os
import subprocess
import sys
from pathlib import Path

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils import _install
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._text import Refusal
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils.programs import backoff
from ansible_collections.thefermisea.llama_cluster.tests.unit.other_users import OTHER_USER, give_away

HELLO = "import os, sys\nfrom .. import words\nprint(words.HELLO, sys.argv[1:], os.getcwd())\n"
SOURCES = {"__init__.py": "", "programs/__init__.py": "", "programs/hello.py": HELLO, "words.py": "HELLO = 'hello'\n"}


def install(folder, sources, check=False):
    changes, digest = _install.install(str(folder), sources, sys.executable, check)
    return [os.path.basename(change["after_header"].split()[0]) for change in changes], digest


def test_program_runs_as_installed(tmp_path):
    assert install(tmp_path, SOURCES)[0] == ["llama-program", "__init__.py", "__init__.py", "hello.py", "words.py"]
    (tmp_path / "os.py").write_text("raise SystemExit('taken from the working directory')")
    output = subprocess.check_output(
        [str(tmp_path / "bin/llama-program"), "hello", "a b"], cwd=str(tmp_path), universal_newlines=True
    )
    assert output == "hello ['a b'] /\n"
    assert sorted(os.listdir(str(tmp_path / "lib/llama_cluster"))) == ["__init__.py", "programs", "words.py"], (
        "no bytecode"
    )
    assert sorted(os.listdir(str(tmp_path / "lib/llama_cluster/programs"))) == ["__init__.py", "hello.py"], (
        "no bytecode"
    )


def test_differing_and_stale_files_are_replaced(tmp_path):
    digest = install(tmp_path, SOURCES)[1]
    assert install(tmp_path, SOURCES) == ([], digest)
    folder = tmp_path / "lib/llama_cluster"
    (folder / "programs/hello.py").write_text("print('damaged')\n")
    (folder / "old.py").write_text("# Copyright: The Fermi Sea\n")
    (folder / "notes.py").write_text("# an operator's\n")
    (folder / "room").mkdir()
    (folder / "room/__init__.py").write_text("")
    (folder / "room/gone.py").write_text("# Copyright: The Fermi Sea\n")
    (folder / "theirs").mkdir()
    (folder / "theirs/notes").write_text("")
    stale = ["hello.py", "old.py", "__init__.py", "gone.py"]
    assert install(tmp_path, SOURCES, check=True)[0] == stale
    assert (folder / "programs/hello.py").read_text() == "print('damaged')\n"
    assert install(tmp_path, SOURCES) == (stale, digest)
    assert sorted(os.listdir(str(folder))) == ["__init__.py", "notes.py", "programs", "theirs", "words.py"]
    assert install(tmp_path, SOURCES) == ([], digest)
    os.chmod(str(tmp_path / "bin/llama-program"), 0o644)
    assert install(tmp_path, SOURCES)[0] == ["llama-program"]


def test_digest_stands_for_content_and_place(tmp_path):
    digests = {
        install(tmp_path, SOURCES)[1],
        install(tmp_path, dict(SOURCES, **{"words.py": "1"}))[1],
        install(tmp_path / "other", SOURCES)[1],
    }
    assert len(digests) == 3


@pytest.fixture(name="venv")
def fixture_venv(tmp_path):
    """A user's virtual environment: its Python is a link to the system's."""
    (tmp_path / "venv/bin").mkdir(parents=True)
    (tmp_path / "venv/bin/python").symlink_to(sys.executable)
    return tmp_path / "venv"


@pytest.mark.parametrize("whose", [".", "bin"])
def test_python_that_user_may_exchange_is_not_roots(venv, tmp_path, whose):
    system = tmp_path / "usr/bin/python3"
    system.parent.mkdir(parents=True)
    system.write_text("")
    candidates = (str(venv / "bin/python"), str(tmp_path / "absent"), str(system))
    give_away(venv / whose)
    assert _install.choose_python(candidates) == str(system)
    system.chmod(0o666)
    with pytest.raises(
        _install.Refusal,
        match="no Python that only root can change, .*belongs to user id 4711.*mode 0666.*: install the",
    ):
        _install.choose_python(candidates)


def test_roots_link_to_python_is_followed(venv, tmp_path):
    (tmp_path / "real").write_text("")
    (tmp_path / "alternative").symlink_to(tmp_path / "real")
    (tmp_path / "usr").mkdir()
    (tmp_path / "usr/python3").symlink_to("../alternative")
    assert _install.choose_python([str(tmp_path / "usr/python3")]) == str(tmp_path / "usr/python3")
    give_away(tmp_path / "real")
    with pytest.raises(_install.Refusal, match="real: it belongs to user id 4711"):
        _install.choose_python([str(tmp_path / "usr/python3")])


def test_folder_of_others_gets_no_programs(tmp_path):
    (tmp_path / "lib").mkdir()
    give_away(tmp_path / "lib")
    with pytest.raises(Refusal, match="lib: it belongs to user id 4711"):
        install(tmp_path, SOURCES)
    assert os.listdir(str(tmp_path / "lib")) == []


@pytest.mark.parametrize("whose", [".", "bin", "lib", "lib/llama_cluster", "lib/llama_cluster/programs"])
def test_unchanged_directory_of_others_is_refused(tmp_path, whose):
    install(tmp_path, SOURCES)
    (tmp_path / whose).chmod(0o777)
    for check in (True, False):
        with pytest.raises(Refusal, match="mode 0777 lets others"):
            install(tmp_path, SOURCES, check=check)
    (tmp_path / whose).chmod(0o755)
    give_away(tmp_path / whose)
    for check in (True, False):
        with pytest.raises(Refusal, match="it belongs to user id 4711"):
            install(tmp_path, SOURCES, check=check)


@pytest.mark.parametrize("name", ["bin/llama-program", "lib/llama_cluster/words.py"])
def test_unchanged_program_of_others_is_replaced(tmp_path, name):
    digest = install(tmp_path, SOURCES)[1]
    path = tmp_path / name
    give_away(path)
    with path.open("a") as held:
        assert install(tmp_path, SOURCES, check=True) == ([path.name], digest) and path.stat().st_uid == OTHER_USER
        assert install(tmp_path, SOURCES) == ([path.name], digest) and path.stat().st_uid == os.geteuid()
        held.write("theirs")
    assert "theirs" not in path.read_text() and install(tmp_path, SOURCES) == ([], digest)


def test_stale_program_in_directory_of_others_stays(tmp_path, monkeypatch):
    install(tmp_path, SOURCES)
    folder = tmp_path / "lib/llama_cluster"
    (folder / "theirs/inner").mkdir(parents=True)
    for path in (folder / "theirs/old.py", folder / "theirs/inner/old.py", tmp_path / "old.py", folder / "old.py"):
        path.write_text("# Copyright: The Fermi Sea\n")
    (folder / "link").symlink_to(tmp_path)
    give_away(folder / "theirs")
    names = []
    monkeypatch.setattr(
        os, "unlink", lambda name, dir_fd: names.append((name, os.readlink("/proc/self/fd/%d" % dir_fd)))
    )
    assert install(tmp_path, SOURCES)[0] == ["old.py"]
    assert names == [("old.py", str(folder))]


def test_link_in_place_of_program_is_replaced(tmp_path):
    install(tmp_path, SOURCES)
    (tmp_path / "passwd").write_text("root\n")
    for name in ("words.py", "words.py.new", ".words.py.partial"):
        path = tmp_path / "lib/llama_cluster" / name
        if path.exists():
            path.unlink()
        path.symlink_to(tmp_path / "passwd")
    install(tmp_path, SOURCES)
    assert (tmp_path / "passwd").read_text() == "root\n"
    assert (tmp_path / "lib/llama_cluster/words.py").read_text() == SOURCES["words.py"]


def test_program_brings_what_it_imports():
    sources = _install.loaded_sources()
    assert sources["programs/backoff.py"] == Path(backoff.__file__).read_text()
    assert {
        "__init__.py",
        "programs/__init__.py",
        "_node/__init__.py",
        "_node/notify.py",
        "_node/units.py",
        "_text.py",
    } <= set(sources)
    assert "_install.py" not in sources


def test_diff_says_what_comes_and_what_goes(tmp_path):
    install(tmp_path, SOURCES)
    words, old = tmp_path / "lib/llama_cluster/words.py", tmp_path / "lib/llama_cluster/old.py"
    words.write_text("HELLO = 'bye'\n")
    old.write_text("# Copyright: The Fermi Sea\n")
    (tmp_path / "lib/llama_cluster/programs/hello.py").unlink()
    changes, _digest = _install.install(str(tmp_path), SOURCES, sys.executable, True)
    hello = str(tmp_path / "lib/llama_cluster/programs/hello.py")
    assert [(one["before_header"], one["after_header"], one["before"], one["after"]) for one in changes] == [
        (hello + " (absent)", hello, "", HELLO),
        (str(words), str(words), "HELLO = 'bye'\n", "HELLO = 'hello'\n"),
        (str(old), str(old) + " (absent)", "# Copyright: The Fermi Sea\n", ""),
    ]
