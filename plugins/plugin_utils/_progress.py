# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whole lines of progress from long work on a node, for action plugins. Private to the collection."""

from __future__ import annotations

import time
from typing import Any

from ansible.utils.display import Display

from ..module_utils._text import printable

display = Display()


class Progress:
    """Prints lines such as ``node1: compiling 57 %, 4 min 10 s left``, never the same one twice."""

    def __init__(self, host: str, what: str) -> None:
        self.host = host
        self.what = what
        # When work was first seen done, and how much.
        self.begun: tuple[float, float] | None = None
        self.last_line: str | None = None

    def show(self, text: str) -> None:
        if text != self.last_line:
            display.display(printable(f"{self.host}: {self.what} {text}", None), color="bright gray")
            self.last_line = text

    def left(self, done: float, total: float) -> int | None:
        """Whole seconds left at the mean rate since the first call with work done; None while unknown."""
        now = time.monotonic()
        started, first = self.begun = self.begun or (now, done)
        gained = done - first
        return int((total - done) * (now - started) / gained) if gained > 0 else None


def async_result(action: Any, jid: str, task_vars: dict[str, Any]) -> dict[str, Any]:
    """The state of an async job of this task's host: a dict with `finished`; the job's own result once it is
    finished."""
    async_dir = action.get_shell_option("async_dir", default="~/.ansible_async")
    arguments = {"jid": jid, "mode": "status", "_async_dir": action._remote_expand_user(async_dir)}
    return action._execute_module(
        module_name="ansible.builtin.async_status", module_args=arguments, task_vars=task_vars, wrap_async=False
    )
