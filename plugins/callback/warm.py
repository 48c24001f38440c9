# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: warm
type: aggregate
short_description: Load what tasks need before the first one
version_added: 1.0.0
author: The Fermi Sea (@thefermisea)
description:
  - Nearly halves what a run costs the controller, whichever callback prints it. Callback
    P(thefermisea.llama_cluster.brief#callback) does the same by itself.
requirements:
  - Enabled with C(callbacks_enabled) in C(ansible.cfg).
"""

from ansible.plugins.callback import CallbackBase

from ..plugin_utils._warm import warm


class CallbackModule(CallbackBase):
    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "thefermisea.llama_cluster.warm"
    CALLBACK_NEEDS_ENABLED = True

    def v2_playbook_on_start(self, playbook: object) -> None:
        warm()
