# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Writes the results of card tests (tests/card/results/*.json) into README.md and docs/hardware.md.

    pages.py [--check]

With --check it writes nothing and fails if a page is out of date. Owners of cards send the results in, so each value is
checked before it is shown, and is shown as plain text. A result of mode cpu is checked and never shown.
"""

import argparse
import datetime
import json
import re
import sys
import textwrap
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
RESULTS = "tests/card/results"
WIDTH = 120
SCHEMA = 1
MAX_BYTES = 1 << 20
# The parts of a card test, in their order. A result is complete if it has all of them.
PARTS = (
    "boot",
    "deploy",
    "facts",
    "verify",
    "plan",
    "sandbox",
    "kills",
    "watchdog",
    "doctor",
    "sampler",
    "again",
    "benchmark",
    "switch",
    "one_node",
    "teardown",
)
# Field: longest text, and what it must look like.
FIELDS = {
    "card": (60, r"[A-Za-z0-9][A-Za-z0-9 ._+/()-]*"),
    "driver": (30, r"[0-9][0-9.]*"),
    "cuda": (20, r"[0-9][0-9.]*"),
    "build": (60, r"[A-Za-z0-9][A-Za-z0-9._-]*"),
    "version": (20, r"b[0-9]+"),
    "kernel": (80, r"[0-9][A-Za-z0-9._+~-]*"),
}
# A result without a card has these, too.
WITHOUT_CARD = ("build", "version", "kernel")
LONGEST_NAME, LONGEST_SEEN, SHOWN_SEEN = 200, 2000, 160
MOST_CHECKS, MOST_FIGURES, MOST_NODES = 200, 200, 100
DAY = 24 * 3600
# Serial numbers of cards, as nvidia-smi and drivers print them.
UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", re.IGNORECASE)
MARKS = {
    "card results": ("<!-- card results: made by tests/card/pages.py -->", "<!-- end of card results -->"),
    "card status": ("<!-- card status: made by tests/card/pages.py -->", "<!-- end of card status -->"),
}
MOST_IN_README = 6

CPU_NODES = "CPU nodes are tested end to end, in containers with real systemd and real llama.cpp"
NOT_YET = (
    "**It has not been deployed on a GPU yet.** %s. For CUDA, command lines, memory plans, benchmark and "
    "`nvidia_smi_facts` were tried on one card by hand; units and their sandbox are computed and checked, and have not "
    "run on a card ([what is proven](#what-is-proven))." % CPU_NODES
)
DEPLOYED = (
    "**Deployed and tested on %s (%s, %s, %s).** There [three nodes in namespaces](docs/hardware.md) share one card. "
    + CPU_NODES
    + " ([what is proven](#what-is-proven))."
)


class Refused(Exception):
    """A result or a page that cannot be used, as one sentence."""


class Part(NamedTuple):
    ok: bool
    seconds: float
    failed: list  # (check, value seen)
    figures: dict  # name: number or text


class Result(NamedTuple):
    date: str
    card: str
    driver: str
    cuda: str
    build: str
    kernel: str
    parts: dict  # name: Part

    def passed(self):
        return [name for name, part in self.parts.items() if part.ok]

    def missing(self):
        return [name for name in PARTS if name not in self.parts]

    def complete(self):
        """Every part ran and passed."""
        return not self.missing() and len(self.passed()) == len(self.parts)

    def count(self):
        return "%d of %d" % (len(self.passed()), len(self.parts) + len(self.missing()))


def short(value):
    return ascii(value)[:60]


def need(condition, where, seen, needed):
    if not condition:
        raise Refused("%s: %s seen, %s is needed: write it with tests/card/run.py" % (where, short(seen), needed))


def is_number(value, most):
    """False for infinite ones, too."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= most


def is_text(value, longest):
    return isinstance(value, str) and 0 < len(value) <= longest and value.isprintable()


