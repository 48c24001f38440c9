#!/usr/bin/python
# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
---
module: gguf_verify
short_description: Verify that GGUF model files are complete, and describe them
version_added: 0.1.0
author:
  - The Fermi Sea (@thefermisea)
description:
  - Reads the header of each model and compares the size it implies, to the byte, with the size that is there. GGUF
    versions 2 and 3 and every tensor type of llama.cpp are known.
  - Fails when any model is incomplete, is followed by foreign bytes, is not GGUF, or does not have the sha256 it should
    have.
  - A right size proves a broken transfer, never a good one; O(sha256) does. A preallocated file has the right size and
    nothing in it.
options:
  paths:
    description:
      - Model files on the node. Any shard that C(llama-gguf-split) wrote stands for all of them, which must lie in one
        directory.
    type: list
    elements: path
    aliases: [path]
    required: true
  sha256:
    description:
      - The sha256 each of O(paths) must have, in the same order, as hexadecimal text. Not for models of several shards.
    type: list
    elements: str
  checksum:
    description:
      - Compute RV(models[].sha256) of O(paths) although nothing is given to compare it with. This reads the whole file.
    type: bool
    default: false
  recorded:
    description:
      - Hash O(paths), which M(thefermisea.llama_cluster.gguf_fetch) has published, and compare them with the records
        beside them. Models in several shards and pieces can be compared, too.
      - A file that differs gets the current time, so that M(thefermisea.llama_cluster.gguf_fetch) does not use its
        record, and fetches it again.
    type: bool
    default: false
  progress:
    description:
      - A file on the node with the progress of hashing with O(recorded). It is removed at the end.
    type: path
extends_documentation_fragment:
  - thefermisea.llama_cluster.attributes
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
    details:
      - It changes nothing but the time of a file that differs from its record.
"""

EXAMPLES = r"""
---
- name: The model is complete
  thefermisea.llama_cluster.gguf_verify:
    path: /opt/models/OR1-Behemoth.Q8_0.gguf

- name: Two models are what was published
  thefermisea.llama_cluster.gguf_verify:
    paths:
      - /opt/models/OR1-Behemoth.Q4_K_M.gguf
      - /opt/models/SmolLM2-135M-Instruct.Q4_1.gguf
    sha256:
      - 0b5f0c7cf1a6a4b30fd80d1b2ba2f0dc1f4c4a1f0a6f2f7e6a1c0f6d8f0a9c3e
      - b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53

- name: A model is what was published
  thefermisea.llama_cluster.gguf_verify:
    path: /opt/models/OR1-Behemoth.Q8_0.gguf
    recorded: true
"""

RETURN = r"""
models:
  description: One entry for each of O(paths), in order; also returned when the module fails.
  type: list
  elements: dict
  returned: always
  contains:
    path:
      description: The file (the first shard).
      type: str
      sample: /opt/models/SmolLM2-135M-Instruct.Q4_1.gguf
    complete:
      description: Whether all of it is there and agrees with the digest given.
      type: bool
      sample: true
    problem:
      description: Why it is not complete, in one sentence; null when it is.
      type: str
      sample: "/opt/models/m.gguf: 1,000 bytes present, 98,362,432 bytes needed by its header: fetch it again"
    size:
      description: Bytes that are there, of all shards together; null when they cannot be read.
      type: int
      sample: 98362432
    expected_size:
      description: Bytes needed by the header or headers.
      type: int
      sample: 98362432
    hashed:
      description: Whether every byte was compared with the record.
      type: bool
      returned: with O(recorded)
      sample: true
    sha256:
      description: The digest, where it was computed, else null.
      type: str
      sample: b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
    architecture:
      description: The model's C(general.architecture).
      type: str
      sample: llama
    name:
      description: The model's C(general.name).
      type: str
      sample: SmolLM2 135M Instruct
    license:
      description: The model's C(general.license).
      type: str
      sample: apache-2.0
    quantization:
      description: llama.cpp's name of the file type; the most common tensor type where the file does not say.
      type: str
      sample: Q4_1
    parameters:
      description: Weights of all tensors.
      type: int
      sample: 134515008
    block_count:
      description: Layers.
      type: int
      sample: 30
    context_length:
      description: Tokens of context that the model was made for.
      type: int
      sample: 8192
    tensors:
      description: Number of tensors.
      type: int
      sample: 272
    shards:
      description: Number of files.
      type: int
      sample: 1
"""

import contextlib
import os

from ansible.module_utils.basic import AnsibleModule

from ..module_utils._fetch.verify import recorded, verify_path, verify_recorded
from ..module_utils._files import write_atomically


def compare(models, progress, check):
    """Add to each of the models that are there how it compares with its record. -> whether one was changed"""
    there = [model for model in models if not model["problem"]]
    total = sum(entry.size for model in there for entry in recorded(model["path"]))
    seen = {"done": 0, "percent": -1}

    def advance(count):
        seen["done"] += count
        percent = 100 * seen["done"] // max(1, total)
        if progress and percent != seen["percent"]:
            seen["percent"] = percent
            write_atomically(progress, b"[%d%%]\n" % percent, durable=False)

    found = [verify_recorded(model["path"], advance, check) for model in there]
    for model, one in zip(there, found):
        model.update(hashed=one["hashed"], problem=one["problem"], complete=not one["problem"])
    if progress:
        with contextlib.suppress(OSError):
            os.unlink(progress)
    return any(one["changed"] for one in found)


def main():
    module = AnsibleModule(
        argument_spec={
            "paths": {"type": "list", "elements": "path", "aliases": ["path"], "required": True},
            "sha256": {"type": "list", "elements": "str"},
            "checksum": {"type": "bool", "default": False},
            "recorded": {"type": "bool", "default": False},
            "progress": {"type": "path"},
        },
        supports_check_mode=True,
    )
    paths, digests = module.params["paths"], module.params["sha256"] or []
    if digests and len(digests) != len(paths):
        module.fail_json(
            msg=f"gguf_verify: sha256: {len(digests)} digests given, paths has {len(paths)} files: give one for each",
            models=[],
        )
    models = [
        verify_path(path, digest, module.params["checksum"])
        for path, digest in zip(paths, digests or [None] * len(paths))
    ]
    changed = module.params["recorded"] and compare(models, module.params["progress"], module.check_mode)
    problems = [model["problem"] for model in models if model["problem"]]
    if problems:
        module.fail_json(msg="gguf_verify: " + "; ".join(problems), models=models, changed=changed)
    module.exit_json(changed=changed, models=models)


if __name__ == "__main__":
    main()
