# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A share with root_squash, on which root is another user: here it is root without its rights on files of others."""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import jinja2
import pytest
import yaml
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._slurm import logs

UTILITIES = pathlib.Path(logs.__file__).resolve().parents[1]
ROLE = pathlib.Path(__file__).resolve().parents[5] / "roles/slurm_launcher"
SQUASHED = ["setpriv", "--bounding-set=-dac_override,-dac_read_search,-fowner,-chown"]
READ = """
import json, os, sys
from llama_cluster._slurm import logs
share, user = sys.argv[1:]
try:
    os.listdir(share)
except PermissionError:
    pass
else:
    sys.exit("root is not squashed")
job = {"name": "llama-72b", "log_dir": share, "local_log_dir": share + "/none", "user": user}
found = logs.added({"lines": [], "more": False}, [job], "vasp-01", 0, 9, True)
load = logs.load_of(share + "/7/head-vasp-01.log", user)
print(json.dumps([[line["text"] for line in found["lines"]], found["missing"], load["reason"]]))
"""
pytestmark = pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("setpriv"), reason="only root loses its rights")


@pytest.fixture(name="share")
def fixture_share():
    # Another user may not enter a directory of the tests.
    with tempfile.TemporaryDirectory() as above:
        os.chmod(above, 0o755)
        share = pathlib.Path(above, "share")
        (share / "7").mkdir(parents=True)
        log = share / "7" / "head-vasp-01.log"
        log.write_text("2026-11-27T21:20:03.123Z model loaded\n")
        for path, mode in ((log, 0o640), (log.parent, 0o750), (share, 0o700)):
            shutil.chown(path, "nobody")
            path.chmod(mode)
        (share.parent / "llama_cluster").symlink_to(UTILITIES)
        yield share


def test_root_reads_logs_on_a_squashed_share(share):
    environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(share.parent)}
    command = [*SQUASHED, sys.executable, "-S", "-B", "-c", READ, str(share), "nobody"]
    found = yaml.safe_load(subprocess.check_output(command, env=environment, cwd="/"))
    lines, missing, reason = found
    assert (lines, missing) == (["model loaded"], "") and reason.endswith(
        "(none logged), they are needed to tell what is where"
    )


@pytest.mark.parametrize(
    "owner, mode, sound", [("nobody", 0o700, True), ("nobody", 0o770, False), ("root", 0o755, False)]
)
def test_role_looks_at_directories_as_their_user(share, owner, mode, sound):
    shutil.chown(share, owner)
    share.chmod(mode)
    values = {"slurm_launcher_jobs": [{"user": "nobody"}], "user": "nobody", "item": {"path": str(share)}}
    outputs = []
    for task in yaml.safe_load((ROLE / "tasks/writable.yml").read_text()):
        argv = task.get("ansible.builtin.command", {}).get("argv")
        if argv:
            words = [jinja2.Template(str(word)).render(values) for word in argv]
            done = subprocess.run([*SQUASHED, *words], stdout=subprocess.PIPE, text=True, check=False)
            outputs.append((done.returncode, done.stdout.strip()))
    (may, _nothing), (_looked, others) = outputs
    assert (may == 0 and others == "") == sound, outputs
