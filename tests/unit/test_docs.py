# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""References of the pages exist: files, headings, playbooks, tags, inventories, make targets."""

import re
import shlex
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "SECURITY.md",
    *sorted(ROOT.glob("docs/*.md")),
    *sorted(ROOT.glob("roles/*/README.md")),
]
# Not within a block of code.
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
TAGS = {"node", "build", "model", "rpc", "head", "router", "gateway", "monitoring", "slurm", "verify", "link"}
# inventories/mine is what an operator makes of the example.
OPTIONS = {
    "-i": re.compile(r"inventories/(mine|lab|example|beefcake2(-hybrid|-slurm|-april)?)\Z|tests/lab/four_nodes\Z"),
    "-e": re.compile(r"[a-z_]+="),
}


def name(path):
    return str(path.relative_to(ROOT))


def prose(page):
    return re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)


def anchors(page):
    """Its headings as GitHub names them."""
    titles = re.findall(r"^#+ (.*)", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def commands(page):
    for block in re.findall(r"^```console\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE):
        for line in block.replace("\\\n", " ").splitlines():
            if line.startswith("ansible-playbook "):
                yield shlex.split(line, comments=True)


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_somewhere(page):
    broken = []
    for link in LINK.findall(prose(page)):
        path, _hash, anchor = link.partition("#")
        if re.match(r"[a-z]+:", path):
            continue
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    assert broken == []


@pytest.mark.parametrize("page", [page for page in PAGES if any(commands(page))], ids=name)
def test_commands_name_what_there_is(page):
    for words in commands(page):
        playbook = words[1] if "/" in words[1] else "playbooks/%s.yml" % words[1].rpartition(".")[2]
        assert (ROOT / playbook).is_file(), words
        for option, value in zip(words[2:], words[3:]):
            assert option not in OPTIONS or OPTIONS[option].match(value), words
            assert option != "--tags" or set(value.split(",")) <= TAGS, words


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_modules_that_a_page_names_exist(page):
    for named in re.findall(r"`(_\w+/\w+)(?:\.\w+)?`", page.read_text()):
        assert any(
            (ROOT / "plugins" / tree / (named + ".py")).is_file() for tree in ("module_utils", "plugin_utils")
        ), named


def test_files_of_the_tasks_exist():
    (section,) = re.findall(r"^## Frequent tasks\n(.*?)^## ", (ROOT / "docs/architecture.md").read_text(), re.M | re.S)
    paths = re.findall(r"`((?:docs|molecule|playbooks|plugins|roles|tests)/[^`]*)`", section)
    assert paths and [path for path in paths if not list(ROOT.glob(re.sub("[A-Z]{4,}", "*", path)))] == []


def rows(page):
    """How many ends of cells each row of each table of a page has, as GitHub sees them: within code too."""
    blocks = re.findall(r"(?:^\|.*\n)+", prose(page), re.MULTILINE)
    return [[len(re.findall(r"(?<!\\)\|", row)) for row in block.splitlines()] for block in blocks]


@pytest.mark.parametrize("page", [page for page in PAGES if rows(page)], ids=name)
def test_table_rows_have_all_cells(page):
    assert [table for table in rows(page) if len(set(table)) != 1] == []


def test_every_page_is_in_the_index():
    index = LINK.findall((ROOT / "docs/README.md").read_text())
    assert {path.name for path in ROOT.glob("docs/*.md")} - {"README.md"} <= set(index)
