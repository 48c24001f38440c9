# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Samples for the watchdog: processes and sockets in /proc; systemd is only asked about new processes and to end
one. Private to the collection."""

from __future__ import annotations

import os
import random
import subprocess
import threading
import time
from collections.abc import Sequence
from typing import Any, Callable, Optional

from .._llama.api import LlamaApi, NoAnswer, count, parse_metrics, read_api_key, rows, table
from .._llama.server import PROGRESS, awake, models, progress, prompt
from .._node import sock_diag, sockets
from .._node.units import number, parse_show, systemctl_show
from .._text import Refusal
from .head import LastProbe, Look, Process

Say = Callable[[str], None]
Query = Callable[..., Optional[sock_diag.Socket]]
TCP = "/proc/net/tcp"
# TCP states as sock_diag has them.
UP, LISTENS = 1, 10
# Seconds between two questions to systemd for a unit without a process, and for an answer of the head's API and for its
# token.
ASK_SYSTEMD, ANSWER, TOKEN = 1, 5, 5
TICKS = float(os.sysconf("SC_CLK_TCK"))


def read(path: str) -> str:
    """A file's text, "" when it has gone."""
    try:
        with open(path, encoding="ascii", errors="replace") as stream:
            return stream.read()
    except OSError:
        return ""


def process_state(pid: int) -> tuple[str, int] | None:
    """(state letter, start time in clock ticks since boot) of a process, None when it has ended."""
    # The command name may hold spaces and parentheses: count from behind it.
    fields = read("/proc/%d/stat" % pid).rpartition(")")[2].split()
    return (fields[0], int(fields[19])) if len(fields) > 19 and fields[0] not in ("Z", "X") else None


def age_of(process: Process | None) -> float | None:
    """Seconds since a process started, None without one."""
    return float(read("/proc/uptime").split()[0]) - process[1] / TICKS if process else None


class Unit:
    """A unit's main process, as long as systemd has nothing else in mind with it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.process: Process | None = None  # (pid, start time)
        self.state: str | None = None
        self._asked_at: float | None = None

    def look(self, now: float) -> Process | None:
        """Identity of the running main process, None without one."""
        if self.process:
            seen = process_state(self.process[0])
            if seen and seen[1] == self.process[1]:
                self.state = seen[0]
                return self.process
            self.process = None
            self._asked_at = None
        if self._asked_at is None or now - self._asked_at >= ASK_SYSTEMD:
            self._asked_at = now
            pid = self._pid()
            seen = process_state(pid) if pid else None
            if seen:
                self.process, self.state = (pid, seen[1]), seen[0]
        return self.process

    def _pid(self) -> int:
        """The process of an active unit without a job, else 0."""
        try:
            shown = parse_show(systemctl_show([self.name], ("Id", "ActiveState", "MainPID", "Job")))
        except Refusal:
            return 0
        quiet = shown and shown[0].get("ActiveState") == "active" and (shown[0].get("Job") or "0") == "0"
        return number(shown[0], "MainPID") if quiet else 0

    def end(self) -> bool:
        """Kills the process that was looked at -> whether it was done: not when it is about to be stopped or replaced
        anyway."""
        if not self.process or self._pid() != self.process[0]:
            return False
        # A head that lost a worker aborts when it is asked to end, one that hangs does not end: systemd starts another
        # in any case.
        return not subprocess.call(
            ["systemctl", "kill", "--signal=KILL", "--", self.name],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def age(self) -> float | None:
        """Seconds since the process started, None without one."""
        return age_of(self.process)


class Links:
    """A head's connections to its workers. query: asks the kernel for one socket, table: for all of them."""

    def __init__(
        self,
        endpoints: Sequence[str],
        query: Query = sock_diag.query,
        table: Callable[[], str] = lambda: read(TCP),
    ) -> None:
        self._endpoints, self._query, self._table = endpoints, query, table
        self._known: dict[str, list[sockets.Ends]] = {}  # those that were up, by endpoint
        self.acked: int | None = None  # bytes that the workers have confirmed, at the last look

    def look(self) -> tuple[dict[str, str], int | None, int | None]:
        """-> ({endpoint: 'up', 'closed' (by the worker) or 'gone'}, bytes received over all of them or None, segments
        sent or None)."""
        states: dict[str, str] = {}
        received: int | None = 0
        sent: int | None = 0
        acked: int | None = 0
        text = None
        for endpoint in self._endpoints:
            seen = [self._query(local, remote) for local, remote in self._known.get(endpoint, ())]
            up = [socket for socket in seen if socket and socket.state == UP]
            received = _sum(received, [socket.received for socket in up])
            sent = _sum(sent, [socket.sent for socket in up])
            acked = _sum(acked, [socket.acked for socket in up])
            if up:
                states[endpoint] = "up"
            else:
                # Unknown so far, or no longer up: the whole table tells.
                text = self._table() if text is None else text
                states[endpoint] = self._find(endpoint, text)
        self.acked = acked
        return states, received, sent

    def _find(self, endpoint: str, text: str) -> str:
        found: list[sockets.Entry] = []
        for end in sockets.resolve(endpoint):
            # A connection without inode belongs to no process any more.
            found += [entry for entry in sockets.entries(text, end) if entry.remote == end and entry.inode]
        up = [entry for entry in found if entry.state == sockets.ESTABLISHED]
        self._known[endpoint] = [(entry.local, entry.remote) for entry in up]
        if up:
            return "up"
        return "closed" if any(entry.state == sockets.CLOSED_BY_PEER for entry in found) else "gone"


