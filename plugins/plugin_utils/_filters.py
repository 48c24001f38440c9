# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The wrapper of filters. Private to the collection."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ansible.errors import AnsibleFilterError

from ..module_utils._text import Refusal


def _one_sentence(function: Callable[..., Any]) -> Callable[..., Any]:
    """A filter that ends a task with the sentence of a Refusal."""

    @functools.wraps(function)
    def filter_function(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except Refusal as problem:
            raise AnsibleFilterError(str(problem)) from problem

    return filter_function


def with_sentences(*functions: Callable[..., Any]) -> dict[str, Callable[..., Any]]:
    """The value of a FilterModule's filters(): functions by their names."""
    return {function.__name__: _one_sentence(function) for function in functions}
