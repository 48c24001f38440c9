# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The configurations for clients, parsed in their formats. tests/e2e/gateway_clients.py runs the clients."""

import json
import shlex
import subprocess
import sys
import types

import pytest
import yaml
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._gateway import clients
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._gateway.clients import (
    CLIENTS,
    client_configuration,
    clients_index,
)

URL = "http://10.0.0.5:8000"


def model(name, **more):
    return dict({"name": name, "aliases": [], "slot_ctx_size": 4096, "embeddings": False}, **more)


def service(*models, **more):
    return dict({"kind": "server", "state": "started", "timeout": 3000.0, "models": list(models)}, **more)


CONFIG = {
    "version": 1,
    "services": {
        "reasoning": service(
            model("or1-behemoth", aliases=["OR1-Behemoth", "or1-behemoth-q4_k_m.gguf"], slot_ctx_size=32768),
            timeout=7200.0,
        ),
        "fast": service(
            model("strand", aliases=['Strand "Rust"', "Änd: #1"]),
            model("coder", slot_ctx_size=None),
            kind="router",
        ),
        "embed": service(model("nomic", aliases=["nomic-embed"], slot_ctx_size=8192, embeddings=True)),
        "retired": service(model("gone"), state="stopped"),
    },
    "unserved": {"deepseek": "needs 478 GB"},
    "routes": {"default": "OR1-Behemoth", "tasks": {"fix": "strand"}},
    "auth": "required",
    "base_urls": [URL, "http://10.0.0.6:8000"],
}
CHAT = ["or1-behemoth", "OR1-Behemoth", "or1-behemoth-q4_k_m.gguf", "strand", 'Strand "Rust"', "Änd: #1", "coder"]
EMBEDDINGS = ["nomic", "nomic-embed"]
LIMITS = {"or1-behemoth": (32768, 8192), "strand": (4096, 1024), "coder": (4096, 1024)}


def rendered(name, config=None, url=URL):
    return client_configuration(config or CONFIG, name, url)


@pytest.mark.parametrize("name", CLIENTS)
def test_configuration_has_its_usage(name):
    text = rendered(name)
    assert text.endswith("\n") and not text.endswith("\n\n") and "gone" not in text and "10.0.0.5:8000" in text
    if name != "opencode":  # JSON has no comments: /clients says it
        assert text.startswith("# ")
        assert "32768 tokens of context, answers of 8192; also as OR1-Behemoth" in text
        assert "the operator of the gateway gives you" in text
        assert "takes requests without a key" in rendered(name, dict(CONFIG, auth="log_only"))
    # With or without the slash.
    assert rendered(name, url=URL + "/") == text


def test_gateway_without_services_has_valid_configurations():
    empty = {name: rendered(name, {"services": {}, "routes": {}, "auth": "required"}) for name in CLIENTS}
    assert yaml.safe_load(empty["litellm"])["model_list"] == yaml.safe_load(empty["continue"])["models"] == []
    assert json.loads(empty["opencode"])["provider"]["llama"]["models"] == {}
    compile(empty["openai"], "openai", "exec")
    assert not [name for name, text in empty.items() if "None" in text]
    assert client_configuration(CONFIG, "emacs", URL) is None


def run(text, monkeypatch, arguments=()):
    """Runs the program for the SDK with a recording one -> its names, calls."""
    calls = []

    def client(**settings):
        create = types.SimpleNamespace(create=lambda **request: calls.append(request) or [])
        return types.SimpleNamespace(settings=settings, chat=types.SimpleNamespace(completions=create))

    monkeypatch.setitem(sys.modules, "openai", types.SimpleNamespace(OpenAI=client))
    monkeypatch.setattr(sys, "argv", ["llama_openai.py", *arguments])
    names = {"__name__": "__main__"}
    exec(compile(text, "llama_openai.py", "exec"), names)
    return names, calls


