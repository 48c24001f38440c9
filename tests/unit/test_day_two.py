# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""docs/day-two.md: each question has its test or a reason; commands that need no node are run."""

import re
import shlex
from pathlib import Path

import pytest
import yaml
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._intent import variables
from ansible_collections.thefermisea.llama_cluster.tests.unit import inventory_runs

ROOT = Path(__file__).resolve().parents[2]
SECTIONS = dict(re.findall(r"^## ([^\n]*)\n\n(.*?)(?=^## |\Z)", (ROOT / "docs/day-two.md").read_text(), re.M | re.S))


@pytest.mark.parametrize("question", SECTIONS)
def test_question_has_test_or_reason(question):
    last = SECTIONS[question].strip().splitlines()[-1]
    assert question.endswith("?")
    assert re.fullmatch(r"\*(Test: `[^`]+`|No test.*\.)\*", last), last
    assert [path for path in re.findall(r"`((?:tests|molecule)/[^`]+)`", last) if not (ROOT / path).is_file()] == []


def test_questions_are_answered():
    assert len(SECTIONS) >= 27


@pytest.mark.parametrize("block", re.findall(r"```yaml\n(.*?)```", "".join(SECTIONS.values()), re.S))
def test_settings_are_known(block):
    assert set(yaml.safe_load(block)) <= variables.known()


def test_plan_of_a_question_runs(tmp_path):
    (command,) = [
        line
        for line in SECTIONS["How do I raise the context from 8k to 32k without downtime?"].splitlines()
        if "plan.yml" in line
    ]
    mine = str(ROOT / "inventories/beefcake2")
    program, *words = shlex.split(command.replace("inventories/mine", mine).replace("coder", "reasoning"))
    assert program == "ansible-playbook"
    assert "32768 tokens a slot" in inventory_runs.run(tmp_path, *words, "-e", "model_hub=http://127.0.0.1:9")
