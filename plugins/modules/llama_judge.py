#!/usr/bin/python
# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
---
module: llama_judge
short_description: "Internal: compile and run the programs that a model wrote, in a sandbox"
version_added: 0.1.0
author:
  - The Fermi Sea (@thefermisea)
description:
  - Gives each answer its verdict. A Rust program is compiled as a library, the task's tests are compiled with it, and
    both run. For a task with a command, the command's exit status is the verdict.
  - Programs are hostile input. Each step runs in a transient unit of systemd, if this host has systemd, rustc and
    O(ignore:become), else in a container of docker or podman; without either the module fails.
  - A sandbox has its own user, no network, no files of the host but its programs, 64 tasks, 2 GiB of memory and one
    core. Compiling may take 60 s of CPU, a run 20 s and 64 KiB of output.
options:
  tasks:
    description:
      - Tasks of the answers.
    type: list
    elements: dict
    required: true
    suboptions:
      name:
        description:
          - What answers name it by.
        type: str
        required: true
      judge:
        description:
          - V(rust), or the words of a command, relative to O(tasks[].dir). It gets the answer's content on stdin.
        type: raw
        required: true
      tests:
        description:
          - The text of its C(tests.rs).
        type: str
      refused:
        description:
          - The text of its C(refused.rs), a program that must not compile with the answer.
        type: str
      dir:
        description:
          - Directory of the task on this host, which its command sees read-only as C(/task).
        type: path
  answers:
    description:
      - What to judge. Without answers the module returns only how it would judge.
    type: list
    elements: dict
    default: []
    suboptions:
      answer:
        description:
          - Its key.
        type: str
        required: true
      task:
        description:
          - Name of its task.
        type: str
        required: true
      source:
        description:
          - The program, or for a command the whole content, at most 256 KiB.
        type: str
        required: true
  image:
    description:
      - Image with rustc for the container engine, which is pulled if it is missing.
    type: str
    default: docker.io/library/rust:1-slim-bookworm
extends_documentation_fragment:
  - thefermisea.llama_cluster.attributes
attributes:
  check_mode:
    support: full
    details:
      - Changes nothing; programs run in check mode too.
  diff_mode:
    support: none
"""

EXAMPLES = r"""
---
- name: Judge one answer
  thefermisea.llama_cluster.llama_judge:
    tasks:
      - name: fix/double
        judge: rust
        tests: "{{ lookup('ansible.builtin.file', 'tests.rs') }}"
    answers:
      - answer: "1"
        task: fix/double
        source: "pub fn double(number: u32) -> u32 { number * 2 }"
  become: true
  register: judged
"""

RETURN = r"""
verdicts:
  description: One for each answer, in their order.
  type: list
  elements: dict
  returned: success
  contains:
    answer:
      description: Its key.
      type: str
      returned: success
      sample: "1"
    passes:
      description: Whether all tests passed, or the command ended with status 0.
      type: bool
      returned: success
      sample: false
    compiles:
      description: Whether the program compiles without the tests; V(null) if it is not Rust.
      type: bool
      returned: success
      sample: true
    reason:
      description: Why it does not pass, one sentence; empty if it does.
      type: str
      returned: success
      sample: "1 test of 3 failed, the first one is doubles_one"
    errors:
      description: How often each error code of rustc occurred.
      type: dict
      returned: success
      sample: {E0382: 2}
    lines:
      description: Lines of the program that are not blank.
      type: int
      returned: success
      sample: 12
    clippy_warnings:
      description: Warnings of clippy; V(null) if it is not Rust, or if there is no clippy.
      type: int
      returned: success
      sample: 0
rustc:
  description: The version of rustc.
  type: str
  returned: success
  sample: rustc 1.63.0
clippy:
  description: The version of clippy; V(null) without it.
  type: str
  returned: success
  sample: clippy 0.1.63
way:
  description: V(systemd), V(docker) or V(podman).
  type: str
  returned: success
  sample: systemd
"""

from ansible.module_utils.basic import AnsibleModule

from ..module_utils._judge.judge import runner, verdicts, versions
from ..module_utils._judge.sandbox import found_way
from ..module_utils._text import Refusal


def main():
    task = {
        "name": {"type": "str", "required": True},
        "judge": {"type": "raw", "required": True},
        "tests": {"type": "str"},
        "refused": {"type": "str"},
        "dir": {"type": "path"},
    }
    answer = {name: {"type": "str", "required": True} for name in ("answer", "task", "source")}
    module = AnsibleModule(
        argument_spec={
            "tasks": {"type": "list", "elements": "dict", "required": True, "options": task},
            "answers": {"type": "list", "elements": "dict", "default": [], "options": answer},
            "image": {"type": "str", "default": "docker.io/library/rust:1-slim-bookworm"},
        },
        supports_check_mode=True,
    )
    params = module.params
    try:
        with found_way(params["image"]) as way:
            start = runner(way)
            rustc, clippy = versions(start)
            found = verdicts(params["tasks"], params["answers"], start)
    except Refusal as error:
        module.fail_json(msg=f"llama_judge: {error}")
    except OSError as error:
        module.fail_json(msg=f"llama_judge: {error.filename}: {error.strerror}: root or an engine is needed")
    module.exit_json(changed=False, verdicts=found, rustc=rustc, clippy=clippy, way=way.name)


if __name__ == "__main__":
    main()
