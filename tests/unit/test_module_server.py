# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""tests/lab/modules runs what Ansible sends to a node as Python itself does."""

import base64
import io
import os
import signal
import subprocess
import time
import zipfile
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parents[1] / "lab/modules"
PYTHON = "/usr/bin/python3"
pytestmark = pytest.mark.skipif(
    not os.path.exists(PYTHON) or not hasattr(os, "pidfd_open"), reason="no Python that has pidfd_open"
)


@pytest.fixture(scope="module", name="start")
def fixture_start(tmp_path_factory):
    """start(program) -> the process of a client; its server ends with the module's tests"""
    environment = {**os.environ, "MODULE_SERVER": str(tmp_path_factory.getbasetemp())}

    def start(program, **more):
        client = [PYTHON, "-I", "-S", str(HERE / "client.py")]
        process = subprocess.Popen(
            client, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**environment, **more}
        )
        process.stdin.write(program.encode())
        process.stdin.close()
        return process

    yield start
    parent = start("import os; print(os.getppid())")
    os.kill(int(parent.stdout.read()), signal.SIGTERM)
    parent.wait()


def ended(process):
    """-> (exit status, output, errors)"""
    output, errors = process.stdout.read(), process.stderr.read()
    return process.wait(), output.decode(), errors.decode()


@pytest.mark.parametrize(
    "program",
    [
        "import os, sys; print(os.getcwd(), os.environ['WORD'], sys.argv, sys.path[0], __name__); sys.exit(3)",
        "import sys; sys.exit('no')",
        "import os; os.kill(os.getpid(), 9)",
        "import atexit; atexit.register(print, 'end')",
        "print(",
    ],
    ids=["surroundings", "words", "killed", "exit functions", "no program"],
)
def test_program_ends_as_with_python(start, program):
    direct = subprocess.run(
        [PYTHON], input=program.encode(), capture_output=True, env={**os.environ, "WORD": "one"}, check=False
    )
    seen = ended(start(program, WORD="one"))
    assert seen == (direct.returncode, direct.stdout.decode(), direct.stderr.decode())


def test_module_ends_with_its_client(start):
    process = start("import os, time; print(os.getpid(), flush=True); time.sleep(60)")
    module = int(process.stdout.readline())
    process.kill()
    process.wait()
    until = time.monotonic() + 20
    while os.path.exists("/proc/%d" % module):
        assert time.monotonic() < until
        time.sleep(0.05)


# As Ansible's own.
WRAPPER = """import base64, sys, tempfile
def main(zip_data):
    with tempfile.NamedTemporaryFile(suffix=".zip") as stream:
        stream.write(base64.b64decode(zip_data))
        stream.flush()
        sys.path.insert(0, stream.name)
        from ansible.module_utils._internal._ansiballz import _loader
        _loader.run()
main(
zip_data='%s'
)
"""
FOLDERS = (
    "ansible",
    "ansible/module_utils",
    "ansible/module_utils/_internal",
    "ansible/module_utils/_internal/_ansiballz",
)
RUN = """
import os
from ansible.module_utils import shared
def run():
    from ansible.module_utils import own
    print(shared.ANSWER, own.ANSWER, "loaded" if shared.PROCESS == os.getpid() else "was there", flush=True)
"""


def module(shared, own):
    """A program that prints both values, and whether the first one's file was loaded for it."""
    files = {folder + "/__init__.py": "" for folder in FOLDERS}
    files[FOLDERS[-1] + "/_loader.py"] = RUN
    files["ansible/module_utils/shared.py"] = "import os; ANSWER, PROCESS = %r, os.getpid()" % shared
    files["ansible/module_utils/own.py"] = "ANSWER = %r" % own
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as stream:
        for name, text in files.items():
            stream.writestr(name, text)
    return WRAPPER % base64.b64encode(archive.getvalue()).decode()


def test_what_modules_share_is_loaded_once(start):
    """Another content is not mistaken for it."""
    seen = [ended(start(module(shared, own))) for shared, own in (("a", 1), ("a", 2), ("b", 3), ("a", 4))]
    assert seen == [(0, line + "\n", "") for line in ("a 1 was there", "a 2 was there", "b 3 loaded", "a 4 was there")]
