# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = """
name: unit_files
author: The Fermi Sea (@thefermisea)
version_added: 0.1.0
short_description: "Internal: lists the files of a node's workers or heads"
description:
  - Returns what M(thefermisea.llama_cluster.node_files) takes for units, what the watchdog watches, memory plans,
    chat templates and the short name of the primary service.
positional: _input, kind, node, process, at_boot, plans, keys, salt, templates
options:
  _input:
    description: The workers of the node, of P(thefermisea.llama_cluster.node_rpc#filter), or its heads, of
      P(thefermisea.llama_cluster.node_serving#filter).
    type: list
    elements: dict
    required: true
  kind:
    description: V(rpc) or V(head).
    type: str
    required: true
  node:
    description: The fact C(llama_node) with C(units), C(watched), C(build) and, for heads, C(files) with their models.
    type: dict
    required: true
  process:
    description:
      - What the processes of all units run with, the digest of each is made from it. C(user), C(environment),
        C(cache_dir) of workers, C(numa_node), empty without numactl, and C(template), the units' own text.
      - What each runs, its C(build), and so what it may do, C(accelerator), V(cpu) or V(cuda), and C(rdma), is in the
        entries themselves; without C(build) it is the one that C(current) names.
    type: dict
    required: true
  at_boot:
    description: Whether the primary service answers to its short name.
    type: bool
    required: true
  plans:
    description: The memory plans of each service.
    type: dict
  keys:
    description: The API keys of each service.
    type: dict
  salt:
    description: A secret of the node that their digests are made with.
    type: str
  templates:
    description: The text of the chat template of each service whose C(chat_template_file) is one.
    type: dict
  only:
    description: The services whose files are written, all where none is named.
    type: list
    elements: str
    default: []
"""

EXAMPLES = """
files: >-
  {{ rpc_worker_instances
     | thefermisea.llama_cluster.unit_files('rpc', ansible_facts.llama_node, process, true) }}
"""

RETURN = """
_value:
  description: >-
    The entries. The template of a unit finds its C(item), its C(release), its
    C(accelerator), its C(digest), the lines of its C(sandbox), and, as systemd
    reads them, its C(args), C(exported) variables, C(cache) and C(numactl).
  type: list
  elements: dict
"""

from ..plugin_utils._filters import one_sentence
from ..plugin_utils._units.files import unit_files


class FilterModule:
    def filters(self):
        return {"unit_files": one_sentence(unit_files)}
