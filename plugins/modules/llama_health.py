#!/usr/bin/python
# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
---
module: llama_health
short_description: Tell whether a llama-server can answer, over all of its workers
version_added: 0.1.0
author:
  - The Fermi Sea (@thefermisea)
description:
  - Looks at a head or router through its HTTP API, its systemd unit and the kernel's view of its connections.
  - llama-server's C(/health), C(/slots) and C(/metrics) answer 200 with dead and with hanging workers. With
    O(rpc_endpoints) the connections to the workers are checked, with O(deep=true) that an answer, or progress, really
    comes.
  - Never connects to an RPC port.
options:
  url:
    description: Address of the server, C(http://HOST:PORT).
    type: str
    required: true
  api_key_file:
    description:
      - File on the node with the server's API key, the first line that is no comment.
      - Not needed with O(unit) of a service of the collection; the key is then taken from
        C(/etc/llama-cluster/keys/SERVICE).
    type: path
  model:
    description:
      - Model of a router to ask for with O(deep=true), by its own name. The answer has to be its.
      - The deep check loads it, and the router may unload another model for it. Without a name a router is asked for
        one that is loaded, else for the first.
    type: str
  unit:
    description:
      - systemd unit of the head. Only connections of its processes count as its own, and its state appears in the
        reasons.
      - Needs the module to run on the head's node as root.
    type: str
  rpc_endpoints:
    description:
      - Workers, C(HOST:PORT), that the head must hold an established connection to.
      - Needs the module to run on the head's node.
    type: list
    elements: str
    default: []
  wait:
    description: Seconds to look again, twice a second, until the state is V(ready) or V(busy) or the unit has failed
      for good,
        or has ended three times in a row without serving.
    type: float
    default: 0
  deep:
    description:
      - Ask an idle server for a real completion; it takes a slot and replaces the prompt the slot has cached.
      - A server that works is judged by its progress instead (decode counters, bytes from its workers), never by a
        completion.
    type: bool
    default: false
  conversation:
    description:
      - Judge the answer of O(deep), which this implies, beyond its having come. V(plain) asks nothing more. It fails
        where C(content) has nothing visible or raw thoughts, where it holds special tokens of a chat template, repeats
        the question or goes round in circles, where reasoning comes although it is switched off, and
        where a slot has less context than O(arguments) ask for.
      - V(full) also gives a model that thinks the tokens to finish, and uses a tool where the template has tools. It
        fails where a request with tools, or with the result of one, ends the server, is answered by an error, or
        brings a call whose arguments are no string of a JSON object. A model that does not call the tool is reported.
      - A server that embeds is judged by its embedding with either.
      - What fails is V(degraded), with the template, build or setting to change as RV(reason).
    type: str
    choices: [plain, full]
  arguments:
    description:
      - The server's command line, with its settings of reasoning, templates, context and embeddings.
      - A server with C(--embeddings) among them is asked for an embedding by O(deep), one with C(--reranking) for the
        scores of two documents.
    type: list
    elements: str
    default: []
  health_only:
    description:
      - Ask C(/health) and nothing else, as a client may that has no key. What serves is V(ready), whether it works or
        not.
      - Says from another machine whether the port is open. Redirects are not followed.
    type: bool
    default: false
  prompt:
    description: What to ask with O(deep=true).
    type: str
    default: "Name one color."
  max_tokens:
    description: Longest answer with O(deep=true). Rates need at least two tokens.
    type: int
    default: 8
  timeout:
    description:
      - Seconds for the whole answer, and for the next sign of progress of a server that works.
      - Must exceed the time of the slowest batch. The server's counters move once per batch, connections to workers
        once per micro-batch.
    type: float
    default: 120
  fail_on:
    description:
      - States that fail the task. By default every state in which no answer can be had; with an empty list only a
        question that cannot be put (wrong key, unknown unit, missing privilege) fails.
    type: list
    elements: str
    choices: [loading, ready, busy, degraded, down]
    default: [loading, degraded, down]
extends_documentation_fragment:
  - thefermisea.llama_cluster.attributes
attributes:
  check_mode:
    support: full
    details:
      - Changes nothing; the deep check runs in check mode too.
  diff_mode:
    support: none
seealso:
  - module: thefermisea.llama_cluster.llama_unit_info
"""

EXAMPLES = r"""
---
- name: Wait until the head has loaded its model, then let it answer over all workers
  thefermisea.llama_cluster.llama_health:
    url: http://10.0.0.31:8000
    api_key_file: /etc/llama-cluster/keys/reasoning
    unit: llama-head-reasoning.service
    rpc_endpoints: [10.100.0.32:50052, 10.100.0.33:50052]
    wait: 900
    deep: true
    max_tokens: 64
  become: true
  register: health

- name: Say how fast it answered
  ansible.builtin.debug:
    msg: "{{ health.model }}: {{ health.tokens_per_second | round(1) }} tokens/s"

- name: Look without judging
  thefermisea.llama_cluster.llama_health:
    url: http://10.0.0.31:8000
    fail_on: []
"""

RETURN = r"""
state:
  description:
    - V(loading), starts or reads its model. V(ready), answers and is idle. V(busy), answers others.
    - V(degraded), speaks HTTP but cannot answer, or not over all workers, or not as O(conversation) wants. V(down), no
      usable HTTP.
  type: str
  returned: always
  sample: ready
reason:
  description: Why, in one sentence.
  type: str
  returned: always
  sample: it answered 8 tokens in 0.7 s
model:
  description: Name the server answers with; V(null) when it does not tell.
  type: str
  returned: always
  sample: or1-behemoth
models:
  description: The models of a router, each with C(unloaded), C(loading), C(loaded) or C(sleeping). No look loads one.
    V(null) for any other server, and where O(model) names one.
  type: dict
  returned: always
  sample: {coder: loaded, chat: unloaded}
slots:
  description: Requests the server can work on at a time; V(null) when it does not tell.
  type: int
  returned: always
  sample: 1
slots_busy:
  description: Slots at work; V(null) when neither C(/slots) nor C(/metrics) is on.
  type: int
  returned: always
  sample: 0
n_ctx:
  description: Context of one slot in tokens; V(null) when it does not tell.
  type: int
  returned: always
  sample: 4096
workers:
  description: One entry per entry of O(rpc_endpoints), in its order.
  type: list
  elements: dict
  returned: always
  contains:
    endpoint:
      description: As given.
      type: str
      returned: always
      sample: 10.100.0.32:50052
    connected:
      description: Whether the head holds an established connection to it.
      type: bool
      returned: always
      sample: true
    bytes_sent:
      description: Bytes the worker acknowledged during the completion; V(null) without one or without counters.
      type: int
      returned: always
      sample: 1411021
    bytes_received:
      description: Bytes the worker sent during the completion; V(null) without one or without counters.
      type: int
      returned: always
      sample: 205512
progress:
  description: Whether a server at work was seen to get on; V(null) unless O(deep=true) met one.
  type: bool
  returned: always
  sample: true
answer:
  description: Text of the completion; V(null) without one.
  type: str
  returned: always
  sample: Blue.
tokens:
  description: Tokens of the answer.
  type: int
  returned: always
  sample: 3
prompt_tokens:
  description: Tokens of the prompt with the model's template.
  type: int
  returned: always
  sample: 34
tokens_per_second:
  description: Rate of generation as the server measured it; V(null) for an answer of one token.
  type: float
  returned: always
  sample: 12.7
prompt_tokens_per_second:
  description: Rate of prompt processing as the server measured it.
  type: float
  returned: always
  sample: 22.5
seconds_to_answer:
  description: Seconds from request to whole answer as seen from the node.
  type: float
  returned: always
  sample: 1.8
conversation:
  description:
    - What was seen of each part of O(conversation), C(question), C(embedding), C(reranking), C(tools),
      C(reasoning), C(draft) and C(picture),
      V(null) for what was not looked at or is refused, and C(not_held), why the rest was not asked.
  type: dict
  returned: with O(conversation), where it serves
  sample: {question: answers, embedding: null, reranking: null, tools: called, reasoning: none, draft: null,
    not_held: null}
waited:
  description: Seconds spent in O(wait).
  type: float
  returned: always
  sample: 312.5
waited_for:
  description: Reasons seen while waiting, each once, in order.
  type: list
  elements: str
  returned: always
  sample: [it answers 503 (Loading model)]
"""

from ansible.module_utils.basic import AnsibleModule

from ..module_utils._llama.api import LlamaApi, read_api_key
from ..module_utils._llama.args import parse_args
from ..module_utils._serving.conversation import Conversation
from ..module_utils._serving.health import SERVING, STATES, Head
from ..module_utils._text import Refusal


def main():
    module = AnsibleModule(
        argument_spec={
            "url": {"type": "str", "required": True},
            "api_key_file": {"type": "path", "no_log": False},
            "model": {"type": "str"},
            "unit": {"type": "str"},
            "rpc_endpoints": {"type": "list", "elements": "str", "default": []},
            "wait": {"type": "float", "default": 0},
            "deep": {"type": "bool", "default": False},
            "conversation": {"type": "str", "choices": ["plain", "full"]},
            "arguments": {"type": "list", "elements": "str", "default": []},
            "health_only": {"type": "bool", "default": False},
            "prompt": {"type": "str", "default": "Name one color."},
            "max_tokens": {"type": "int", "default": 8, "no_log": False},
            "timeout": {"type": "float", "default": 120},
            "fail_on": {
                "type": "list",
                "elements": "str",
                "choices": list(STATES),
                "default": ["loading", "degraded", "down"],
            },
        },
        mutually_exclusive=[("health_only", "deep"), ("health_only", "conversation")],
        supports_check_mode=True,
    )
    params = module.params
    try:
        key = read_api_key(params["api_key_file"]) if params["api_key_file"] else None
        line = parse_args(params["arguments"])
        head = Head(
            LlamaApi(params["url"], key, params["model"]),
            params["rpc_endpoints"],
            params["unit"],
            not key,
            params["health_only"],
            line,
        )
        asked = {name: params[name] for name in ("prompt", "max_tokens", "timeout")}
        result = head.check(params["wait"], asked if params["deep"] or params["conversation"] else None)
        if params["conversation"] and result["state"] in SERVING:
            Conversation(head, result, **asked).hold(params["conversation"] == "full")
    except Refusal as error:
        module.fail_json(msg=f"llama_health: {error}")
    if result["state"] in params["fail_on"]:
        source = f"journalctl -u {params['unit']}" if params["unit"] else "the log of its unit or job"
        module.fail_json(
            msg=f"llama_health: {params['url']} is {result['state']}: {result['reason']}; see {source}",
            **result,
        )
    module.exit_json(changed=False, **result)


if __name__ == "__main__":
    main()
