# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The report as one HTML file that loads nothing: criteria, readings, and charts of earlier runs. Private to the
collection."""

import html
import importlib
import re
from collections.abc import Mapping, Sequence
from typing import Any

from ...module_utils._text import Refusal
from .results import Results, label_of, value

Map = Mapping[str, Any]
# The most runs, the newest.
RUNS = 30
SIZE = {"width": 760, "height": 340}
# Along the axis.
LABELS = 8
STYLE = """
:root { color-scheme: light dark; --paper: #fff; --ink: #1c1e21; --soft: #5b6168; --line: #d5d9de; --fill: #f4f6f8;
  --good: #17692f; --bad: #a4131a; --open: #6b5300;
  --c0: #0b62c4; --c1: #b4470b; --c2: #17692f; --c3: #8a1f8f; --c4: #00707a; --c5: #7a5c00; }
@media (prefers-color-scheme: dark) { :root { --paper: #16181b; --ink: #e8eaed; --soft: #a2a9b1; --line: #3a3f45;
  --fill: #1f2327; --good: #6fd08c; --bad: #ff8f87; --open: #e3c55b;
  --c0: #6fb1ff; --c1: #ff9d63; --c2: #6fd08c; --c3: #e08be5; --c4: #5fd3de; --c5: #e3c55b; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1rem; max-width: 70rem; background: var(--paper); color: var(--ink);
  font: 16px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.5rem; margin: 0 0 .25rem; } h2 { font-size: 1.15rem; margin: 2rem 0 .5rem; }
p { margin: .25rem 0; color: var(--soft); }
.wide { overflow-x: auto; border: 1px solid var(--line); border-radius: .4rem; }
table { border-collapse: collapse; width: 100%; font-size: .9rem; }
th, td { padding: .4rem .6rem; text-align: left; vertical-align: top; border-bottom: 1px solid var(--line); }
th { background: var(--fill); white-space: nowrap; } tr:last-child td { border-bottom: 0; }
.number { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
.verdict { white-space: nowrap; font-weight: 600; }
.met, .target, .acceptable { color: var(--good); } .not-met, .critical, .below { color: var(--bad); }
.not-measurable-here, .not-measured { color: var(--open); }
svg { display: block; width: 100%; min-width: 34rem; height: auto; }
svg text { fill: var(--ink); font-size: 12px; } svg .background, svg path { fill: none; }
svg .axis.y text { text-anchor: end; } svg .axis.x text { text-anchor: start; }
svg .guide { stroke: var(--line); stroke-dasharray: 3 3; } svg .axis.x .guide { display: none; }
svg .axis .line { stroke: var(--line); } svg .series .line { stroke: currentColor; stroke-width: 2; }
svg .dot, svg .legend rect { fill: currentColor; } svg desc, svg .tooltip { display: none; }
svg .color-0 { color: var(--c0); } svg .color-1 { color: var(--c1); } svg .color-2 { color: var(--c2); }
svg .color-3 { color: var(--c3); } svg .color-4 { color: var(--c4); } svg .color-5 { color: var(--c5); }
"""


def page(result: Map, kept: Results) -> str:
    """result: of criteria_report(); kept: earlier results. Untrusted text is escaped."""
    rows = [*_benchmarks(kept), *_reports([*kept.history("report"), result])]
    rows.sort(key=lambda row: (row["measured_at"], row["service"]))
    met = [one for one in result["criteria"] if one["verdict"] == "met"]
    title = f"{len(met)} of {len(result['criteria'])} criteria met"
    parts = [
        f"<h1>{_text(title)}</h1>",
        f"<p>Acceptance report, {_text(result['measured_at'])}</p>",
        "<h2>Criteria</h2>",
        table(
            ("verdict", "criterion", "seen", "by", "when"),
            [
                (_verdict(one["verdict"]), one["name"], _seen(one), one["evidence"], one["measured_at"] or "-")
                for one in result["criteria"]
            ],
        ),
        "<h2>Targets</h2>",
        "<p>Each figure twice: by the targets as they were written down, and by what it means on these machines.</p>",
        table(
            ("service", "what", "measured", "by the notes", "asked for", "means", "verdict", "by", "when"),
            [_reading(row) for row in result["readings"]],
        ),
        *_compared("Tokens/s", "tokens_per_second", "%.1f", "of one request at a time, after its first token", rows),
        *_compared("Time to first token", "first_token", "%.3f", "in seconds, of one request at a time", rows),
    ]
    return document(title, parts)


def document(title: str, parts: Sequence[str]) -> str:
    """A page of these parts, which are HTML."""
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        "<title>%s</title>\n<style>%s</style>\n</head>\n<body>\n%s\n</body>\n</html>\n"
        % (_text(title), STYLE, "\n".join(parts))
    )


class Raw(str):
    """Trusted markup."""


def _text(text: object) -> str:
    return text if isinstance(text, Raw) else html.escape(str(text))


def _verdict(verdict: str) -> Raw:
    return Raw(f'<span class="verdict {_text(verdict.replace(" ", "-"))}">{_text(verdict)}</span>')


def _seen(one: Map) -> str:
    return f"{one['value']}; {one['needed']}" if one["needed"] else str(one["value"])


def _reading(row: Map) -> tuple[Any, ...]:
    return (
        row["service"],
        row["metric"],
        row["value"] or "-",
        _verdict(row["noted"]),
        row["target"],
        row["meant"] or "-",
        _verdict(row["judged"]),
        row["evidence"],
        row["measured_at"] or "-",
    )


def table(heads: Sequence[str], rows: Sequence[Sequence[Any]], numbers: Sequence[int] = ()) -> str:
    """numbers: the columns that are aligned as numbers."""

    def cell(column: int, text: object) -> str:
        return "<td%s>%s</td>" % (' class="number"' if column in numbers else "", _text(text))

    head = "".join(f"<th>{_text(one)}</th>" for one in heads)
    body = "".join(f"<tr>{''.join((cell(*one) for one in enumerate(row)))}</tr>\n" for row in rows)
    return f'<div class="wide"><table>\n<tr>{head}</tr>\n{body}</table></div>'


def _benchmarks(kept: Results) -> list[dict[str, Any]]:
    """The first cell of each benchmark with one request at a time, else its first one."""
    found = []
    for one in kept.history("benchmark"):
        cells = sorted(one.get("cells") or [], key=lambda cell: (cell["concurrency"] != 1, cell["depth"]))
        if cells:
            row = {"service": label_of(one), "measured_at": one["measured_at"], "run": "benchmark"}
            row["build"] = value(one, "fingerprint.build.release")
            row["tokens_per_second"] = value(cells[0], "figures.request_tokens_per_second.p50")
            row["first_token"] = value(cells[0], "figures.time_to_first_token.p50")
            found.append(dict(row, model=_model(one)))
    return found


def _model(one: Map) -> str:
    return " ".join(filter(None, (one.get("model"), one.get("quant"))))


def _reports(reports: Sequence[Map]) -> list[dict[str, Any]]:
    """Figures that a report measured itself, without figures of benchmarks."""
    return [
        {**figures, "service": label, "run": "verify", "build": None, "model": _model(figures)}
        for one in reports
        for label, figures in (one.get("figures") or {}).items()
        if figures["measured_at"] == one["measured_at"]
    ]


def _compared(title: str, key: str, form: str, says: str, rows: Sequence[Map]) -> list[str]:
    known = [row for row in rows if row.get(key) is not None]
    moments = sorted({row["measured_at"] for row in known})[-RUNS:]
    known = [row for row in known if row["measured_at"] in moments]
    if not known:
        return [f"<h2>{_text(title)}</h2>", "<p>Not measured yet.</p>"]
    of: dict[str, dict[str, float]] = {}
    for row in known:
        of.setdefault(row["service"], {})[row["measured_at"]] = row[key]
    series = {name: [values.get(moment) for moment in moments] for name, values in sorted(of.items())}
    try:
        chart = line_chart(title, [moment[5:16].replace("T", " ") for moment in moments], series)
    except Refusal as refusal:
        # The table still has the figures.
        chart = f"<p>{_text(refusal)}</p>"
    return [
        f"<h2>{_text(title)}</h2>",
        f"<p>{_text(says)}</p>",
        f'<div class="wide">{chart}</div>',
        "<p>The same in figures, the newest first.</p>",
        table(
            ("when", "service", title.lower(), "run", "model", "build"),
            [
                (
                    row["measured_at"],
                    row["service"],
                    form % row[key],
                    row["run"],
                    row.get("model") or "-",
                    row["build"] or "-",
                )
                for row in reversed(known)
            ],
            numbers=(2,),
        ),
    ]


def line_chart(title: str, moments: Sequence[str], series: Mapping[str, Sequence[float | None]]) -> str:
    """series: {name: a value for each moment, None for none}. Refusal where what draws is not installed."""
    try:
        # Importing it takes half a second, and only the report needs it.
        pygal, style = importlib.import_module("pygal"), importlib.import_module("pygal.style")
    except ImportError:
        raise Refusal(
            "pygal: not there for this Ansible's Python, 3.1.3 is needed to draw charts: run pip install -r "
            "requirements.txt"
        ) from None
    chart = pygal.Line(
        # By default it loads a script from elsewhere.
        js=[],
        css=[],
        disable_xml_declaration=True,
        style=style.Style(font_family="inherit", label_font_size=12, major_label_font_size=12, legend_font_size=13),
        title=None,
        legend_at_bottom=True,
        legend_at_bottom_columns=2,
        include_x_axis=True,
        max_scale=8,
        dots_size=4,
        x_label_rotation=25,
        # More of them would overlap.
        x_labels_major_every=max(1, -(-len(moments) // LABELS)),
        show_minor_x_labels=False,
        **SIZE,
    )
    chart.x_labels = list(moments)
    for name, values in series.items():
        chart.add(name, list(values))
    return _inline(chart.render(is_unicode=True), title)


def _inline(svg: str, title: str) -> str:
    """An SVG without scripts, styles and names, which would affect the whole page. Its text is escaped."""
    for part in (
        r"<!--.*?-->",
        r"<script\b.*?</script>",
        r"<style\b.*?</style>",
        r' id="[^"]*"',
        r"<title\b.*?</title>",
    ):
        svg = re.sub(part, "", svg, flags=re.DOTALL)
    return svg.replace("<svg ", f'<svg role="img" aria-label="{html.escape(title)}" ', 1)
