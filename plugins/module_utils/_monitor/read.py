# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads the pages and files with samples, all at the same time. Private to the collection."""

from __future__ import annotations

import email.utils
import http.client
import json
import ssl
import threading
import time
import urllib.error
import urllib.request
from typing import Any, NamedTuple

from .._exporter.exposition import Sample, parse
from .._llama.api import plain, rows, table
from .._node import paths
from .._text import printable

# Limits of a page: seconds, bytes, samples of the collection, and services with words.
PATIENCE, LARGEST, MOST, MOST_WORDS = 1.5, 4 << 20, 20000, 64


class Source(NamedTuple):
    """kind: node, gateway, status (of a gateway) or alerts; place: a URL, or a file of this node."""

    kind: str
    name: str
    place: str


class Reading(NamedTuple):
    """at: monotonic clock; clock: of the page's host, in seconds since 1970; alerts: firing ones of Prometheus; words:
    {service: what a gateway says of its job by SLURM}; error: why the read failed."""

    at: float
    clock: float | None = None
    samples: tuple[Sample, ...] = ()
    alerts: tuple[dict[str, Any], ...] = ()
    words: tuple[tuple[str, str], ...] = ()
    error: str = ""


class _Stay(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_given: Any) -> None:
        """Redirects are errors."""


def _unchecked() -> ssl.SSLContext:
    """No check of the name: hosts are read by address, which a gateway's certificate does not have."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


OPENER = urllib.request.build_opener(
    urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=_unchecked()), _Stay
)


def sources(monitor: str = paths.MONITOR, own: str = paths.SAMPLES) -> list[Source]:
    """On a monitoring host all nodes, on another host its own samples."""
    try:
        with open(monitor, encoding="utf-8") as stream:
            config = table(json.load(stream))
    except (OSError, ValueError):
        return [Source("node", "this node", own)]
    found = [Source("node", printable(name), str(url)) for name, url in table(config.get("nodes")).items()]
    for name, url in table(config.get("gateway")).items():
        status = str(url).removesuffix("/metrics") + "/status.json"
        found += [Source("gateway", printable(name), str(url)), Source("status", printable(name), status)]
    if isinstance(config.get("alerts"), str):
        found.append(Source("alerts", "prometheus", config["alerts"] + "/api/v1/alerts"))
    return found


def fetch(place: str) -> tuple[str, float | None]:
    """The text of a page or a file, and the time of its host. Errors: OSError, ValueError, HTTPException."""
    if place.startswith("/"):
        with open(place, "rb") as stream:
            return _bounded(stream.read(LARGEST + 1)), time.time()
    with OPENER.open(place, timeout=PATIENCE) as answer:
        content = answer.read(LARGEST + 1)
        if answer.length and len(content) <= LARGEST:
            raise ValueError("an answer that was cut off")
        return _bounded(content), _clock(answer.headers.get("Date"))


def _bounded(content: bytes) -> str:
    if len(content) > LARGEST:
        raise ValueError("more than %d MiB" % (LARGEST >> 20))
    return content.decode("utf-8", "replace")


def _clock(date: str | None) -> float | None:
    try:
        return email.utils.parsedate_to_datetime(date or "").timestamp()
    except (TypeError, ValueError, IndexError, OverflowError):
        return None


def read(source: Source) -> Reading:
    """The current content of a source."""
    try:
        text, clock = fetch(source.place)
        at = time.monotonic()
        if source.kind == "alerts":
            alerts = rows(table(table(json.loads(text)).get("data")).get("alerts")) or []
            return Reading(at, clock, alerts=tuple(one for one in alerts if one.get("state") == "firing"))
        if source.kind == "status":
            services = table(table(json.loads(text)).get("services")).items()
            said = [(printable(name), plain(why)) for name, one in services if (why := table(one).get("why"))]
            return Reading(at, clock, words=tuple(sorted(said)[:MOST_WORDS]))
        # A page of node_exporter has mostly other metrics.
        samples = tuple(parse("\n".join(line for line in text.split("\n") if line.startswith("llama_"))))
        if len(samples) > MOST:
            raise ValueError("more than %d samples" % MOST)
        return Reading(at, clock, samples)
    except urllib.error.HTTPError as error:
        return Reading(time.monotonic(), error="status %d" % error.code)
    except http.client.HTTPException:
        return Reading(time.monotonic(), error="no answer of HTTP")
    except (OSError, ValueError, RecursionError) as error:
        reason = getattr(error, "reason", None) or error
        words = plain(getattr(reason, "strerror", None) or reason) or type(reason).__name__
        return Reading(time.monotonic(), error=words)


class Follower:
    """A source and its last good reading. error: why the newest one failed."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.last: Reading | None = None
        self.error = "no answer yet"
        self.began = time.monotonic()
        self._thread: threading.Thread | None = None

    def take(self, reading: Reading) -> None:
        self.error = reading.error
        self.last = self.last if reading.error else reading

    def start(self) -> None:
        """Reads in a thread, unless the previous read still hangs."""
        if not (self._thread and self._thread.is_alive()):
            self._thread = threading.Thread(target=lambda: self.take(read(self.source)), daemon=True)
            self._thread.start()

    def wait(self, seconds: float) -> None:
        if self._thread:
            self._thread.join(max(0.0, seconds))
            if self._thread.is_alive():
                self.error = f"no answer in {PATIENCE:g} s"


def look(followed: list[Follower]) -> None:
    """Reads all sources in parallel."""
    end = time.monotonic() + 2 * PATIENCE
    for one in followed:
        one.start()
    for one in followed:
        one.wait(end - time.monotonic())


def once(followed: list[Follower]) -> None:
    """Reads all sources, failed ones twice: a node may be busy."""
    look(followed)
    look([one for one in followed if one.error])
