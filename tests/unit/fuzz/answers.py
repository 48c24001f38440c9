# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Answers of servers: a model hub's, and those of llama-server that health, conversation, watchdog and drain read.
Whole HTTP answers, without a socket."""

import io
import json

from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._fetch import http as fetch_http
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._fetch import hub as fetch_hub
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._llama.api import LlamaApi
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._llama.args import told as told_by
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._serving import health
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._serving.conversation import Conversation
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._text import Refusal
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._watchdog.samples import HeadApi
from ansible_collections.thefermisea.llama_cluster.tests.unit.fuzz import damage

HUB = "http://127.0.0.1:9"
COMMIT = "0" * 40
REVISION = json.dumps({"sha": COMMIT})
REFS = json.dumps({"branches": [{"name": "main"}], "tags": [{"name": "v1"}]})
TREE = json.dumps(
    [
        {"type": "directory", "path": "more"},
        {"type": "file", "path": "m.Q8_0.gguf", "size": 130, "lfs": {"oid": "0" * 64, "size": 5}},
        {"type": "file", "path": "more/m-00001-of-00002.gguf", "size": 7},
        {"type": "file", "path": "more/m-00002-of-00002.gguf", "size": 7},
    ]
)
SLOT = {
    "id": 0, "is_processing": True, "id_task": 7, "n_ctx": 4096, "n_prompt_tokens": 9, "n_prompt_tokens_processed": 4,
    "params": {"seed": 1},
    "next_token": [{"n_decoded": 3}],
}  # fmt: skip
SLOTS = json.dumps([SLOT, dict(SLOT, id=1, is_processing=False)])
METRICS = "# HELP llamacpp:n_decode_total\n" + "".join(
    "llamacpp:%s %s\n" % item
    for item in [
        ("n_decode_total", 12),
        ("prompt_tokens_total", 1.5e3),
        ("tokens_predicted_total", 7),
        ("requests_processing", 1),
    ]
)
PROPS = json.dumps(
    {
        "model_alias": "m", "total_slots": 2, "is_sleeping": False, "default_generation_settings": {"n_ctx": 4096},
        "chat_template_caps": {"supports_tools": True, "supports_tool_calls": True}, "chat_template": "<think>",
    }
)  # fmt: skip
MODELS = json.dumps({"data": [{"id": "m", "meta": {"n_ctx_train": 4096, "n_embd": 8}}]})
CALL = {"id": "1", "type": "function", "function": {"name": "get_temperature", "arguments": '{"city": "Paris"}'}}
COMPLETION = json.dumps(
    {
        "model": "m", "choices": [{"message": {"content": "yes", "tool_calls": [CALL]}, "finish_reason": "stop"}],
        "usage": {"completion_tokens": 2, "prompt_tokens": 3},
        "timings": {"prompt_n": 3, "predicted_n": 2, "predicted_per_second": 5.0, "prompt_per_second": 9.0},
    }
)  # fmt: skip
HEALTH = json.dumps({"status": "ok"})
ERROR = json.dumps({"error": {"code": 503, "message": "Loading model"}})


def answer(body, status="200 OK", headers=()):
    """The bytes of an HTTP answer."""
    data = body if isinstance(body, bytes) else body.encode()
    lines = ["HTTP/1.1 " + status, "Content-Type: application/json", "Content-Length: %d" % len(data), *headers]
    return "\r\n".join(lines).encode("latin-1", "replace") + b"\r\n\r\n" + data


def damaged(seed, source):
    """seed: a body. Its values are damaged, or the status and the headers, or the bytes of all of it."""
    text = source.random()
    body = (
        damage.json_of(seed, source)
        if seed[0] in "[{" and text < 0.6
        else damage.bytes_of(seed.encode(), source)
        if text < 0.8
        else seed
    )
    status = source.choice(
        ["200 OK"] * 8
        + ["206 Partial", "302 Found", "401 No", "404 Not Found", "429 Wait", "500 Error", "503 Busy", "999 ?"]
    )
    more = [
        "Location: http://127.0.0.1:9/Grüße",
        "Location: http://[::1",
        "Location: //127.0.0.1:99999999/",
        "Location: http://127.0.0.1:x/",
        "Retry-After: nan",
    ]
    more += [
        "Retry-After: -1e999",
        "Retry-After: Sun, 99 Foo 9999",
        'Link: <http://[>; rel="next"',
        'Link: <?page=2>; rel="next"',
        "Transfer-Encoding: chunked",
    ]
    more += [
        "X-Error-Code: GatedRepo",
        "X-Error-Code: RevisionNotFound",
        "Content-Length: x",
        "Location: ftp://127.0.0.1/",
        "Retry-After: " + "9" * 400,
    ]
    whole = answer(
        body, status, source.sample(more, 1) if source.random() < 0.2 or not status.startswith("200") else ()
    )
    return damage.bytes_of(whole, source) if text > 0.9 else whole


class Wire(object):
    """A connection, and the socket of one, over which one answer comes and then nothing."""

    def __init__(self, data):
        self.sock, self._stream = self, io.BytesIO(data)

    def request(self, *_given, **_named):
        pass

    def sendall(self, *_given):
        pass

    def makefile(self, *_given):
        return io.BufferedReader(self._stream)

    def settimeout(self, _seconds):
        pass

    def recv_into(self, buffer):
        return self._stream.readinto(buffer)

    def close(self):
        pass


class HubClient(fetch_http.Client):
    """Gives an answer to some requests, and sound ones to the others. turns: the requests that it is for."""

    def __init__(self, data, turns):
        super().__init__()
        self._data, self._turns, self._asked = data, turns, 0

    def _connect(self, origin):
        connection = super()._connect(origin)
        connection.sock = Wire(self._data if self._asked in self._turns else answer(TREE if self._asked else REVISION))
        self._asked += 1
        return connection

    def get(self, url, headers):
        self._open.clear()
        return super().get(url, headers)


def hub_seeds(_files):
    return [REVISION, TREE, REFS, json.dumps([{"id": "some/m-GGUF"}])]


def hub(data):
    """The commit, the list of files, a choice among them, and what is told of a repository that is not there."""
    told = []
    for turns in ([0], [1], range(100)):
        client = fetch_hub.Hub(HubClient(data, turns), "some/m-GGUF", HUB, "secret" if turns == [0] else None)
        try:
            fetch_hub.select(client.files(client.commit("main")), "some/m-GGUF", quant="Q8_0")
        except Refusal as error:
            told.append(str(error))
            one_line(told[-1])
    return told[0] if len(told) == 3 else None


class Api(LlamaApi):
    """A llama-server whose answer to one path is damaged. answers: {path: bytes}"""

    def __init__(self, answers):
        super().__init__("http://127.0.0.1:9")
        self._answers, self._asked = answers, None

    def _connect(self, _timeout):
        wire = Wire(b"")
        wire.request = lambda _method, path, *_given: setattr(self, "_asked", path.split("?")[0])

        def receive(buffer):
            if self._asked is not None:
                wire._stream, self._asked = io.BytesIO(self._answers[self._asked]), None
            return wire._stream.readinto(buffer)

        wire.recv_into = receive
        return wire


class Watched(HeadApi):
    """The watchdog's view of the same server."""

    def __init__(self, answers):
        self.said = []
        super().__init__("http://127.0.0.1:9", None, self.said.append)
        self._answers = answers

    def _api(self):
        return Api(self._answers)


