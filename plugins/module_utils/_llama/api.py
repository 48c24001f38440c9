# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A client of llama-server's HTTP API. Private to the collection."""

from __future__ import annotations

import http.client
import io
import json
import os
import re
import socket
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote, urlsplit

from .._node.sock_diag import Listener
from .._node.sockets import is_of, listener
from .._text import Refusal

# Seconds without data after which a stream counts as dead.
SILENCE = 3600
# Bytes of an answer, or of one piece of a stream. JSON of that size takes up to 50 MiB.
LARGEST = 2 << 20
METRIC = re.compile(r"^llamacpp:(\w+)\s+([0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]{1,2})?)$", re.MULTILINE)

# Documents for reranking.
DOCUMENTS = ["Red, yellow and blue are colors.", "Paris is a city in France."]

# An HTTP status, and JSON or text.
Answer = tuple[int, Any]


class NoAnswer(Refusal):
    """No HTTP answer. kind: refused, unreachable, timeout (connected, silent), cut (disconnected), foreign (another
    process listens; it gets no request)."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


def read_api_key(path: str) -> str:
    """First key of a key file in llama-server's format (one a line, # comments)."""
    try:
        with open(path, encoding="utf-8") as stream:
            return first_key(stream.read(), path)
    except OSError as error:
        raise Refusal(
            "api_key_file %s cannot be read (%s): give a file that user id %d may read"
            % (path, error.strerror, os.geteuid())
        ) from None


def first_key(text: str, path: str) -> str:
    """The first key in the text of a key file."""
    lines = [line.strip() for line in text.splitlines()]
    keys = [line for line in lines if line and not line.startswith("#")]
    if not keys:
        raise Refusal(f"api_key_file {path} holds no key: one line with the key is needed")
    return keys[0]


def parse_metrics(text: str) -> dict[str, float]:
    """Prometheus text of /metrics -> {name without 'llamacpp:': float}."""
    return {name: float(value) for name, value in METRIC.findall(text)}


def table(value: Any) -> dict[str, Any]:
    """A JSON object, empty for another type."""
    return value if isinstance(value, dict) else {}


def count(value: Any, most: int = 2**53) -> int:
    """A whole number up to `most`, 0 for anything else."""
    return value if isinstance(value, int) and 0 <= value <= most else 0


def rows(value: Any) -> list[dict[str, Any]] | None:
    """A list of JSON objects, None for another type."""
    return [table(entry) for entry in value] if isinstance(value, list) else None


def error_text(body: Any) -> str:
    """The message of an API error, cut in the middle: errors of chat templates come last."""
    if isinstance(body, dict) and isinstance(body.get("error"), dict):
        text = plain(body["error"].get("message", body["error"]), 2000)
        return text if len(text) <= 200 else f"{text[:95]} ... {text[-100:]}"
    return plain(body) or "an empty answer"


def plain(value: Any, most: int = 200) -> str:
    """Text from elsewhere, printable, on one line and short."""
    try:
        text = str(value)[:2000]
    except RecursionError:
        return "nested too deep"
    return " ".join("".join(one if one.isprintable() else " " for one in text).split())[:most]


class _Until(io.RawIOBase):
    """A socket for HTTPResponse with a deadline: a socket's own timeout begins again with each byte."""

    def __init__(self, stream: socket.socket, end: float) -> None:
        super().__init__()
        self._stream, self._end = stream, end

    def makefile(self, _mode: str) -> io.BufferedReader:
        return io.BufferedReader(self)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        left = self._end - time.monotonic()
        if left <= 0:
            raise socket.timeout("timed out")
        self._stream.settimeout(left)
        return self._stream.recv_into(buffer)


