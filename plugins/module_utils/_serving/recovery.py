# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Times the recovery of a head, and what its client notices. Private to the collection."""

from __future__ import annotations

import os
import threading
import time
from typing import Any, Callable

from .._llama.api import LlamaApi, NoAnswer, count, rows, table
from .._text import Refusal

# Seconds between two probes, and for a response from memory.
POLL = 0.2
LOOK = 2
# Seconds for the first token.
TOKEN = 300
PROMPT = "Once upon a time there was a cluster of three nodes that wrote each other stories, and this is one of them: "


def process_identity(pid: int, proc: str = "/proc") -> str | None:
    """The start of a process in clock ticks, None if it has ended."""
    try:
        with open(os.path.join(proc, str(pid), "stat"), encoding="utf-8", errors="replace") as stream:
            return stream.read().rsplit(")", 1)[1].split()[19]
    except (OSError, IndexError):
        return None


class Client(threading.Thread):
    """Keeps a head generating until stop(), and records when it was cut off."""

    def __init__(self, api: LlamaApi, prompt: str) -> None:
        super().__init__(name="client", daemon=True)
        self.api = api
        self.prompt = prompt
        self.tokens = 0
        self.last_at: float | None = None
        self.cut_at: float | None = None
        self.failure: str | None = None
        self.generating = threading.Event()
        self._stopped = False

    def stop(self) -> None:
        self._stopped = True

    def run(self) -> None:
        try:
            # An answer that fills the context ends: the next one begins.
            while not self._stopped:
                for _piece in self.api.stream(self.prompt):
                    self.last_at = time.time()
                    self.tokens += 1
                    if self.tokens > 1:
                        self.generating.set()
                    if self._stopped:
                        return
        except Refusal as error:
            self.cut_at = time.time()
            self.failure = str(error)
        finally:
            self.generating.set()


def _answers(api: LlamaApi, embeddings: bool) -> bool:
    """Whether the head generates a token now, or an embedding."""
    try:
        status, _body = api.get("/health", LOOK)
        if status != 200:
            return False
        if embeddings:
            status, body = api.embed("Hello", TOKEN)
            return status == 200 and bool((rows(table(body).get("data")) or [{}])[0].get("embedding"))
        status, body = api.chat("Hello", 1, TOKEN)
        return status == 200 and bool(count(table(table(body).get("usage")).get("completion_tokens")))
    except NoAnswer:
        return False


def watch(
    api: LlamaApi,
    pid: int,
    timeout: float,
    armed: Callable[[], None],
    wanted: Callable[[], bool],
    generate: str | None = None,
    alive: Callable[[int], str | None] = process_identity,
    embeddings: bool = False,
    there: Callable[[], bool] = lambda: True,
) -> dict[str, Any]:
    """Waits until process pid, the present head, has gone and another one responds.

    The present head is not probed: a request would show it the loss of its workers.
    generate: a prompt to keep it busy with. armed: called once when all is ready. wanted: whether to continue.
    embeddings: of a server of embeddings. there: whether there is another head; it gets the key.
    Returns {pid, answered_at, seconds_to_token, client}, answered_at None after timeout seconds.
    """
    identity = alive(pid)
    client = None
    if generate:
        client = Client(api.of(api.model), generate)
        client.start()
        client.generating.wait(TOKEN)
        if client.tokens < 2:
            client.stop()
            raise Refusal(
                "the head gave %d tokens in %d s (%s), a generating one is needed"
                % (client.tokens, TOKEN, client.failure or "no error")
            )
    armed()
    deadline = time.time() + timeout
    asked_at, answered_at = 0.0, None
    while answered_at is None and time.time() < deadline and wanted():
        asked_at = time.time()
        if alive(pid) != identity and there() and _answers(api, embeddings):
            answered_at = time.time()
        else:
            time.sleep(max(0.0, asked_at + POLL - time.time()))
    seen = None
    if client:
        client.stop()
        seen = {
            "tokens": client.tokens,
            "last_token_at": client.last_at,
            "cut_at": client.cut_at,
            "failure": client.failure,
        }
    return {
        "pid": pid,
        "answered_at": answered_at,
        "seconds_to_token": round(answered_at - asked_at, 3) if answered_at else None,
        "client": seen,
    }
