# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The pages and files that samples come from, each read by itself: a node that is gone or hangs keeps nobody waiting.
Private to the collection."""

import json
import ssl
import threading
import time
import urllib.request
from typing import Any, Dict, List, NamedTuple, Optional

from .._exporter.exposition import Sample, parse
from .._llama.api import rows, table
from .._node import paths
from .._text import printable

# Seconds for a page, and bytes of it.
PATIENCE, LARGEST = 1.5, 16 << 20


class Source(NamedTuple):
    """kind: node, gateway or alerts; place: a URL, or a file of this node."""

    kind: str
    name: str
    place: str


class Reading(NamedTuple):
    """at: of the monotonic clock; samples: of a page, alerts: of alertmanager; error: why there is nothing new."""

    at: float
    samples: List[Sample]
    alerts: List[Dict[str, Any]]
    error: str


def sources(monitor: str = paths.MONITOR, own: str = paths.SAMPLES) -> List[Source]:
    """On a monitoring host all nodes, on another host its own samples."""
    try:
        with open(monitor, encoding="utf-8") as stream:
            told = table(json.load(stream))
    except (OSError, ValueError):
        return [Source("node", "this node", own)]
    found = [Source("node", str(name), str(url)) for name, url in table(told.get("nodes")).items()]
    found += [Source("gateway", str(name), str(url)) for name, url in table(told.get("gateway")).items()]
    if isinstance(told.get("alertmanager"), str):
        found.append(Source("alerts", "alertmanager", told["alertmanager"] + "/api/v2/alerts?active=true"))
    return found


def fetch(place: str) -> str:
    """The text of a page or a file. Errors: OSError."""
    if place.startswith("/"):
        with open(place, encoding="utf-8", errors="replace") as stream:
            return stream.read(LARGEST)
    # By addresses of the inventory: nothing lies between, and a certificate names the gateway otherwise.
    unchecked = ssl.create_default_context()
    unchecked.check_hostname = False
    unchecked.verify_mode = ssl.CERT_NONE
    opener = urllib.request.build_opener(
        urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=unchecked)
    )
    end = time.monotonic() + PATIENCE
    with opener.open(place, timeout=PATIENCE) as answer:
        pieces, size = [], 0
        while size < LARGEST:
            piece = answer.read(65536)
            if not piece:
                break
            pieces.append(piece)
            size += len(piece)
            if time.monotonic() > end:
                raise OSError("only a part came in %g s" % PATIENCE)
    return b"".join(pieces).decode("utf-8", "replace")


def read(source: Source) -> Reading:
    """One look."""
    try:
        text = fetch(source.place)
        if source.kind == "alerts":
            return Reading(time.monotonic(), [], rows(json.loads(text)) or [], "")
        return Reading(time.monotonic(), list(parse(text)), [], "")
    except (OSError, ValueError, RecursionError) as error:
        reason = getattr(error, "reason", None) or error
        reason = getattr(reason, "strerror", None) or reason
        return Reading(time.monotonic(), [], [], printable(reason) or type(error).__name__)


class Follower(threading.Thread):
    """Reads a source again and again. last: the newest whole reading, before: the one before it, now: the newest of
    any kind."""

    def __init__(self, source: Source, interval: float) -> None:
        super(Follower, self).__init__(daemon=True)
        self.source, self._interval = source, interval
        self.last: Optional[Reading] = None
        self.before: Optional[Reading] = None
        self.now: Optional[Reading] = None
        self.began = time.monotonic()

    def look(self) -> None:
        reading = read(self.source)
        if not reading.error:
            self.before, self.last = self.last, reading
        self.now = reading

    def run(self) -> None:
        while True:
            began = time.monotonic()
            self.look()
            time.sleep(max(0.1, self._interval - (time.monotonic() - began)))


def once(followed: List[Follower]) -> None:
    """Two looks at each, a second apart, so that counters have a rate; all sources at one time."""
    for pause in (1.0, 0.0):
        threads = [threading.Thread(target=one.look, daemon=True) for one in followed]
        for thread in threads:
            thread.start()
        end = time.monotonic() + 4 * PATIENCE
        for thread in threads:
            thread.join(max(0.0, end - time.monotonic()))
        time.sleep(pause)
