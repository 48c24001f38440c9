# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules for imports between the packages of module_utils and plugin_utils, as docs/architecture.md has them."""

import ast
import configparser
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PLUGINS = ROOT / "plugins"
COLLECTION = "ansible_collections.thefermisea.llama_cluster.plugins."
NODES, CONTROLLER = "module_utils", "plugin_utils"
# A room may import rooms of lower floors, and itself.
FLOORS = {
    NODES: (
        ("_text", "_key"),
        ("_cache_keys", "_companion_keys", "_family", "_forms"),
        ("_slurm_keys",),
        ("_files", "_settings"),
        ("_node", "_model", "_install", "_job"),
        ("_llama", "_fetch"),
        ("_plan", "_serving", "_watchdog", "_adoption", "_removal", "_registry", "_bench", "_judge", "_seed"),
        ("_slurm",),
        ("_exporter",),
        ("_gateway", "_monitor"),
        ("_doctor",),
        ("programs",),
    ),
    CONTROLLER: (
        ("_filters", "_known", "_progress", "_run_lock", "_warm", "_intent"),
        ("_cluster_plan", "_units", "_access", "_gateway", "_monitoring"),
        ("_reports", "_doctor", "_slurm"),
        ("_evaluate", "_tune"),
    ),
}
LINES = 400
# To be split: (file, lines that it may have until then).
LONG = {}


def imports(path):
    """Yields the collection's imports as tuples below plugins/, and ("ansible",) for an import from Ansible."""
    own = path.relative_to(PLUGINS).with_suffix("").parts
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (("ansible",) for alias in node.names if alias.name.partition(".")[0].startswith("ansible"))
        elif isinstance(node, ast.ImportFrom) and node.level:
            base = own[: -node.level] + tuple((node.module or "").split(".") if node.module else ())
            # "from . import x" names modules, "from .x import y" names what is in one.
            yield from (base + (alias.name,) for alias in node.names) if is_package(base) else (base,)
        elif isinstance(node, ast.ImportFrom) and node.module.startswith(COLLECTION):
            yield tuple(node.module[len(COLLECTION) :].split("."))
        elif isinstance(node, ast.ImportFrom) and node.module.partition(".")[0] in ("ansible", "ansible_collections"):
            yield ("ansible",)


def is_package(parts):
    return PLUGINS.joinpath(*parts).is_dir()


def modules(tree):
    return sorted((PLUGINS / tree).rglob("*.py"))


def floor(tree, room):
    found = [number for number, rooms in enumerate(FLOORS[tree]) if room in rooms]
    assert found, "plugins/%s/%s is on no floor of FLOORS" % (tree, room)
    return found[0]


def rooms(tree):
    return sorted({path.relative_to(PLUGINS / tree).parts[0].replace(".py", "") for path in modules(tree)})


@pytest.mark.parametrize("tree", FLOORS)
def test_a_room_imports_only_lower_floors(tree):
    wrong = []
    for path in modules(tree):
        room = path.relative_to(PLUGINS / tree).parts[0].replace(".py", "")
        for used in imports(path):
            if used[0] == tree and used[1] != room and floor(tree, used[1]) >= floor(tree, room):
                wrong.append("%s imports %s" % (path.relative_to(PLUGINS), "/".join(used)))
    assert wrong == []
    assert sorted(room for floor_ in FLOORS[tree] for room in floor_) == rooms(tree)


def test_node_code_imports_nothing_that_a_node_lacks():
    for path in modules(NODES):
        assert {used[0] for used in imports(path)} <= {NODES}, path


def test_modules_import_only_node_code():
    for path in sorted((PLUGINS / "modules").glob("*.py")):
        assert {used[0] for used in imports(path)} <= {NODES, "ansible"}, path


def test_within_a_room_there_is_no_circle():
    for tree in FLOORS:
        graph = {
            path.relative_to(PLUGINS).with_suffix("").parts: [used for used in imports(path) if used[0] == tree]
            for path in modules(tree)
        }
        done = set()

        def visit(module, above, graph, done):
            assert module not in above, "%s imports itself by way of %s" % ("/".join(module), above)
            if module not in done:
                for used in graph.get(module, ()):
                    visit(used, above + (module,), graph, done)
                done.add(module)

        for module in graph:
            visit(module, (), graph, done)


def test_programs_do_not_import_each_other():
    for path in sorted((PLUGINS / NODES / "programs").glob("*.py")):
        assert not [used for used in imports(path) if used[:2] == (NODES, "programs")], path


def test_a_rooms_init_imports_nothing():
    """One import there would ship the room to every node."""
    for tree in FLOORS:
        for path in (PLUGINS / tree).rglob("__init__.py"):
            assert not list(imports(path)), path


def test_files_stay_short():
    long = {
        str(path.relative_to(PLUGINS)): len(path.read_text().splitlines()) for tree in FLOORS for path in modules(tree)
    }
    assert {name: lines for name, lines in long.items() if lines > LONG.get(name, LINES)} == {}
    assert {name for name in LONG if long.get(name, 0) <= LINES} == set(), "short by now"


def test_types_are_checked_in_every_room():
    config = configparser.ConfigParser()
    config.read(ROOT / "mypy.ini")
    assert config["mypy"].getboolean("disallow_untyped_defs")
    assert config.sections() == ["mypy", "mypy-ansible.*"], "a section of its own leaves a room out"


def test_the_page_of_the_architecture_shows_the_rooms():
    text = (ROOT / "docs/architecture.md").read_text()
    for tree in FLOORS:
        table = text.partition("| room of `plugins/%s/` |" % tree)[2].partition("\n\n")[0]
        shown = {
            row[0].strip("/"): re.findall(r"`(\w+)`", row[1])
            for row in re.findall(r"^\| `([\w/]+)` \|.*\|(.*)\|$", table, re.MULTILINE)
        }
        assert sorted(shown) == rooms(tree)
        for room, files in shown.items():
            assert files == sorted(path.stem for path in (PLUGINS / tree / room).glob("[!_]*.py")), room
