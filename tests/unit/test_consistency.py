# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Two places that must agree: defaults and argument specs, variables and their readers, plugins and their callers."""

import ast
import dataclasses
import functools
import importlib
import re
import subprocess
from pathlib import Path

import pytest
import yaml
from ansible_collections.thefermisea.llama_cluster.plugins.doc_fragments.attributes import ModuleDocFragment
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._gateway.config import SILENCE
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._intent.gateway import DEFAULTS as GATEWAY
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._intent.records import Head, Worker
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._intent.variables import EXTRA

ROOT = Path(__file__).resolve().parents[2]
ROLES = sorted(path.parent for path in ROOT.glob("roles/*/meta") if path.is_dir())
PLAYBOOKS = sorted(ROOT.glob("playbooks/[!_]*.yml"))
SCENARIOS = sorted(path.parent for path in ROOT.glob("molecule/*/molecule.yml"))
INVENTORIES = sorted(path.parent for path in ROOT.glob("inventories/*/hosts.yml"))
MODULES = sorted(ROOT.glob("plugins/modules/[!_]*.py"))
FILTERS = sorted(ROOT.glob("plugins/filter/[!_]*.py"))
# Public modules; only the collection's own playbooks and roles call the others.
PUBLIC = {
    *("gguf_fetch", "gguf_verify", "llama_plan", "nvidia_smi_facts", "llama_fabric_facts", "llama_unit_info"),
    *("llama_health", "llama_bench"),
}
PUBLIC_FILTERS = {"node_serving", "node_rpc", "gateway_config"}
# Code that runs on nodes with CPython 3.9 or newer.
ON_NODES = MODULES + sorted(ROOT.glob("plugins/module_utils/**/*.py"))
WORD = re.compile(r"[A-Za-z_]\w*")


def name(path):
    return path.name


class Loader(yaml.CSafeLoader):
    """YAML of playbooks and inventories, whatever tags it has."""


Loader.add_multi_constructor("!", lambda loader, suffix, node: loader.construct_scalar(node))


@functools.cache
def load(path):
    """Parsed once for all tests, which do not change it."""
    return yaml.load(path.read_text(), Loader) if path.exists() else None


@functools.cache
def nodes_of(path):
    """All syntax nodes of a Python file, parsed once for all tests."""
    return list(ast.walk(ast.parse(path.read_text())))


def scalars(node):
    """Every string that is a value, at any depth."""
    if isinstance(node, dict):
        node = list(node.values())
    if isinstance(node, list):
        for item in node:
            yield from scalars(item)
    elif isinstance(node, str):
        yield node


def words_of(paths):
    """The words that YAML values and templates use; keys and comments are definitions and prose."""
    found = set()
    for path in paths:
        if path.suffix == ".j2":
            found.update(WORD.findall(re.sub(r"{#.*?#}", "", path.read_text(), flags=re.DOTALL)))
        else:
            for text in scalars(load(path)):
                found.update(WORD.findall(text))
    return found


@functools.cache
def plugin_constants():
    """Every string constant of the plugins: a variable is read by its whole name."""
    found = set()
    for path in ROOT.glob("plugins/**/*.py"):
        found.update(
            node.value for node in nodes_of(path) if isinstance(node, ast.Constant) and isinstance(node.value, str)
        )
    return found


def plain(value):
    """Folded and quoted forms of one expression are the same default."""
    return " ".join(value.split()) if isinstance(value, str) else value


def test_controller_and_role_share_gateway_defaults():
    defaults = load(ROOT / "roles/gateway/defaults/main.yml")
    assert {option: str(defaults[option]) for option in GATEWAY} == {
        option: str(value) for option, value in GATEWAY.items()
    }
    # nginx waits longer than any service may be silent.
    timeout = load(ROOT / "roles/gateway/vars/main.yml")["__gateway_timeout"]
    assert timeout.startswith("{{ ([%d] + " % SILENCE)


@pytest.mark.parametrize("role", ROLES, ids=name)
def test_defaults_equal_argument_specs(role):
    specs = load(role / "meta/argument_specs.yml")["argument_specs"]
    options = {
        option: spec for entry_point in specs.values() for option, spec in entry_point.get("options", {}).items()
    }
    defaults = load(role / "defaults/main.yml") or {}
    optional = {option: spec for option, spec in options.items() if not spec.get("required")}
    assert sorted(defaults) == sorted(optional)
    assert {option: plain(value) for option, value in defaults.items()} == {
        option: plain(spec.get("default")) for option, spec in optional.items()
    }
    assert not [option for option in options if not option.startswith(role.name + "_")]


