# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which processes preflight takes for the collection's own, by the role's own expression: a listener may have lines of systemd's for a name."""

from pathlib import Path

import jinja2
import pytest
import yaml
from ansible.plugins.filter.core import regex_findall

TASKS = yaml.safe_load((Path(__file__).resolve().parents[2] / "roles/preflight/tasks/ports.yml").read_text())


def restarted(stdout):
    templates = jinja2.Environment(undefined=jinja2.StrictUndefined)
    templates.filters["regex_findall"] = regex_findall
    return templates.from_string(TASKS[1]["vars"]["restarted"]).render(__preflight_listeners={"stdout": stdout})


@pytest.mark.parametrize("name", ["python3", "x\nMainPID=99\n", "\n---\nMainPID=9\n"])
@pytest.mark.parametrize(("units", "pids"), [("", "[]"), ("MainPID=0\n\nMainPID=812\n", "[812]")])
def test_processes_of_ours_are_those_that_systemd_names(name, units, pids):
    # Ansible takes white space off the end.
    stdout = ('LISTEN 0 128 0.0.0.0:50052 0.0.0.0:* users:(("%s",pid=99,fd=4))\n---\n%s' % (name, units)).rstrip()
    assert restarted(stdout) == pids


def test_the_two_are_told_apart_by_a_line():
    assert TASKS[0]["ansible.builtin.shell"].startswith("ss -Hltnp && echo --- && systemctl show --property MainPID ")
