# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Foreign clients at the gateway: the openai SDK, litellm, TensorZero and curl, and the requests of beefcake2's own
clients.

`make e2e WHAT=clients` starts llama-servers, engine and nginx for it (gateway_stack.py). At a deployed gateway it
asks for less and breaks nothing:
  LLAMA_GATEWAY=http://10.0.0.5:8000 LLAMA_API_KEY=... LLAMA_CHAT=NAME [LLAMA_ALIAS=NAME] [LLAMA_EMBEDDINGS=NAME]
  [LLAMA_FAST=http://10.0.0.5:8080] [LLAMA_REASONING=http://10.0.0.5:8081] pytest gateway_clients.py
"""

import asyncio
import json
import os
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

import gateway_stack
import litellm
import openai
import pytest
import yaml

HERE = Path(__file__).resolve().parent
ASK = [{"role": "user", "content": "Name a color."}]
LONG = [{"role": "user", "content": "Count from one to one thousand in words."}]
TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather of a city",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}


def weather(city, number):
    """A question and the call that answers it: a few of them, and the small model calls by itself."""
    call = {"name": "get_weather", "arguments": json.dumps({"city": city})}
    calls = [{"id": "call%d" % number, "type": "function", "function": call}]
    return [
        {"role": "user", "content": "How is the weather in %s?" % city},
        {"role": "assistant", "content": "", "tool_calls": calls},
        {"role": "tool", "tool_call_id": "call%d" % number, "content": "sunny"},
        {"role": "assistant", "content": "Sunny."},
    ]


CITIES = ("Paris", "Rome", "Oslo", "Berlin")
ASK_FOR_A_CALL = [message for number, city in enumerate(CITIES) for message in weather(city, number)]
ASK_FOR_A_CALL += weather("Madrid", 9)[:1]


@pytest.fixture(scope="session")
def gateway(tmp_path_factory):
    """.url, .key, .chat, .alias, .embeddings, .tiers {name: url}; .own: whether tests may break it."""
    if os.environ.get("LLAMA_GATEWAY"):
        yield gateway_stack.deployed(os.environ)
    else:
        with gateway_stack.started(tmp_path_factory.mktemp("gateway")) as own:
            yield own


@pytest.fixture
def own(gateway):
    if not gateway.own:
        pytest.skip("a deployed gateway is not broken")
    return gateway


@pytest.fixture
def tier(gateway):
    """The base URL of a tier: the reasoning one, or the one that there is."""
    if not gateway.tiers:
        pytest.skip("no tier is deployed")
    return gateway.tiers.get("reasoning") or next(iter(gateway.tiers.values()))


@pytest.fixture
def client(gateway):
    with openai.OpenAI(base_url=gateway.url + "/v1", api_key=gateway.key, timeout=120, max_retries=0) as made:
        yield made


def http(url, body=None, method=None, **headers):
    """-> (status, headers, text)"""
    headers = {name.replace("_", "-"): value for name, value in headers.items()}
    data = json.dumps(body).encode() if body is not None else None
    if data is not None:
        headers["Content-Type"] = "application/json"
    try:
        asked = urllib.request.Request(url, data, headers, method=method)
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(asked, timeout=120) as answer:
            return answer.status, answer.headers, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.headers, error.read().decode()


def curl(*arguments):
    """-> (exit code, what it printed)"""
    command = ["curl", "-sS", "--noproxy", "*", "--max-time", "120", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout


def bearer(gateway):
    return {"Authorization": "Bearer " + gateway.key}


def wait_until(true, seconds):
    """Seconds that it took; fails after as many."""
    began = time.monotonic()
    while not true():
        assert time.monotonic() - began < seconds
        time.sleep(0.05)
    return time.monotonic() - began


class TestOpenai:
    def test_chat(self, client, gateway):
        answer = client.chat.completions.create(model=gateway.chat, messages=ASK, max_tokens=16, temperature=0)
        assert answer.choices[0].message.content.strip()
        assert answer.usage.completion_tokens > 0

    def test_an_alias(self, client, gateway):
        answer = client.chat.completions.create(model=gateway.alias, messages=ASK, max_tokens=4)
        assert answer.choices[0].message.content

    def test_stream(self, client, gateway):
        times, texts, last = [], [], None
        for chunk in client.chat.completions.create(
            model=gateway.chat, messages=ASK, max_tokens=24, stream=True, stream_options={"include_usage": True}
        ):
            times.append(time.monotonic())
            if chunk.choices:
                texts.append(chunk.choices[0].delta.content or "")
                last = chunk.choices[0].finish_reason or last
        assert "".join(texts).strip() and last in ("stop", "length")
        assert chunk.usage.completion_tokens > 0
        # It comes as it is made: in one piece all of them would be there at once.
        assert len({round(moment, 3) for moment in times}) > 3

    def test_async(self, gateway):
        async def ask():
            async with openai.AsyncOpenAI(base_url=gateway.url + "/v1", api_key=gateway.key, max_retries=0) as client:
                asked = [
                    client.chat.completions.create(model=gateway.chat, messages=ASK, max_tokens=4) for _one in range(4)
                ]
                return await asyncio.gather(*asked)

        assert all(answer.choices for answer in asyncio.run(ask()))

    def test_tools(self, client, gateway):
        answer = client.chat.completions.create(
            model=gateway.chat, messages=ASK_FOR_A_CALL, max_tokens=128, temperature=0, tools=[TOOL]
        )
        [call] = answer.choices[0].message.tool_calls
        assert answer.choices[0].finish_reason == "tool_calls"
        assert (call.function.name, json.loads(call.function.arguments)) == ("get_weather", {"city": "Madrid"})

    def test_tools_in_a_stream(self, client, gateway):
        name, arguments, last = "", "", None
        for chunk in client.chat.completions.create(
            model=gateway.chat, messages=ASK_FOR_A_CALL, max_tokens=128, temperature=0, tools=[TOOL], stream=True
        ):
            for choice in chunk.choices:
                last = choice.finish_reason or last
                for call in choice.delta.tool_calls or ():
                    name += call.function.name or ""
                    arguments += call.function.arguments or ""
        assert (name, json.loads(arguments), last) == ("get_weather", {"city": "Madrid"}, "tool_calls")

    @pytest.mark.parametrize("encoding", ["float", "base64"])
    def test_embeddings(self, client, gateway, encoding):
        if not gateway.embeddings:
            pytest.skip("no service of embeddings is deployed")
        vectors = client.embeddings.create(model=gateway.embeddings, input=["red", "blue"], encoding_format=encoding)
        assert [entry.index for entry in vectors.data] == [0, 1]
        assert len(vectors.data[0].embedding) > 100

    def test_models(self, client, gateway):
        names = [model.id for model in client.models.list()]
        assert {gateway.chat, gateway.alias} <= set(names)
        assert len(names) == len(set(names))

    def test_completions(self, client, gateway):
        assert client.completions.create(model=gateway.chat, prompt="One, two,", max_tokens=4).choices[0].text

    def test_an_unknown_model(self, client):
        with pytest.raises(openai.NotFoundError) as error:
            client.chat.completions.create(model="no-such-model", messages=ASK)
        assert (error.value.code, error.value.param) == ("model_not_found", "model")
        assert "no-such-model" in error.value.message

    def test_a_wrong_key(self, gateway):
        wrong = openai.OpenAI(base_url=gateway.url + "/v1", api_key="wrong", max_retries=0)
        with wrong, pytest.raises(openai.AuthenticationError) as error:
            wrong.chat.completions.create(model=gateway.chat, messages=ASK)
        assert error.value.code == "invalid_api_key"

    def test_a_body_that_is_no_chat(self, client, gateway):
        with pytest.raises(openai.BadRequestError):
            client.chat.completions.create(model=gateway.chat, messages="nothing")

    def test_a_service_that_is_down(self, client, own):
        with pytest.raises(openai.InternalServerError) as error:
            client.chat.completions.create(model=own.lost, messages=ASK)
        assert (error.value.status_code, error.value.code) == (503, "no_endpoint")

    def test_a_full_queue(self, client, own):
        """One slot and a queue of one: the third gets Retry-After."""
        streams = []

        def hold():
            streams.append(client.chat.completions.create(model=own.narrow, messages=LONG, max_tokens=400, stream=True))

        first = threading.Thread(target=hold)
        first.start()
        first.join()
        second = threading.Thread(target=hold)
        second.start()
        try:
            wait_until(lambda: own.status()["services"][own.narrow_service]["queue"] == 1, 5)
            with pytest.raises(openai.RateLimitError) as error:
                client.chat.completions.create(model=own.narrow, messages=ASK)
            assert error.value.code == "queue_full"
            assert int(error.value.response.headers["Retry-After"]) >= 1
        finally:
            streams[0].close()
            second.join()
            streams[-1].close()

    def test_a_client_that_leaves_frees_its_slot(self, client, own):
        stream = client.chat.completions.create(model=own.narrow, messages=LONG, max_tokens=400, stream=True)
        next(iter(stream))
        stream.close()
        wait_until(lambda: own.status()["services"][own.narrow_service]["endpoints"][0]["in_flight"] == 0, 1)
        # Its server has let go too: the one slot answers somebody else at once.
        began = time.monotonic()
        client.chat.completions.create(model=own.narrow, messages=ASK, max_tokens=1)
        assert time.monotonic() - began < 5

    def test_a_stream_that_breaks_raises(self, client, own):
        texts, finished = [], []
        with pytest.raises(Exception) as error:
            for chunk in client.chat.completions.create(model=own.brittle, messages=LONG, max_tokens=400, stream=True):
                texts += [choice.delta.content for choice in chunk.choices if choice.delta.content]
                finished += [choice.finish_reason for choice in chunk.choices if choice.finish_reason]
                if len(texts) == 5:
                    own.kill(own.brittle_service)
        assert finished == []
        # The SDK passes on what its HTTP library says while it reads.
        assert type(error.value).__name__ in ("RemoteProtocolError", "APIConnectionError", "APIError", "ReadError")

    def test_its_server_is_back_and_answers(self, client, own):
        # It was dead for a moment only: that its port refused is known within a second, or at the next request.
        own.start(own.brittle_service)
        own.wait()
        assert client.chat.completions.create(model=own.brittle, messages=ASK, max_tokens=2).choices


class TestLitellm:
    def settings(self, gateway, model=None):
        return {
            "model": "openai/" + (model or gateway.chat), "api_base": gateway.url + "/v1", "api_key": gateway.key,
            "num_retries": 0, "max_retries": 0, "timeout": 120,
        }  # fmt: skip

    def test_completion(self, gateway):
        answer = litellm.completion(messages=ASK, max_tokens=8, **self.settings(gateway))
        assert answer.choices[0].message.content

    def test_stream(self, gateway):
        chunks = list(litellm.completion(messages=ASK, max_tokens=8, stream=True, **self.settings(gateway)))
        assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
        assert chunks[-1].choices[0].finish_reason in ("stop", "length")

    def test_embedding(self, gateway):
        if not gateway.embeddings:
            pytest.skip("no service of embeddings is deployed")
        # Without the key it sends null, which llama-server refuses.
        sent = dict(self.settings(gateway, gateway.embeddings), encoding_format="float")
        assert len(litellm.embedding(input=["red"], **sent).data) == 1

    def test_errors(self, gateway):
        with pytest.raises(litellm.NotFoundError):
            litellm.completion(messages=ASK, **self.settings(gateway, "no-such-model"))
        with pytest.raises(litellm.AuthenticationError):
            litellm.completion(messages=ASK, **dict(self.settings(gateway), api_key="wrong"))


class TestConfigurations:
    """Configurations from the gateway's /clients, in the programs that read them."""

    def got(self, gateway, name):
        status, _headers, text = http(gateway.url + "/clients/" + name)
        assert status == 200
        return text

    def test_the_list(self, gateway):
        assert gateway.url + "/clients/opencode" in http(gateway.url + "/clients")[2]

    def test_an_unknown_one(self, gateway):
        status, _headers, text = http(gateway.url + "/clients/emacs")
        assert status == 404 and json.loads(text)["error"]["message"]

    def test_openai(self, gateway, tmp_path):
        (tmp_path / "llama_openai.py").write_text(self.got(gateway, "openai"))
        done = subprocess.run(
            [sys.executable, "llama_openai.py", "Name a color.", gateway.chat],
            cwd=tmp_path, env=dict(os.environ, LLAMA_API_KEY=gateway.key), capture_output=True, text=True, timeout=120,
            check=False,
        )  # fmt: skip
        assert (done.returncode, done.stderr) == (0, "") and done.stdout.strip()

    def test_litellm(self, gateway, monkeypatch):
        monkeypatch.setenv("LLAMA_API_KEY", gateway.key)
        document = yaml.safe_load(self.got(gateway, "litellm"))
        router = litellm.Router(model_list=document["model_list"], **document["router_settings"])
        for name in (gateway.chat, gateway.alias):
            assert router.completion(model=name, messages=ASK, max_tokens=2).choices[0].message.content
        if gateway.embeddings:
            assert router.embedding(model=gateway.embeddings, input=["red"]).data

    def test_tensorzero(self, gateway, monkeypatch, tmp_path):
        tensorzero = pytest.importorskip("tensorzero")
        monkeypatch.setenv("LLAMA_API_KEY", gateway.key)
        (tmp_path / "tensorzero.toml").write_text(self.got(gateway, "tensorzero"))
        with tensorzero.TensorZeroGateway.build_embedded(config_file=str(tmp_path / "tensorzero.toml")) as client:
            for name in (gateway.chat, gateway.alias):
                answer = client.inference(model_name=name, input={"messages": ASK})
                assert answer.content[0].text

    def test_the_selector(self, gateway, tmp_path):
        package = HERE.parents[1] / "plugins/module_utils"
        (tmp_path / "llama_cluster").symlink_to(package)
        (tmp_path / "selector.json").write_text(json.dumps({"base_url": gateway.url}))
        run = [sys.executable, "-m", "llama_cluster.programs.model_selector", "--config", "selector.json"]
        done = subprocess.run([*run, "poetry"], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.stdout == "%s %s/v1\n" % (gateway.default, gateway.url)
        assert "poetry: unknown task" in done.stderr


class TestCurl:
    def test_health_and_status_need_no_key(self, gateway):
        assert json.loads(curl(gateway.url + "/health")[1]) == {"status": "ok"}
        assert "status.json" in curl(gateway.url + "/status")[1]
        assert gateway.chat in curl(gateway.url + "/status.json")[1]

    def test_chat_and_stream(self, gateway):
        body = json.dumps({"model": gateway.chat, "messages": ASK, "max_tokens": 8, "stream": True})
        key = "Authorization: Bearer " + gateway.key
        code, text = curl("-N", "-H", key, "-H", "Content-Type: application/json", "-d", body,
                          gateway.url + "/v1/chat/completions")  # fmt: skip
        assert code == 0 and text.rstrip().endswith("data: [DONE]")

    def test_x_api_key(self, gateway):
        code, text = curl("-H", "x-api-key: " + gateway.key, gateway.url + "/v1/models")
        assert code == 0 and gateway.chat in text

    def test_tasks(self, gateway):
        body = {"model": "whatever", "messages": ASK, "max_tokens": 1}
        path = "/task/poetry/v1/chat/completions"
        status, headers, _text = http(gateway.url + path, body, **bearer(gateway))
        assert (status, headers["X-Llama-Task"]) == (200, "default; unknown task poetry")
        status, headers, _text = http(
            gateway.url + "/v1/chat/completions", body, X_Task=gateway.task or "poetry", **bearer(gateway)
        )
        assert status == 200 and headers["X-Llama-Service"] and headers["X-Llama-Node"]

    @pytest.mark.parametrize(
        "method,path",
        [
            *(("GET", "/v1/../slots"), ("GET", "/v1/%2e%2e/slots")),
            *(("POST", "/v1/models/load"), ("POST", "/v1/models/unload")),
        ],
    )
    def test_closed_paths(self, gateway, method, path):
        key = "Authorization: Bearer " + gateway.key
        body = ["-d", "{}"] if method == "POST" else []
        shown = curl("--path-as-is", *body, "-o", "/dev/null", "-w", "%{http_code}", "-H", key, gateway.url + path)
        assert shown in ((0, "403"), (0, "404"))

    def test_broken_stream_fails_in_curl(self, own):
        body = json.dumps({"model": own.brittle, "messages": LONG, "max_tokens": 400, "stream": True})
        asking = subprocess.Popen(
            ["curl", "-sSN", "-H", "Authorization: Bearer " + own.key, "-H", "Content-Type: application/json",
             "-d", body, own.url + "/v1/chat/completions"],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip
        assert asking.stdout.readline().startswith("data: ")
        own.kill(own.brittle_service)
        rest = asking.stdout.read()
        assert asking.wait(10) == 18  # a transfer that ended early
        assert "[DONE]" not in rest
        own.start(own.brittle_service)
        own.wait()


class TestTodaysClients:
    """Requests as beefcake2's tools send them: plain HTTP on the ports of the tiers, any name, dummy
    keys in both headers."""

    def dummies(self, gateway):
        """Both headers, as those tools have them; the gateway's own key where it asks for one."""
        key = gateway.key if gateway.auth == "required" else "not-needed"
        return {"Authorization": "Bearer " + key, "x_api_key": key}

    def test_the_deep_probe(self, gateway, tier):
        body = {"model": "probe", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 1}
        began = time.monotonic()
        status, _headers, _text = http(tier + "/v1/chat/completions", body, **self.dummies(gateway))
        # Anything else, or nothing within 10 seconds, and they call the tier dead.
        assert status in (200, 400) and time.monotonic() - began < 10

    def test_health_beside_v1(self, gateway, tier):
        status, _headers, text = http(tier + "/health", **self.dummies(gateway))
        assert status == 200 and "ok" in text
        assert "loading" not in text and "no slot available" not in text

    def test_the_preflight_finds_its_name(self, gateway, tier):
        status, _headers, text = http(tier + "/v1/models", **self.dummies(gateway))
        names = [entry["id"] for entry in json.loads(text)["data"]]
        assert status == 200 and any(name in found for name in (gateway.chat, gateway.alias) for found in names)

    @pytest.mark.parametrize(
        "name",
        [
            *("or1-behemoth-q4_k_m", "or1-behemoth-q4_k_m.gguf", "OR1-Behemoth", "strand-rust-coder-14b-q8_0", "test"),
            *("Qwen3-Coder-Next-UD-Q4_K_XL.gguf", "HydraCoder.i1-Q4_K_M", "tensorzero::function_name::worker"),
        ],
    )
    def test_any_name_is_answered(self, gateway, tier, name):
        body = {"model": name, "messages": ASK, "max_tokens": 1}
        assert http(tier + "/v1/chat/completions", body, **self.dummies(gateway))[0] == 200

    @pytest.mark.parametrize("choice", ["auto", "none", "required"])
    def test_the_body_of_a_worker(self, gateway, tier, choice):
        body = {
            "model": "or1-behemoth-q4_k_m", "messages": ASK, "tools": [TOOL], "tool_choice": choice,
            "temperature": 0.0, "max_tokens": 48, "presence_penalty": 0.1, "repetition_penalty": 1.05,
            "chat_template_kwargs": {"enable_thinking": False}, "stream": False,
        }  # fmt: skip
        status, _headers, text = http(tier + "/v1/chat/completions", body, **self.dummies(gateway))
        message = json.loads(text)["choices"][0]["message"]
        assert status == 200
        for call in message.get("tool_calls") or ():
            assert isinstance(call["function"]["arguments"], str)

    def test_a_stream(self, gateway, tier):
        body = {"model": "OR1-Behemoth", "messages": ASK, "max_tokens": 4, "stream": True}
        status, headers, text = http(tier + "/v1/chat/completions", body, **self.dummies(gateway))
        assert status == 200 and headers["Content-Type"].startswith("text/event-stream")
        assert text.rstrip().endswith("data: [DONE]")

    def test_the_other_paths(self, gateway, tier):
        sent = self.dummies(gateway)
        assert http(tier + "/v1/completions", {"model": "test", "prompt": "One,", "max_tokens": 1}, **sent)[0] == 200
        assert http(tier + "/props", **sent)[0] == 200
        assert http(tier + "/v1/messages", {"model": "m", "messages": ASK, "max_tokens": 1}, **sent)[0] == 200
        # 501 is llama-server's own where it counts nothing.
        assert http(tier + "/metrics", **sent)[0] in (200, 501)

    def test_what_is_closed(self, gateway, tier):
        for method, path in (("GET", "/slots"), ("POST", "/props"), ("POST", "/models/load"), ("GET", "/slots/0")):
            status, _headers, text = http(
                tier + path, {} if method == "POST" else None, method, **self.dummies(gateway)
            )
            assert (status, json.loads(text)["error"]["code"]) == (403, "closed_path"), path

    def test_reasoning_by_its_path(self, gateway):
        if "reasoning" not in gateway.tiers:
            pytest.skip("no such tier is deployed")
        for url in gateway.tiers.values():
            assert http(url + "/reasoning/health", **self.dummies(gateway))[0] == 200
            body = {"model": "OR1-Behemoth", "messages": ASK, "max_tokens": 1}
            status, headers, _text = http(url + "/reasoning/v1/chat/completions", body, **self.dummies(gateway))
            assert (status, headers["X-Llama-Service"]) == (200, gateway.reasoning_service)