def _sum(before: int | None, counts: list[int | None]) -> int | None:
    """`before` plus all counts; None if any of them is unknown."""
    known = [count for count in [before] + counts if count is not None]
    return sum(known) if counts and len(known) > len(counts) else None


def clients(
    address: str,
    port: int,
    query: Query = sock_diag.query,
    table: Callable[[], str] = lambda: read(TCP),
) -> tuple[int, int]:
    """-> (connections that a worker has not accepted, connections that it serves; not counted while none wait)"""
    listener = query((address, port))
    if listener and listener.state == LISTENS and not listener.waiting:
        return 0, 0
    here = [entry for entry in sockets.entries(table(), (address, port)) if entry.local == (address, port)]
    waiting = sum(entry.waiting for entry in here if entry.state == sockets.LISTEN)
    # A connection without an inode is not accepted yet.
    return waiting, sum(1 for entry in here if entry.state == sockets.ESTABLISHED and entry.inode)


def _slot(shown: dict[str, Any]) -> dict[str, Any]:
    """An entry of /slots for the judge."""
    task = shown.get("id_task")
    taken, decoded = progress(shown)
    return {
        "task": task if isinstance(task, int) else None,
        "seed": table(shown.get("params")).get("seed"),
        "prompt": prompt(shown),
        "taken": taken,
        "decoded": decoded,
    }


class HeadApi:
    """A head's HTTP API. say(text) is called once for each error; embeddings: it only serves embeddings, with reranking
    scores. pid: its process, set by the caller."""

    def __init__(
        self, url: str, api_key_file: str | None, say: Say, embeddings: bool = False, reranking: bool = False
    ) -> None:
        self._url, self._api_key_file, self._say, self.embeddings = url, api_key_file, say, embeddings
        self._reranking = reranking
        self._said: str | None = None
        self.pid = 0

    def _api(self) -> LlamaApi:
        return LlamaApi(self._url, read_api_key(self._api_key_file) if self._api_key_file else None, pid=self.pid)

    def complain(self, error: object) -> None:
        if self._said != str(error):
            self._said = str(error)
            self._say(f"cannot be asked how it is: {error}")

    def look(self, at: float, may_sleep: bool) -> Look:
        """The look for HeadJudge. may_sleep: also ask whether it sleeps."""
        result = nothing(at)
        try:
            api = self._api()
            # One request is enough for an idle server.
            result["health"], text = api.get("/metrics", ANSWER)
            metrics = parse_metrics(text) if isinstance(text, str) else {}
            if result["health"] not in (200, 503):
                result["health"] = api.get("/health", ANSWER)[0]  # metrics may be switched off
            if result["health"] == 200:
                result["counters"] = [metrics.get(name) for name in PROGRESS]
                result["requests"] = metrics.get("requests_processing", 0) + metrics.get("requests_deferred", 0)
                if "prompt_tokens_total" in metrics:
                    result["total"] = metrics["prompt_tokens_total"] + metrics.get("tokens_predicted_total", 0)
                if result["requests"] or not metrics:
                    status, slots = api.get("/slots", ANSWER)
                    if status == 200 and rows(slots) is not None:
                        result["slots"] = [_slot(slot) for slot in rows(slots) or [] if slot.get("is_processing")]
                if may_sleep:
                    status, props = api.get("/props", ANSWER)
                    result["sleeping"] = status == 200 and bool(table(props).get("is_sleeping"))
        except NoAnswer:
            result["silent"] = True
        except Refusal as error:
            self.complain(error)
        return result

    def token(self, seed: int | None) -> tuple[int | None, int]:
        """Asks for a token, without a seed for the embedding of a word -> (HTTP status, None when nothing came in time,
        0 when it could not be asked; tokens that this cost)."""
        try:
            api = self._api()
            if self._reranking:
                status, body = api.rerank("Hello", TOKEN)
            else:
                status, body = api.embed("Hello", TOKEN) if seed is None else api.token(seed, TOKEN)
        except NoAnswer as error:
            return (None if error.kind == "timeout" else 0), 0
        except Refusal as error:
            self.complain(error)
            return 0, 0
        timings, usage = table(table(body).get("timings")), table(table(body).get("usage"))
        cost = (timings.get("prompt_n"), timings.get("predicted_n"), usage.get("prompt_tokens"))
        return status, sum(map(count, cost)) if status == 200 else 0


