# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Says which server it waits for where a header does not come; documented in plugins/modules/llama_plan.py."""

import re
import threading
from urllib.parse import urlsplit

from ansible.plugins.action import ActionBase

from ..plugin_utils._progress import Progress

# Seconds until a line says what it waits for.
PATIENCE = 5
HUB = "https://huggingface.co"
# The module's words for a server after several attempts (_fetch/http.attempts).
IN_VAIN = re.compile(r", [0-9]+ times: ")
SOURCES = ("url", "urls", "repo", "files")


def server(args):
    """The origin that a header comes from; a URL's path and query may hold secrets. Empty for file URLs."""
    urls = args.get("urls") or args.get("url") or (args.get("endpoint", HUB) if args.get("repo") else "")
    try:
        parts = urlsplit(str(urls[0] if isinstance(urls, list) else urls))
        port = ":%d" % parts.port if parts.port else ""
    except ValueError:
        # The module says what is wrong with it.
        return ""
    return f"{parts.scheme}://{parts.hostname}{port}" if parts.hostname else ""


class ActionModule(ActionBase):
    _supports_async = True
    # {origin: error message}. A loop over models runs in one process: later items fail at once where the first one
    # waited in vain.
    silent = {}

    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars)
        args, origin = self._task.args, server(self._task.args)
        if origin in self.silent:
            # The file may be there all the same.
            own = {name: value for name, value in args.items() if name not in SOURCES}
            found = self._execute_module(module_args=own, task_vars=task_vars) if own.get("path") else {"failed": True}
            return dict(result, **dict(found, msg=self.silent[origin]) if found.get("failed") else found)
        progress = Progress(task_vars["inventory_hostname"], "waits for")
        timer = threading.Timer(PATIENCE, progress.show, [f"{origin}, which has the header of a model"])
        if origin:
            timer.start()
        try:
            found = self._execute_module(task_vars=task_vars, wrap_async=self._task.async_val)
            if origin and found.get("failed") and IN_VAIN.search(str(found.get("msg"))):
                self.silent[origin] = found["msg"]
            return dict(result, **found)
        finally:
            timer.cancel()