@pytest.mark.parametrize("role", ROLES, ids=name)
def test_options_are_read(role):
    readers = [
        path
        for folder in ("defaults", "vars", "tasks", "handlers", "templates")
        for path in role.glob(folder + "/**/*")
        if path.is_file()
    ]
    assert set(load(role / "defaults/main.yml") or {}) - words_of(readers) == set()


@pytest.mark.parametrize("role", ROLES, ids=name)
def test_readme_names_every_option(role):
    specs = load(role / "meta/argument_specs.yml")["argument_specs"]
    readme = role / "README.md"
    written = set(WORD.findall(readme.read_text())) if readme.exists() else set()
    assert {option for entry_point in specs.values() for option in entry_point.get("options", {})} - written == set()


@pytest.mark.parametrize("role", ROLES, ids=name)
def test_role_has_a_scenario(role):
    """slurm_launcher has the lab with a real SLURM."""
    scenario = {"slurm_launcher": "slurm"}.get(role.name, role.name)
    assert (ROOT / "molecule" / scenario / "molecule.yml").is_file()


def tasks_of(path):
    """Every task of a file, also inside plays and blocks."""

    def walk(entries):
        for entry in entries or []:
            yield entry
            for part in ("pre_tasks", "tasks", "post_tasks", "block", "rescue", "always"):
                yield from walk(entry.get(part))

    return walk(load(path))


def calls():
    """Yields (file, role, entry point, vars) of all calls of a role by another one or by a playbook."""
    for path in [*ROOT.glob("roles/*/tasks/*.yml"), *ROOT.glob("playbooks/**/*.yml")]:
        if path.parent.name == "vars":
            continue
        for task in tasks_of(path):
            for action in ("ansible.builtin.include_role", "ansible.builtin.import_role"):
                for role, entry in [] if action not in task else asked(task[action], task.get("loop")):
                    if "roles/%s/" % role not in str(path):
                        yield path, role, entry, task.get("vars") or {}


def asked(call, loop):
    """[(role, entry point)]; a loop names roles, entry points, or pairs of both."""
    role, entry = (call.get(key, "main").split(".")[-1 if key == "name" else 0] for key in ("name", "tasks_from"))
    if "{{" not in entry:
        return [(one, entry) for one in loop] if "{{" in role else [(role, entry)]
    return [tuple(one) for one in loop] if isinstance(loop[0], list) else [(role, one) for one in loop]


def test_entry_points_that_others_call_are_specified():
    specs = {role.name: load(role / "meta/argument_specs.yml")["argument_specs"] for role in ROLES}
    used = {(role, entry) for _path, role, entry, _given in calls()}
    assert {"apply", "model", "node_setup", "preflight"} <= {role for role, _entry in used}
    assert sorted((role, entry) for role, entry in used if entry not in specs[role]) == []


def test_calls_pass_specified_variables():
    """Another name without the role's prefix is the caller's own, and the caller reads it there."""
    specs = {role.name: load(role / "meta/argument_specs.yml")["argument_specs"] for role in ROLES}
    options = {option for one in specs.values() for spec in one.values() for option in spec.get("options", {})}
    unknown, missing = [], []
    for path, role, entry, given in calls():
        own = {word for text in scalars(list(given.values())) for word in WORD.findall(text)}
        private = {option for option in given if option.startswith("__%s_" % path.parent.parent.name)}
        unknown += [(path.name, role, option) for option in set(given) - options - own - private]
        needed = {
            option for option, spec in specs[role].get(entry, {}).get("options", {}).items() if spec.get("required")
        }
        # It may be a variable of a play, of a block or of a file that it reads, or a fact that another entry point
        # of the role leaves.
        read = [ROOT / "playbooks/vars" / file for play in load(path) for file in play.get("vars_files", [])]
        texts = [one.read_text() for one in (path, *read, *ROOT.glob("roles/%s/tasks/*.yml" % role))]
        missing += [(path.name, role, one) for one in needed if not any(one + ":" in text for text in texts)]
    assert (unknown, missing) == ([], [])


