# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Pages that are made of the code: python tests/pages.py writes them all.

PAGES has for each path the function that returns its text."""

import functools
import re
import sys
import textwrap
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / ".collections"))

from ansible_collections.thefermisea.llama_cluster.plugins.module_utils import _settings  # noqa: E402
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._doctor import judge  # noqa: E402
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._doctor import cluster  # noqa: E402
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._intent import (  # noqa: E402
    check_models,
    check_services,
    variables,
)
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._intent import values as intent_values  # noqa: E402
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._monitoring import dropped  # noqa: E402

SETTINGS = """# Settings

What an inventory may say, key by key. `tests/pages.py` writes this page from the tables that check an inventory;
[inventory.md](inventory.md) explains how they go together.

## Variables of the intent

%s

## A service of `llama_services`

%s

The star: the memory that the service needs depends on this key.

The dagger: the key may stand in the model's entry of `llama_models` too: [model
families](inventory.md#model-families).

## A router

`kind: router`, [several models that take turns](inventory.md#routers). What it says holds for each of its models, which
may have their own but for `cards`, `state`, `timeout` and `memory_max`.

%s

## A model of `llama_models`

%s

And each key of a service with the dagger.

## A quant of a model

%s

## Variables of roles

They go into `group_vars`, or beside one host. Most inventories set a few of `llama_cpp`. The README of each role lists
its own:

%s
"""
MODULES = """
## Modules

These modules are also useful without the playbooks:

```console
ansible-doc thefermisea.llama_cluster.gguf_fetch
ansible-doc -t role thefermisea.llama_cluster.rpc_worker
ansible-doc -l thefermisea.llama_cluster                  # all modules
ansible localhost -m thefermisea.llama_cluster.gguf_verify -a path=/srv/model.gguf
```

| module | |
|---|---|
%s

The others belong to the playbooks and change with them, as filters do.
"""
ROLES = sorted(path for path in (ROOT / "roles").iterdir() if path.is_dir())
# Sections of docs/monitoring.md.
ALERTS = ("Services", "Cards", "Nodes", "Gateway")
LINKS = textwrap.fill(
    ", ".join("[%s](../roles/%s/README.md)" % (path.name, path.name) for path in ROLES),
    120,
    break_on_hyphens=False,
)
TYPES = {"str": str, "int": int, "float": float, "bool": bool, "list": list, "dict": dict}
# A default that is longer than this is in the role's defaults/main.yml.
LONG = 120


def values(key):
    """-> the allowed values of a key"""
    if key.name in ("cache_type_k", "cache_type_v"):
        return "as `cache`"
    if key.choices:
        more = ", or one of the build's `cache_types`" if key.name in check_services.CACHES else ""
        return ", ".join("`%s`" % one for one in key.choices) + more
    if key.form:
        return "a list of " + key.form[1] if key.type is list else key.form[1]
    if key.bounds[1]:
        return "%d to %d" % key.bounds
    return names(key.type)


def names(kinds):
    return " or ".join(intent_values.NAMES[kind] for kind in (kinds if isinstance(kinds, tuple) else (kinds,)))


def written(value):
    """A value as YAML has it."""
    return "" if value is None else "`%s`" % str(value).replace("True", "true").replace("False", "false")


def settings(kind, known=()):
    """The table of a kind's keys, without rows that those known have, which are listed by name."""
    rows, same = ["| key | value | default | meaning |", "|---|---|---|---|"], []
    for key in _settings.BY_KIND[kind].values():
        default = (
            "required"
            if key.required
            else written(key.default) or (written(key.own) + " (llama-server's)" if key.own else "")
        )
        row = "| `%s`%s%s | %s | %s | %s |" % (
            key.name,
            " *" if key.memory else "",
            " \u2020" if key.family else "",
            values(key),
            default,
            key.text,
        )
        if row in known:
            same.append("`%s`" % key.name)
        else:
            rows.append(row)
    text = "\n".join(rows)
    listed = textwrap.fill("As for a service: %s." % ", ".join(same), 120, break_on_hyphens=False)
    return text + "\n\n" + listed if same else text


def keys(table):
    return "\n".join(
        ["| key | value | meaning |", "|---|---|---|"]
        + ["| `%s` | %s | %s |" % (name, names(kind), text) for name, (kind, text) in table.items()]
    )


def readme(role):
    """The README of a role with the table of the arguments of all of its entry points; the rest is written manually."""
    options = {}
    for entry_point in yaml.safe_load((role / "meta/argument_specs.yml").read_text())["argument_specs"].values():
        options = {**entry_point.get("options", {}), **options}
    rows = [
        "| `%s` | %s | %s | %s |" % (name, kind(option), default(option), meaning(option))
        for name, option in options.items()
    ]
    table = "\n".join(["| variable | value | default | meaning |", "|---|---|---|---|", *rows]) + "\n"
    return re.sub(r"(?m)^\| variable \|(.*\n\|)*.*\n", lambda _found: table, (role / "README.md").read_text(), count=1)


def kind(option):
    if "choices" in option:
        return ", ".join("`%s`" % one for one in option["choices"])
    return {"path": "a path", "raw": "any"}.get(option["type"]) or names(TYPES[option["type"]])


def default(option):
    if option.get("required"):
        return "needed"
    given = option.get("default")
    if "{{" in str(given):
        sources = [word for word in re.findall(r"(?<!\.)\b\w+", given) if word in variables.known()]
        return "from " + ", ".join("`%s`" % word for word in dict.fromkeys(sources)) if sources else "computed"
    text = ", ".join(map(str, given)) if isinstance(given, list) else str(given)
    if given in (None, "", [], {}):
        return ""
    return ("`%s`" % text.replace("True", "true").replace("False", "false")) if len(text) <= LONG else "a text"


def meaning(option):
    text = option["description"] if isinstance(option["description"], str) else " ".join(option["description"])
    return marked(" ".join(text.split())).replace("|", "\\|")


def marked(text):
    """-> the marks of ansible-doc as Markdown"""
    return re.sub(r"\b[CVPMOE]\((?:thefermisea\.llama_cluster\.)?([^)#=]+)[^)]*\)", r"`\1`", text)


def modules():
    """The part of docs/settings.md about modules: what each public module says of itself in one line."""
    rows = []
    for path in sorted((ROOT / "plugins/modules").glob("[!_]*.py")):
        short = re.search(r"^short_description: (.*)", path.read_text(), re.MULTILINE)[1].strip('"')
        if not short.startswith("Internal: "):
            rows.append("| `%s` | %s |" % (path.stem, marked(short)))
    return MODULES % "\n".join(rows)


def settings_page():
    intent = ["| variable | meaning |", "|---|---|"] + ["| `%s` | %s |" % one for one in variables.INTENT.items()]
    page = SETTINGS % (
        "\n".join(intent),
        settings("server"),
        settings("router", settings("server").splitlines()),
        keys(check_models.MODEL_KEYS),
        keys(check_models.QUANT_KEYS),
        LINKS,
    )
    return page + modules()


def doctor():
    """docs/doctor.md with the names of all rules by severity; the rest is written manually."""
    names = {severity: [] for severity in judge.SEVERITIES}
    for rule in sorted(cluster.load(), key=lambda one: one["name"]):
        names[rule["severity"]].append("`%s`" % rule["name"])
    before, title, _names = (ROOT / "docs/doctor.md").read_text().partition("### All rules\n")
    lists = ["**%s**: %s." % (severity.capitalize(), ", ".join(found)) for severity, found in names.items()]
    return before + title + "".join("\n%s\n" % textwrap.fill(one, 120, break_on_hyphens=False) for one in lists)


def alerts():
    """docs/monitoring.md with a section for each alert; the text around them is written manually."""
    severity, groups = {}, {}
    for found in dropped.rules():
        for group in yaml.safe_load(found.path.read_text())["groups"]:
            severity.update({one["alert"]: one["labels"]["severity"] for one in group["rules"] if "alert" in one})
        for name, alert in yaml.safe_load((found.path.parent / "alerts.yml").read_text()).items():
            groups.setdefault(alert["group"], []).append(section(name, severity[name], alert))
    text = "".join("## %s\n\n%s" % (title, "".join(groups[title])) for title in ALERTS)
    page = (ROOT / "docs/monitoring.md").read_text()
    before, after = page.partition("## %s\n" % ALERTS[0])[0], page.partition("## Dashboards\n")[2]
    return before + text + "## Dashboards\n" + after


def section(name, severity, alert):
    lines = [
        "### " + name,
        "",
        "*%s*%s." % (severity.capitalize(), ", " + alert["when"] if "when" in alert else ""),
        "",
    ]
    texts = (("Means", "means"), ("Look at", "look_at"), ("Do", "do"), ("Ends", "ends"))
    for title, key in (one for one in texts if one[1] in alert):
        lines += textwrap.wrap(
            "- **%s** %s" % (title, alert[key]),
            120,
            subsequent_indent="  ",
            break_long_words=False,
            break_on_hyphens=False,
        )
    return "\n".join(lines) + "\n\n"


PAGES = {
    "docs/settings.md": settings_page,
    "docs/doctor.md": doctor,
    "docs/monitoring.md": alerts,
    **{"roles/%s/README.md" % role.name: functools.partial(readme, role) for role in ROLES},
}

if __name__ == "__main__":
    for name, text in PAGES.items():
        (ROOT / name).write_text(text())
