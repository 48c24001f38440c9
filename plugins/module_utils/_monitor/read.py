# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The pages and files that samples come from, each read by itself: a node that is gone or hangs keeps nobody waiting.
Private to the collection."""

from __future__ import annotations

import contextlib
import email.utils
import json
import re
import socket
import ssl
import threading
import time
from typing import Any, Callable, NamedTuple
from urllib.parse import urlsplit

from .._exporter.exposition import Sample, parse
from .._llama.api import plain, rows, table
from .._node import paths
from .._text import printable

# Seconds for a page, its bytes, and samples of ours on it.
PATIENCE, LARGEST, MOST = 1.5, 4 << 20, 20000
# Seconds for which counters are kept, and between two looks where there is nothing before: a sampler looks each two.
WINDOW, PAUSE = 60.0, 2.1
COUNTERS = (
    "llama_generated_tokens_total",
    "llama_fabric_received_bytes_total",
    "llama_fabric_sent_bytes_total",
)
HEADER = re.compile(rb"^(date|content-length):[ \t]*([^\r\n]*)", re.IGNORECASE | re.MULTILINE)
STATUS = re.compile(rb"HTTP/1\.[01] (\d{3})\b")


class Source(NamedTuple):
    """kind: node, gateway or alerts; place: a URL, or a file of this node."""

    kind: str
    name: str
    place: str


class Reading(NamedTuple):
    """at: of the monotonic clock; clock: what the host of the page says that it is, in seconds since 1970; samples: of
    a page, alerts: of Prometheus, those that fire; error: why there is nothing new."""

    at: float
    clock: float | None = None
    samples: tuple[Sample, ...] = ()
    alerts: tuple[dict[str, Any], ...] = ()
    error: str = ""


Counts = dict[tuple[str, tuple[tuple[str, str], ...]], float]


class Seen(NamedTuple):
    """last: the newest whole reading; now: the newest of any kind; counts: of the readings of the last minute."""

    last: Reading | None = None
    now: Reading | None = None
    counts: tuple[tuple[float, Counts], ...] = ()


def sources(monitor: str = paths.MONITOR, own: str = paths.SAMPLES) -> list[Source]:
    """On a monitoring host all nodes, on another host its own samples."""
    try:
        with open(monitor, encoding="utf-8") as stream:
            told = table(json.load(stream))
    except (OSError, ValueError):
        return [Source("node", "this node", own)]
    found = [Source("node", printable(name), str(url)) for name, url in table(told.get("nodes")).items()]
    found += [Source("gateway", printable(name), str(url)) for name, url in table(told.get("gateway")).items()]
    if isinstance(told.get("alerts"), str):
        found.append(Source("alerts", "prometheus", told["alerts"] + "/api/v1/alerts"))
    return found


def fetch(place: str) -> tuple[str, float | None]:
    """The text of a page or a file, and what its host's clock said. Errors: OSError, ValueError."""
    if place.startswith("/"):
        with open(place, "rb") as stream:
            return _bounded(stream.read(LARGEST + 1)).decode("utf-8", "replace"), time.time()
    head, _end, body = _answer(place).partition(b"\r\n\r\n")
    status = STATUS.match(head)
    if not status or status.group(1) != b"200":
        # A page that points elsewhere is not followed there.
        raise ValueError(f"status {status.group(1).decode('ascii')}" if status else "no answer of HTTP")
    headers = {name.lower(): value for name, value in HEADER.findall(head)}
    length = headers.get(b"content-length", b"")
    if length.isdigit() and len(length) < 10 and len(body) < int(length):
        raise ValueError("an answer that was cut off")
    return body.decode("utf-8", "replace"), _clock(headers.get(b"date", b"").decode("latin-1"))


