# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ready configurations for the clients of a gateway, from its gateway.json. Private to the collection.

The gateway renders them at each request, playbooks/clients.yml before anything is deployed. They contain no key, but
the environment variable LLAMA_API_KEY. A JSON string without escaped letters is also a string of YAML, TOML and Python.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from typing import Any, Callable, NamedTuple

from .._text import printable
from .config import SILENCE

KEY = "LLAMA_API_KEY"
# Context of a model without a setting, which llama-server takes from its file.
ASSUMED_CONTEXT = 4096
# Without a limit of answers, an answer may take a quarter of the context.
ANSWER_PART = 4
# Seconds that a client waits longer than the gateway, whose error is clearer.
GRACE = 30


class Entry(NamedTuple):
    """One model for clients. context, output: tokens; assumed: whether the context is assumed; timeout: seconds."""

    name: str
    aliases: list[str]
    context: int
    assumed: bool
    output: int
    embeddings: bool
    timeout: int

    @property
    def names(self) -> list[str]:
        return [self.name, *self.aliases]

    @property
    def line(self) -> str:
        """'chat: 4096 tokens of context, answers of 1024; also as Chat'"""
        context = f"{self.context} tokens of context"
        limits = f"the context of its file ({context} assumed)" if self.assumed else context
        limits = f"embeddings, {limits}" if self.embeddings else f"{limits}, answers of {self.output}"
        return f"{self.name}: {limits}" + ("; also as " + ", ".join(self.aliases) if self.aliases else "")


class Page:
    """Models, addresses and limits of a gateway. url: without /v1."""

    def __init__(self, config: Mapping[str, Any], url: str) -> None:
        self.url, self.config = url, config
        self.models = entries(config)
        self.chat = [entry for entry in self.models if not entry.embeddings]
        self.vectors = [entry for entry in self.models if entry.embeddings]
        wanted = (config.get("routes") or {}).get("default")
        named = [entry for entry in self.chat if wanted in entry.names] or self.chat
        # The model if a client chooses none.
        self.default = named[0].name if named else ""

    @property
    def wait(self) -> int:
        return max([entry.timeout for entry in self.models] or [int(SILENCE) + GRACE])

    def head(self, use: str) -> str:
        """The comment at the top: usage of the file, and the models."""
        key = (
            f"{KEY} is any text: this gateway takes requests without a key, and notes the key that it is sent."
            if self.config.get("auth") == "log_only"
            else f"{KEY} is the key that the operator of the gateway gives you."
        )
        lines = [*use.splitlines(), key, f"Models of {printable(self.url)}:", *(entry.line for entry in self.models)]
        return "".join(f"# {line}\n" if line else "#\n" for line in lines) + "\n"


