#!/usr/bin/python
# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
---
module: llama_plan
short_description: Tell before a download whether a model fits, and how to split it
version_added: 0.1.0
author:
  - The Fermi Sea (@thefermisea)
description:
  - Reads a model's header, from a file or by range requests from a server, and computes how much memory its weights,
    its KV cache and llama.cpp's compute buffers need on each device, and which layers go where.
  - A model that fits one device is not split, unless forced. A model that fits nowhere is no failure of this module;
    RV(fits) says so, and RV(advice) names what would fit.
  - Of a split, the counts of layers fit every device and keep the slowest one as fast as possible.
options:
  path:
    description:
      - The model on the node; any shard stands for all of them. Where it is not there, O(urls) or O(repo) is read.
    type: path
  urls:
    description:
      - The model's files on servers (http, https or file), in order. Only headers are read, at most 16 MiB of one.
    type: list
    elements: str
    aliases: [url]
  repo:
    description:
      - A repository of the hub that has O(files).
    type: str
  files:
    description:
      - The model's files in O(repo).
    type: list
    elements: str
  revision:
    description:
      - Branch, tag or commit of O(repo).
    type: str
    default: main
  endpoint:
    description:
      - Base URL of the hub.
    type: str
    default: https://huggingface.co
  token_file:
    description:
      - A file on the node whose content is sent as a bearer token to the origin of O(endpoint) only. It has to be
        root's or the task's user's own with mode 0600.
    type: path
  devices:
    description:
      - The devices in llama.cpp's order, RPC devices first and the head's own last; the last node is the head. Without
        any, only RV(shape) is returned.
    type: list
    elements: dict
    default: []
    suboptions:
      name:
        description:
          - Name of the card. A card that nvidia-smi calls so is weighed by the bandwidth of its memory, where that is
            known.
        type: str
        required: true
      main:
        description:
          - It is the main memory of a node. Of a node without a GPU it gets what GPUs cannot hold; beside cards of the
            same O(devices[].node) it gets no layers, and the experts that one of its cards has no room for.
        type: bool
        default: false
      bandwidth:
        description:
          - Bandwidth of its memory in GB/s, where the name does not tell.
        type: float
      node:
        description:
          - Where it is; RV(devices) repeats it. The same as O(devices[].name) where it is not given.
        type: str
      memory_mib:
        description:
          - Memory of the device that a model may use, in MiB.
        type: int
        required: true
  margin_mib:
    description:
      - What no formula covers, in MiB of each device; the accelerator's context, its memory pools, and the peak of a
        prefill.
    type: int
    default: 1024
  slot_ctx_size:
    description:
      - Tokens of context in each slot, which is what a request may use; V(0) is the model's own.
    type: int
    default: 0
  parallel:
    description:
      - Slots, each with O(slot_ctx_size); without it llama-server's own choice.
    type: int
  batch_size:
    description:
      - Tokens that a prefill submits at once.
    type: int
    default: 2048
  ubatch_size:
    description:
      - Tokens that are computed at once.
    type: int
    default: 512
  cache:
    description:
      - Type of both halves of the KV cache.
    type: str
    choices: [f16, q8_0, q4_0]
    default: f16
  build:
    description:
      - The llama.cpp release, such as V(b11434); without it the larger of what known releases need.
    type: str
  force_split:
    description:
      - Split the model even if it fits one device.
    type: bool
    default: false
extends_documentation_fragment:
  - thefermisea.llama_cluster.attributes
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
    details:
      - It changes nothing.
"""

EXAMPLES = r"""
---
- name: Whether a model would fit three cards
  thefermisea.llama_cluster.llama_plan:
    url: https://models.example.org/OR1-Behemoth.Q4_K_M.gguf
    devices:
      - {name: gpu2, memory_mib: 32510}
      - {name: gpu3, memory_mib: 32510}
      - {name: gpu1, memory_mib: 32510}
    slot_ctx_size: 131072
    parallel: 1
    cache: q4_0
    build: b11434
  register: plan

- name: What a local model's header says about memory
  thefermisea.llama_cluster.llama_plan:
    path: /opt/models/SmolLM2-135M-Instruct.Q4_1.gguf
"""

RETURN = r"""
shape:
  description: What of the header decides the memory; sizes in bytes, for the collection's own filters.
  type: dict
  returned: success
beside:
  description: What a file that is no model needs, if it is a projector or an adapter, for the collection's own filters.
  type: dict
  returned: failure, for such a file
fits:
  description: Whether the model fits.
  type: bool
  returned: with devices
  sample: true
topology:
  description: V(single), V(replicas) where it fits devices of several nodes, or V(split).
  type: str
  returned: with devices
  sample: split
reason:
  description: Why that.
  type: str
  returned: with devices
  sample: it fits none of gpu2 GPU0, gpu3 GPU0, gpu1 GPU0
