# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ready configurations for the clients of a gateway, from its gateway.json. Private to the collection.

Pure: the gateway renders them at each request, playbooks/clients.yml before anything is deployed. A key is never in
them: they name the environment variable LLAMA_API_KEY. A JSON string without escaped letters is a string of YAML, TOML
and Python too.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from typing import Any, Callable

from .._text import printable
from .config import SILENCE

KEY = "LLAMA_API_KEY"
# Of a model whose context nobody set, which llama-server takes from its file: a small one.
ASSUMED_CONTEXT = 4096
# A client that is given no limit of answers leaves three quarters of the context to the conversation.
ANSWER_PART = 4
# Seconds that a client waits longer than the gateway, whose error says more than the client's own.
GRACE = 30
LONGEST = int(SILENCE) + GRACE


class Entry:
    """One model as clients see it."""

    def __init__(self, model: Mapping[str, Any], service: Mapping[str, Any], aliases: list[str]) -> None:
        self.name: str = model["name"]
        self.aliases = aliases
        self.context: int | None = model.get("slot_ctx_size")
        self.embeddings: bool = bool(model.get("embeddings"))
        self.timeout = int(service.get("timeout") or SILENCE) + GRACE
        limit = model.get("max_tokens") or self.known_context // ANSWER_PART
        self.output: int = max(1, min(limit, self.known_context))

    @property
    def known_context(self) -> int:
        return self.context or ASSUMED_CONTEXT

    @property
    def limits(self) -> str:
        """'4096 tokens of context, answers of 1024'"""
        told = "%d tokens of context" % self.known_context
        if not self.context:
            told = f"the context of its file ({told} assumed)"
        return told if self.embeddings else "%s, answers of %d" % (told, self.output)


def entries(config: Mapping[str, Any]) -> list[Entry]:
    """The models of all services that are not stopped, each name once: the first service that has it."""
    services = [service for service in config["services"].values() if service.get("state") != "stopped"]
    taken = {model["name"] for service in services for model in service["models"]}
    found: dict[str, Entry] = {}
    for service in services:
        for model in service["models"]:
            if model["name"] not in found:
                aliases = [alias for alias in model.get("aliases", ()) if alias not in taken]
                taken.update(aliases)
                found[model["name"]] = Entry(model, service, aliases)
    return list(found.values())


def default_of(config: Mapping[str, Any], models: list[Entry]) -> str:
    """The name that answers where a client chooses none."""
    wanted = (config.get("routes") or {}).get("default")
    for entry in models:
        if wanted == entry.name or wanted in entry.aliases:
            return entry.name
    return models[0].name if models else ""


def quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def comments(text: str) -> list[str]:
    return ["# " + line if line else "#" for line in text.splitlines()]


def table(models: list[Entry]) -> list[str]:
    """A line for each model, for comments."""
    return [
        "%s: %s%s%s"
        % (
            entry.name,
            "embeddings, " if entry.embeddings else "",
            entry.limits,
            "; also as " + ", ".join(entry.aliases) if entry.aliases else "",
        )
        for entry in models
    ]


def head(config: Mapping[str, Any], url: str, use: str) -> list[str]:
    """The comment at the top: where it is from, how to use it, which models there are."""
    key = (
        f"{KEY} is any text: this gateway takes requests without a key, and notes the key that it is sent."
        if config.get("auth") == "log_only"
        else f"{KEY} is the key that the operator of the gateway gives you."
    )
    return comments("\n".join([use, key, f"Models of {printable(url)}:"] + table(entries(config)))) + [""]


