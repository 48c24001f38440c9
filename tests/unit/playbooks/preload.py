# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A callback that loads every filter and test before the first task: each task is a process of its own, which would
load them again."""

import gc
from pathlib import Path

from ansible.plugins.callback import CallbackBase
from ansible.plugins.loader import filter_loader, test_loader

DOCUMENTATION = """
name: preload
type: aggregate
short_description: Load filters before the first task
description: Halves the time of a run whose tasks take no time.
"""


class CallbackModule(CallbackBase):
    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "thefermisea.llama_cluster.preload"

    def v2_playbook_on_start(self, playbook):
        list(filter_loader.all())
        list(test_loader.all())
        for path in Path(playbook._basedir).parent.glob("plugins/filter/*.py"):
            filter_loader.get("thefermisea.llama_cluster." + path.stem)
        gc.collect()
        gc.freeze()