def entries(config: Mapping[str, Any]) -> list[Entry]:
    """The models of all services that are not stopped. The first service with a name has it."""
    services = [service for service in config["services"].values() if service.get("state") != "stopped"]
    taken = {model["name"] for service in services for model in service["models"]}
    found: dict[str, Entry] = {}
    for service in services:
        for model in service["models"]:
            name, context = model["name"], model.get("slot_ctx_size") or ASSUMED_CONTEXT
            if name not in found:
                aliases = [alias for alias in model.get("aliases", ()) if alias not in taken]
                taken.update(aliases)
                found[name] = Entry(
                    name,
                    aliases,
                    context,
                    assumed=not model.get("slot_ctx_size"),
                    output=max(1, context // ANSWER_PART),
                    embeddings=bool(model.get("embeddings")),
                    timeout=int(service.get("timeout") or SILENCE) + GRACE,
                )
    return list(found.values())


def quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def openai(page: Page) -> str:
    def table(entry: Entry) -> str:
        output = "" if entry.embeddings else f'\n        "output": {entry.output},'
        return f"""\
    {quoted(entry.name)}: {{
        "aliases": [{", ".join(map(quoted, entry.aliases))}],
        "context": {entry.context},{output}
    }},
"""

    address = shlex.quote(page.url + "/v1")
    question = {"model": page.default, "messages": [{"role": "user", "content": "Hello"}]}
    key = f'-H "Authorization: Bearer ${KEY}"'
    use = f"""\
The openai SDK: pip install openai; export {KEY}=...; python llama_openai.py 'a question' [MODEL]
The same with curl:
  curl -sS {address}/models {key}
  curl -sSN {address}/chat/completions {key} -H 'Content-Type: application/json' -d {shlex.quote(json.dumps(question))}
"""
    return f"""\
{page.head(use)}import os
import sys

from openai import OpenAI

MODELS = {{
{"".join(map(table, page.chat))}}}
EMBEDDINGS = {{
{"".join(map(table, page.vectors))}}}
client = OpenAI(
    base_url={quoted(page.url + "/v1")},
    api_key=os.environ.get("{KEY}", "none"),
    # A long prompt may take this long until its first token.
    timeout={page.wait},
)

if __name__ == "__main__":
    stream = client.chat.completions.create(
        model=sys.argv[2] if len(sys.argv) > 2 else {quoted(page.default)},
        messages=[{{"role": "user", "content": sys.argv[1] if len(sys.argv) > 1 else "Hello"}}],
        stream=True,
    )
    for chunk in stream:
        print(chunk.choices[0].delta.content or "" if chunk.choices else "", end="", flush=True)
    print()
"""


def litellm(page: Page) -> str:
    def model(entry: Entry) -> str:
        # Without an encoding LiteLLM sends null, which llama-server refuses.
        encoding = "\n      encoding_format: float" if entry.embeddings else ""
        output = "" if entry.embeddings else f"\n      max_output_tokens: {entry.output}"
        return f"""\
  - model_name: {quoted(entry.name)}
    litellm_params:
      model: {quoted("openai/" + entry.name)}
      api_base: {quoted(page.url + "/v1")}
      api_key: os.environ/{KEY}
      timeout: {entry.timeout}{encoding}
    model_info:
      mode: {"embedding" if entry.embeddings else "chat"}
      max_input_tokens: {entry.context}{output}
"""

    aliases = [f"    {quoted(alias)}: {quoted(one.name)}\n" for one in page.models for alias in one.aliases]
    return f"""\
{page.head(f"LiteLLM's proxy: export {KEY}=...; litellm --config config.yaml")}\
model_list:{"" if page.models else " []"}
{"".join(map(model, page.models))}router_settings:
  # The gateway itself tries other replicas and the fallback.
  num_retries: 0
{"".join(["  model_group_alias:" + chr(10), *aliases] if aliases else [])}"""


def opencode(page: Page) -> str:
    models = {}
    for entry in page.chat:
        # A model without limits is refused by OpenCode at its first answer.
        limit = {"context": entry.context, "output": entry.output}
        shown = f"{entry.name} ({entry.context} tokens assumed)" if entry.assumed else entry.name
        models[entry.name] = {"name": shown, "limit": limit}
        models.update({alias: {"name": f"{shown}, as {alias}", "limit": limit} for alias in entry.aliases})
    options = {"baseURL": page.url + "/v1", "apiKey": "{env:%s}" % KEY, "timeout": 1000 * page.wait}
    provider = {"npm": "@ai-sdk/openai-compatible", "name": "llama.cpp", "options": options, "models": models}
    document: dict[str, Any] = {"$schema": "https://opencode.ai/config.json", "provider": {"llama": provider}}
    if page.chat:
        document["model"] = "llama/" + page.default
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def open_webui(page: Page) -> str:
    use = """\
Open WebUI: write the key in place of KEY, then
  docker run -d --name open-webui -p 3000:8080 -v open-webui:/app/backend/data --env-file open-webui.env \\
      ghcr.io/open-webui/open-webui:main
It keeps what it was first started with; ENABLE_PERSISTENT_CONFIG=false has it read this file at each start.
"""
    model = f"DEFAULT_MODELS={page.default}\n" if page.chat else ""
    vectors = ""
    if page.vectors:
        vectors = f"""\
RAG_EMBEDDING_ENGINE=openai
RAG_OPENAI_API_BASE_URL={page.url}/v1
RAG_OPENAI_API_KEY=KEY
RAG_EMBEDDING_MODEL={page.vectors[0].name}
"""
    return f"""\
{page.head(use)}OPENAI_API_BASE_URL={page.url}/v1
OPENAI_API_KEY=KEY
ENABLE_OLLAMA_API=false
ENABLE_PERSISTENT_CONFIG=false
AIOHTTP_CLIENT_TIMEOUT={page.wait}
{model}{vectors}"""


def continue_dev(page: Page) -> str:
    def model(entry: Entry, name: str) -> str:
        limits = f"{{contextLength: {entry.context}, maxTokens: {entry.output}}}"
        return f"""\
  - name: {quoted(name)}
    provider: openai
    model: {quoted(name)}
    apiBase: {quoted(page.url + "/v1")}
    apiKey: ${{{{ secrets.{KEY} }}}}
    roles: [{"embed" if entry.embeddings else "chat, edit, apply"}]
    requestOptions: {{timeout: {entry.timeout}}}
{"" if entry.embeddings else "    defaultCompletionOptions: " + limits + chr(10)}"""

    return f"""\
{page.head(f"Continue: ~/.continue/config.yaml, and {KEY}=... in ~/.continue/.env")}name: llama.cpp
version: 1.0.0
schema: v1
models:{"" if page.models else " []"}
{"".join(model(entry, name) for entry in page.models for name in entry.names)}"""


def tensorzero(page: Page) -> str:
    def model(entry: Entry, name: str) -> str:
        table = f"{'embedding_models' if entry.embeddings else 'models'}.{quoted(name)}"
        return f"""
[{table}]
routing = ["llama"]

[{table}.providers.llama]
type = "openai"
api_base = {quoted(page.url + "/v1/")}
model_name = {quoted(entry.name)}
api_key_location = "env::{KEY}"
"""

    use = f"""\
TensorZero: config/tensorzero.toml; export {KEY}=... for its gateway
A model is called as tensorzero::model_name::NAME, embeddings as tensorzero::embedding_model_name::NAME.
"""
    return f"""\
{page.head(use)}[gateway]
global_outbound_http_timeout_ms = {1000 * page.wait}
{"".join(model(entry, name) for entry in page.models for name in entry.names)}"""


# {client: (file, purpose, renderer)}
CLIENTS: dict[str, tuple[str, str, Callable[[Page], str]]] = {
    "openai": ("llama_openai.py", "openai SDK for Python, and lines for curl", openai),
    "litellm": ("config.yaml", "LiteLLM proxy", litellm),
    "opencode": ("opencode.json", "OpenCode: in the project, or in ~/.config/opencode/", opencode),
    "open-webui": ("open-webui.env", "Open WebUI, for docker run --env-file", open_webui),
    "continue": ("config.yaml", "Continue: in ~/.continue/", continue_dev),
    "tensorzero": ("tensorzero.toml", "TensorZero: in its config/", tensorzero),
}


def client_configuration(config: Mapping[str, Any], name: str, base_url: str) -> str | None:
    """The configuration of a client, None for an unknown client. base_url: of the gateway, without /v1."""
    return CLIENTS[name][2](Page(config, base_url.rstrip("/"))) if name in CLIENTS else None


def clients_index(config: Mapping[str, Any], base_url: str) -> str:
    """The text of /clients: configurations, models and tasks."""
    page = Page(config, base_url.rstrip("/"))
    lines = [f"Base URL: {page.url}/v1", "", "Configurations, made anew at each request:"]
    for name, (file, purpose, _render) in CLIENTS.items():
        lines += [f"  {name:11} {purpose}", f"{'':14}curl -sS {shlex.quote(page.url)}/clients/{name} -o {file}"]
    key = "any text, or none" if config.get("auth") == "log_only" else "ask the operator; set it as " + KEY
    lines += ["", "Key: " + key, "", "Models:" if page.models else "Models: none"]
    lines += ["  " + entry.line for entry in page.models]
    routes, unserved = config.get("routes") or {}, config.get("unserved") or {}
    if routes.get("tasks"):
        lines += ["", f"Tasks, as {page.url}/task/TASK/v1 or with the header X-Task:"]
        lines += [f"  {task}: {model}" for task, model in sorted(routes["tasks"].items())]
        lines += [f"  any other: {routes['default']}"] if routes.get("default") else []
    if unserved:
        lines += ["", "Not served:", *("  %s: %s" % pair for pair in sorted(unserved.items()))]
    if page.models:
        why = "as in these configurations; a short one cuts off long prompts before their first token."
        lines += ["", f"Timeout: {page.wait} s, {why}"]
    return "\n".join(lines) + "\n"
