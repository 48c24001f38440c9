# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Prints lines, and fails with what is refused; documented in plugins/modules/show_lines.py."""

from ansible import constants as C
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ..module_utils._text import printable

display = Display()


class ActionModule(ActionBase):
    _requires_connection = False

    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars)
        texts = {"type": "list", "elements": "str", "default": []}
        _validation, arguments = self.validate_argument_spec(
            argument_spec={"lines": texts, "warnings": texts, "refused": texts}
        )
        for line in arguments["warnings"]:
            display.warning(printable(line, None))
        lines = [printable(line, None) for line in arguments["lines"]]
        # The callback brief prints them itself, after what it has kept back until there is something to read.
        if C.DEFAULT_STDOUT_CALLBACK != "thefermisea.llama_cluster.brief" or display.verbosity:
            for line in lines:
                display.display(line)
        if arguments["refused"]:
            return dict(result, failed=True, msg="\n".join(arguments["refused"]), lines=lines)
        return dict(result, changed=False, lines=lines)