devices:
  description: The share of each device, in MiB, rounded up; where the model does not fit, the best of the placements
    that do not.
  type: list
  elements: dict
  returned: with devices
  contains:
    node:
      description: Name of the node, or of the device.
      type: str
      sample: gpu2
    first_layer:
      description: First layer; null where it has none.
      type: int
      sample: 0
    last_layer:
      description: Last layer.
      type: int
      sample: 26
    layers:
      description: Number of layers.
      type: int
      sample: 27
    weights_mib:
      description: Weights, the output layer's on the last device.
      type: int
      sample: 14725
    kv_mib:
      description: KV cache.
      type: int
      sample: 3888
    compute_mib:
      description: Compute buffers.
      type: int
      sample: 942
    margin_mib:
      description: O(margin_mib).
      type: int
      sample: 1024
    total_mib:
      description: All of it.
      type: int
      sample: 20578
    free_mib:
      description: What the device has.
      type: int
      sample: 32510
host:
  description: What the head keeps in its main memory; weights_mib, kv_mib, compute_mib.
  type: dict
  returned: with devices
tensor_split:
  description: The counts for C(--tensor-split), the output layer counted; empty for one device.
  type: list
  elements: int
  returned: with devices
  sample: [27, 27, 27]
advice:
  description: Where it does not fit, what to do to the nearest things that would.
  type: list
  elements: str
  returned: with devices
  sample: [lower slot_ctx_size to 40960, set cache to q8_0]
refused:
  description: What speaks against it in one sentence, empty for nothing; that it does not fit, or that a node's main
    memory would hold no layers beside GPUs.
  type: list
  elements: str
  returned: with devices
  sample: ["it does not fit 1 device: use 3 cards of 49152 MiB"]
lines:
  description: The plan as a table, and what would make it better.
  type: list
  elements: str
  returned: with devices
"""

import os

from ansible.module_utils.basic import AnsibleModule

from ..module_utils._cache_keys import CACHE_TYPES
from ..module_utils._fetch.hub import DEFAULT_ENDPOINT, read_token
from ..module_utils._plan.header import NoModel, local_shape, remote_shape
from ..module_utils._plan.what_if import what_if
from ..module_utils._settings import OWN
from ..module_utils._text import Refusal


def shape_of(given):
    """The shape of the model at its path, else at its source. Raises OSError, Refusal."""
    sources = given["urls"] or given["repo"]
    try:
        if given["path"] and (os.path.exists(given["path"]) or not sources):
            return local_shape(given["path"])
    except NoModel:
        raise
    except Refusal:
        # A damaged one is fetched again.
        if not sources:
            raise
    asked = {name: given[name] for name in ("urls", "repo", "files", "revision", "endpoint")}
    return remote_shape(token=read_token(given["token_file"]), **asked)


def main():
    module = AnsibleModule(
        argument_spec={
            "path": {"type": "path"},
            "urls": {"type": "list", "elements": "str", "aliases": ["url"]},
            "repo": {"type": "str"},
            "files": {"type": "list", "elements": "str"},
            "revision": {"type": "str", "default": "main"},
            "endpoint": {"type": "str", "default": DEFAULT_ENDPOINT},
            "token_file": {"type": "path"},
            "devices": {
                "type": "list",
                "elements": "dict",
                "default": [],
                "options": {
                    "name": {"type": "str", "required": True},
                    "main": {"type": "bool", "default": False},
                    "bandwidth": {"type": "float"},
                    "node": {"type": "str"},
                    "memory_mib": {"type": "int", "required": True},
                },
            },
            "margin_mib": {"type": "int", "default": 1024},
            "slot_ctx_size": {"type": "int", "default": 0},
            "parallel": {"type": "int"},
            "batch_size": {"type": "int", "default": OWN["batch_size"]},
            "ubatch_size": {"type": "int", "default": OWN["ubatch_size"]},
            "cache": {"type": "str", "choices": list(CACHE_TYPES), "default": OWN["cache_type_k"]},
            "build": {"type": "str"},
            "force_split": {"type": "bool", "default": False},
        },
        mutually_exclusive=[("urls", "repo")],
        required_one_of=[("path", "urls", "repo")],
        required_by={"repo": ("files",)},
        supports_check_mode=True,
    )
    given = module.params
    try:
        shape = shape_of(given)
        result = dict(what_if(shape, given) if given["devices"] else {}, shape=shape.as_dict())
    except OSError as error:
        module.fail_json(msg=f"{error.filename or given['path']}: {error.strerror}: fetch it, or correct the path")
    except NoModel as error:
        module.fail_json(msg=str(error), companion=error.companion._asdict())
    except Refusal as error:
        module.fail_json(msg=str(error))
    module.exit_json(changed=False, **result)


if __name__ == "__main__":
    main()