def openai(config: Mapping[str, Any], url: str) -> str:
    models = entries(config)
    chat = [entry for entry in models if not entry.embeddings]
    vectors = [entry for entry in models if entry.embeddings]
    address, name = shlex.quote(url + "/v1"), default_of(config, chat)
    question = {"model": name, "messages": [{"role": "user", "content": "Hello"}]}
    use = [
        f"The openai SDK: pip install openai; export {KEY}=...; python llama_openai.py 'a question' [MODEL]",
        "The same with curl:",
        f'  curl -sS {address}/models -H "Authorization: Bearer ${KEY}"',
        "  curl -sSN %s/chat/completions -H \"Authorization: Bearer $%s\" -H 'Content-Type: application/json' -d %s"
        % (address, KEY, shlex.quote(json.dumps(question))),
    ]
    lines = head(config, url, "\n".join(use)) + ["import os", "import sys", "", "from openai import OpenAI", ""]
    for constant, group in (("MODELS", chat), ("EMBEDDINGS", vectors)):
        lines.append("%s = {" % constant)
        for entry in group:
            lines.append("    %s: {" % quoted(entry.name))
            lines.append(f'        "aliases": [{", ".join((quoted(alias) for alias in entry.aliases))}],')
            lines.append('        "context": %d,' % entry.known_context)
            if not entry.embeddings:
                lines.append('        "output": %d,' % entry.output)
            lines.append("    },")
        lines += ["}"]
    lines += [
        "client = OpenAI(",
        f"    base_url={quoted(url + '/v1')},",
        f'    api_key=os.environ.get("{KEY}", "none"),',
        "    # A long prompt may take this long until its first token.",
        "    timeout=%d," % max([entry.timeout for entry in models] or [LONGEST]),
        ")",
        "",
        'if __name__ == "__main__":',
        "    stream = client.chat.completions.create(",
        f"        model=sys.argv[2] if len(sys.argv) > 2 else {quoted(name)},",
        '        messages=[{"role": "user", "content": sys.argv[1] if len(sys.argv) > 1 else "Hello"}],',
        "        stream=True,",
        "    )",
        "    for chunk in stream:",
        '        print(chunk.choices[0].delta.content or "" if chunk.choices else "", end="", flush=True)',
        "    print()",
    ]
    return "\n".join(lines) + "\n"


def litellm(config: Mapping[str, Any], url: str) -> str:
    models = entries(config)
    lines = head(config, url, f"LiteLLM's proxy: export {KEY}=...; litellm --config config.yaml")
    lines.append("model_list:" if models else "model_list: []")
    for entry in models:
        lines += [
            f"  - model_name: {quoted(entry.name)}",
            "    litellm_params:",
            f"      model: {quoted('openai/' + entry.name)}",
            f"      api_base: {quoted(url + '/v1')}",
            f"      api_key: os.environ/{KEY}",
            "      timeout: %d" % entry.timeout,
        ]
        # Where nothing is said LiteLLM sends null, which llama-server refuses.
        lines += ["      encoding_format: float"] if entry.embeddings else []
        lines += [
            "    model_info:",
            f"      mode: {'embedding' if entry.embeddings else 'chat'}",
            "      max_input_tokens: %d" % entry.known_context,
        ]
        lines += [] if entry.embeddings else ["      max_output_tokens: %d" % entry.output]
    pairs = [(alias, entry.name) for entry in models for alias in entry.aliases]
    lines += ["router_settings:", "  # The gateway itself tries other replicas and the fallback.", "  num_retries: 0"]
    lines += ["  model_group_alias:"] if pairs else []
    lines += [f"    {quoted(alias)}: {quoted(name)}" for alias, name in pairs]
    return "\n".join(lines) + "\n"


