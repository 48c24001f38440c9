# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Renders inventories and compares them with tests/golden/expected: files of nodes, gateways and monitoring hosts,
plans, clients' files, and the plays and tasks of every playbook. `make golden` writes them anew; git diff shows the
change."""

import difflib
import json
import os
import re

import pytest
from ansible_collections.thefermisea.llama_cluster.tests.unit.playbooks.simulation import (
    CALLBACKS,
    COLLECTIONS,
    ROOT,
    SETTINGS,
    playbook_lines,
)

GOLDEN = ROOT / "tests/golden"
NAMES = ("example", "two-sparks", "strix-halo", *("beefcake2" + one for one in ("", "-hybrid", "-slurm", "-april")))
INVENTORIES = {name: ["inventories/" + name] for name in NAMES}
INVENTORIES.update({"lab-" + name: ["inventories/lab", "tests/lab/" + name] for name in ("services", "gateway_host")})
# The lab's nodes have no cards; its inventory leaves that to preflight.
LAB = {"llama_devices": [{"main": True, "memory_mib": 16000}]}
# Files that are only assembled from roles/NAME/observed, and rules, which are the same in every inventory: shown once.
LEFT_OUT = re.compile("/dashboards/.|/doctor.json$")
RULES, SHOWN_BY = "/rules/", "beefcake2-april"
COMMENT = re.compile(r"\s*#(?!!|SBATCH )")
TAGS = re.compile(r"(?<=TAGS: \[)[^]]*")
# A digest of code and templates: a comment changes it.
DIGEST = re.compile(r"\b[0-9a-f]{16}\b")


def rendered(name, tmp_path):
    """The text of a golden file: the files of each host of an inventory, equal hosts together."""
    recorded = tmp_path / "recorded"
    recorded.mkdir()
    extra = {"ansible_connection": "local", **(LAB if name.startswith("lab") else {})}
    sources = [word for source in INVENTORIES[name] for word in ("-i", str(ROOT / source))]
    status, lines = playbook_lines(
        GOLDEN / "render.yml",
        *sources,
        "-e",
        json.dumps(extra),
        home=tmp_path,
        ANSIBLE_CALLBACKS_ENABLED=CALLBACKS + ",one_process,recorded",
        ANSIBLE_CALLBACK_PLUGINS="%s:%s" % (SETTINGS["ANSIBLE_CALLBACK_PLUGINS"], GOLDEN / "callback"),
        ANSIBLE_COLLECTIONS_PATH=COLLECTIONS,
        RECORDED=str(recorded),
        LLAMA_CLUSTER_CACHE="/cache",
        LLAMA_LAB_SHARE="/share",
        LLAMA_LAB_SLOT="0",
        HOME="/home/operator",
        XDG_CACHE_HOME="",
    )
    assert status == 0, "\n".join(lines[-30:])
    sections = {}
    for path in sorted(recorded.iterdir()):
        for line in path.read_text().splitlines():
            hosts = sections.setdefault(line, [])
            hosts += [path.name] * (path.name not in hosts)
    texts = []
    for line, hosts in sections.items():
        path, parts, text = json.loads(line)
        if not LEFT_OUT.search(path) and (name == SHOWN_BY or RULES not in path):
            texts.append(" ".join(filter(None, ["====", path, parts, "@", *hosts])) + "\n" + readable(path, text))
    return "\n".join(sorted(texts))


def readable(path, text):
    if path.endswith(".json") and text or path == "firewalld_rules":
        text = json.dumps(json.loads(text), indent=1, sort_keys=True, ensure_ascii=False)
    text = "\n".join(line for line in text.splitlines() if not COMMENT.match(line))
    return DIGEST.sub("DIGEST", text).rstrip("\n") + "\n" * bool(text)


def listed(tmp_path):
    """Returns the output of --list-tasks of every playbook: plays with the tags of their tasks, and names of tasks."""
    plays, tasks = [], []
    first, *others = map(str, sorted((ROOT / "playbooks").glob("[!_]*.yml")))
    arguments = (*others, "-i", str(ROOT / "inventories/beefcake2"), "--list-tasks")
    status, lines = playbook_lines(first, *arguments, home=tmp_path, ANSIBLE_COLLECTIONS_PATH=COLLECTIONS)
    assert status == 0, "\n".join(lines)
    # Ansible keeps them in a set.
    lines = [TAGS.sub(lambda found: ", ".join(sorted(re.findall(r"[\w-]+", found[0]))), line) for line in lines]
    before, *texts = "\n".join(lines).split("\nplaybook: ")
    tasks += [*(line for line in before.splitlines() if "WARNING" in line), ""]
    for text in texts:
        path, *lines = text.splitlines()
        name = os.path.basename(path)
        tags = sorted({tag for line in lines for tag in re.findall(r"[\w-]+", line.partition("TAGS: ")[2])})
        heads = [line for line in map(str.strip, lines) if line.startswith("play #")]
        plays += [name, "  tags: " + " ".join(tags), *["  " + head.replace("\t", "  ") for head in heads], ""]
        tasks += [name, "", *[line.rstrip().replace("\t", "  ") for line in lines]]
    return "\n".join(plays), "\n".join(tasks)


def keep(name, text):
    """Returns the golden file, after writing it if GOLDEN=write."""
    path = GOLDEN / "expected" / (name + ".txt")
    if os.environ.get("GOLDEN") == "write":
        path.write_text(text)
    return path


def compare(name, text):
    path = keep(name, text)
    diff = list(difflib.unified_diff(path.read_text().splitlines(), text.splitlines(), path.name, "now", lineterm=""))
    assert not diff, "\n".join([*diff[:100], "If this is meant: make golden, then git diff tests/golden"])


@pytest.mark.parametrize("name", INVENTORIES)
def test_inventory_renders_as_before(name, tmp_path):
    compare(name, rendered(name, tmp_path))


def test_playbooks_have_their_plays_and_tags(tmp_path):
    plays, tasks = listed(tmp_path)
    compare("playbooks", plays)
    # Names of tasks are free to change: kept to be read, not compared.
    keep("tasks", tasks)