def test_files_included_by_computed_name_import_nothing():
    """ansible-core 2.18 would compute the name again for an import, without the host's variables."""
    for path in sorted(ROOT.glob("roles/*/tasks/**/*.yml")):
        for included in re.findall(r"include_tasks:(.*(?:\n {4,}.*)*)", path.read_text()):
            names = re.findall(r"'([a-z_]+)(?:\.yml)?'", included) if "{{" in included else []
            for file in [path.parent / (name + ".yml") for name in names]:
                assert not file.exists() or "import_tasks" not in file.read_text(), (path, file)


def test_no_fact_keeps_a_filter_of_hostvars():
    """ansible-core 2.18 computes a fact again on each use, and a server's text may look like an expression: a filter of
    hostvars removes the mark of untrusted text."""
    found = []
    for path in [*ROOT.glob("roles/*/tasks/**/*.yml"), *ROOT.glob("playbooks/**/*.yml")]:
        for task in tasks_of(path) if path.parent.name != "vars" else []:
            facts = task.get("ansible.builtin.set_fact", {})
            found += [name for name, value in facts.items() if re.search(r"\{\{\s*hostvars\s*\|", str(value))]
    # Names of variables of the inventory, and a report whose filter keeps the mark.
    assert sorted(found) == ["__acceptance_report", "__preflight_variables"]


@pytest.mark.parametrize(("role", "record"), [("head_server", Head), ("rpc_worker", Worker)])
def test_roles_take_all_that_a_record_has(role, record):
    """A run would refuse a field that the specification lacks as unsupported."""
    options = load(ROOT / "roles" / role / "meta/argument_specs.yml")["argument_specs"]["main"]["options"]
    known = set(options[role + "_instances"]["options"])
    assert {field.name for field in dataclasses.fields(record)} <= known


def test_no_condition_is_the_content_of_a_file():
    """files of node_facts has the text of a file or none, and ansible-core from 2.19 on wants true or false."""
    condition = re.compile(r"\.files\[[^]]+\]\s+(and|or)\b")
    paths = [*ROOT.glob("roles/*/tasks/*.yml"), *ROOT.glob("playbooks/**/*.yml")]
    assert [str(path) for path in paths if condition.search(path.read_text())] == []


@pytest.mark.parametrize("role", ROLES, ids=name)
def test_no_loop_takes_a_name_of_its_role(role):
    """Ansible would print a warning in the middle of the output."""
    own = set(load(role / "vars/main.yml") or {}) | set(load(role / "defaults/main.yml") or {})
    names = re.findall(r"loop_var: (\w+)", "\n".join(path.read_text() for path in role.glob("tasks/**/*.yml")))
    assert own.isdisjoint(names)


@pytest.mark.parametrize("role", ROLES, ids=name)
def test_no_result_replaces_a_variable(role):
    """The next use of the variable in the same run would have the result of a task."""
    own = set(load(role / "vars/main.yml") or {})
    names = re.findall(r"register: (\w+)", "\n".join(path.read_text() for path in role.glob("tasks/**/*.yml")))
    assert own.isdisjoint(names)


def test_only_its_role_reads_private_variables():
    wrong = []
    for path in [*ROOT.glob("roles/**/*"), *ROOT.glob("playbooks/**/*.yml")]:
        if path.suffix not in (".yml", ".j2"):
            continue
        role = path.relative_to(ROOT).parts[1]
        found = re.findall(r"\b__(%s)_\w+" % "|".join(role.name for role in ROLES), path.read_text())
        wrong += ["%s reads variables private to %s" % (path.relative_to(ROOT), one) for one in found if one != role]
    assert wrong == []


def test_every_scenario_is_run():
    """make test runs only the scenarios that tests/scenarios.py names."""
    program = ast.parse((ROOT / "tests/scenarios.py").read_text())
    assigned = {node.targets[0].id: node.value for node in program.body if isinstance(node, ast.Assign)}
    named = {table: set(ast.literal_eval(assigned[table])) for table in ("BUDGETS", "WITHOUT_BUILD", "ALONE")}
    folders = {
        path.parent.name for path in ROOT.glob("molecule/*/*") if path.suffix == ".yml" and path.parent.name != "shared"
    }
    assert named["BUDGETS"] - {"build"} == folders
    assert named["WITHOUT_BUILD"] | named["ALONE"] <= folders