def part_of(name, data):
    where = "parts." + name
    need(name in PARTS, "parts", name, "one of %s" % ", ".join(PARTS))
    need(isinstance(data, dict), where, data, "an object")
    need(isinstance(data.get("ok"), bool), where + ".ok", data.get("ok"), "true or false")
    seconds = data.get("seconds")
    need(is_number(seconds, DAY) and seconds >= 0, where + ".seconds", seconds, "a number from 0 to %d" % DAY)
    checks, figures = data.get("checks"), data.get("figures", {})
    need(isinstance(checks, list) and len(checks) <= MOST_CHECKS, where + ".checks", checks, "a list of checks")
    failed, passed = [], 0
    for number, check in enumerate(checks):
        at = "%s.checks[%d]" % (where, number)
        need(isinstance(check, dict), at, check, "an object")
        what, ok, seen = check.get("what"), check.get("ok"), check.get("seen", "")
        need(is_text(what, LONGEST_NAME), at + ".what", what, "printable text of at most %d characters" % LONGEST_NAME)
        need(ok is None or isinstance(ok, bool), at + ".ok", ok, "true, false or null")
        # Lines of logs: they are made printable where they are shown.
        need(isinstance(seen, str) and len(seen) <= LONGEST_SEEN, at + ".seen", seen, "text of at most 2000 characters")
        passed += ok is True
        if ok is False:
            failed.append((what, seen))
    need(isinstance(figures, dict) and len(figures) <= MOST_FIGURES, where + ".figures", figures, "an object")
    for figure, value in figures.items():
        needed = "a name and a value of at most %d printable characters" % LONGEST_NAME
        need(is_text(figure, LONGEST_NAME), where + ".figures", figure, needed)
        need(is_text(value, LONGEST_NAME) or is_number(value, 1e15), "%s.figures.%s" % (where, figure), value, needed)
    # A part without a check that passed has shown nothing.
    return Part(data["ok"] and passed > 0 and not failed, seconds, failed, figures)


