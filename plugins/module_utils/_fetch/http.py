# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""HTTP(S) requests for ranges of large files.

The rules for large files on the web: never HEAD (signed URLs are for GET), never a complete body (CDNs refuse more than
50 GB), no Authorization beyond the origin that the operator named (a signed URL with a bearer token is refused, and the
token would leak) and none over plain http, a connection that is too slow is closed like one that is silent.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import http.client
import io
import re
import socket
import ssl
import time
from email.message import Message
from typing import Any, Callable, TypeVar
from urllib.parse import unquote, urlsplit, urlunsplit
from urllib.request import getproxies, proxy_bypass

from .._text import Refusal, duration, exact, printable
from .errors import Transient
from .urls import Origin, authorization, clean_url, following_url, is_loopback, origin_of, public_url

USER_AGENT = "thefermisea.llama_cluster"
REDIRECTS = (301, 302, 303, 307, 308)
_MAX_REDIRECTS = 8
FIRST_WAIT = 0.5  # seconds before the second attempt, doubled with each
_MAX_WAIT = 600.0  # seconds; hubs count their rate limits over five minutes
_LOWEST = 4096  # bytes per second: a connection that is slower for _LOWEST_OVER seconds is closed
_LOWEST_OVER = 30.0
_MAX_HEAD = 1 << 20  # bytes of status line and header fields
# An http.client.HTTPConnection, with ``absolute``: header fields for a proxy that takes absolute URLs, or None.
_Connection = Any
Result = TypeVar("Result")
# Header fields with the seconds to wait; the second one counts for status 429 only, hubs send it always.
_WAITS = (("Retry-After", r"^ *([0-9]{1,12})"), ("RateLimit", r"(?:^|[;, ])(?:t|reset) *= *([0-9]{1,12})"))
_HINTS = {
    401: "a token with access is needed, see model_token_file",
    403: "a token with access is needed, see model_token_file",
    407: "the proxy needs user and password, as http://USER:PASSWORD@HOST:PORT in the environment",
}


def _retry_after(headers: Message, limited: bool = True) -> float | None:
    """Seconds that a response asks to wait, at most _MAX_WAIT; None if it does not ask. limited: status 429."""
    for field, pattern in _WAITS if limited else _WAITS[:1]:
        found = [float(text) for text in re.findall(pattern, ",".join(headers.get_all(field) or []))]
        if found:
            return min(max(found), _MAX_WAIT)
    return None


@functools.lru_cache(maxsize=None)
def tls() -> ssl.SSLContext:
    """The context of all connections: loading the CA bundle takes 10 ms or more."""
    return ssl.create_default_context()


def worthwhile(count: int, seconds: float) -> bool:
    """Whether an attempt that gained ``count`` bytes counts as a success, with the wait before it: a server that sends
    a byte per connection must be given up."""
    return count >= max(1, _LOWEST * (seconds + FIRST_WAIT))


class _Pace(io.RawIOBase):
    """The bytes of one response: raises socket.timeout if they arrive slower than _LOWEST. Only time spent waiting
    counts, not that of the caller in between."""

    def __init__(self, raw: Any) -> None:
        super().__init__()
        self._raw = raw
        self._received, self._waited = 0, 0.0
        self.head: int | None = _MAX_HEAD  # bytes of header fields that may come; None after their end

    def readable(self) -> bool:
        return True

    def readinto(self, view: Any) -> int:
        begun = time.monotonic()
        count = self._raw.readinto(view)
        self._waited += time.monotonic() - begun
        self._received += count
        if self.head is not None and self._received > self.head:
            raise http.client.HTTPException(f"more than {exact(self.head)} of header fields")
        if self._waited >= _LOWEST_OVER:
            if self._received < _LOWEST * self._waited:
                raise socket.timeout(f"slower than {exact(_LOWEST)} per second for {self._waited:.0f} seconds")
            self._received, self._waited = 0, 0.0
        return count

    def close(self) -> None:
        self._raw.close()
        super().close()


class _Response(http.client.HTTPResponse):
    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._pace = _Pace(self.fp.detach())
        self.fp = io.BufferedReader(self._pace)

    def begin(self) -> None:
        super().begin()
        self._pace.head = None


