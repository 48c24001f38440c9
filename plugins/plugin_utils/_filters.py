# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The wrapper of filters. Private to the collection."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ansible.errors import AnsibleFilterError

from ..module_utils._text import Refusal


class _Once(Mapping[str, Any]):
    """A mapping whose values are computed once; Ansible computes variables of a host anew each time."""

    def __init__(self, asked: Mapping[str, Any], inside: bool = False) -> None:
        self._asked = asked
        self._inside = inside
        self._known: dict[str, Any] = {}

    def __getitem__(self, key: str) -> Any:
        if key not in self._known:
            found = self._asked[key]
            self._known[key] = _Once(found) if self._inside and isinstance(found, Mapping) else found
        return self._known[key]

    def __contains__(self, key: object) -> bool:
        return key in self._asked

    def __iter__(self) -> Iterator[str]:
        return iter(self._asked)

    def __len__(self) -> int:
        return len(self._asked)

    def raw_get(self, host: str) -> Any:
        """The variables of a host, templates as they are written."""
        return getattr(self._asked, "raw_get", self._asked.__getitem__)(host)


# Ansible asks every file for its filters whenever a task uses one.
@functools.cache
def _one_sentence(function: Callable[..., Any]) -> Callable[..., Any]:
    """A filter that ends a task with the sentence of a Refusal."""
    signature = inspect.signature(function)
    place = list(signature.parameters).index("hostvars") if "hostvars" in signature.parameters else -1

    @functools.wraps(function)
    def filter_function(*args: Any, **kwargs: Any) -> Any:
        if 0 <= place < len(args):
            args = (*args[:place], _Once(args[place], inside=True), *args[place + 1 :])
        try:
            return function(*args, **kwargs)
        except Refusal as problem:
            raise AnsibleFilterError(str(problem)) from problem

    return filter_function


def with_sentences(*functions: Callable[..., Any]) -> dict[str, Callable[..., Any]]:
    """The value of a FilterModule's filters(): functions by their names."""
    return {function.__name__: _one_sentence(function) for function in functions}