def opencode(config: Mapping[str, Any], url: str) -> str:
    chat = [entry for entry in entries(config) if not entry.embeddings]
    models = {}
    for entry in chat:
        # A model without limits is refused by OpenCode at its first answer.
        limit = {"context": entry.known_context, "output": entry.output}
        told = entry.name if entry.context else "%s (%d tokens assumed)" % (entry.name, entry.known_context)
        models[entry.name] = {"name": told, "limit": limit}
        models.update({alias: {"name": f"{told}, as {alias}", "limit": limit} for alias in entry.aliases})
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "llama.cpp",
        "options": {
            "baseURL": url + "/v1",
            "apiKey": "{env:%s}" % KEY,
            "timeout": 1000 * max([entry.timeout for entry in chat] or [LONGEST]),
        },
        "models": models,
    }
    document: dict[str, Any] = {"$schema": "https://opencode.ai/config.json", "provider": {"llama": provider}}
    if chat:
        document["model"] = "llama/" + default_of(config, chat)
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def open_webui(config: Mapping[str, Any], url: str) -> str:
    models = entries(config)
    chat = [entry for entry in models if not entry.embeddings]
    use = (
        "Open WebUI: write the key in place of KEY, then\n"
        "  docker run -d --name open-webui -p 3000:8080 -v open-webui:/app/backend/data --env-file open-webui.env \\\n"
        "      ghcr.io/open-webui/open-webui:main\n"
        "It keeps what it was first started with; ENABLE_PERSISTENT_CONFIG=false has it read this file at each start."
    )
    lines = head(config, url, use) + [
        f"OPENAI_API_BASE_URL={url}/v1",
        "OPENAI_API_KEY=KEY",
        "ENABLE_OLLAMA_API=false",
        "ENABLE_PERSISTENT_CONFIG=false",
        "AIOHTTP_CLIENT_TIMEOUT=%d" % max([entry.timeout for entry in models] or [LONGEST]),
    ]
    if chat:
        lines.append(f"DEFAULT_MODELS={default_of(config, chat)}")
    for entry in [entry for entry in models if entry.embeddings][:1]:
        lines += [
            "RAG_EMBEDDING_ENGINE=openai",
            f"RAG_OPENAI_API_BASE_URL={url}/v1",
            "RAG_OPENAI_API_KEY=KEY",
            f"RAG_EMBEDDING_MODEL={entry.name}",
        ]
    return "\n".join(lines) + "\n"


def continue_dev(config: Mapping[str, Any], url: str) -> str:
    models = entries(config)
    use = f"Continue: ~/.continue/config.yaml, and {KEY}=... in ~/.continue/.env"
    lines = head(config, url, use) + ["name: llama.cpp", "version: 1.0.0", "schema: v1"]
    lines.append("models:" if models else "models: []")
    for entry in models:
        for name in [entry.name] + entry.aliases:
            lines += [
                f"  - name: {quoted(name)}",
                "    provider: openai",
                f"    model: {quoted(name)}",
                f"    apiBase: {quoted(url + '/v1')}",
                "    apiKey: ${{ secrets.%s }}" % KEY,
                f"    roles: [{'embed' if entry.embeddings else 'chat, edit, apply'}]",
                "    requestOptions: {timeout: %d}" % entry.timeout,
            ]
            if not entry.embeddings:
                lines += [
                    "    defaultCompletionOptions: {contextLength: %d, maxTokens: %d}"
                    % (entry.known_context, entry.output)
                ]
    return "\n".join(lines) + "\n"


def tensorzero(config: Mapping[str, Any], url: str) -> str:
    models = entries(config)
    use = (
        "TensorZero: config/tensorzero.toml; export %s=... for its gateway\n"
        "A model is called as tensorzero::model_name::NAME, embeddings as tensorzero::embedding_model_name::NAME." % KEY
    )
    lines = head(config, url, use) + [
        "[gateway]",
        "global_outbound_http_timeout_ms = %d" % (1000 * max([entry.timeout for entry in models] or [LONGEST])),
    ]
    for entry in models:
        for name in [entry.name] + entry.aliases:
            named = f"{'embedding_models' if entry.embeddings else 'models'}.{quoted(name)}"
            lines += [
                "",
                f"[{named}]",
                'routing = ["llama"]',
                "",
                f"[{named}.providers.llama]",
                'type = "openai"',
                f"api_base = {quoted(url + '/v1/')}",
                f"model_name = {quoted(entry.name)}",
                f'api_key_location = "env::{KEY}"',
            ]
    return "\n".join(lines) + "\n"


