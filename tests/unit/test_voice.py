# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a program can judge of how things are written: task names read as a log, and lines are 120 columns at most.
Python and YAML are held to the width by their linters."""

from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
TASKS = sorted([*ROOT.glob("roles/*/tasks/*.yml"), *ROOT.glob("playbooks/**/*.yml")])
WIDTH = 120
# What a task does. A new word is welcome where none of these says it.
VERBS = """
Ask Become Break Bring Change Check Choose Close Compare Compile Compute Configure Copy Create Cut Decide Drop End Fetch
Find Foretell Forget Gather Get Give Go Group Have Hold Install Judge Keep Lend Let Link List Load Log Look Make
Measure Name Note Pack Park Plan Point Prepare Prove Publish Put Reach Read Record Refuse Release Reload Remove Report
Require Restart Restore Retire Run Save Say Send Set Show Stage Start Stop Switch Take Unpack Use Verify Wait Warn Watch
Write
"""


class Loader(yaml.SafeLoader):
    """YAML of playbooks, whatever tags it has."""


Loader.add_multi_constructor("!", lambda loader, suffix, node: None)


def tasks(entries):
    """Every task and block below a list of plays or tasks."""
    for entry in entries or []:
        if "hosts" not in entry and "ansible.builtin.import_playbook" not in entry:
            yield entry
        for key in ("pre_tasks", "tasks", "post_tasks", "block", "rescue", "always"):
            yield from tasks(entry.get(key))


def wide(path):
    """Lines of a page, a template or a script that are too wide; tables, code and links cannot be broken."""
    fenced = False
    for number, line in enumerate(path.read_text().splitlines(), 1):
        fenced ^= path.suffix == ".md" and line.lstrip().startswith("```")
        unbroken = fenced or line.lstrip().startswith("|") or " " not in line.strip()[: WIDTH - 20]
        if len(line) > WIDTH and not (path.suffix == ".md" and unbroken):
            yield "%s:%d" % (path.relative_to(ROOT), number)


def test_task_names_read_as_a_log():
    """A verb and what it is done to."""
    for path in TASKS:
        content = yaml.load(path.read_text(), Loader)
        for task in tasks(content if isinstance(content, list) else []):
            words = task.get("name", "").split()
            assert len(words) > 1 and words[0].rstrip(",") in VERBS.split(), "%s: %s" % (path.relative_to(ROOT), task)


@pytest.mark.parametrize("place", ["*.md", "docs/*.md", "roles/*/*.md", "roles/*/files/*.sh", "tests/*/*.sh"])
def test_lines_are_not_too_wide(place):
    # The changelog is written by its tool.
    paths = [path for path in ROOT.glob(place) if path.name != "CHANGELOG.md"]
    assert paths and [line for path in paths for line in wide(path)] == []
