# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""llama-server's words for the settings of a service. Private to the collection."""

import json
from collections.abc import Mapping
from typing import Any

from .._key import Words
from .._settings import KEYS, value


def unknown_values(service: Mapping[str, Any], build: int) -> list[tuple[str, Any, list[Any]]]:
    """[(name, value, values that are known)] of settings for whose value a build (a number) has no words; a default
    needs none."""
    found = []
    for key in KEYS:
        given = value(service, key.name)
        if isinstance(key.flag, tuple) and given != key.default and given not in _of_build(key.flag, build):
            found.append((key.name, given, [key.default] + sorted(_of_build(key.flag, build))))
    return found


def arguments(service: Mapping[str, Any], build: int) -> list[str]:
    """llama-server's words for all settings of a service, for a build (a number)."""
    args: list[str] = []
    for key in KEYS:
        given = value(service, key.name)
        if key.flag is None or given is None:
            continue
        if isinstance(key.flag, tuple):
            args += _of_build(key.flag, build).get(given, [])
        else:
            args += [key.flag, _word(given)]
    return args


def _word(given: Any) -> str:
    if isinstance(given, dict):
        return json.dumps(_plain(given), sort_keys=True)
    return ",".join(given) if isinstance(given, list) else str(given)


def _plain(given: Any) -> Any:
    """Containers of Ansible compute their values when they are asked for, which json does not."""
    if isinstance(given, dict):
        return {str(name): _plain(one) for name, one in given.items()}
    return [_plain(one) for one in given] if isinstance(given, list) else given


def _of_build(flag: Words, build: int) -> dict[Any, list[str]]:
    return [words for first, words in flag if first <= build][-1]