SOUND = {
    "/health": HEALTH,
    "/slots": SLOTS,
    "/metrics": METRICS,
    "/props": PROPS,
    "/v1/models": MODELS,
    "/v1/chat/completions": COMPLETION,
    "/completion": COMPLETION,
}


def served(path):
    """A reader of one path's answer: health's look, deep look and conversation, the watchdog's look and token."""

    def read(data):
        answers = dict({name: answer(body) for name, body in SOUND.items()}, **{path: data})
        if path == "/v1/chat/completions":
            # Only an idle head is asked.
            answers.update({"/slots": answer("[]"), "/metrics": answer("")})
        told = []
        try:
            head = health.Head(Api(answers))
            state = head.check()
            result = dict(state)
            if state["state"] == "ready":
                head._deep(result, "prompt", 2, 1)
            if result["state"] == "ready":
                Conversation(head, told_by(["--ctx-size", "8192", "--parallel", "2"]), result, "prompt", 2, 1).hold(
                    True
                )
            json.dumps(result)
            told.append(result["reason"])
            assert result["state"] in health.STATES, result
        except Refusal as error:
            told.append(str(error))
            result = {"state": "refused"}
        watched = Watched(answers)
        look = watched.look(0.0, True)
        watched.token(7)
        assert set(look) >= {"health", "slots", "counters"}
        told += watched.said
        for sentence in told:
            one_line(sentence)
        return None if result["state"] in health.SERVING and not watched.said else told[-1]

    return read


def one_line(text):
    assert text and text.isprintable() and len(text) <= 1000, repr(text)[:300]


def seeds_of(path):
    body = SOUND[path]
    return lambda _files: [body, ERROR]
