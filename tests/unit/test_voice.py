# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How things are written: task names, sentences of refusals, banned words, width of lines.

Python and YAML are held to the width by their linters."""

import ast
import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
TASKS = sorted([*ROOT.glob("roles/*/tasks/*.yml"), *ROOT.glob("playbooks/**/*.yml")])
WIDTH = 120
TEXTS = {".md", ".py", ".yml", ".j2", ".sh"}
# What a task does. A new word is welcome where none of these says it.
VERBS = """
Allow Ask Become Break Bring Change Check Choose Close Compare Compile Compute Configure Copy Create Cut Decide Drop End
Fetch Find Foretell Forget Gather Get Give Go Group Have Hold Install Judge Keep Let Link List Load Lock Log Look Make
Measure Name Note Open Pack Park Plan Point Prepare Prove Publish Put Reach Read Record Refuse Release Reload Remove
Report Require Restart Restore Retire Run Save Say Send Set Share Show Stage Start Stop Switch Take Unpack Use Verify
Wait Warn Watch Write
"""
# Private words for which the field has its own, and forms that make a sentence a riddle. Quoted, nobody is the user.
BANNED = re.compile(
    r"(?<![A-Za-z])(told|doors|knock|knocks|knocked|lanes|[Ss]trangers?|[Ww]hoever|[Oo]urs|alone|by hand|those of"
    r"|(?:is|are|was|were) none|nor (?:is|are|does|do)|(?<![\"`=])[Nn]obody)(?![A-Za-z])"
)
# A docstring or a comment begins with its subject or its verb.
OPENERS = re.compile(r"(Whoever|Nobody|Of|Those|What|Who|Whose|None|Nor|One that|The one that|Others?) ")
TEST_NAME_WORDS = 8
# More than one sentence, a full stop where other texts quote it, and the language of programs.
WRONG = re.compile(
    r"[a-z0-9)]\. [A-Z]|[.!]$|  |Traceback|Exception|\[Errno|\bNone\b|(?i:please|invalid|unable|\bbad\b|illegal)"
)
PLACEHOLDER = re.compile(r"{{.*?}}|%[.0-9]*[a-z]")
# Errors that are handled where they are raised for, and never shown.
HANDLED = {"Transient", "Stopped", "Unanswered"}


class Loader(yaml.CSafeLoader):
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


def text_of(node):
    """The text that an expression makes, with X for what is filled in; None for other expressions."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return PLACEHOLDER.sub("X", node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(text_of(part) if isinstance(part, ast.Constant) else "X" for part in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod):
        return text_of(node.left)
    return None


def sentences(node, refusing=False):
    """Texts that refuse: raised, failed with, or with an entry and a need."""
    refusing = refusing or isinstance(node, ast.Raise) or "fail_json" in ast.unparse(getattr(node, "func", ast.Pass()))
    text = text_of(node)
    if text and ": " in text and "\n" not in text and (refusing or " needed" in text):
        yield text
    for child in ast.iter_child_nodes(node):
        # A part of a text is no sentence, nor is documentation.
        if text is None and not (isinstance(node, (ast.Expr, ast.Assign)) and isinstance(child, ast.Constant)):
            yield from sentences(child, refusing)


def written():
    """{(file, sentence)} of every refusal in plugins, roles and playbooks."""
    found = set()
    for path in ROOT.glob("plugins/**/*.py"):
        found |= {(path, text) for text in sentences(ast.parse(path.read_text()))}
    for path in TASKS:
        content = yaml.load(path.read_text(), Loader)
        for task in tasks(content if isinstance(content, list) else []):
            refused = task.get("ansible.builtin.assert", task.get("ansible.builtin.fail")) or {}
            text = PLACEHOLDER.sub("X", " ".join(str(refused.get("fail_msg", refused.get("msg", ""))).split()))
            found |= {(path, text)} if " " in text else set()
    return found


def test_refusals_are_sentences_for_operators():
    """Entry, value seen, value needed, next step; one sentence without a full stop."""
    found = written()
    assert len(found) > 500
    assert [(str(path.relative_to(ROOT)), text) for path, text in found if WRONG.search(text)] == []


def test_only_refusals_are_shown_to_operators():
    """Classes of errors derive from Refusal: modules and filters catch only that one."""
    bases = {}
    for path in ROOT.glob("plugins/*_utils/**/*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                bases.update((node.name, ast.unparse(base)) for base in node.bases)
    assert {name for name, base in bases.items() if base == "Exception"} == {"Refusal", *HANDLED}
    assert {name for name, base in bases.items() if base.endswith("Error")} == set()


def prose(path):
    """The first words of each docstring and each block of comments."""
    lines = path.read_text().splitlines()
    if path.suffix == ".py":
        for node in ast.walk(ast.parse("\n".join(lines))):
            if isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.Module)):
                yield ast.get_docstring(node) or ""
    for before, line in zip(["", *lines], lines, strict=False):
        if path.suffix != ".md" and line.lstrip().startswith("# ") and not before.lstrip().startswith("#"):
            yield line.lstrip()[2:]


@pytest.mark.parametrize("tree", ["*.md", "docs", "inventories", "molecule", "playbooks", "plugins", "roles", "tests"])
def test_words_are_those_of_the_field(tree):
    paths = [path for path in ROOT.glob(tree if "*" in tree else tree + "/**/*") if path.suffix in TEXTS]
    paths = [path for path in paths if path.name not in ("CHANGELOG.md", "test_voice.py")]
    assert paths
    banned = {(path, found.group()) for path in paths for found in BANNED.finditer(path.read_text())}
    opened = {(path, text[:40]) for path in paths for text in prose(path) if OPENERS.match(text)}
    assert sorted(map(str, banned | opened)) == []


def test_names_of_tests_are_short():
    """What is tested, and its result."""
    paths = [path for tree in ("tests", "molecule") for path in ROOT.glob(tree + "/**/test_*.py")]
    names = {name for path in paths for name in re.findall(r"def test_(\w+)", path.read_text())}
    assert len(names) > 1000
    assert [name for name in sorted(names) if len(name.split("_")) > TEST_NAME_WORDS] == []
