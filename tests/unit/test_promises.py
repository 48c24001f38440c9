# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Each promise of docs/promises.md stands where the table says, and the test that holds it is there."""

import functools
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/promises.md"
ROWS = [line[2:-2].split(" | ") for line in PAGE.read_text().partition("|---|---|---|\n")[2].splitlines()]
# Sections whose tables are lists of promises: each row has one.
COMPLETE = {
    "README.md": ["Operate"],
    "docs/acquisition.md": ["Faults, and what follows"],
    "docs/operations.md": ["Who may connect", "What the watchdog does", "Upgrade and roll back"],
}
FILES = [
    path for folder in ("tests", "molecule") for path in (ROOT / folder).rglob("*") if path.suffix in (".py", ".sh")
]


def plain(text):
    """On one line, without what begins a line of a list or of a quotation."""
    return " ".join(re.sub(r"^(- |> )", "", text, flags=re.MULTILINE).split())


@functools.lru_cache(None)
def sections(page):
    """{heading as GitHub names it: text}"""
    # A comment in a block of code is no heading.
    text = re.sub(r"^```.*?^```", lambda block: plain(block.group()), page.read_text(), flags=re.DOTALL | re.MULTILINE)
    parts = re.split(r"^#+ (.*)$", text, flags=re.MULTILINE)
    return {
        re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-"): plain(text)
        for title, text in zip(parts[1::2], parts[2::2])
    }


def promised(page, section):
    """The promises of a section."""
    link = "(%s#%s)" % ("../README.md" if page == "README.md" else page.partition("/")[2], section)
    return [plain(promise) for promise, where, _tests in ROWS if where.endswith(link)]


@pytest.mark.parametrize("promise,where", [row[:2] for row in ROWS], ids=lambda value: value.strip()[:40])
def test_it_stands_on_its_page(promise, where):
    path, section = re.fullmatch(r"\[[^]]+\]\((\S+)#(\S+)\)", where).groups()
    assert plain(promise) in sections((PAGE.parent / path).resolve())[section]


@pytest.mark.parametrize("tests", [row[2] for row in ROWS], ids=[row[0].strip()[:40] for row in ROWS])
def test_the_test_that_holds_it_is_there(tests):
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    for test in tests.strip().split(", "):
        by_hand = re.fullmatch(r"by hand: `make ([a-z-]+)`", test)
        if by_hand:
            assert by_hand.group(1) in targets
            continue
        file, function = re.fullmatch(r"`(\S+)::(\w+)`", test).groups()
        (path,) = [path for path in FILES if ("/%s" % path).endswith("/" + file)]
        assert re.search(r"^ *(def )?%s\(" % function, path.read_text(), re.MULTILINE), test


@pytest.mark.parametrize("page,title", [(page, title) for page, titles in COMPLETE.items() for title in titles])
def test_every_row_of_such_a_section_is_promised(page, title):
    section = re.search(
        r"^## %s\n(.*?)(?=^## |\Z)" % re.escape(title), (ROOT / page).read_text(), re.DOTALL | re.MULTILINE
    ).group(1)
    tables = re.findall(r"^\|.*\n\|---.*\n((?:\|.*\n)+)", section, re.MULTILINE)
    rows = [plain(row) for table in tables for row in table.splitlines()]
    promises = promised(page, re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-"))
    assert rows and [row for row in rows if not any(promise in row for promise in promises)] == []