def haproxy(config: Mapping[str, Any], url: str) -> str:
    models = entries(config)
    # Other addresses of the gateway, where this is one of them: then they are reached from the same place.
    others = config.get("base_urls") or []
    urls = others if url in others else [url]
    use = (
        "HAProxy in front of the gateway: haproxy -c -f llama.cfg, then in /etc/haproxy/. It passes on the clients' "
        "keys.\nThe nodes' own ports are no servers here: the gateway knows what is loaded, full or draining."
    )
    wait = max([entry.timeout for entry in models] or [LONGEST])
    lines = head(config, url, use) + [
        "defaults",
        "    mode http",
        "    timeout connect 15s",
        "    # The gateway answers first, with a sentence.",
        "    timeout client %ds" % wait,
        "    timeout server %ds" % wait,
        "",
        "frontend llama",
        "    bind :8000",
        "    default_backend llama_gateway",
        "",
        "backend llama_gateway",
        "    option httpchk GET /health",
        "    http-check expect status 200",
    ]
    for number, server in enumerate(urls, 1):
        scheme, _separator, rest = server.partition("://")
        host = rest.partition("/")[0]
        port = "" if re.search(r":\d+\Z", host) else ":443" if scheme == "https" else ":80"
        name = re.sub(r":\d+\Z", "", host)
        tls = f" ssl verify required ca-file @system-ca sni str({name}) check-sni {name}"
        lines.append(
            "    server gateway%d %s%s check inter 2s%s" % (number, host, port, tls if scheme == "https" else "")
        )
    return "\n".join(lines) + "\n"


# {client: (its file, what that is, how it is made)}
CLIENTS: dict[str, tuple[str, str, Callable[[Mapping[str, Any], str], str]]] = {
    "openai": ("llama_openai.py", "openai SDK for Python, and lines for curl", openai),
    "litellm": ("config.yaml", "LiteLLM proxy", litellm),
    "opencode": ("opencode.json", "OpenCode: in the project, or in ~/.config/opencode/", opencode),
    "open-webui": ("open-webui.env", "Open WebUI, for docker run --env-file", open_webui),
    "continue": ("config.yaml", "Continue: in ~/.continue/", continue_dev),
    "tensorzero": ("tensorzero.toml", "TensorZero: in its config/", tensorzero),
    "haproxy": ("llama.cfg", "HAProxy in front of the gateway", haproxy),
}


def client_configuration(config: Mapping[str, Any], name: str, base_url: str) -> str | None:
    """The configuration of a client, None for one that is not known. base_url: of the gateway, without /v1."""
    known = CLIENTS.get(name)
    return known[2](config, base_url.rstrip("/")) if known else None


def clients_index(config: Mapping[str, Any], base_url: str) -> str:
    """What /clients says: which configurations there are, where they go, and which models and tasks they name."""
    url = base_url.rstrip("/")
    models = entries(config)
    lines = [f"Base URL: {url}/v1", ""]
    lines += ["Configurations, made anew at each request:"]
    for name, (file, told, _render) in CLIENTS.items():
        lines.append(f"  {name:11} {told}")
        lines.append(f"              curl -sS {shlex.quote(url)}/clients/{name} -o {file}")
    lines += [
        "",
        "Key: " + ("any text, or none" if config.get("auth") == "log_only" else "ask the operator; set it as " + KEY),
    ]
    lines += ["", "Models:" if models else "Models: none"] + ["  " + line for line in table(models)]
    routes = config.get("routes") or {}
    tasks = dict(routes.get("tasks") or {})
    if tasks:
        lines += ["", f"Tasks, as {url}/task/TASK/v1 or with the header X-Task:"]
        lines += [f"  {task}: {model}" for task, model in sorted(tasks.items())]
        if routes.get("default"):
            lines += [f"  any other: {routes['default']}"]
    unserved = config.get("unserved") or {}
    if unserved:
        lines += ["", "Not served:"] + ["  %s: %s" % pair for pair in sorted(unserved.items())]
    if models:
        longest = max(entry.timeout for entry in models)
        words = "Timeout: %d s, as in these configurations; a short one cuts off long prompts before their first token."
        lines += ["", words % longest]
    return "\n".join(lines) + "\n"