class LlamaApi:
    """One llama-server. model: a model of a router, which GET requests never load. pid: the unit's process; no other
    process at its port gets the key."""

    def __init__(self, url: str, api_key: str | None = None, model: str | None = None, pid: int | None = None) -> None:
        parts = urlsplit(url)
        try:
            valid = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
        except ValueError:
            valid = False
        if not valid:
            raise Refusal(f"url {url!r} is not an address: http://HOST:PORT is needed")
        self.url = url.rstrip("/")
        self.model = model
        self._parts = parts
        self.use_key(api_key, pid)

    def of(self, model: str | None) -> LlamaApi:
        """The same server, for one of its models."""
        other = LlamaApi(self.url, model=model)
        other.use_key(self.key, self._pid)
        return other

    def use_key(self, api_key: str | None, pid: int | None = None) -> None:
        """Sets the key of the next requests."""
        self.key = api_key
        self._headers = {"Authorization": "Bearer " + api_key} if api_key else {}
        self._pid = pid if api_key else None

    def _connect(self, timeout: float) -> http.client.HTTPConnection:
        connection_class = http.client.HTTPSConnection if self._parts.scheme == "https" else http.client.HTTPConnection
        connection = connection_class(self._parts.hostname or "", self._parts.port, timeout=timeout)
        before = self._listener()
        try:
            connection.connect()
            # The listener before and after the connection is the one that has it.
            if self._pid is not None:
                # The name may have several addresses.
                after = self._listener(connection.sock.getpeername()[:2])
                if not (before and before == after and is_of(before, self._pid)):
                    raise NoAnswer("foreign", self._words(before))
        except OSError as error:
            connection.close()
            reason = (
                f"no connection in {timeout:g} s" if isinstance(error, socket.timeout) else error.strerror or str(error)
            )
            raise NoAnswer("refused" if isinstance(error, ConnectionRefusedError) else "unreachable", reason) from None
        except NoAnswer:
            connection.close()
            raise
        return connection

    def _listener(self, end: tuple[str, int] | None = None) -> Listener | None:
        """The listening process, if a key is to be sent; by default at the first IPv4 address."""
        if self._pid is None:
            return None
        try:
            return listener(end or (socket.gethostbyname(self._parts.hostname or ""), self._parts.port or 80))
        except OSError:
            return None

    def _words(self, seen: Listener | None) -> str:
        who = "user id %d" % seen.user if seen else "an unknown user"
        return f"{who} listens at {self.url}, not process {self._pid} of the unit: it gets no key"

    def _request(self, method: str, path: str, timeout: float, body: str | None = None) -> Answer:
        end = time.monotonic() + timeout
        connection = self._connect(timeout)
        headers = dict(self._headers, **{"Content-Type": "application/json"})
        try:
            connection.request(method, self._parts.path.rstrip("/") + path, body, headers)
            stream: Any = _Until(connection.sock, end)
            response = http.client.HTTPResponse(stream, method=method)
            response.begin()
            # With a known and allowed length the answer is complete or an error.
            data = response.read(*([LARGEST + 1] if response.length is None or response.length > LARGEST else []))
        except socket.timeout:
            raise NoAnswer("timeout", f"no answer in {timeout:g} s") from None
        except (OSError, http.client.HTTPException) as error:
            raise NoAnswer("cut", plain(error) or type(error).__name__) from None
        finally:
            connection.close()
        if len(data) > LARGEST:
            words = "%s%s: an answer of more than %d MiB seen, at most %d are allowed: see which program listens there"
            raise Refusal(words % (self.url, path, LARGEST >> 20, LARGEST >> 20))
        if response.status == 401:
            raise Refusal(f"{self.url} refused the API key (401): set api_key_file to a file with a key of this server")
        text = data.decode("utf-8", "replace")
        try:
            return response.status, json.loads(text)
        except (ValueError, RecursionError):
            return response.status, text

    def get(self, path: str, timeout: float, of_model: bool = False) -> Answer:
        """GET -> (status, JSON or text). of_model: in a router, ask for self.model without loading it.

        Errors: NoAnswer, Refusal when the key is refused.
        """
        if of_model and self.model:
            path += f"?model={quote(self.model, safe='')}&autoload=false"
        return self._request("GET", path, timeout)

    def stream(self, prompt: str) -> Iterator[str]:
        """Generates until the context is full, a piece of JSON text at a time. Errors: NoAnswer when it is cut off or
        refused."""
        connection = self._connect(SILENCE)
        request = {"prompt": prompt, "n_predict": -1, "ignore_eos": True, "stream": True, "cache_prompt": False}
        if self.model:
            request["model"] = self.model
        try:
            headers = dict(self._headers, **{"Content-Type": "application/json"})
            connection.request("POST", self._parts.path.rstrip("/") + "/completion", json.dumps(request), headers)
            response = connection.getresponse()
            if response.status != 200:
                raise NoAnswer(
                    "refused",
                    "a stream is answered %d (%s)"
                    % (response.status, error_text(response.read(1000).decode("utf-8", "replace"))),
                )
            last = ""
            for line in iter(lambda: response.readline(LARGEST), b""):
                if line.startswith(b"data: "):
                    last = line[6:].decode("utf-8", "replace").strip()
                    yield last
            if '"stop":true' not in last and last != "[DONE]":
                raise NoAnswer("cut", "the stream ended without its last piece")
        except socket.timeout:
            raise NoAnswer("timeout", f"no piece of a stream in {SILENCE:g} s") from None
        except (OSError, http.client.HTTPException) as error:
            raise NoAnswer("cut", plain(error) or type(error).__name__) from None
        finally:
            connection.close()

    def chat(self, prompt: str, max_tokens: int, timeout: float) -> Answer:
        """One chat completion at temperature 0, computed in full -> (status, JSON or text). timeout: seconds to the
        whole answer."""
        # A cached prompt would not pass through the workers.
        request = {"messages": [{"role": "user", "content": prompt}], "max_tokens": max_tokens, "cache_prompt": False}
        return self.converse(request, timeout)

    def converse(self, request: dict[str, Any], timeout: float) -> Answer:
        """A chat completion at temperature 0 of messages, tools and whatever else the request says."""
        return self._of_model("/v1/chat/completions", dict(request, temperature=0), timeout)

    def embed(self, text: str, timeout: float) -> Answer:
        """The embedding of a text -> (status, JSON or text)."""
        return self._of_model("/v1/embeddings", {"input": text}, timeout)

    def rerank(self, query: str, timeout: float) -> Answer:
        """The scores of DOCUMENTS for a query -> (status, JSON or text)."""
        return self._of_model("/v1/rerank", {"query": query, "documents": DOCUMENTS}, timeout)

    def _of_model(self, path: str, request: dict[str, Any], timeout: float) -> Answer:
        named = {"model": self.model} if self.model else {}
        return self._request("POST", path, timeout, json.dumps(dict(request, **named)))

    def tokenize(self, text: str, timeout: float) -> Answer:
        """{tokens: [id]} of a text, without those that a model puts around it."""
        return self._request("POST", "/tokenize", timeout, json.dumps({"content": text}))

    def read(self, tokens: list[int], timeout: float) -> Answer:
        """Reads a prompt of token ids, as far as the slot has not read it before, and generates one token."""
        # Without its fields an answer repeats the prompt.
        fields = ["tokens_evaluated", "timings"]
        request = {"prompt": tokens, "n_predict": 1, "temperature": 0, "cache_prompt": True, "response_fields": fields}
        return self._request("POST", "/completion", timeout, json.dumps(request))

    def token(self, seed: int, timeout: float) -> Answer:
        """One token after a prompt of one word, which stays in the slot's cache -> (status, JSON or text). seed: shows
        up in /slots."""
        request = {"prompt": "Hello", "n_predict": 1, "temperature": 0, "seed": seed, "cache_prompt": True}
        return self._request("POST", "/completion", timeout, json.dumps(request))
