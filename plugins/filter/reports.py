# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reports on the results of a run."""

from __future__ import annotations

DOCUMENTATION = r"""
name: reports
author: The Fermi Sea (@thefermisea)
version_added: 0.1.0
short_description: "Internal: Reports, figures and logs"
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

from ..plugin_utils._doctor.cluster import doctor_report, doctor_rules
from ..plugin_utils._evaluate.plan import evaluation_plan
from ..plugin_utils._filters import with_sentences
from ..plugin_utils._intent.tuned import with_tuned
from ..plugin_utils._reports.acceptance import acceptance_report, cards_seen
from ..plugin_utils._reports.bench import bench_heads, bench_report
from ..plugin_utils._reports.decisions import decisions_page
from ..plugin_utils._reports.drill import drill_report
from ..plugin_utils._reports.evaluation import evaluation_judged
from ..plugin_utils._reports.failures import failure_reason
from ..plugin_utils._reports.jobs import jobs_seen
from ..plugin_utils._reports.link import link_report
from ..plugin_utils._reports.numbers import numbers_refused
from ..plugin_utils._reports.outcome import outcome_lines, switch_state
from ..plugin_utils._reports.speed import upgrade_speed
from ..plugin_utils._reports.switch import switch_refused
from ..plugin_utils._reports.verify import criteria_report
from ..plugin_utils._reports.wire import wire_report


class FilterModule:
    def filters(self):
        return with_sentences(
            *with_tuned(
                acceptance_report,
                cards_seen,
                wire_report,
                bench_heads,
                bench_report,
                jobs_seen,
                link_report,
                upgrade_speed,
                criteria_report,
                decisions_page,
                drill_report,
                evaluation_judged,
                evaluation_plan,
                doctor_rules,
                doctor_report,
                failure_reason,
                switch_state,
                switch_refused,
                numbers_refused,
                outcome_lines,
            )
        )
