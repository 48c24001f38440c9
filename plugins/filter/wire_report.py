# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = """
name: wire_report
author: The Fermi Sea (@thefermisea)
version_added: 0.1.0
short_description: "Internal: whether an answer really came over the wire as the plan says"
description:
  - Judges what M(thefermisea.llama_cluster.llama_wire), M(thefermisea.llama_cluster.llama_process) and
    M(thefermisea.llama_cluster.port_knock) saw of one service.
options:
  _input:
    description: The head, as P(thefermisea.llama_cluster.node_serving#filter) returns it.
    type: dict
    required: true
  seen:
    description:
      - C(wire), C(process) of the head, C(processes) of its workers, C(releases) that are wanted, the head's first,
        C(knocks) by host, C(load), C(addresses) on the fabric by node, C(plan), rows of the acceptance report,
        C(watches) by node, and C(references), what was kept of earlier answers.
    type: dict
    required: true
  measured_at:
    description: When, ISO 8601 in UTC.
    type: str
    required: true
positional: _input, seen, measured_at
"""

EXAMPLES = """
judged: "{{ head | thefermisea.llama_cluster.wire_report(seen, '2026-11-26T11:00:00Z') }}"
"""

RETURN = """
_value:
  description:
    - RV(_value.result) as docs/wire.md describes it, RV(_value.lines) to print, RV(_value.refused), a sentence for each
      fault, RV(_value.references) to keep, empty where they stay as they are, RV(_value.name) and RV(_value.latest),
      names of files without an ending.
  type: dict
"""

from ..plugin_utils._reports.wire import wire
from ..plugin_utils._reports.wire_seen import Seen


def wire_report(head, seen, measured_at):
    return wire(head, Seen(**seen), measured_at)


class FilterModule:
    def filters(self):
        return {"wire_report": wire_report}
