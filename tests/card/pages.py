# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Writes the results of card tests (tests/card/results/*.json) into README.md and docs/benchmarks.md.

    pages.py [--check]

With --check it writes nothing and fails if a page is out of date. Owners of cards send results in: fields that name
things have a pattern, and all texts are shown as plain text. A result of mode cpu is not shown.
"""

import argparse
import json
import re
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RESULTS = "tests/card/results"
WIDTH = 120
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
FIELDS = {
    "date": r"\d{4}-\d\d-\d\d",
    "card": r"[A-Za-z0-9][A-Za-z0-9 ._+/()-]{0,59}",
    "driver": r"[0-9][0-9.]{0,29}",
    "cuda": r"[0-9][0-9.]{0,19}",
    "build": r"[A-Za-z0-9][A-Za-z0-9._-]{0,59}",
    "kernel": r"[0-9][A-Za-z0-9._+~-]{0,79}",
}
MARKS = {
    "card results": ("<!-- card results: made by tests/card/pages.py -->", "<!-- end of card results -->"),
    "card status": ("<!-- card status: made by tests/card/pages.py -->", "<!-- end of card status -->"),
}

CPU_NODES = "CPU nodes are tested end to end, in containers with real systemd and real llama.cpp"
NOT_YET = (
    "**It has not been deployed on a GPU yet.** %s. For CUDA, the command lines, memory plans, benchmark and "
    "`nvidia_smi_facts` were tried manually on one card; the unit files and their sandbox are generated and tested "
    "but have never run on a GPU ([what is proven](#what-is-proven))." % CPU_NODES
)
DEPLOYED = (
    "**Deployed and tested on %s (%s, %s, %s).** There [three nodes in namespaces](docs/benchmarks.md#card-tests) "
    "share one card. " + CPU_NODES + " ([what is proven](#what-is-proven))."
)


class Refused(Exception):
    """A result that cannot be used, as one sentence."""


def result_of(text):
    """-> the JSON of run.py, with `passed`: the names of the parts whose checks all passed"""
    data = json.loads(text)
    if data.get("schema") != 1 or not set(data["parts"]) <= set(PARTS):
        raise Refused("a result of schema 1 with parts of %s is needed: use run.py of this checkout" % ", ".join(PARTS))
    for field, pattern in FIELDS.items():
        # Results by Vulkan have Mesa's version as that of the driver.
        none = field == "cuda" and "-vulkan-" in data["build"]
        if data["mode"] == "card" and not re.fullmatch(pattern, data[field]) and not (none and data[field] == ""):
            raise Refused("%s: %s seen, text like %s is needed" % (field, ascii(data[field])[:60], pattern))
    # A part without a check that passed has shown nothing.
    data["passed"] = [
        name
        for name, part in data["parts"].items()
        if part["ok"] and {check["ok"] for check in part["checks"]} in ({True}, {True, None})
    ]
    return data


def results_of(folder):
    """Results of cards below a directory, the newest first."""
    found = []
    for path in sorted(folder.glob("*.json")):
        try:
            found.append(result_of(path.read_text(encoding="utf-8")))
        except (Refused, LookupError, TypeError, AttributeError, ValueError) as error:
            raise Refused("%s: %s: write it with tests/card/run.py" % (path.name, error)) from None
    return sorted((one for one in found if one["mode"] == "card"), key=lambda one: one["date"], reverse=True)


def plain(value):
    """A text or a number as Markdown that shows it as it is, also in a cell of a table."""
    if isinstance(value, (int, float)):
        return "%.0f" % value if abs(value) >= 1000 or value == int(value) else "%.4g" % value
    words = textwrap.shorten("".join(one if one.isprintable() else " " for one in str(value)), 160, placeholder="...")
    # Also what GitHub makes links of: addresses, names of users, numbers of issues.
    words = re.sub(r"[&<>|`*_\[\]\\~#!@${}^]|:(?=//)", lambda found: "&#%d;" % ord(found.group()), words)
    return re.sub(r"\bwww\.", "www&#46;", words, flags=re.IGNORECASE)


def table(head, rows):
    lines = ["| %s |" % " | ".join(head), "|" + "---|" * len(head)]
    return "\n".join(lines + ["| %s |" % " | ".join(row) for row in rows])


def title(result):
    return "%s, %s, %s" % (result["card"], result["driver"], result["build"])


def count(result):
    return "%d of %d" % (len(result["passed"]), len(PARTS))


def status(results):
    """The status of README.md, without its first sentence."""
    for result in results:
        if len(result["passed"]) == len(PARTS):
            return DEPLOYED % tuple(result[field] for field in ("card", "driver", "build", "date"))
    return NOT_YET


def readme_results(results):
    """-> the section "What is proven" of README.md"""
    if not results:
        return "No result of a [card test](docs/benchmarks.md#card-tests) yet."
    listed = ["%s (%s, parts passed: %s)" % (title(one), one["date"], count(one)) for one in results]
    return "[Card tests](docs/benchmarks.md#card-tests): %s." % "; ".join(listed)


def hardware(results):
    """The tables of docs/benchmarks.md."""
    if not results:
        return "No result yet."
    fields = ("card", "driver", "cuda", "kernel", "build", "date")
    shown = [(*(one[field] or "-" for field in fields), count(one)) for one in results]
    failed, figures = [], []
    for result in results:
        for name in PARTS:
            part = result["parts"].get(name, {"checks": [{"what": "did not run", "ok": False}]})
            wrong = [(check["what"], check.get("seen", "")) for check in part["checks"] if check["ok"] is False]
            if name not in result["passed"]:
                failed += [
                    (title(result), "`%s`" % name, plain(what), plain(seen))
                    for what, seen in wrong or [("no check passed", "")]
                ]
            figures += [(title(result), "`%s`" % name, *map(plain, one)) for one in part.get("figures", {}).items()]
    out = [table(("card", "driver", "CUDA", "kernel", "build", "date", "parts passed"), shown)]
    if failed:
        out += ["Failed:", table(("result", "part", "check", "seen"), failed)]
    if figures:
        out += ["Figures:", table(("result", "part", "figure", "value"), figures)]
    return "\n\n".join(out)


def replaced(page, name, block):
    """The page with this text between the marks of that name, if it has them."""
    begin, end = MARKS[name]
    before, mark, rest = page.partition(begin)
    return before + begin + block + end + rest.partition(end)[2] if mark else page


def wrapped(text, width=WIDTH):
    return textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False)


def quotation(text, end):
    """Lines of a quotation. The mark that follows is never at the beginning of a line, where it would end the
    paragraph."""
    first, _space, last = text.rpartition(" ")
    joined = first + " " + (last + " " + end).replace(" ", "\0")
    return "\n" + "\n".join("> " + line for line in wrapped(joined, WIDTH - 2)).replace("\0", " ")[: -len(end)]


def pages(root):
    """{path: text that it should have}"""
    results = results_of(root / RESULTS)
    readme, page = root / "README.md", root / "docs/benchmarks.md"
    text = replaced(
        readme.read_text(encoding="utf-8"), "card results", "\n%s\n" % "\n".join(wrapped(readme_results(results)))
    )
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
        if check:
            print("%s does not match %s: run python3 tests/card/pages.py" % (path, RESULTS), file=sys.stderr)
        else:
            path.write_text(text, encoding="utf-8")
    return int(check and bool(stale))


if __name__ == "__main__":
    sys.exit(main())