class RouterApi(HeadApi):
    """A router's HTTP API: the work of its loaded models together. Probes load no model. There is no token probe: it
    would change which model was used last."""

    def look(self, at: float, may_sleep: bool) -> Look:
        result = nothing(at)
        try:
            api = self._api()
            result["health"], entries = models(api, ANSWER)
            for name in awake(entries):
                self._add(result, name, api.of(name))
        except NoAnswer:
            result["silent"] = True
        except Refusal as error:
            self.complain(error)
        return result

    @staticmethod
    def _add(result: Look, name: str, api: LlamaApi) -> None:
        status, text = api.get("/metrics", ANSWER, of_model=True)
        if status != 200 or not isinstance(text, str):
            return  # it was unloaded meanwhile
        metrics = parse_metrics(text)
        requests = metrics.get("requests_processing", 0) + metrics.get("requests_deferred", 0)
        result["requests"] += requests
        result["counters"] = (result["counters"] or []) + [(name, metrics.get(counter)) for counter in PROGRESS]
        status, slots = api.get("/slots", ANSWER, of_model=True) if requests else (0, None)
        if status == 200 and rows(slots) is not None:
            working = [_slot(slot) for slot in rows(slots) or [] if slot.get("is_processing")]
            result["slots"] = (result["slots"] or []) + [dict(slot, task=(name, slot["task"])) for slot in working]


def nothing(at: float) -> Look:
    """A look that tells nothing."""
    return {
        "at": at,
        "health": None,
        "slots": None,
        "counters": None,
        "requests": 0,
        "total": None,
        "sleeping": False,
        "silent": False,
    }


class Looker(threading.Thread):
    """Looks at a head's API in its own thread, since the head may not respond."""

    # interval: not below a second. llama-server (b11434) notices that a client without a stream has left only after a
    # second without an answer.
    def __init__(self, api: HeadApi, interval: float = 1.0, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(daemon=True)
        self._api, self._interval, self._clock = api, interval, clock
        self._asked: tuple[Process, bool] | None = None  # (process, may_sleep)
        self._result: tuple[Process, Look] | None = None
        self._wake = threading.Event()
        # While it is set, it looks as often as it is asked.
        self.hurries = threading.Event()
        self._ended = False

    def ask(self, process: Process, may_sleep: bool) -> None:
        """Has it look soon, and not too often."""
        self._asked = (process, may_sleep)
        self._wake.set()

    def of(self, process: Process | None) -> Look | None:
        """The last look at this process, None before there is one."""
        result = self._result
        return result[1] if result and process is not None and result[0] == process else None

    def stop(self) -> None:
        self._ended = True
        self._wake.set()

    def run(self) -> None:
        while not self._ended:
            self._wake.wait()
            self._wake.clear()
            process, may_sleep = self._asked or (None, False)
            if process is not None:
                self._result = (process, self._look(may_sleep))
                self.hurries.wait(self._interval)

    def _look(self, may_sleep: bool) -> Look:
        at = self._clock()
        try:
            return self._api.look(at, may_sleep)
        except Exception as error:
            # Whatever a server sends: without this thread no hang would be seen.
            self._api.complain(f"its answer is not llama-server's ({type(error).__name__}: {error})")
            return nothing(at)


class Prober:
    """Asks a head for a token in the background.

    last: None or {at, ended; silent: nothing came; status: of the answer; errors: answers 5xx in a row; seed: that this
    request has in /slots, None of an embedding;
    explained: tokens all tokens of this process have cost}
    """

    def __init__(self, api: HeadApi, clock: Callable[[], float] = time.monotonic) -> None:
        self._api, self._clock = api, clock
        self._process: Process | None = None
        self._chance = random.SystemRandom()
        self.last: LastProbe | None = None

    def of(self, process: Process | None) -> LastProbe | None:
        if process != self._process:
            self._process, self.last = process, None
        return self.last

    def ask(self) -> None:
        before = self.last or {"explained": 0, "errors": 0}
        probe = {
            "at": self._clock(),
            "ended": None,
            "silent": False,
            "status": 0,
            "seed": None if self._api.embeddings else self._chance.randrange(1 << 31),
        }
        self.last = dict(probe, explained=before["explained"], errors=before["errors"])
        threading.Thread(target=self._ask, args=(self.last,), daemon=True).start()

    def _ask(self, probe: LastProbe) -> None:
        status: int | None = 0
        tokens = 0
        try:
            status, tokens = self._api.token(probe["seed"])
        except Exception as error:
            self._api.complain(f"its answer is not llama-server's ({type(error).__name__}: {error})")
        probe["explained"] += tokens
        probe["status"], probe["silent"] = status, status is None
        probe["errors"] = probe["errors"] + 1 if (status or 0) >= 500 else 0
        probe["ended"] = self._clock()