def result_of(text):
    """-> Result, or None for a run without a card. Refused if it is not what run.py writes."""
    try:
        data = json.loads(text, parse_constant=lambda name: None)
    except (ValueError, RecursionError) as error:
        raise Refused("not JSON (%s): write it with tests/card/run.py" % str(error)[:80]) from None
    need(isinstance(data, dict), "the file", data, "an object")
    if data.get("schema") is True or data.get("schema") != SCHEMA:
        raise Refused(
            "schema: %s seen, %d is needed: use run.py of this checkout" % (short(data.get("schema")), SCHEMA)
        )
    serial = UUID.search(text)
    if serial:
        raise Refused("%s looks like the UUID of a card: replace it, results are public" % serial.group())
    mode, date, nodes = data.get("mode"), data.get("date"), data.get("nodes")
    need(mode in ("card", "cpu"), "mode", mode, "card or cpu")
    try:
        need(isinstance(date, str) and re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", date), "date", date, "YYYY-MM-DD")
        datetime.date.fromisoformat(date)
    except ValueError:
        raise Refused("date: %s seen, a day of the calendar is needed: correct it" % short(date)) from None
    need(
        isinstance(nodes, int) and nodes is not True and 0 < nodes <= MOST_NODES,
        "nodes",
        nodes,
        "a number from 1 to %d" % MOST_NODES,
    )
    for field, (longest, pattern) in FIELDS.items():
        value = data.get(field)
        if mode == "cpu" and field not in WITHOUT_CARD:
            continue
        right = isinstance(value, str) and len(value) <= longest and re.fullmatch(pattern, value)
        need(right, field, value, "text like %s of at most %d characters" % (pattern, longest))
    parts = data.get("parts")
    need(isinstance(parts, dict) and parts, "parts", parts, "an object with the parts that ran")
    found = {name: part_of(name, part) for name, part in parts.items()}
    if mode == "cpu":
        return None
    ordered = {name: found[name] for name in PARTS if name in found}
    return Result(*(data[field] for field in Result._fields[:-1]), ordered)


def results_of(folder):
    """-> Results of cards below a directory, the newest first. Refused names the file."""
    found = []
    for path in sorted(folder.glob("*.json")):
        try:
            # A link that somebody sends in may lead anywhere.
            if path.is_symlink() or not path.is_file():
                raise Refused("no plain file: send only what run.py wrote")
            if path.stat().st_size > MAX_BYTES:
                raise Refused(
                    "%d bytes, at most %d are read: send only what run.py wrote" % (path.stat().st_size, MAX_BYTES)
                )
            result = result_of(path.read_text(encoding="utf-8"))
        except (Refused, UnicodeDecodeError, OSError) as error:
            raise Refused("%s: %s" % (short(path.name)[1:-1], error)) from None
        found += [result] if result else []
    return sorted(found, key=lambda result: result.date, reverse=True)


def plain(value, longest=LONGEST_NAME):
    """-> a text or a number as Markdown that shows it as it is, in a cell of a table, too"""
    if not isinstance(value, str):
        return "%.0f" % value if abs(value) >= 1000 or value == int(value) else "%.4g" % value
    words = " ".join(value.split())
    words = "".join(letter if letter.isprintable() else "?" for letter in words)
    words = words if len(words) <= longest else words[: longest - 3] + "..."
    # Also what GitHub makes links of: addresses, names of users, numbers of issues.
    words = re.sub(r"[&<>|`*_\[\]\\~#!@${}^]|:(?=//)", lambda found: "&#%d;" % ord(found.group()), words)
    return re.sub(r"\bwww\.", "www&#46;", words, flags=re.IGNORECASE)


def table(head, rows):
    lines = ["| %s |" % " | ".join(head), "|" + "---|" * len(head)]
    return "\n".join(lines + ["| %s |" % " | ".join(row) for row in rows])


def title(result):
    return "%s, %s, %s" % (plain(result.card), plain(result.driver), plain(result.build))


def status(results):
    """-> the status of README.md, without its first sentence"""
    for result in results:
        if result.complete():
            return DEPLOYED % tuple(map(plain, (result.card, result.driver, result.build, result.date)))
    return NOT_YET


def readme_results(results):
    """-> what README.md states in "What is proven" """
    if not results:
        return "No result of a [card test](docs/hardware.md) yet."
    listed = [
        "%s (%s, parts passed: %s)" % (title(result), plain(result.date), result.count())
        for result in results[:MOST_IN_README]
    ]
    more = ", and more" if len(results) > MOST_IN_README else ""
    return textwrap.fill(
        "[Card tests](docs/hardware.md): %s%s." % ("; ".join(listed), more),
        WIDTH,
        break_long_words=False,
        break_on_hyphens=False,
    )


def hardware(results):
    """-> the tables of docs/hardware.md"""
    if not results:
        return "No result yet."
    shown = [
        (
            *map(plain, (result.card, result.driver, result.cuda, result.kernel, result.build, result.date)),
            result.count(),
            "%.0f" % sum(part.seconds for part in result.parts.values()),
        )
        for result in results
    ]
    out = [table(("card", "driver", "CUDA", "kernel", "build", "date", "parts passed", "seconds"), shown)]
    failed = []
    for result in results:
        for name, part in result.parts.items():
            if not part.ok:
                reasons = part.failed or [("no check passed", "")]
                failed += [
                    (title(result), "`%s`" % name, plain(what), plain(seen, SHOWN_SEEN)) for what, seen in reasons
                ]
        failed += [(title(result), "`%s`" % name, "did not run", "") for name in result.missing()]
    if failed:
        out += ["Failed:", table(("result", "part", "check", "seen"), failed)]
    figures = [
        (title(result), "`%s`" % name, plain(figure), plain(value))
        for result in results
        for name, part in result.parts.items()
        for figure, value in part.figures.items()
    ]
    if figures:
        out += ["Figures:", table(("result", "part", "figure", "value"), figures)]
    return "\n\n".join(out)


def replaced(page, name, block):
    """-> the page with this text between the marks of that name"""
    begin, end = MARKS[name]
    if page.count(begin) != 1 or page.count(end) != 1 or page.index(begin) > page.index(end):
        raise Refused("cannot find one pair of %s and %s: restore them" % (begin, end))
    return page[: page.index(begin) + len(begin)] + block + page[page.index(end) :]


def quotation(text, end):
    """-> text as lines of a quotation. The mark that follows it is never at the beginning of a line, where it would end
    the paragraph."""
    first, _space, last = text.rpartition(" ")
    joined = first + " " + (last + " " + end).replace(" ", "\0")
    lines = textwrap.wrap(joined, WIDTH - 2, break_long_words=False, break_on_hyphens=False)
    return "\n" + "\n".join("> " + line for line in lines).replace("\0", " ")[: -len(end)]


def pages(root):
    """-> {path: text that it should have}"""
    results = results_of(root / RESULTS)
    readme, page = root / "README.md", root / "docs/hardware.md"
    text = replaced(readme.read_text(encoding="utf-8"), "card results", "\n" + readme_results(results) + "\n")
    return {
        readme: replaced(text, "card status", quotation(status(results), MARKS["card status"][1])),
        page: replaced(page.read_text(encoding="utf-8"), "card results", "\n\n" + hardware(results) + "\n\n"),
    }


def main(words=None, root=ROOT):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing, fail if a page is out of date")
    check = parser.parse_args(words).check
    try:
        stale = {path: text for path, text in pages(root).items() if path.read_text(encoding="utf-8") != text}
    except Refused as error:
        print("%s: nothing was written" % error, file=sys.stderr)
        return 1
    for path, text in stale.items():
        name = path.relative_to(root)
        if check:
            print("%s does not match %s: run python3 tests/card/pages.py" % (name, RESULTS), file=sys.stderr)
        else:
            path.write_text(text, encoding="utf-8")
            print("%s: written" % name)
    return int(check and bool(stale))


if __name__ == "__main__":
    sys.exit(main())
