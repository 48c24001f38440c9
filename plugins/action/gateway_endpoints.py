# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Waits until the gateway has endpoints as wanted and prints progress; documented in
plugins/modules/gateway_endpoints.py."""

import math
import time

from ansible.errors import AnsibleConnectionFailure
from ansible.plugins.action import ActionBase

from ..module_utils._text import duration
from ..plugin_utils._progress import Progress

# Seconds that the module waits between two lines.
SLICE = 10


class ActionModule(ActionBase):
    _requires_connection = True

    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars)
        timeout = int(self._task.args.get("timeout", 30))
        progress = Progress(self._task.delegate_to or task_vars["inventory_hostname"], "gateway:")
        began, first = time.monotonic(), None
        while True:
            left = max(0, timeout - (time.monotonic() - began))
            asked = dict(self._task.args, timeout=math.ceil(min(SLICE, left)))
            try:
                now = self._execute_module(module_args=asked, task_vars=task_vars)
            except AnsibleConnectionFailure as error:
                # An unreachable gateway holds nothing up.
                progress.show(f"not reached ({error}): go on without it")
                return dict(result, changed=False, waiting=[], reason=str(error), endpoints=[], seconds=0.0)
            # Only the first call writes the file.
            first = first or now
            if now.get("failed") or now.get("reason") or not now["waiting"]:
                break
            left = timeout - (time.monotonic() - began)
            if left < 1:
                break
            progress.show(f"{'; '.join(now['waiting'])}, waiting {duration(int(left))} more")
        if now.get("reason"):
            progress.show(f"its engine does not answer ({now['reason']}): go on without it")
        elif now.get("waiting") and timeout:
            progress.show(f"{'; '.join(now['waiting'])}, {duration(timeout)} is over: go on nevertheless")
        written = {key: first[key] for key in ("changed", "diff") if key in first and not now.get("failed")}
        return {**result, **now, **written, "seconds": round(time.monotonic() - began, 1)}
