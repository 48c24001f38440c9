# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Dashboards made of the roles' rows, checked without Grafana, by their JSON."""

import itertools
import json
import re

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._monitoring import dashboards
from ansible_collections.thefermisea.llama_cluster.tests.unit import observed

ALL = dashboards.dashboards()
PANELS = [(name, panel) for name, one in ALL.items() for panel in one["panels"] if panel["type"] != "row"]
IDS = ["%s: %s" % (name, panel["title"]) for name, panel in PANELS]
# Units of Grafana.
UNITS = {"short", "s", "bytes", "Bps", "bps", "percentunit", "watt", "celsius", "reqps"}


def test_cluster_and_gateway_have_dashboards():
    assert sorted(ALL) == ["cluster", "gateway"]
    assert len({one["uid"] for one in ALL.values()}) == len(ALL)


@pytest.mark.parametrize("name", ALL)
def test_a_dashboard_is_what_grafana_9_imports(name):
    one = json.loads(json.dumps(ALL[name]))
    assert one["schemaVersion"] >= 36 and re.fullmatch(r"[\w-]{1,40}", one["uid"]) and one["title"]
    # No number of a foreign installation: the data source is chosen where it is imported.
    first = one["templating"]["list"][0]
    assert (first["name"], first["type"], first["query"]) == ("datasource", "datasource", "prometheus")
    numbers = [panel["id"] for panel in one["panels"]]
    assert numbers == sorted(set(numbers))
    for panel in one["panels"]:
        for target in panel.get("targets", ()):
            assert target["datasource"] == {"type": "prometheus", "uid": "${datasource}"}


@pytest.mark.parametrize("name", ALL)
def test_panels_do_not_overlap(name):
    places = [panel["gridPos"] for panel in ALL[name]["panels"]]
    cells = [
        {(x, y) for x in range(one["x"], one["x"] + one["w"]) for y in range(one["y"], one["y"] + one["h"])}
        for one in places
    ]
    assert all(one["x"] + one["w"] <= 24 for one in places)
    assert not [pair for pair in itertools.combinations(cells, 2) if pair[0] & pair[1]]


@pytest.mark.parametrize("name", ALL)
def test_variables_are_there_and_used(name):
    variables = {one["name"]: one for one in ALL[name]["templating"]["list"]}
    text = json.dumps(ALL[name]["panels"])
    used = set(re.findall(r"\$\{?([a-z]+)", text)) | {panel.get("repeat") for panel in ALL[name]["panels"]} - {None}
    assert used - {"labels", "value"} == set(variables)
    for one in variables.values():
        assert one["type"] == "datasource" or not observed.unknown(re.sub(r", \w+\)", ")", one["query"]["query"]))


def test_each_service_has_a_row():
    (row,) = [panel for panel in ALL["cluster"]["panels"] if panel.get("repeat") == "service"]
    assert row["title"] == "Service $service"


@pytest.mark.parametrize("name,panel", PANELS, ids=IDS)
def test_a_panel_says_what_it_shows(name, panel):
    assert panel["title"] and panel["description"].endswith(".")
    assert panel["fieldConfig"]["defaults"]["unit"] in UNITS
    assert panel["targets"] and [target["refId"] for target in panel["targets"]] == list(
        "ABCDEF"[: len(panel["targets"])]
    )
    for target in panel["targets"]:
        assert target["expr"] and not observed.unknown(target["expr"])
        # A rate over a fixed window is empty where the window is shorter than two scrapes.
        assert not re.search(r"rate\([^)]*\[\d", target["expr"])
        assert target["legendFormat"] == "__auto" or "{{" in target["legendFormat"]
        assert panel["type"] != "timeseries" or target["legendFormat"] != "__auto", "a line needs a name"


def test_titles_are_unique():
    for name in ALL:
        titles = [panel["title"] for one, panel in PANELS if one == name]
        assert len(titles) == len(set(titles))


@pytest.fixture
def roles(tmp_path):
    """Two roles with a row of the same dashboard, and one with a dashboard of its own."""
    for role, name in (("alarm", "cluster"), ("monitoring", "cluster"), ("radio", "waves")):
        panel = "{title: T, description: D., unit: s, width: %d, queries: [{expr: up, legend: a}]}" % 16
        (tmp_path / role / "observed").mkdir(parents=True)
        (tmp_path / role / "observed/dashboard.yml").write_text(
            "dashboard: %s\nrows: [{title: %s, panels: [%s, %s]}]\n" % (name, role, panel, panel)
        )
    return tmp_path


def test_rows_of_roles_are_merged(roles):
    made = dashboards.dashboards(roles)
    assert [panel["title"] for panel in made["cluster"]["panels"]] == ["monitoring", "T", "T", "alarm", "T", "T"]
    # 16 of 24 columns: the second one comes below, and the next row below that.
    assert [panel["gridPos"]["y"] for panel in made["cluster"]["panels"]] == [0, 1, 9, 17, 18, 26]
    assert (made["waves"]["uid"], made["waves"]["title"]) == ("llama-waves", "llama.cpp waves")
    assert [one["name"] for one in made["waves"]["templating"]["list"]] == ["datasource"]
    targets = [one["expr"] for panel in made["waves"]["panels"] for one in panel.get("targets", ())]
    assert targets == ["up", "up"]
