#!/usr/bin/python
# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
---
module: llama_ask
short_description: "Internal: ask a model the questions of an evaluation"
version_added: 0.1.0
author: [The Fermi Sea (@thefermisea)]
description: >-
  Sends one question at a time and returns the answers that came within O(seconds). The action plugin makes the
  questions of tasks, and calls the module until each answer is in a store on the controller.
options:
  url: {description: "Address of the server, C(http://HOST:PORT).", type: str, required: true}
  unit: {description: "systemd unit of a head, whose key is sent to its own process only.", type: str}
  gateway:
    description: "Whether O(url) is the gateway of this host: its key is used, and its certificate is not checked."
    type: bool
    default: false
  api_key_file: {description: File with the server's API key., type: path}
  model: {description: Name that requests carry., type: str}
  questions:
    description: What to ask; the action plugin makes it.
    type: list
    elements: dict
    suboptions:
      key: {description: What the answer is kept under., type: str, required: true}
      prompt: {description: The message., type: str, required: true}
      max_tokens: {description: Tokens of the answer., type: int, required: true}
      temperature: {description: "0 for the most likely answer.", type: float, required: true}
      seed: {description: Of other temperatures., type: int, required: true}
  seconds: {description: How long to begin further questions., type: float, default: 30}
  timeout: {description: Seconds for each question., type: float, default: 1800}
  plan: {description: "Of filter C(evaluation_plan), for the action plugin.", type: dict}
  about: {description: "A model of the plan, for the action plugin.", type: dict}
extends_documentation_fragment: [thefermisea.llama_cluster.attributes]
attributes:
  check_mode: {support: full}
  diff_mode: {support: none}
  action: {support: full, description: Has an action plugin.}
"""

EXAMPLES = r"""
---
- name: Ask a question
  thefermisea.llama_cluster.llama_ask:
    url: http://10.0.0.31:8000
    questions: [{key: a, prompt: Name a color., max_tokens: 8, temperature: 0, seed: 0}]
"""

RETURN = r"""
---
answers: {description: "One for each question that was asked.", type: list, returned: success, elements: dict}
"""

from ansible.module_utils.basic import AnsibleModule

from ..module_utils._bench.ask import Question, ask
from ..module_utils._bench.exchange import target
from ..module_utils._files import read
from ..module_utils._llama.api import read_api_key
from ..module_utils._node.paths import GATEWAY_CURL_HEADER
from ..module_utils._node.units import main_pid
from ..module_utils._serving.health import key_of
from ..module_utils._text import Refusal


def main():
    question = {
        "key": {"type": "str", "required": True, "no_log": False},
        "prompt": {"type": "str", "required": True},
        "max_tokens": {"type": "int", "required": True, "no_log": False},
        "temperature": {"type": "float", "required": True},
        "seed": {"type": "int", "required": True},
    }
    module = AnsibleModule(
        argument_spec={
            "url": {"type": "str", "required": True},
            "unit": {"type": "str"},
            "gateway": {"type": "bool", "default": False},
            "api_key_file": {"type": "path", "no_log": False},
            "model": {"type": "str"},
            "questions": {"type": "list", "elements": "dict", "options": question},
            "seconds": {"type": "float", "default": 30},
            "timeout": {"type": "float", "default": 1800},
            "plan": {"type": "dict"},
            "about": {"type": "dict"},
        },
        mutually_exclusive=[("unit", "gateway"), ("unit", "api_key_file"), ("gateway", "api_key_file")],
        supports_check_mode=True,
    )
    params = module.params
    try:
        key = key_for(params)
        pid = main_pid(params["unit"]) if params["unit"] and key else None
        url = params["url"].rstrip("/")
        to = target(url[: -len("/v1")] if url.endswith("/v1") else url, key, pid, not params["gateway"])
        questions = [Question(**one) for one in params["questions"] or []]
        answers = ask(to, params["model"], questions, params["seconds"], params["timeout"])
    except Refusal as error:
        module.fail_json(msg=f"llama_ask: {params['url']}: {error}")
    module.exit_json(changed=False, answers=answers)


def key_for(params):
    """The key that requests carry, None for none."""
    if params["gateway"]:
        try:
            return read(GATEWAY_CURL_HEADER).decode("ascii", "replace").split()[-1]
        except FileNotFoundError:
            return None
        except (OSError, IndexError) as error:
            raise Refusal(
                f"{GATEWAY_CURL_HEADER}: no key that can be read seen ({error}), one is needed: run site.yml with "
                "--tags gateway"
            ) from None
    if params["api_key_file"]:
        return read_api_key(params["api_key_file"])
    return key_of(params["unit"]) if params["unit"] else None


if __name__ == "__main__":
    main()
