# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Prints docs/settings.md from the tables that the intent check reads: python tests/settings_page.py > docs/settings.md"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / ".collections"))

from ansible_collections.thefermisea.llama_cluster.plugins.module_utils import _intent_models, _intent_values, _settings  # noqa: E402
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils import _variables  # noqa: E402

PAGE = """# Settings

What an inventory may say, key by key. `tests/settings_page.py` writes this page from the tables that check an inventory; [inventory.md](inventory.md) explains
how they go together, and the README of each role has its own variables.

## Variables of the intent

%s

## A service of `llama_services`

%s

A memory plan depends on the keys with a star.

## A router

`kind: router`; this version checks it and does not deploy it.

%s

## A model of `llama_models`

%s

## A quant of a model

%s
"""


def values(key):
    """What a key may be given."""
    if key.choices:
        return ", ".join("`%s`" % one for one in key.choices)
    if key.form:
        return "a list of " + key.form[1] if key.type is list else key.form[1]
    if key.bounds[1]:
        return "%d to %d" % key.bounds
    return names(key.type)


def names(kinds):
    return " or ".join(_intent_values.NAMES[kind] for kind in (kinds if isinstance(kinds, tuple) else (kinds,)))


def settings(kind):
    rows = ["| key | value | default | meaning |", "|---|---|---|---|"]
    for key in _settings.BY_KIND[kind].values():
        default = "required" if key.required else "" if key.default is None else "`%s`" % str(key.default).replace("True", "true").replace("False", "false")
        rows.append("| `%s`%s | %s | %s | %s |" % (key.name, " *" if key.memory else "", values(key), default, key.text))
    return "\n".join(rows)


def keys(table):
    return "\n".join(
        ["| key | value | meaning |", "|---|---|---|"] + ["| `%s` | %s | %s |" % (name, names(kind), text) for name, (kind, text) in table.items()]
    )


def page():
    intent = ["| variable | meaning |", "|---|---|"] + ["| `%s` | %s |" % one for one in _variables.INTENT.items()]
    return PAGE % ("\n".join(intent), settings("server"), settings("router"), keys(_intent_models.MODEL_KEYS), keys(_intent_models.QUANT_KEYS))


if __name__ == "__main__":
    sys.stdout.write(page())
