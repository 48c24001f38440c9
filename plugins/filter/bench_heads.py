# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = """
name: bench_heads
author: The Fermi Sea (@thefermisea)
version_added: 0.1.0
short_description: "Internal: which services a benchmark asks"
description:
  - A router is asked once for each of its models. What embeds or scores generates nothing and is left out.
  - Where the gateway is asked, a service with replicas is asked once.
options:
  _input:
    description: Heads, as P(thefermisea.llama_cluster.node_serving#filter) returns them.
    type: list
    elements: dict
    required: true
  published:
    description:
      - RV(thefermisea.llama_cluster.gateway_config#filter:_value.services), where the gateway is asked instead of the
        heads.
    type: dict
positional: published
"""

EXAMPLES = """
asked: "{{ node_serving.heads | thefermisea.llama_cluster.bench_heads }}"
"""

RETURN = """
_value:
  description:
    - RV(_value.heads), those to ask, with the model of each; RV(_value.left_out), a sentence for each of the others.
  type: dict
"""

from ..plugin_utils._reports.bench import bench_heads


class FilterModule:
    def filters(self):
        return {"bench_heads": bench_heads}
