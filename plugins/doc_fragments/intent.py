# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Options of filters that resolve an inventory's intent."""


class ModuleDocFragment:
    MODELS = r"""
options:
  models:
    description: The models, as in C(llama_models).
    type: dict
    required: true
"""

    GROUPS = r"""
options:
  groups:
    description: Ansible's C(groups).
    type: dict
    required: true
"""

    HOSTVARS = r"""
options:
  hostvars:
    description: Ansible's C(hostvars).
    type: dict
    required: true
"""

    HOST = r"""
options:
  host:
    description: The node's inventory name.
    type: str
    required: true
"""
