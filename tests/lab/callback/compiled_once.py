# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""For the tests' ansible-playbook: each Jinja expression is compiled once for each content, each Python file is
searched once for what it imports, and each filter, plugin and each of a play's vars_files is looked up once for each
run.

ansible-core keeps none of this: every task of every host compiles its expressions again, searches every file of filters
and parses vars_files, and every run reads what each module needs again. That is half of what a run costs the
controller, and the tests are about two hundred runs. What is computed stays the same; with another Jinja, Python or
filter everything is computed again. What is replaced is private to ansible-core 2.19: with another one nothing is.

A process that forks for each run (tests/unit/playbooks/playbook_server.py) prepares what its runs have used: Used.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib
import marshal
import os
import shutil
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import jinja2
from ansible import __version__
from ansible.errors import AnsibleError
from ansible.executor import module_common
from ansible.parsing.dataloader import DataLoader
from ansible.plugins import loader as loaders
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
# Files that do not differ from run to run.
LASTING = "/ansible_collections/"


class Used(NamedTuple):
    """The expressions, filters, plugins and files that this run has used, and how often."""

    code: Counter[str]
    filters: Counter[tuple[str, str]]
    plugins: Counter[tuple[object, ...]]
    files: Counter[tuple[str, bool, bool]]


used = Used(Counter(), Counter(), Counter(), Counter())
load_file = DataLoader.load_from_file
# By the arguments of load_from_file and the file's state: each is used up by one reading, which may change it.
parsed: dict[tuple[object, ...], list[object]] = {}


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
        used.code[key] += 1
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
        used.filters[self.type, name] += 1
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


def keep_plugins() -> None:
    """Where the plugins of collections are."""
    find = PluginLoader.find_plugin_with_context
    known: dict[tuple[object, ...], object] = {}

    def find_once(self, name, mod_type="", ignore_deprecated=False, check_aliases=False, collection_list=None):
        arguments = (name, mod_type, ignore_deprecated, check_aliases, collection_list)
        if not name.startswith(("ansible.builtin.", "thefermisea.")):
            return find(self, *arguments)
        key = (self.type, *arguments[:4])
        used.plugins[key] += 1
        if key not in known:
            found = find(self, *arguments)
            if not found.resolved:
                return found
            known[key] = found
        return known[key]

    PluginLoader.find_plugin_with_context = find_once


def keep_text() -> None:
    """A string without a template is itself."""
    engine = importlib.import_module("ansible._internal._templating._engine")
    bits = importlib.import_module("ansible._internal._templating._jinja_bits")
    template, default = engine.TemplateEngine.template, engine.TemplateOptions.DEFAULT
    tagged, constant = bits._AnsibleTaggedStr, bits._JinjaConstTemplate

    def text_or_template(self, variable, *, options=default, **modes):
        plain = type(variable) in (str, tagged) and options is default and "{" not in variable
        if plain and not variable.startswith(bits.JINJA2_OVERRIDE) and not constant.is_tagged_on(variable):
            return variable
        return template(self, variable, options=options, **modes)

    engine.TemplateEngine.template = text_or_template


def state(path: str) -> tuple[int, int, int] | None:
    now = os.stat(path) if os.path.exists(path) else None
    return now and (now.st_ino, now.st_size, now.st_mtime_ns)


def keep_files() -> None:
    """The vars_files of plays, which ansible-core reads again for each task of each host, and the paths of connection
    plugins, which it lists as often. Other files are parsed whenever they are needed: ansible-core keeps them for once
    more, and a copy of that takes twice as long."""
    every = PluginLoader.all
    known: dict[tuple[object, ...], object] = {}

    def load_once(self, file_name, cache="all", unsafe=False, json_only=False, trusted_as_template=False):
        if unsafe and cache != "vaulted":
            return load_file(self, file_name, cache, unsafe, json_only, trusted_as_template)
        path = self.path_dwim(file_name)
        key = (path, json_only, trusted_as_template, state(path))
        if unsafe and key in known:
            return known[key]
        copies = parsed.get(key)
        if copies:
            found = copies.pop()
        else:
            found = load_file(self, path, cache if unsafe else "none", True, json_only, trusted_as_template)
        if LASTING in path:
            used.files[path, json_only, trusted_as_template] += 1
        if unsafe:
            known[key] = found
        return found

    def list_once(self, *args, **kwargs):
        if args or kwargs != {"path_only": True}:
            return every(self, *args, **kwargs)
        key = (self.class_name, *self._get_paths())
        if key not in known:
            known[key] = list(every(self, path_only=True))
        return iter(known[key])

    DataLoader.load_from_file, PluginLoader.all = load_once, list_once


@functools.cache
def keep() -> Kept:
    """All of it, once in a process."""
    kept = Kept()
    keep_expressions(kept)
    keep_imports(kept)
    keep_filters()
    keep_plugins()
    keep_text()
    keep_files()
    return kept


def prepare(*counters: Counter[Any]) -> None:
    """For the next run: what one has used."""
    if CORE != "2.19":
        return
    by_run, kept = Used(*counters), keep()
    for key in by_run.code:
        kept.get(key)
    for kind, name in by_run.filters:
        # Jinja's own.
        with contextlib.suppress(KeyError):
            getattr(loaders, kind + "_loader").get_with_context(name)
    by_type = {one.type: one for one in vars(loaders).values() if isinstance(one, PluginLoader)}
    for kind, *arguments in by_run.plugins:
        by_type[kind].find_plugin_with_context(*arguments)
    for (path, *how), number in by_run.files.items():
        copies = parsed.setdefault((path, *how, state(path)), [])
        # A test may have removed it.
        with contextlib.suppress(AnsibleError):
            copies += [load_file(DataLoader(), path, "none", True, *how) for _copy in range(number - len(copies))]


class CallbackModule(CallbackBase):
    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "compiled_once"
    CALLBACK_NEEDS_ENABLED = True

    def v2_playbook_on_start(self, playbook: object) -> None:
        # playbook_server.py has done it.
        if CORE == "2.19" and "compiled_once" not in sys.modules:
            keep()
