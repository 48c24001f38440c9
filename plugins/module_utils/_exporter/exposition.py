# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Prometheus' text format (version 0.0.4), written and read. Private to the collection."""

import math
import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

Labels = dict[str, str]
NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
SAMPLE = re.compile(r"^(%s)(?:\{(.*)\})?[ \t]+(\S+)(?:[ \t]+-?\d+)?[ \t]*$" % NAME)
LABEL = re.compile(r'(?<!\w)([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"')
ESCAPES = (("\\", "\\\\"), ("\n", "\\n"), ('"', '\\"'))


class Sample(NamedTuple):
    name: str
    labels: Labels
    value: float


class Family:
    """The samples of one metric. kind: gauge, counter or histogram; words: its meaning and unit."""

    def __init__(self, name: str, kind: str, words: str) -> None:
        self.name, self.kind, self.words = name, kind, words
        self.samples: list[tuple[str, Labels, float]] = []

    def add(self, value: Any, **labels: Any) -> None:
        """Adds a sample, unless the value is None."""
        if value is not None:
            known = {key: str(one) for key, one in labels.items() if one is not None}
            self.samples.append(("", known, float(value)))

    def add_part(self, suffix: str, value: float, **labels: Any) -> None:
        """A part of a histogram: _bucket, _sum or _count."""
        self.samples.append((suffix, {key: str(one) for key, one in labels.items()}, float(value)))


def render(families: Iterable[Family]) -> str:
    """The page for a scrape. Families without samples are omitted."""
    lines = []
    for family in families:
        if not family.samples:
            continue
        lines.append("# HELP %s %s" % (family.name, family.words.replace("\\", "\\\\").replace("\n", "\\n")))
        lines.append(f"# TYPE {family.name} {family.kind}")
        written = set()
        for suffix, labels, value in family.samples:
            shown = ",".join(f'{key}="{_escaped(labels[key])}"' for key in sorted(labels))
            series = "%s%s%s" % (family.name, suffix, "{%s}" % shown if shown else "")
            # node_exporter rejects a whole page for a series that is there twice.
            if series not in written:
                written.add(series)
                lines.append(f"{series} {number(value)}")
    return "".join(line + "\n" for line in lines)


def number(value: float) -> str:
    """Whole numbers have no exponent, so that counters of bytes stay exact."""
    if value == int(value) if abs(value) < 2**53 else False:
        return str(int(value))
    return "NaN" if math.isnan(value) else repr(value).replace("inf", "Inf")


def _escaped(text: str) -> str:
    for plain, escaped in ESCAPES:
        text = text.replace(plain, escaped)
    return text


def _plain(text: str) -> str:
    return re.sub(r"\\(.)", lambda found: "\n" if found.group(1) == "n" else found.group(1), text)


def parse(text: str) -> Iterator[Sample]:
    """The samples of a page. Invalid lines are skipped."""
    # str.splitlines() would also split at characters that labels may hold.
    for line in text.split("\n"):
        if not line or line.startswith("#"):
            continue
        found = SAMPLE.match(line)
        if not found:
            continue
        try:
            value = float(found.group(3))
        except ValueError:
            continue
        yield Sample(found.group(1), {key: _plain(one) for key, one in LABEL.findall(found.group(2) or "")}, value)
