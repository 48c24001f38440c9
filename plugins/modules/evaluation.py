#!/usr/bin/python
# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
---
module: evaluation
short_description: "Internal: have the answers of an evaluation judged, and write its result"
version_added: 0.1.0
author: [The Fermi Sea (@thefermisea)]
description: >-
  Calls M(thefermisea.llama_cluster.llama_judge) on this host for answers whose verdict is not kept, and writes the
  result and its page on the controller.
options:
  plan: {description: "Of filter C(evaluation_plan).", type: dict, required: true}
  asked:
    description: >-
      Results of M(thefermisea.llama_cluster.llama_ask), one for each model that was asked. Without them only what
      judges is looked for, before hours of questions.
    type: list
    elements: dict
  routes: {description: "C(llama_routes), as it is.", type: dict, required: true}
  routes_text: {description: "The file that routes are written to, as it is.", type: str, default: ""}
  image: {description: "Image with rustc, for a host without systemd.", type: str, required: true}
extends_documentation_fragment: [thefermisea.llama_cluster.attributes]
attributes:
  check_mode: {support: none}
  diff_mode: {support: none}
  action: {support: full, description: Has an action plugin.}
"""

EXAMPLES = r"""
---
- name: Judge the answers
  thefermisea.llama_cluster.evaluation:
    plan: "{{ plan }}"
    asked: "{{ asked.results }}"
    routes: {}
    image: docker.io/library/rust:1-slim-bookworm
"""

RETURN = r"""
---
lines: {description: "The result, for operators.", type: list, returned: success, elements: str}
refused: {description: "A sentence if there is no answer at all.", type: list, returned: success, elements: str}
routes: {description: "C(text), C(diff), C(changed) and C(refused) of the routes' file.", type: dict, returned: success}
"""
