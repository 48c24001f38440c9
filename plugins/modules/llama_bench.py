#!/usr/bin/python
# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
---
module: llama_bench
short_description: Measure how fast an OpenAI-compatible server answers
version_added: 0.1.0
author:
  - The Fermi Sea (@thefermisea)
description:
  - Sends streaming chat completions and stamps every piece of the answers at the socket. Each prompt, at each depth of
    context, with each concurrency, is a cell with figures of its own; a line of progress is printed after each.
  - Runs on the host that sends the requests, the head, a client or, with C(delegate_to=localhost), the controller.
  - Errors of requests are figures. An error event in a stream, or a stream without its last piece, is an error.
options:
  url:
    description:
      - Address of the server, C(http://HOST:PORT), with or without C(/v1).
    type: str
    required: true
  unit:
    description:
      - systemd unit of a head of the collection. The API key is then that of its service on this node, and is sent
        to the unit's own process only.
    type: str
  api_key_file:
    description:
      - File with the server's API key where the module runs, the first line that is no comment.
    type: path
  api_key:
    description:
      - The key itself, for a host that has no file with it.
    type: str
  model:
    description:
      - Name that requests carry. Needed at a gateway and at a router.
    type: str
  prompts:
    description:
      - What to ask. Each has a C(name) and its C(text).
    type: list
    elements: dict
    required: true
    suboptions:
      name:
        description:
          - What its cells are called.
        type: str
        required: true
      text:
        description:
          - The question.
        type: str
        required: true
  depths:
    description:
      - Tokens of other text before the prompt, as the server's own C(/tokenize) counts them. Without it they are
        estimated, as RV(cells.depth_counted) says.
    type: list
    elements: int
    default: [0]
  concurrency:
    description:
      - How many requests are under way at a time, at most 64.
    type: list
    elements: int
    default: [1]
  requests:
    description:
      - Requests of a cell.
    type: int
    default: 5
  warmup:
    description:
      - Requests before the first cell that are not counted. If none of them is answered, the task fails.
    type: int
    default: 1
  max_tokens:
    description:
      - Tokens of an answer.
    type: int
    default: 128
  ignore_eos:
    description:
      - Have every answer be as long as O(max_tokens), which llama.cpp can do.
    type: bool
    default: true
  cache_prompt:
    description:
      - Let the server use what it has read before. Otherwise it must not, and every prompt begins with another word.
    type: bool
    default: false
  timeout:
    description:
      - Seconds for each request.
    type: float
    default: 600
extends_documentation_fragment:
  - thefermisea.llama_cluster.attributes
attributes:
  check_mode:
    support: full
    details:
      - Changes nothing; requests are sent in check mode too.
  diff_mode:
    support: none
  action:
    support: full
    description: Indicates this has a corresponding action plugin so some parts of the options can be executed on the
      controller.
seealso:
  - module: thefermisea.llama_cluster.llama_health
"""

EXAMPLES = r"""
---
- name: Measure one and four clients at a time, without and with a long conversation before the question
  thefermisea.llama_cluster.llama_bench:
    url: http://10.0.0.31:8000
    unit: llama-head-reasoning.service
    prompts:
      - {name: short, text: Name the three primary colors.}
    depths: [0, 4096]
    concurrency: [1, 4]
  become: true
  register: measured

- name: Ask a gateway from here, two requests a second
  thefermisea.llama_cluster.llama_bench:
    url: https://gateway.example/v1
    api_key_file: ~/.config/llama-key
    model: or1-behemoth
    prompts:
      - {name: short, text: Name the three primary colors.}
    concurrency: [4]
    requests: 60
  delegate_to: localhost
"""

RETURN = r"""
cells:
  description: One for each prompt, depth and concurrency, in this order.
  type: list
  elements: dict
  returned: success
  contains:
    prompt:
      description: Its name.
      type: str
      returned: success
      sample: short
    depth:
      description: As requested.
      type: int
      returned: success
      sample: 4096
    depth_counted:
      description: Whether the server has counted the tokens before the prompt.
      type: bool
      returned: success
      sample: true
    concurrency:
      description: As requested.
      type: int
      returned: success
      sample: 4
    began:
      description: Seconds since 1970 by the clock of the host that asks. C(ended) likewise.
      type: float
      returned: success
      sample: 1795600000.125
    others:
      description: Tokens that the server generated for others meanwhile; V(null) where it does not tell.
      type: int
      returned: success
      sample: 0
    figures:
      description:
        - C(requests), C(errors) and C(reasons), which counts each sentence; C(seconds) from the first request to the
          last piece; C(prompt_tokens), C(cached_tokens) and C(generated_tokens) in total, V(null) if unknown;
          C(tokens_per_second) of all requests together.
        - Of the requests without an error C(p50), C(p90), C(p95), C(p99) and C(n) of C(request_tokens_per_second)
          (tokens after the first one by their time), C(time_to_first_token) (text), C(time_to_first_reasoning),
          and C(queue_seconds) (to the first piece, without the time in which the server read the prompt), in seconds.
        - C(server) has the rates that llama.cpp reports, C(prompt_tokens_per_second) and C(tokens_per_second).
      type: dict
      returned: success
disturbed:
  description: Whether the server generated anything for others meanwhile.
  type: bool
  returned: success
  sample: false
"""

from ansible.module_utils.basic import AnsibleModule

from ..module_utils._bench.exchange import MOST
from ..module_utils._bench.run import Asked, Cell, measure
from ..module_utils._llama.api import read_api_key
from ..module_utils._node.units import main_pid
from ..module_utils._serving.health import key_of
from ..module_utils._text import Refusal


def main():
    prompt = {"name": {"type": "str", "required": True}, "text": {"type": "str", "required": True}}
    module = AnsibleModule(
        argument_spec={
            "url": {"type": "str", "required": True},
            "unit": {"type": "str"},
            "api_key_file": {"type": "path", "no_log": False},
            "api_key": {"type": "str", "no_log": True},
            "model": {"type": "str"},
            "prompts": {"type": "list", "elements": "dict", "required": True, "options": prompt},
            "depths": {"type": "list", "elements": "int", "default": [0]},
            "concurrency": {"type": "list", "elements": "int", "default": [1]},
            "requests": {"type": "int", "default": 5},
            "warmup": {"type": "int", "default": 1},
            "max_tokens": {"type": "int", "default": 128, "no_log": False},
            "ignore_eos": {"type": "bool", "default": True},
            "cache_prompt": {"type": "bool", "default": False},
            "timeout": {"type": "float", "default": 600},
        },
        mutually_exclusive=[("unit", "api_key_file", "api_key")],
        supports_check_mode=True,
    )
    params = module.params
    asked = Asked(**{name: params[name] for name in Asked._fields})
    cells = []
    try:
        key = read_api_key(params["api_key_file"]) if params["api_key_file"] else params["api_key"]
        key = key_of(params["unit"]) if params["unit"] else key
        for cell in wanted(params):
            # A head that restarted meanwhile is another process.
            pid = main_pid(params["unit"]) if params["unit"] and key else None
            cells.append(measure(params["url"], key, cell, asked, pid))
    except Refusal as error:
        module.fail_json(msg=f"llama_bench: {params['url']}: {error}")
    module.exit_json(changed=False, cells=cells, disturbed=any(one["others"] for one in cells))


def wanted(params):
    """The cells; the first one begins with the requests that are not counted."""
    numbers = [("requests", [params["requests"]], 1), ("max_tokens", [params["max_tokens"]], 1)]
    numbers += [("warmup", [params["warmup"]], 0), ("concurrency", params["concurrency"], 1)]
    for name, values, least in numbers + [("depths", params["depths"], 0)]:
        for value in values:
            if value < least:
                raise Refusal("%s %d seen, at least %d is needed" % (name, value, least))
    for value in params["concurrency"]:
        if value > MOST:
            raise Refusal("concurrency %d seen, at most %d is allowed" % (value, MOST))
    cells = [
        Cell(prompt["name"], prompt["text"], depth, concurrency, params["requests"], 0)
        for prompt in params["prompts"]
        for depth in params["depths"]
        for concurrency in params["concurrency"]
    ]
    return [cells[0]._replace(warmup=params["warmup"])] + cells[1:] if cells else []


if __name__ == "__main__":
    main()