@pytest.mark.parametrize("scenario", SCENARIOS, ids=name)
def test_scenario_tests_something(scenario):
    """Molecule passes a scenario without tests."""
    sequence = ((load(scenario / "molecule.yml") or {}).get("scenario") or {}).get("test_sequence", ["verify"])
    assert "verify" in sequence
    assert [
        path.name
        for path in scenario.glob("tests/test_*.py")
        if re.search(r"^def test_", path.read_text(), re.MULTILINE)
    ]


def inventory_variables(inventory):
    """The variables that an inventory sets: of groups, of hosts, and in group_vars and host_vars."""

    def of_group(group):
        group = group or {}
        yield from group.get("vars") or {}
        for variables in (group.get("hosts") or {}).values():
            yield from variables or {}
        for child in (group.get("children") or {}).values():
            yield from of_group(child)

    found = set()
    for path in inventory.rglob("*.yml"):
        content = load(path) or {}
        if path.parent == inventory:
            found.update(variable for group in content.values() for variable in of_group(group))
        else:
            found.update(content)
    return found


@pytest.mark.parametrize("inventory", INVENTORIES, ids=name)
def test_inventory_variables_are_read(inventory):
    readers = [
        path
        for folder in ("tasks", "defaults", "vars", "handlers", "templates")
        for path in ROOT.glob("roles/*/%s/**/*" % folder)
        if path.is_file()
    ]
    readers += (
        list(ROOT.glob("playbooks/**/*.yml")) + list(ROOT.glob("molecule/**/*.yml")) + list(inventory.rglob("*.yml"))
    )
    read = words_of(readers) | plugin_constants()
    assert {
        variable for variable in inventory_variables(inventory) if not variable.startswith("ansible_")
    } - read == set()


def named_in(node):
    """Yields every variable that plays and tasks set themselves, at any depth."""
    if isinstance(node, list):
        for item in node:
            yield from named_in(item)
    elif isinstance(node, dict):
        yield from node.get("vars") or ()
        yield from filter(None, (node.get("register"), (node.get("loop_control") or {}).get("loop_var")))
        for key in ("pre_tasks", "tasks", "post_tasks", "block", "rescue", "always"):
            yield from named_in(node.get(key))


def test_variables_of_e_have_no_other_use():
    """-e wins over vars of plays and tasks: with -e node=NAME a task's own variable `node` would be that name."""
    found = {
        (str(path.relative_to(ROOT)), variable)
        for path in sorted([*ROOT.glob("roles/*/tasks/*.yml"), *ROOT.glob("playbooks/**/*.yml")])
        for variable in named_in(load(path))
    }
    assert len(found) > 300 and sorted(place for place in found if place[1] in EXTRA) == []


@pytest.mark.parametrize("playbook", PLAYBOOKS, ids=name)
def test_playbook_is_documented(playbook):
    pages = [ROOT / "README.md", *ROOT.glob("docs/*.md")]
    text = "\n".join(page.read_text() for page in pages if page.exists())
    assert "playbooks/%s" % playbook.name in text or "thefermisea.llama_cluster.%s" % playbook.stem in text


def test_smoke_play_calls_every_module():
    called = set()
    for play in load(ROOT / "tests/gates/smoke.yml"):
        called.update(key for task in play["tasks"] for key in task)
    prefix = "thefermisea.llama_cluster."
    assert sorted(key[len(prefix) :] for key in called if key.startswith(prefix)) == [path.stem for path in MODULES]


@pytest.mark.parametrize("module", MODULES, ids=name)
def test_module_documents_itself(module):
    strings = {}
    for node in ast.parse(module.read_text()).body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant):
            strings[node.targets[0].id] = node.value.value
    documentation = yaml.safe_load(strings["DOCUMENTATION"])
    assert documentation["module"] == module.stem
    assert documentation["version_added"]
    attributes = documentation.get("attributes", {})
    for name_of in documentation["extends_documentation_fragment"]:
        fragment = getattr(ModuleDocFragment, (name_of.split(".")[3:] or ["documentation"])[0].upper())
        for attribute, said in yaml.safe_load(fragment)["attributes"].items():
            attributes[attribute] = {**said, **attributes.get(attribute, {})}
    assert all({"description", "support"} <= set(attributes[mode]) for mode in ("check_mode", "diff_mode"))
    examples = yaml.safe_load(strings["EXAMPLES"])
    assert "thefermisea.llama_cluster." + module.stem in {key for task in examples for key in task}
    assert "RETURN" in strings