class Client:
    """HTTP connections of one thread, kept alive, one per origin. Honours http_proxy, https_proxy (with user and
    password) and no_proxy."""

    def __init__(self, timeout: float = 30.0) -> None:
        self.timeout = timeout
        self._open: dict[Origin, _Connection] = {}
        self._aborted = False

    def get(self, url: str, headers: dict[str, str]) -> http.client.HTTPResponse:
        """One GET of a clean URL, redirects not followed. -> http.client.HTTPResponse; raises Transient, Refusal."""
        parts, origin = urlsplit(url), origin_of(url)
        target = urlunsplit(("", "", parts.path, parts.query, ""))
        sent = dict(headers, **{"User-Agent": USER_AGENT, "Accept-Encoding": "identity"})
        while True:
            connection = self._open.get(origin)
            kept_alive = connection is not None
            try:
                if connection is None:
                    connection = self._open[origin] = self._connect(origin)
                if connection.absolute is not None:
                    target = url
                    sent.update(connection.absolute)
                connection.request("GET", target, headers=sent)
                if self._aborted:  # before the connection had a socket
                    raise ConnectionAbortedError("stopped")
                return connection.getresponse()
            except (OSError, http.client.HTTPException) as error:
                self.drop(url)
                # A server may close an idle connection just before it is used again: that is no failure.
                if not kept_alive or self._aborted or isinstance(error, socket.timeout):
                    raise network_failure(url, error) from None

    def _connect(self, origin: Origin) -> _Connection:
        scheme, host, port = origin
        proxy = getproxies().get(scheme)
        via = None if not proxy or is_loopback(host) or proxy_bypass(host) else _proxy(scheme, proxy)
        at = via[:2] if via else (host, port)
        connection: _Connection
        if scheme == "https":
            connection = http.client.HTTPSConnection(*at, timeout=self.timeout, context=tls())
            if via:
                connection.set_tunnel(host, port, via[2])
        else:
            connection = http.client.HTTPConnection(*at, timeout=self.timeout)
        connection.response_class = _Response
        connection.absolute = via[2] if via and scheme == "http" else None
        return connection

    def drop(self, url: str) -> None:
        """Close the connection to the origin of ``url``, as after a body that was not read to its end."""
        connection = self._open.pop(origin_of(url), None)
        if connection is not None:
            connection.close()

    def abort(self) -> None:
        """From another thread: end this client's requests, which raise Transient then."""
        self._aborted = True
        for connection in list(self._open.values()):
            with contextlib.suppress(AttributeError, OSError):  # no socket yet
                connection.sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        for connection in self._open.values():
            connection.close()
        self._open.clear()


def _proxy(scheme: str, proxy: str) -> tuple[str, int, dict[str, str]]:
    """-> (host, port, header fields with user and password if the setting has them). Raises Refusal."""
    try:
        via = urlsplit(proxy if "//" in proxy else "//" + proxy)
        port = via.port or 3128
        if via.scheme not in ("", "http") or not via.hostname:
            raise ValueError(via.scheme)
    except ValueError:
        shown = printable(public_url(proxy))
        raise Refusal(f"{scheme}_proxy: {shown} given, http://HOST:PORT is needed: correct the environment") from None
    if via.username is None:
        return via.hostname, port, {}
    pair = base64.b64encode(f"{unquote(via.username)}:{unquote(via.password or '')}".encode()).decode("ascii")
    return via.hostname, port, {"Proxy-Authorization": "Basic " + pair}


def network_failure(url: str, error: Exception) -> Refusal | Transient:
    """A socket or protocol error as Transient, a certificate that does not verify as Refusal."""
    if isinstance(error, ssl.CertificateError):
        return Refusal(
            f"{public_url(url)}: its certificate does not verify ({error}): install the CA on this node or set "
            "SSL_CERT_FILE"
        )
    reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return Transient(f"{public_url(url)}: {printable(reason.strip())}")


def get_following(
    client: Client,
    url: str,
    headers: dict[str, str],
    token: str | None = None,
) -> tuple[http.client.HTTPResponse, str]:
    """GET and follow redirects. The token is sent only to the origin of ``url``.

    -> (response, final URL). Raises Transient, Refusal; any final status is returned.
    """
    start = current = clean_url(url)
    for _hop in range(_MAX_REDIRECTS):
        response = client.get(current, dict(headers, **authorization(current, token, start)))
        location = response.headers.get("Location")
        if response.status not in REDIRECTS or not location:
            return response, current
        discard(client, current, response)
        current = following_url(current, location)
    raise Refusal(f"{public_url(url)}: more than {_MAX_REDIRECTS} redirects: check the address")


def discard(client: Client, url: str, response: http.client.HTTPResponse, most: int = 65536) -> None:
    """Read a small body so that the connection can be used again, or close it."""
    with contextlib.suppress(OSError, http.client.HTTPException):
        response.read(most)
    if not response.isclosed():
        client.drop(url)


def may_pass(status: int) -> bool:
    """Whether a later attempt may succeed."""
    return status in (408, 425, 429) or status >= 500 and status not in (501, 505)


def status_failure(url: str, response: http.client.HTTPResponse, hint: str = "", said: str = "") -> Refusal | Transient:
    """The error for an unexpected status. hint: the next step; said: the server's own words."""
    text = f"{public_url(url)}: answered {response.status} {printable(response.reason, 60)}"
    said = said or printable(response.headers.get("X-Error-Message", "")).strip()
    text += f" (it says: {said})" if said else ""
    if not may_pass(response.status):
        return Refusal(f"{text}: {hint or _HINTS.get(response.status, 'check the address')}")
    wait = _retry_after(response.headers, response.status == 429)
    if wait:
        until = time.strftime("%H:%M:%S UTC", time.gmtime(time.time() + wait))
        text += f", it asks to wait {duration(round(wait))}, until {until}"
    return Transient(text, wait)


def attempts(operation: Callable[[], Result], tries: int = 4) -> Result:
    """Call ``operation()`` until it does not raise Transient; the last one becomes a Refusal."""
    wait = FIRST_WAIT
    for remaining in range(tries - 1, -1, -1):
        try:
            return operation()
        except Transient as failure:
            if not remaining:
                step = "run again then" if failure.wait else "check the network and run again"
                raise Refusal(f"{failure}, {tries} times: {step}") from None
            time.sleep(wait if failure.wait is None else max(failure.wait, FIRST_WAIT))
            wait *= 2
    raise AssertionError("unreachable")
