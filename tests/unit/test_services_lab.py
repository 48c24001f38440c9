# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What `make services-test` deploys and breaks, by hand, is what an inventory may say and a drill can do."""

import json
import re
from pathlib import Path

import yaml
from ansible_collections.thefermisea.llama_cluster.tests.unit import intents
from ansible_collections.thefermisea.llama_cluster.tests.unit.test_benchmarks import load

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "tests/lab/services/group_vars/all"
SERVICES = yaml.safe_load((FOLDER / "services.yml").read_text().replace("{{ llama_quant }}", "Q4_1"))["llama_services"]
MODELS = yaml.safe_load((FOLDER / "models.yml").read_text())["llama_models"]


def test_its_intent_is_sound():
    assert intents.mistakes(SERVICES, MODELS) == []


def test_every_service_is_killed_and_each_replica():
    (text,) = re.findall(r"^breaks=\((.*?)\)$", (ROOT / "tests/e2e/services.sh").read_text(), re.DOTALL | re.MULTILINE)
    killed = [one.split() for one in re.findall('"([^"]+)"', text)]
    catalog = yaml.safe_load((ROOT / "roles/drill/vars/main.yml").read_text())["__drill_catalog"]
    wanted = {
        (name, node if len(nodes) > 1 else "-")
        for name, service in SERVICES.items()
        for nodes in [intents.GROUPS.get(service["head"], [service["head"]])]
        for node in nodes
    }
    assert {(service, node) for service, node, _drills in killed} == wanted
    assert {drill for *_place, drills in killed for drill in drills.split(",") if drill != "$whole"} <= set(catalog)


def test_the_times_of_all_drills_are_one_table(tmp_path, capsys):
    phases = {"detection": 0.014, "held": None, "restart": 0.5, "total": 1.51}
    for name, load_s in (("chat", 1.0), ("quick.node2", None)):
        drill = {"drill": "head_kill", "phases": dict(phases, load=load_s)}
        (tmp_path / ("drill-%s.json" % name)).write_text(json.dumps({"drills": [drill]}))
    load("../e2e/times").main(tmp_path)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "| service | drill | detection | restart | load | total |"
    assert lines[2:] == [
        "| `chat` | `head_kill` | 0.01 | 0.50 | 1.00 | 1.51 |",
        "| `quick` on node2 | `head_kill` | 0.01 | 0.50 |  | 1.51 |",
    ]