def filters():
    """The names of all filters; Ansible looks for each in every file."""
    found = []
    for path in FILTERS:
        module = importlib.import_module("ansible_collections.thefermisea.llama_cluster.plugins.filter." + path.stem)
        found += module.FilterModule().filters()
    return found


def test_filters_have_one_file_and_one_caller():
    called = "\n".join(path.read_text() for tree in ("playbooks", "roles") for path in ROOT.glob(tree + "/**/*.yml"))
    used = set(re.findall(r"\| *thefermisea\.llama_cluster\.(\w+)", called))
    assert sorted(filters()) == sorted(used)


def test_public_filters_are_documented():
    documented = {path.stem: yaml.safe_load(path.read_text()) for path in ROOT.glob("plugins/filter/*.yml")}
    assert set(documented) == PUBLIC_FILTERS <= set(filters())
    for one, page in documented.items():
        assert page["DOCUMENTATION"]["name"] == one and page["RETURN"]["_value"]["description"]
        assert "thefermisea.llama_cluster." + one in page["EXAMPLES"]


def test_public_modules_are_the_action_group():
    short = {path.stem: re.search(r"^short_description: (.*)", path.read_text(), re.MULTILINE) for path in MODULES}
    assert {module for module, found in short.items() if not found.group(1).startswith('"Internal: ')} == PUBLIC
    assert set(load(ROOT / "meta/runtime.yml")["action_groups"]["all"]) == PUBLIC


@pytest.mark.parametrize("path", ON_NODES, ids=name)
def test_source_is_python_3_9(path):
    ast.parse(path.read_text(), feature_version=(3, 9))


def test_node_programs_import_on_python_3_9(tmp_path):
    """The utilities as nodes have them: a package of their own, without Ansible."""
    find = subprocess.run(
        ["bash", "-c", '. "$1"; find_python 3.9', "bash", str(ROOT / "tests/gates/common.sh")],
        stdout=subprocess.PIPE,
        universal_newlines=True,
        check=False,
    )
    if find.returncode:
        pytest.skip("no CPython 3.9 on this machine")
    (tmp_path / "llama_cluster").symlink_to(ROOT / "plugins/module_utils")
    folder = ROOT / "plugins/module_utils"
    modules = [
        ".".join(("llama_cluster",) + path.relative_to(folder).with_suffix("").parts) for path in folder.rglob("*.py")
    ]
    program = "import importlib, sys; [importlib.import_module(name) for name in sys.argv[1:]]"
    done = subprocess.run(
        [find.stdout.strip(), "-B", "-c", program, *modules],
        cwd=str(tmp_path),
        stderr=subprocess.PIPE,
        universal_newlines=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_whole_matches_do_not_end_with_dollar():
    """$ also matches before a final line break: a checked name could end with one."""
    loose = []
    for path in sorted(ROOT.glob("plugins/**/*.py")):
        for node in nodes_of(path):
            if (
                not isinstance(node, ast.Call)
                or getattr(node.func, "attr", "") not in ("compile", "match", "fullmatch")
                or "MULTILINE" in ast.dump(node)
            ):
                continue
            first = node.args[0] if node.args else None
            # Expressions with .* read lines of logs.
            if (
                isinstance(first, ast.Constant)
                and str(first.value).startswith("^")
                and str(first.value).endswith("$")
                and ".*" not in first.value
            ):
                loose.append("%s: %s" % (path.name, first.value))
    assert loose == []


def test_gates_skip_nothing():
    lint = load(ROOT / ".ansible-lint")
    assert lint["profile"] == "production"
    assert not {"skip_list", "warn_list"} & set(lint)
    assert not list(ROOT.glob("tests/sanity/ignore*")) + list(ROOT.glob(".ansible-lint-ignore"))


def test_linter_exceptions_name_their_rule():
    """A bare noqa would hide every mistake of its line."""
    found = []
    # ansible-test runs this on a tree without a repository.
    for path in ROOT.rglob("*"):
        if (
            path.suffix in (".py", ".yml", ".j2", ".sh")
            and path.is_file()
            and not {".venv", ".collections", "output"} & set(path.parts)
        ):
            found += [
                line
                for line in path.read_text().splitlines()
                if re.search(r"# no" + r"qa(?!: [A-Za-z])|type: igno" + r"re(?!\[)", line)
            ]
    assert found == []
