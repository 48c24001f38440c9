# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How long a first load takes is said before it begins, by the role's own words."""

from pathlib import Path

import jinja2
import pytest
import yaml

TASKS = yaml.safe_load((Path(__file__).resolve().parents[2] / "roles/head_server/tasks/configure.yml").read_text())


@pytest.mark.parametrize(
    ("weights", "said"),
    [
        (
            [28000, 29000, 16682],
            "reasoning: 77.3 GB are read and sent when it starts, at 0.3 to 0.9 GB/s about 1.4 to 4.3 minutes",
        ),
        ([60], None),
    ],
)
def test_a_large_model_says_how_long_it_loads(weights, said):
    (task,) = [task for task in TASKS if task["name"] == "Report how long a large model loads"]
    templates = jinja2.Environment(undefined=jinja2.StrictUndefined)
    variables = {"__head_server_loading": {"service": "reasoning"}}
    variables["plan"] = {"devices": [{"weights_mib": mib} for mib in weights]}
    variables["gb"] = templates.from_string(task["vars"]["gb"]).render(variables)
    wanted = templates.from_string("{{ %s }}" % task["when"]).render(variables) == "True"
    line = templates.from_string(task["thefermisea.llama_cluster.show_lines"]["lines"][0]).render(variables)
    assert (line if wanted else None) == said
