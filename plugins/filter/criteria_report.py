# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = """
name: criteria_report
author: The Fermi Sea (@thefermisea)
version_added: 0.1.0
short_description: "Internal: the ten success criteria and both readings of the targets"
description:
  - Judges what the nodes have said in this run beside what was kept of earlier ones.
options:
  _input:
    description: C(hostvars), with what entry point C(criteria) of role C(acceptance) has registered.
    type: dict
    required: true
  groups:
    description: Ansible's C(groups).
    type: dict
    required: true
  services:
    description: The services, as in C(llama_services).
    type: dict
    required: true
  models:
    description: The models, as in C(llama_models).
    type: dict
    required: true
  models_dir:
    description: The directory the models are published in.
    type: path
    required: true
  texts:
    description: What is kept of earlier runs, the content of each file by its path.
    type: dict
    required: true
  now:
    description: The moment of this report, ISO 8601, UTC.
    type: str
    required: true
positional: _input, groups, services, models, models_dir, texts, now
"""

EXAMPLES = """
report: "{{ hostvars | thefermisea.llama_cluster.criteria_report(groups, llama_services, llama_models, '/opt/models',
  {}, now(utc=true, fmt='%Y-%m-%dT%H:%M:%SZ')) }}"
"""

RETURN = """
_value:
  description:
    - RV(_value.result), what is kept, with C(criteria) and C(readings); RV(_value.lines), what an operator reads.
    - RV(_value.refused), a sentence for each criterion that is not met; RV(_value.name), of the file with the result,
      without its ending.
  type: dict
"""

from ..plugin_utils._filters import one_sentence
from ..plugin_utils._reports.verify import criteria_report


class FilterModule:
    def filters(self):
        return {"criteria_report": one_sentence(criteria_report)}
