# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""For the tests' ansible-playbook: each Jinja expression is compiled once for each content, each Python file is
searched once for what it imports, and each filter and each of a play's vars_files is looked up once for each run.

ansible-core keeps none of this: every task of every host compiles its expressions again, searches every file of filters
and parses vars_files, and every run reads what each module needs again. That is half of what a run costs the
controller, and the tests are about two hundred runs. What is computed stays the same; with another Jinja, Python or
filter everything is computed again. What is replaced is private to ansible-core 2.19: with another one nothing is.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import marshal
import os
import shutil
import sys
import time
from pathlib import Path

import jinja2
from ansible import __version__
from ansible.executor import module_common
from ansible.parsing.dataloader import DataLoader
from ansible.plugins.callback import CallbackBase
from ansible.plugins.loader import Jinja2Loader, PluginLoader

CORE = ".".join(__version__.split(".")[:2])

DOCUMENTATION = r"""
name: compiled_once
type: aggregate
short_description: Compile what does not change once
version_added: 1.0.0
author: The Fermi Sea (@thefermisea)
description:
  - For tests only.
"""

REPOSITORY = Path(__file__).resolve().parents[3]
CACHE = Path(
    os.environ.get("LLAMA_CLUSTER_CACHE")
    or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "llama-cluster"),
    "compiled",
)
WEEK = 7 * 24 * 3600


class Kept:
    """Computed values by a key of everything that they depend on."""

    def __init__(self) -> None:
        # A filter's decorators are looked at when an expression is compiled.
        filters = b"".join(path.read_bytes() for path in sorted((REPOSITORY / "plugins/filter").glob("*.py")))
        always = (sys.version, __version__, jinja2.__version__, filters)
        self.known: dict[str, object] = {}
        self.folder = CACHE / self.key(always)
        if not self.folder.exists():
            self.folder.mkdir(parents=True, exist_ok=True)
            for old in CACHE.iterdir():
                if old.stat().st_mtime < time.time() - WEEK:
                    # Another run may remove it just now.
                    shutil.rmtree(old, ignore_errors=True)

    @staticmethod
    def key(*parts: object) -> str:
        return hashlib.sha256(repr(parts).encode()).hexdigest()

    def get(self, key: str) -> object:
        """-> the kept value, or None"""
        if key not in self.known:
            try:
                self.known[key] = marshal.loads((self.folder / key).read_bytes())
            except (OSError, EOFError, ValueError, TypeError):
                return None
        return self.known[key]

    def put(self, key: str, value: object) -> object:
        self.known[key] = value
        partial = self.folder / ("%s.%s" % (key, os.urandom(8).hex()))
        # Another run may have removed the directory as unused for a week.
        with contextlib.suppress(FileNotFoundError):
            partial.write_bytes(marshal.dumps(value))
            partial.rename(self.folder / key)
        return value


def keep_expressions(kept: Kept) -> None:
    """Code of templates and expressions, by their text and the environment's settings."""
    bits = importlib.import_module("ansible._internal._templating._jinja_bits")
    environment = bits.AnsibleEnvironment
    compile_any, compile_expression = environment.compile, environment.compile_expression

    def key(self, kind, source):
        context = bits._TemplateCompileContext.current(optional=True)
        settings = [getattr(self, name) for name in bits._TEMPLATE_OVERRIDE_FIELD_NAMES]
        embedded = bits._TemplateConfig.allow_embedded_templates
        return kept.key(kind, str(source), settings, embedded, context and context.escape_backslashes)

    def compile_once(self, source, name=None, filename=None, raw=False, defer_init=False):
        # compile_expression hands over what it has parsed; then the text is what it was given.
        known = self.__dict__.pop("_expression", None)
        if known is None and isinstance(source, str) and not (name or filename or raw or defer_init):
            known = key(self, "template", source)
        code = known and kept.get(known)
        if code is None:
            code = compile_any(self, source, name, filename, raw, defer_init)
            if known:
                kept.put(known, code)
        return code

    def expression_once(self, source, undefined_to_none=True):
        known = key(self, "expression", source)
        code = kept.get(known)
        if code is None:
            self._expression = known
            try:
                return compile_expression(self, source, undefined_to_none)
            finally:
                self.__dict__.pop("_expression", None)
        template = self.template_class.from_code(self, code, self.make_globals(None), None)
        return jinja2.environment.TemplateExpression(template, undefined_to_none)

    environment.compile, environment.compile_expression = compile_once, expression_once