def _answer(url: str) -> bytes:
    """All of it, in PATIENCE seconds: a byte now and then gains nothing."""
    end = time.monotonic() + PATIENCE
    parts = urlsplit(url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    connection = socket.create_connection((parts.hostname or "", port), PATIENCE)
    # By its address: the certificate of a gateway names it otherwise.
    stream = _unchecked().wrap_socket(connection) if parts.scheme == "https" else connection
    with contextlib.closing(stream):
        path = parts.path + ("?" + parts.query if parts.query else "")
        stream.sendall(f"GET {path} HTTP/1.0\r\nHost: {parts.netloc}\r\n\r\n".encode("ascii"))
        content = b""
        while len(content) <= LARGEST:
            left = end - time.monotonic()
            if left <= 0:
                raise socket.timeout()
            stream.settimeout(left)
            piece = stream.recv(1 << 18)
            if not piece:
                break
            content += piece
    return _bounded(content)


def _bounded(content: bytes) -> bytes:
    if len(content) > LARGEST:
        raise ValueError("more than %d MiB" % (LARGEST >> 20))
    return content


def _unchecked() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _clock(date: str) -> float | None:
    try:
        return email.utils.parsedate_to_datetime(date).timestamp()
    except (TypeError, ValueError, IndexError, OverflowError):
        return None


def read(source: Source) -> Reading:
    """One look."""
    try:
        text, clock = fetch(source.place)
        at = time.monotonic()
        if source.kind == "alerts":
            told = rows(table(table(json.loads(text)).get("data")).get("alerts")) or []
            return Reading(at, clock, alerts=tuple(one for one in told if one.get("state") == "firing"))
        # Where node_exporter has them on its page, most of it is of others.
        ours = "\n".join(line for line in text.split("\n") if line.startswith("llama_"))
        samples = tuple(parse(ours))
        if len(samples) > MOST:
            raise ValueError("more than %d samples" % MOST)
        return Reading(at, clock, samples)
    except socket.timeout:
        return Reading(time.monotonic(), error=f"no answer in {PATIENCE:g} s")
    except (OSError, ValueError, RecursionError) as error:
        return Reading(time.monotonic(), error=_words(error))


def _words(error: BaseException) -> str:
    return plain(getattr(error, "strerror", None) or error) or type(error).__name__


class Follower(threading.Thread):
    """Reads a source again and again, and calls afterwards what it is given."""

    def __init__(self, source: Source, interval: float, told: Callable[[], None] = lambda: None) -> None:
        super().__init__(daemon=True)
        self.source, self.interval, self._told = source, interval, told
        # One value, replaced as a whole: others read it meanwhile.
        self.seen = Seen()
        self.began = time.monotonic()

    def look(self) -> None:
        self.take(read(self.source))
        self._told()

    def take(self, reading: Reading) -> None:
        if reading.error:
            self.seen = self.seen._replace(now=reading)
            return
        counts = {
            (one.name, tuple(sorted(one.labels.items()))): one.value for one in reading.samples if one.name in COUNTERS
        }
        kept = tuple(one for one in self.seen.counts if reading.at - one[0] <= WINDOW)
        if kept and any(counts.get(key, value) < value for key, value in kept[-1][1].items()):
            # It began anew.
            kept = ()
        self.seen = Seen(reading, reading, kept + ((reading.at, counts),))

    def run(self) -> None:
        while True:
            began = time.monotonic()
            self.look()
            time.sleep(max(0.1, self.interval - (time.monotonic() - began)))


def once(followed: list[Follower], looks: int = 1) -> None:
    """Looks at each, all at one time. Two looks give counters a rate. Who does not answer is asked once more: a node
    may be busy."""
    for number in range(looks):
        time.sleep(PAUSE if number else 0)
        _together(followed)
    _together([one for one in followed if not one.seen.last])


def _together(followed: list[Follower]) -> None:
    threads = [threading.Thread(target=one.look, daemon=True) for one in followed]
    for thread in threads:
        thread.start()
    # Connecting, a handshake and the answer each have their patience.
    end = time.monotonic() + 3 * PATIENCE
    for thread in threads:
        thread.join(max(0.0, end - time.monotonic()))
