# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One value of the inventory against what it has to be, with the next step for what YAML commonly makes of it. Private
to the collection."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterable, Sequence
from typing import Any

from ...module_utils._settings import LARGEST, Key

Kinds = type | tuple[type, ...]
OCTET = r"(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
IPV4 = re.compile(r"^%s(\.%s){3}\Z" % (OCTET, OCTET))
SWITCH = re.compile(r"^(true|false|yes|no|on|off)\Z", re.IGNORECASE)  # what YAML reads as a switch
# Paths that the sandbox of units hides: ProtectHome=yes and PrivateTmp=yes. Words may hold paths behind these signs.
HIDDEN = re.compile(r"(?:^|[:=,;])(~/[^:=,;]*|(?:/home|/root|/run/user|/tmp|/var/tmp)(?:/[^:=,;]*)?)(?=[:=,;]|\Z)")
NAMES = {
    str: "a string",
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    list: "a list",
    dict: "a map",
}


def shown(value: Any) -> str:
    """A value as a sentence shows it: short, and no line of its own."""
    if value is None:
        return "nothing"
    if isinstance(value, (list, dict)):
        return f"{NAMES[dict if isinstance(value, dict) else list]} of {len(value)}" if value else repr(value)
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def plain(name: Any) -> str:
    """A name as a sentence shows it, on the sentence's own line."""
    return name if str(name).isprintable() else ascii(name)


def named(some: Sequence[str], nodes: Sequence[str]) -> str:
    """Nodes as a sentence names them."""
    return f"all {len(nodes)} nodes" if len(some) == len(nodes) > 3 else ", ".join(some)


def hidden(text: Any) -> str:
    """The first path in a text that no unit can see, empty without one."""
    found = HIDDEN.search(re.sub(r"/(?:\./|/)*", "/", str(text)))
    return found.group(1) if found else ""


def is_a(value: Any, kind: type) -> bool:
    """Whether a value has a type; true is no number, and a whole number is a number."""
    if kind in (int, float):
        return isinstance(value, (int, float) if kind is float else int) and not isinstance(value, bool)
    return isinstance(value, kind)


def number(given: Any) -> Any:
    """A port or a count that a role takes as text too, as a number; anything else as it is."""
    return int(given) if re.match(r"^[0-9]{1,5}\Z", str(given)) and not isinstance(given, bool) else given


def type_errors(entry: str, value: Any, kinds: Kinds, needed: str | None = None, step: str | None = None) -> list[str]:
    """A sentence in a list for a value of another type than ``kinds``, a type or several; [] where it has one of
    them."""
    kinds = kinds if isinstance(kinds, tuple) else (kinds,)
    if any(is_a(value, kind) for kind in kinds):
        return []
    needed = needed or " or ".join(NAMES[kind] for kind in kinds)
    return [f"{entry}: {shown(value)} seen, {needed} is needed: {step or _step(value, kinds)}"]


def key_errors(entry: str, value: Any, key: Key) -> list[str]:
    """A sentence in a list for a value that a key of the table of settings does not take."""
    if value is None and key.required:
        return [f"{entry}: nothing seen, {meaning(key)} is needed: write it there"]
    if key.choices:
        return [] if value in key.choices else [_one_of(entry, value, key.choices)]
    found = (
        list_errors(entry, value) if key.type is list else type_errors(entry, value, key.type, *(key.form or ())[1:])
    )
    if found:
        return found
    if value == [] and not key.empty:
        return [f"{entry}: an empty list seen, at least one entry is needed: add one or remove the key"]
    odd = _not_json(value) if key.type is dict else []
    if odd:
        return [
            "%s: %s seen in it, texts, numbers, true, false, lists and maps are needed: put it in quotes"
            % (entry, shown(odd[0]))
        ]
    texts = value if isinstance(value, list) else [value]
    wrong = [one for one in texts if key.form and isinstance(one, str) and not key.form[0].match(one)]
    if key.form and wrong:
        return [f"{entry}: {shown(wrong[0])} seen, {key.form[1]} is needed: {key.form[2]}"]
    low, high = key.bounds
    if not is_a(value, float):
        return []
    if high:
        words = "%s: %s seen, %d to %d is needed: choose another number" % (entry, shown(value), low, high)
        return [] if low <= value <= high else [words]
    if value < low:
        return ["%s: %s seen, at least %d is needed: raise it or remove the key" % (entry, value, low)]
    words = "%s: %s seen, at most %d is allowed: lower it or remove the key" % (entry, shown(value), LARGEST)
    return [] if value <= LARGEST else [words]


def _not_json(value: Any) -> list[Any]:
    """The parts of a value that JSON cannot hold, such as the date that YAML makes of 2026-01-01."""
    if isinstance(value, (dict, list)):
        return [odd for one in (value.values() if isinstance(value, dict) else value) for odd in _not_json(one)]
    finite = not isinstance(value, float) or math.isfinite(value)
    return [] if value is None or isinstance(value, (str, int, float)) and finite else [value]


def meaning(key: Key) -> str:
    """The meaning of a required key, from its text."""
    text = key.text.split(":")[0].rstrip(".").replace("`", "")
    return text[0].lower() + text[1:]


def _one_of(entry: str, value: Any, choices: Sequence[str]) -> str:
    step = (
        ": " + _step(value, (str,)) if isinstance(value, bool) else did_you_mean(value, choices, ": choose one of them")
    )
    return f"{entry}: {shown(value)} seen, one of {', '.join(choices)} is needed{step}"


def list_errors(entry: str, value: Any) -> list[str]:
    """A sentence in a list for what is no list of strings."""
    if isinstance(value, str):
        return [f"{entry}: {shown(value)} seen, a list is needed: write [{plain(value)}]"]
    wrong = [one for one in value if not isinstance(one, str)] if isinstance(value, list) else [value]
    return [f"{entry}: {shown(wrong[0])} seen, a list of strings is needed: correct it"] if wrong else []


def unknown_key(entry: str, key: Any, known: Iterable[str]) -> str:
    return f"{entry}.{plain(key)}: unknown key{did_you_mean(key, known, '; known keys: ' + ', '.join(sorted(known)))}"


def _step(value: Any, kinds: Sequence[type]) -> str:
    if value is None:
        return "give one or remove the key"
    if isinstance(value, str):
        if bool in kinds:
            return "write it without quotes" if SWITCH.match(value) else "write true or false"
        thousands = re.match(r"^([0-9]+) ?[kK]\Z", value)
        if int in kinds and thousands:
            return "write %d" % (int(thousands.group(1)) * 1024)
        if (int in kinds or float in kinds) and re.match(r"^[0-9]+(\.[0-9]+)?\Z", value):
            return "remove the quotes"
        if int in kinds or float in kinds:
            return "write only digits"
    if str in kinds and isinstance(value, bool):
        return 'put it in quotes, as in "%s", because YAML reads a bare off, no, on or yes as true or false' % (
            "on" if value else "off"
        )
    if str in kinds and isinstance(value, (int, float)):
        return "put it in quotes"
    return "write its keys below it" if dict in kinds else "correct it"


def did_you_mean(name: Any, known: Iterable[Any], otherwise: str = "") -> str:
    """A hint for a mistyped name: `, did you mean X?` where something known is near, else `otherwise`."""
    near = difflib.get_close_matches(str(name), [str(one) for one in known], 1)
    return f", did you mean {near[0]}?" if near else otherwise
