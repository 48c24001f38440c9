# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Dashboards for Grafana 9 and later, made of the roles' rows. Private to the collection.

A role's observed/dashboard.yml has the name of a dashboard and rows for it:

dashboard: cluster
rows:
  - title: "Service $service"
    repeat: service             # one such row for each value of this variable; optional
    panels:
      - title: Slots
        description: Slots at work, and requests that wait for one.
        type: timeseries        # of TYPES; timeseries by default
        unit: short             # of Grafana
        width: 8                # of 24; 8 by default
        min: 0                  # the axis begins here; max likewise; optional
        red: 1                  # from this value on; optional
        queries: [{expr: 'llama_slots_busy{service="$service"}', legend: "busy, {{node}}"}]
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ansible.module_utils.common.yaml import yaml_load

from . import dropped

Panel = dict[str, Any]
WIDTH, DEFAULT_WIDTH = 24, 8
# For Grafana 9.0; later versions migrate it.
SCHEMA = 36
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
# {type of a panel: its height in cells}
TYPES = {"stat": 4, "timeseries": 8, "state-timeline": 8, "table": 8, "bargauge": 8}
TITLES = {"cluster": "llama.cpp cluster", "gateway": "llama.cpp gateway"}
# {name of a variable: where its values come from}
VARIABLES = {
    "service": "label_values(llama_endpoint_state, service)",
    "node": "label_values(llama_sampler_info, node)",
}


def dashboards(roles: Path = dropped.ROLES) -> dict[str, dict[str, Any]]:
    """{name: what Grafana imports} of all roles; rows of one dashboard come in the order of dropped.dashboards()."""
    rows: dict[str, list[Mapping[str, Any]]] = {}
    for found in dropped.dashboards(roles):
        brought = yaml_load(found.path.read_text())
        rows.setdefault(brought["dashboard"], []).extend(brought["rows"])
    return {name: dashboard(name, brought) for name, brought in sorted(rows.items())}


def dashboard(name: str, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """One dashboard."""
    return {
        "uid": "llama-" + name,
        "title": TITLES.get(name, "llama.cpp " + name),
        "tags": ["llama-cluster"],
        "schemaVersion": SCHEMA,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "10s",
        "time": {"from": "now-3h", "to": "now"},
        "timezone": "browser",
        "templating": {"list": _variables(rows)},
        "annotations": {"list": []},
        "panels": _panels(rows),
    }


def _variables(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The data source, and the variables that rows use."""
    asked = str([(row["title"], row.get("repeat"), row["panels"]) for row in rows])
    repeated = {row.get("repeat") for row in rows}
    return [{"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus", "hide": 0}] + [
        {
            "name": name,
            "label": name.capitalize(),
            "type": "query",
            "datasource": DATASOURCE,
            "definition": query,
            "query": {"query": query, "refId": "A"},
            # When the time range changes: services come and go.
            "refresh": 2,
            "sort": 1,
            "multi": True,
            "includeAll": True,
            "current": {"selected": True, "text": ["All"], "value": ["$__all"]},
            "hide": 0,
        }
        for name, query in VARIABLES.items()
        if name in repeated or "$" + name in asked
    ]


def _panels(rows: Iterable[Mapping[str, Any]]) -> list[Panel]:
    """Row by row, from left to right and from top to bottom."""
    panels: list[Panel] = []
    top = 0
    for row in rows:
        head: Panel = {
            "id": len(panels) + 1,
            "type": "row",
            "title": row["title"],
            "collapsed": False,
            "panels": [],
            "gridPos": {"x": 0, "y": top, "w": WIDTH, "h": 1},
        }
        if row.get("repeat"):
            head["repeat"] = row["repeat"]
        panels.append(head)
        left, top, height = 0, top + 1, 0
        for said in row["panels"]:
            panel = _panel(len(panels) + 1, said)
            size = panel["gridPos"]
            if left + size["w"] > WIDTH:
                left, top, height = 0, top + height, 0
            size.update(x=left, y=top)
            left, height = left + size["w"], max(height, size["h"])
            panels.append(panel)
        top += height
    return panels


def _panel(number: int, said: Mapping[str, Any]) -> Panel:
    kind = said.get("type", "timeseries")
    targets = [
        {
            "refId": chr(ord("A") + index),
            "datasource": DATASOURCE,
            "expr": query["expr"].strip(),
            "legendFormat": query.get("legend", "__auto"),
            # Tables and single numbers show the last value.
            "instant": kind in ("table", "stat", "bargauge"),
            "range": kind not in ("table", "stat", "bargauge"),
            **({"format": "table"} if kind == "table" else {}),
        }
        for index, query in enumerate(said["queries"])
    ]
    return {
        "id": number,
        "type": kind,
        "title": said["title"],
        "description": said["description"],
        "datasource": DATASOURCE,
        "gridPos": {"x": 0, "y": 0, "w": said.get("width", DEFAULT_WIDTH), "h": TYPES[kind]},
        "targets": targets,
        "fieldConfig": {"defaults": _defaults(said), "overrides": []},
        "options": _options(kind),
    }


def _defaults(said: Mapping[str, Any]) -> dict[str, Any]:
    steps: list[dict[str, Any]] = [{"color": "green", "value": None}]
    if "red" in said:
        steps.append({"color": "red", "value": said["red"]})
    return {
        "unit": said["unit"],
        "thresholds": {"mode": "absolute", "steps": steps},
        **{key: said[key] for key in ("min", "max") if key in said},
    }


def _options(kind: str) -> dict[str, Any]:
    if kind in ("stat", "bargauge"):
        return {"reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False}}
    if kind == "table":
        return {"showHeader": True}
    if kind == "state-timeline":
        return {"showValue": "never", "mergeValues": True}
    return {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}}