def keep_imports(kept: Kept) -> None:
    """Keeps the imports of a module or a file of module_utils by its text."""
    parse, metadata = module_common._compile_module_ast, module_common._get_module_metadata
    find = module_common.ModuleDepFinder.__init__

    class Source:
        def __init__(self, name, text):
            self.name, self.text = name, text

        def tree(self):
            return parse(self.name, self.text)

    def find_once(self, module_fqn, source, is_pkg_init=False):
        text = source.text if isinstance(source.text, bytes) else source.text.encode()
        known = kept.key("imports", module_fqn, bytes(text), bool(is_pkg_init))
        found = kept.get(known)
        if found is None:
            find(self, module_fqn, source.tree(), is_pkg_init)
            kept.put(known, [list(self.submodules), list(self.optional_imports)])
        else:
            self.submodules, self.optional_imports = map(set, found)

    module_common.ModuleDepFinder.__init__ = find_once
    module_common._compile_module_ast = Source
    module_common._get_module_metadata = lambda source: metadata(source.tree())


def keep_filters() -> None:
    """Filters of collections by their names. ansible-core looks into every file of filters for each of them, for each
    value with a template."""
    find = Jinja2Loader.get_with_context
    known: dict[tuple[object, ...], object] = {}

    def find_once(self, name, *args, **kwargs):
        key = (self.type, name, len(self._extra_dirs))
        if key not in known:
            try:
                known[key] = find(self, name, *args, **kwargs)
            except KeyError as missing:
                # Jinja's own.
                known[key] = missing.with_traceback(None)
        if isinstance(known[key], KeyError):
            raise KeyError(*known[key].args)
        return known[key]

    Jinja2Loader.get_with_context = find_once


def keep_files() -> None:
    """The vars_files of plays, which ansible-core reads again for each task of each host, and the paths of connection
    plugins, which it lists as often. Other files are parsed whenever they are needed: ansible-core keeps them for once
    more, and a copy of that takes twice as long."""
    load, every = DataLoader.load_from_file, PluginLoader.all
    known: dict[tuple[object, ...], object] = {}

    def load_once(self, file_name, cache="all", unsafe=False, json_only=False, trusted_as_template=False):
        if not unsafe:
            return load(self, file_name, "none", True, json_only, trusted_as_template)
        if cache != "vaulted":
            return load(self, file_name, cache, unsafe, json_only, trusted_as_template)
        path = self.path_dwim(file_name)
        now = os.stat(path) if os.path.exists(path) else None
        key = (path, json_only, trusted_as_template, now and (now.st_ino, now.st_size, now.st_mtime_ns))
        if key not in known:
            known[key] = load(self, file_name, cache, unsafe, json_only, trusted_as_template)
        return known[key]

    def list_once(self, *args, **kwargs):
        if args or kwargs != {"path_only": True}:
            return every(self, *args, **kwargs)
        key = (self.class_name, *self._get_paths())
        if key not in known:
            known[key] = list(every(self, path_only=True))
        return iter(known[key])

    DataLoader.load_from_file, PluginLoader.all = load_once, list_once


class CallbackModule(CallbackBase):
    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "compiled_once"
    CALLBACK_NEEDS_ENABLED = True

    def v2_playbook_on_start(self, playbook: object) -> None:
        if CORE == "2.19":
            kept = Kept()
            keep_expressions(kept)
            keep_imports(kept)
            keep_filters()
            keep_files()
