# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Paths on nodes are named in _node/paths.py: Python takes them from there, and what YAML, templates and docs write is one of them."""

import ast
import fnmatch
import re
from pathlib import Path

from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._node import paths

ROOT = Path(__file__).resolve().parents[2]
NAMED = {name: path for name, path in vars(paths).items() if name.isupper()}
OURS = re.compile(r"/?\b(?:etc|opt|run|var/lib)/(?:llama-|systemd/system)")
WRITTEN = re.compile(r"(?<![\w*}])/(?:(?:etc|opt|run|var/lib)/llama-cluster(?!-)[\w./*-]*|run/llama-lending[\w-]*|etc/systemd/system/llama-[\w.*-]*)")
CODE = [path for tree in ("modules", "module_utils", "plugin_utils", "action", "callback", "filter") for path in (ROOT / "plugins" / tree).rglob("*.py")]
TEXTS = [path for tree in ("roles", "playbooks", "plugins", "docs") for path in (ROOT / tree).rglob("*") if path.suffix in (".yml", ".j2", ".py", ".md", ".sh")]


def written(text):
    """The paths of a text; what a template or a reader fills in, and the service of examples, is a *."""
    text = re.sub(r"\{\{.*?\}\}|' ~ \w+ ~ '|\\+\d|<[A-Z]+>", "*", text)
    text = re.sub(r"(?<=[/-])(?:[A-Z]{3,}|reasoning)\b", "*", text)
    return {path.rstrip("./") for path in WRITTEN.findall(text)}


def is_named(path):
    """A name that is filled in may stand for any file of a directory."""
    return any(fnmatch.fnmatchcase(path, one) for one in NAMED.values()) or path.rstrip("*").rstrip("/") in NAMED.values()


def test_what_is_written_is_named():
    assert {(str(path.relative_to(ROOT)), one) for path in TEXTS for one in written(path.read_text()) if not is_named(one)} == set()


def test_code_takes_paths_from_there():
    for path in CODE:
        tree = ast.parse(path.read_text())
        texts = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)} - documentation(tree)
        assert path.name == "paths.py" or [text for text in texts if OURS.search(text)] == [], path


def documentation(tree):
    """Docstrings, and what modules and plugins document."""
    found = {one.value.value for one in ast.walk(tree) if isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant)}
    assigned = [one for one in ast.walk(tree) if isinstance(one, ast.Assign) and isinstance(one.targets[0], ast.Name)]
    return found | {one.value.value for one in assigned if one.targets[0].id in ("DOCUMENTATION", "EXAMPLES", "RETURN")}


def test_nothing_is_named_in_vain():
    texts = {path: path.read_text() for path in TEXTS if path.name != "paths.py"}
    used = {name for text in texts.values() for name in re.findall(r"\bpaths\.([A-Z_]+)\b", text)}
    everywhere = {one for text in texts.values() for one in written(text)}
    left = {name for name, path in NAMED.items() if name not in used and not any(fnmatch.fnmatchcase(one, path) for one in everywhere)}
    own = set(re.findall(r"= ([A-Z_]+) \+", (ROOT / "plugins/module_utils/_node/paths.py").read_text()))
    assert left - own == set()
