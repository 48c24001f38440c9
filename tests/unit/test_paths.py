# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Paths on nodes are named in _node/paths.py: Python takes them from there, YAML, templates and docs write the same."""

import ast
import fnmatch
import re
from pathlib import Path

import yaml
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._node import paths
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._intent import variables

ROOT = Path(__file__).resolve().parents[2]
NAMED = {name: path for name, path in vars(paths).items() if name.isupper()}
OURS = re.compile(r"/?\b(?:etc|opt|run|var/lib)/(?:llama-|systemd/system)")
WRITTEN = re.compile(
    r"(?<![\w*}])/(?:(?:etc|opt|run|var/lib)/llama-cluster(?!-)[\w./*-]*|run/llama-(?:share|link)[\w-]*|etc/systemd/system/llama-[\w.*-]*)"
)
TREES = ("roles", "playbooks", "plugins", "docs")
TEXTS = [
    path for tree in TREES for kind in ("yml", "j2", "py", "md", "sh") for path in (ROOT / tree).rglob("*." + kind)
]
CODE = [path for path in TEXTS if path.suffix == ".py" and path.name != "paths.py"]


def written(text):
    """The paths of a text; what a template or a reader fills in, and the service of examples, is a *."""
    text = re.sub(r"\{\{.*?\}\}|' ~ \w+ ~ '|\\+\d|<[A-Z]+>", "*", text)
    text = re.sub(r"(?<=[/-])(?:[A-Z]{3,}|reasoning)\b", "*", text)
    return {path.rstrip("./") for path in WRITTEN.findall(text)}


def is_named(path):
    """A name that is filled in may stand for any file of a directory."""
    named = any(fnmatch.fnmatchcase(path, one) for one in NAMED.values())
    return named or path.rstrip("*").rstrip("/") in NAMED.values()


def test_what_is_written_is_named():
    everywhere = {(str(path.relative_to(ROOT)), one) for path in TEXTS for one in written(path.read_text())}
    assert {place for place in everywhere if not is_named(place[1])} == set()


def test_code_takes_paths_from_there():
    for path in CODE:
        tree = ast.parse(path.read_text())
        constants = {
            node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)
        }
        assert [text for text in constants - documentation(tree) if OURS.search(text)] == [], path


def documentation(tree):
    """Docstrings, and what modules and plugins document."""
    named = ("DOCUMENTATION", "EXAMPLES", "RETURN")
    nodes = [one for one in ast.walk(tree) if isinstance(one, ast.Expr)]
    nodes += [
        one for one in ast.walk(tree) if isinstance(one, ast.Assign) and getattr(one.targets[0], "id", "") in named
    ]
    return {node.value.value for node in nodes if isinstance(node.value, ast.Constant)}


def test_roles_share_one_directory_of_builds():
    prefixes = {}
    for path in (ROOT / "roles").glob("*/vars/main.yml"):
        values = yaml.safe_load(path.read_text())
        prefixes.update({name: value for name, value in values.items() if name.endswith("_prefix")})
    assert set(prefixes) == {"__llama_cpp_prefix", "__rpc_worker_prefix", "__head_server_prefix"}
    drilled = yaml.safe_load((ROOT / "roles/drill/vars/main.yml").read_text())["__drill_releases"]
    assert set(prefixes.values()) == {paths.BUILDS} and drilled == paths.BUILDS + "/releases"
    assert [name for name in variables.role_options() if re.search("_(prefix|releases_dir)$", name)] == []


def test_nothing_is_named_in_vain():
    used = {name for path in CODE for name in re.findall(r"\bpaths\.([A-Z_]+)\b", path.read_text())}
    used.update(re.findall(r"= ([A-Z_]+) \+", (ROOT / "plugins/module_utils/_node/paths.py").read_text()))
    everywhere = {one for path in TEXTS for one in written(path.read_text())}
    assert [name for name, path in NAMED.items() if name not in used and not fnmatch.filter(everywhere, path)] == []
