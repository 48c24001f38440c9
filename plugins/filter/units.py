# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Refusals, files, units and builds of nodes."""

from __future__ import annotations

DOCUMENTATION = r"""
name: units
author: The Fermi Sea (@thefermisea)
version_added: 0.1.0
short_description: "Internal: Units, files and builds of nodes"
description:
  - Several filters for the playbooks and roles of this collection. They carry no promise.
options:
  _input:
    description: See the function of plugin_utils that the filter calls.
    type: raw
    required: true
"""

EXAMPLES = r"""
"""

RETURN = r"""
_value:
  description: See the function of plugin_utils that the filter calls.
  type: raw
"""

from ..plugin_utils._access.node import node_refusals
from ..plugin_utils._access.ports import client_access
from ..plugin_utils._access.units import build_refusals
from ..plugin_utils._filters import with_sentences
from ..plugin_utils._intent.jobs import slurm_shared
from ..plugin_utils._intent.tuned import with_tuned
from ..plugin_utils._slurm.compare import slurm_refusals, slurm_script_refusals
from ..plugin_utils._slurm.files import slurm_files, slurm_made, slurm_plans
from ..plugin_utils._slurm.script import slurm_jobs
from ..plugin_utils._units.changes import unit_changes
from ..plugin_utils._units.files import unit_files
from ..plugin_utils._units.links import build_links
from ..plugin_utils._units.waves import change_waves


class FilterModule:
    def filters(self):
        return with_sentences(
            *with_tuned(
                node_refusals,
                build_refusals,
                client_access,
                unit_files,
                unit_changes,
                change_waves,
                build_links,
                slurm_jobs,
                slurm_files,
                slurm_made,
                slurm_plans,
                slurm_refusals,
                slurm_script_refusals,
                slurm_shared,
            )
        )
