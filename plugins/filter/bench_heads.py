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
options:
  _input:
    description: Heads, as P(thefermisea.llama_cluster.node_serving#filter) returns them.
    type: list
    elements: dict
    required: true
"""

EXAMPLES = """
asked: "{{ node_serving.heads | thefermisea.llama_cluster.bench_heads }}"
"""

RETURN = """
_value:
  description:
    - RV(_value.heads), those to ask, with the model of each; RV(_value.silent), the labels of the others.
  type: dict
"""

from ..plugin_utils._reports.bench import bench_heads


class FilterModule:
    def filters(self):
        return {"bench_heads": bench_heads}
