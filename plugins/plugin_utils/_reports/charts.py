# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Charts as SVG that stands in a page and takes its colors. Private to the collection."""

from __future__ import annotations

import html
import importlib
import re
from collections.abc import Mapping, Sequence

from ...module_utils._text import Refusal

SIZE = {"width": 760, "height": 340}
# Along the axis.
LABELS = 8


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