def test_openai(monkeypatch):
    monkeypatch.setenv("LLAMA_API_KEY", "secret")
    names, calls = run(rendered("openai"), monkeypatch, ["Why?", "strand"])
    assert names["client"].settings == {"base_url": URL + "/v1", "api_key": "secret", "timeout": 7230}
    assert {name: (one["context"], one["output"]) for name, one in names["MODELS"].items()} == LIMITS
    assert names["MODELS"]["strand"]["aliases"] == ['Strand "Rust"', "Änd: #1"]
    assert names["EMBEDDINGS"] == {"nomic": {"aliases": ["nomic-embed"], "context": 8192}}
    assert calls == [{"model": "strand", "messages": [{"role": "user", "content": "Why?"}], "stream": True}]
    # The default is an alias.
    assert run(rendered("openai"), monkeypatch)[1][0]["model"] == "or1-behemoth"


def test_curl_lines_are_quoted():
    config = dict(CONFIG, services={"it's": service(model("it's"))}, routes={})
    line = next(line for line in rendered("openai", config).splitlines() if "chat/completions" in line)
    words = shlex.split(line.lstrip("# "))
    assert words[:3] == ["curl", "-sSN", URL + "/v1/chat/completions"]
    assert words[4] == "Authorization: Bearer $LLAMA_API_KEY" and json.loads(words[-1])["model"] == "it's"
    line = next(line for line in clients_index(CONFIG, "http://a;b").splitlines() if "clients/litellm" in line)
    printed = subprocess.check_output(["sh", "-c", line.replace("curl", "printf '%s|'")], text=True)
    assert printed.startswith("-sS|http://a;b/clients/litellm|")


def litellm(text):
    document = yaml.safe_load(text)
    return [*(one["model_name"] for one in document["model_list"]), *document["router_settings"]["model_group_alias"]]


def tensorzero(text):
    document = pytest.importorskip("tomllib", reason="tomllib comes with Python 3.11").loads(text)
    return [*document["models"], *document["embedding_models"]]


# tests/golden has the complete files; here names with quotes, and limits of aliases.
@pytest.mark.parametrize(
    "name, names, wanted",
    [
        ("litellm", litellm, CHAT + EMBEDDINGS),
        ("opencode", lambda text: json.loads(text)["provider"]["llama"]["models"], CHAT),
        ("continue", lambda text: [one["name"] for one in yaml.safe_load(text)["models"]], CHAT + EMBEDDINGS),
        ("tensorzero", tensorzero, CHAT + EMBEDDINGS),
    ],
)
def test_configuration_has_all_names(name, names, wanted):
    assert sorted(names(rendered(name))) == sorted(wanted)


def test_limits_of_names_and_aliases():
    models = json.loads(rendered("opencode"))["provider"]["llama"]["models"]
    assert {name: (one["limit"]["context"], one["limit"]["output"]) for name, one in models.items()} == {
        name: LIMITS[entry.name] for entry in clients.entries(CONFIG) for name in entry.names if name in CHAT
    }


def test_open_webui_without_embeddings():
    config = {"services": {"chat": service(model("m"))}, "auth": "required"}
    assert "RAG_" in rendered("open-webui") and "RAG_" not in rendered("open-webui", config)


def test_names_are_unique():
    services = {
        "services": {
            "one": service(model("m", aliases=["n", "x"], slot_ctx_size=512)),
            "two": service(model("m", slot_ctx_size=8192), model("n", aliases=["x", "y"])),
        }
    }
    found = [(entry.name, entry.aliases, entry.context, entry.output) for entry in clients.entries(services)]
    assert found == [("m", ["x"], 512, 128), ("n", ["y"], 4096, 1024)]


def test_index():
    text = clients_index(CONFIG, URL + "/")
    assert text.startswith("Base URL: %s/v1\n" % URL)
    assert [name for name in CLIENTS if "curl -sS %s/clients/%s -o " % (URL, name) not in text] == []
    for line in (
        "nomic: embeddings, 8192 tokens of context; also as nomic-embed",
        "coder: the context of its file (4096 tokens of context assumed), answers of 1024",
        "  fix: strand\n  any other: OR1-Behemoth\n",
        "  deepseek: needs 478 GB\n",
        "\n\nTimeout: 7230 s, as in these configurations; a short one cuts off long prompts",
    ):
        assert line in text
    assert "Models: none" in clients_index({"services": {}}, URL)
    assert "Key: any text, or none" in clients_index(dict(CONFIG, auth="log_only"), URL)
