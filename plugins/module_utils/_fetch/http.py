# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ranges of bytes from where models are kept: http, https and file URLs behind one interface.

A source is resolved once (redirects followed, size and validator learnt) and then read in ranges, from several threads.
What the web does to large files decides the rules: never HEAD (signed URLs are for GET), never a whole body where
ranges work (CDNs refuse more than 50 GB), If-Range on every request (else a replaced file is spliced silently), no
Authorization beyond the origin the operator named (a signed URL with a bearer token is refused, and the token would
leak) and none over plain http, a signed URL that has expired is resolved again, a connection that only drips is given
up like one that is silent.
"""

from __future__ import annotations

import base64
import contextlib
import http.client
import io
import re
import socket
import ssl
import threading
import time
from email.message import Message
from email.utils import parsedate_to_datetime
from typing import Any, Callable, TypeVar
from urllib.parse import unquote, urlsplit, urlunsplit
from urllib.request import getproxies, proxy_bypass

from .._text import Refusal, duration, exact, human, printable
from .errors import Transient
from .urls import Origin, authorization, clean_url, following_url, is_loopback, origin_of, public_url

USER_AGENT = "thefermisea.llama_cluster"
REDIRECTS = (301, 302, 303, 307, 308)
_MAX_REDIRECTS = 8
FIRST_WAIT = 0.5  # seconds before the second attempt, doubled with each
_MAX_WAIT = 600.0  # seconds; hubs count their rate limits over five minutes
_XET_ONLY = 400 * 10**9  # bytes; the hub's CDN answers 400 to a larger file (huggingface_hub issue 4330)
_LOWEST = 4096  # bytes per second: a connection that is slower for _LOWEST_OVER seconds is given up
_LOWEST_OVER = 30.0
_MAX_HEAD = 1 << 20  # bytes of status line and header fields
# An http.client.HTTPConnection, with ``absolute``: header fields for a proxy that takes whole URLs, or None.
_Connection = Any
Result = TypeVar("Result")


class _TooSlow(socket.timeout):
    """A connection gave less than _LOWEST bytes per second."""


def worthwhile(count: int, seconds: float) -> bool:
    """Whether an attempt that gained ``count`` bytes got on. One that did not counts as failed, else a server that
    gives a byte at a time is never given up."""
    return count >= max(1, _LOWEST * seconds)


# Header fields of limits, and the numbers of seconds in them: until the end of the window, else its length.
_LIMITS = (
    ("RateLimit", r"(?:^|[;, ])(?:t|reset) *= *([0-9]{1,12})"),
    ("RateLimit-Reset", r"^ *([0-9]{1,12})"),
    ("X-RateLimit-Reset", r"^ *([0-9]{1,12})"),
    ("RateLimit-Policy", r"(?:^|[;, ])w *= *([0-9]{1,12})"),
)


def _retry_after(headers: Message, limited: bool = True) -> float | None:
    """Seconds that an answer asks to wait, at most _MAX_WAIT, or None: by Retry-After, else, for a request beyond a
    limit, by the header fields of that limit. limited: other answers of the hub have these header fields, too."""
    value = headers.get("Retry-After", "")
    waits: list[float] = []
    with contextlib.suppress(IndexError, TypeError, ValueError, OverflowError):
        seconds = re.fullmatch(r" *-?[0-9.]+ *", value)
        waits.append(float(value) if seconds else parsedate_to_datetime(value).timestamp() - time.time())
    for field, pattern in _LIMITS if limited and not waits else ():
        found = [int(text) for text in re.findall(pattern, ",".join(headers.get_all(field) or [])[:2000])]
        # Some give the time of its end.
        waits += [float(number) if number < 1e9 else number - time.time() for number in [max(found)]] if found else []
    return min(max(waits[0], 0.0), _MAX_WAIT) if waits else None


class _Pace(io.RawIOBase):
    """What one answer receives: raises _TooSlow when it drips. Only time spent waiting counts, not what the caller does
    in between."""

    def __init__(self, raw: Any) -> None:
        super().__init__()
        self._raw = raw
        self._received, self._waited = 0, 0.0
        self.head: int | None = _MAX_HEAD  # bytes that may come before the header fields have ended; None after that

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
                raise _TooSlow("slower than %s per second for %d seconds" % (exact(_LOWEST), self._waited))
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

    _tls: ssl.SSLContext | None = None  # loading the CA bundle takes 10 ms or more: once per process
    _tls_lock = threading.Lock()

    def __init__(self, timeout: float = 30.0) -> None:
        self.timeout = timeout
        self._open: dict[Origin, _Connection] = {}
        self._aborts = 0

    def get(self, url: str, headers: dict[str, str]) -> http.client.HTTPResponse:
        """One GET of a clean URL, redirects not followed. -> http.client.HTTPResponse; raises Transient, Refusal."""
        parts = urlsplit(url)
        origin = origin_of(url)
        target = urlunsplit(("", "", parts.path, parts.query, ""))
        sent = dict(headers, **{"User-Agent": USER_AGENT, "Accept-Encoding": "identity"})
        aborts = self._aborts
        for last in (False, True):
            connection = self._open.get(origin)
            kept_alive = connection is not None and connection.sock is not None
            try:
                if connection is None:
                    connection = self._open[origin] = self._connect(origin)
                if connection.absolute is not None:
                    target = url
                    sent.update(connection.absolute)
                connection.request("GET", target, headers=sent)
                return connection.getresponse()
            except (OSError, http.client.HTTPException) as error:
                self.drop(url)
                # A server may close an idle connection at the moment it is used again; that says nothing about the
                # server.
                if kept_alive and not last and aborts == self._aborts and not isinstance(error, socket.timeout):
                    continue
                raise network_failure(url, error) from None
        raise AssertionError("unreachable")

    def _connect(self, origin: Origin) -> _Connection:
        scheme, host, port = origin
        proxy = getproxies().get(scheme)
        # What is on this machine is not asked of another one.
        via = None if not proxy or is_loopback(host) or proxy_bypass(host) else _proxy(scheme, proxy)
        at = via[:2] if via else (host, port)
        connection: _Connection = None
        if scheme == "https":
            connection = http.client.HTTPSConnection(at[0], at[1], timeout=self.timeout, context=self._context())
            if via:
                connection.set_tunnel(host, port, via[2])
        else:
            connection = http.client.HTTPConnection(at[0], at[1], timeout=self.timeout)
        connection.response_class = _Response
        # A proxy of plain http takes the whole URL, and these header fields.
        connection.absolute = via[2] if via and scheme == "http" else None
        return connection

    @classmethod
    def _context(cls) -> ssl.SSLContext:
        with cls._tls_lock:
            if cls._tls is None:
                cls._tls = ssl.create_default_context()
            return cls._tls

    def drop(self, url: str) -> None:
        """Close the connection to the origin of ``url``, as after a body that was not read to its end."""
        connection = self._open.pop(origin_of(url), None)
        if connection is not None:
            connection.close()

    def abort(self) -> None:
        """From another thread: wake this client out of a blocking read; it will fail with Transient."""
        self._aborts += 1
        for connection in list(self._open.values()):
            sock = connection.sock
            if sock is not None:
                with contextlib.suppress(OSError):
                    sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        for connection in self._open.values():
            connection.close()
        self._open.clear()


def _proxy(scheme: str, proxy: str) -> tuple[str, int, dict[str, str]]:
    """-> (host, port, header fields with user and password where the setting has them). Raises Refusal."""
    try:
        via = urlsplit(proxy if "//" in proxy else "//" + proxy)
        port = via.port or 3128
        if via.scheme not in ("", "http") or not via.hostname:
            raise ValueError(via.scheme)
    except ValueError:
        raise Refusal(
            "%s_proxy: %s given, http://HOST:PORT is needed: correct the environment"
            % (scheme, printable(public_url(proxy)))
        ) from None
    if via.username is None:
        return via.hostname, port, {}
    pair = f"{unquote(via.username)}:{unquote(via.password or '')}"
    return (
        via.hostname,
        port,
        {"Proxy-Authorization": "Basic " + base64.b64encode(pair.encode("utf-8")).decode("ascii")},
    )


def network_failure(url: str, error: Exception) -> Refusal | Transient:
    """A socket or protocol error as Transient, a certificate that does not verify as Refusal."""
    if (
        isinstance(error, ssl.SSLError)
        and "CERTIFICATE_VERIFY_FAILED" in str(error)
        or isinstance(error, ssl.CertificateError)
    ):
        return Refusal(
            "%s: its certificate does not verify (%s): install the CA on this node or set SSL_CERT_FILE"
            % (public_url(url), error)
        )
    reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return Transient(f"{public_url(url)}: {printable(reason.strip())}")


def get_following(
    client: Client,
    url: str,
    headers: dict[str, str],
    token: str | None = None,
) -> tuple[http.client.HTTPResponse, str]:
    """GET and follow redirects. The token goes to the origin of ``url`` and nowhere else.

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
    raise Refusal("%s: more than %d redirects: check the address" % (public_url(url), _MAX_REDIRECTS))


def discard(client: Client, url: str, response: http.client.HTTPResponse, most: int = 65536) -> None:
    """Read a small body so that the connection can be used again, or close it."""
    try:
        response.read(most)
        if response.isclosed():
            return
    except (OSError, http.client.HTTPException):
        pass
    client.drop(url)


def may_pass(status: int) -> bool:
    """Whether a later attempt may not meet this status."""
    return status in (408, 425, 429) or status >= 500 and status not in (501, 505)


def status_failure(url: str, response: http.client.HTTPResponse, hint: str = "", said: str = "") -> Refusal | Transient:
    """What a status other than the wanted one means: Transient or Refusal. said: by the server, in its own words."""
    text = "%s: answered %d %s" % (public_url(url), response.status, printable(response.reason, 60))
    said = said or printable(response.headers.get("X-Error-Message", "")).strip()
    text += f" (it says: {said})" if said else ""
    if may_pass(response.status):
        wait = _retry_after(response.headers, response.status == 429)
        if wait:
            until = time.strftime("%H:%M:%S UTC", time.gmtime(time.time() + wait))
            text += f", it asks to wait {duration(round(wait))}, until {until}"
        return Transient(text, wait)
    return Refusal(text + (": " + hint if hint else ""))


def hint(response: http.client.HTTPResponse, size: int | None = None) -> str:
    """What to do about a file of ``size`` bytes, None if unknown, that is not given."""
    if response.headers.get("X-Error-Code") == "GatedRepo":
        return "the repository is gated, accept its terms there and set model_token_file"
    if response.status == 407:
        return "the proxy needs user and password, as http://USER:PASSWORD@HOST:PORT in the environment"
    if response.status in (401, 403):
        return "a token with access is needed, see model_token_file"
    if response.status == 400 and (size or 0) > _XET_ONLY:
        return (
            "the hub gives files above %s through Xet only: run hf download on the node and give the file the model's "
            "name, or choose a quant in smaller files" % human(_XET_ONLY)
        )
    return "check the address"


def attempts(operation: Callable[[], Result], tries: int = 4) -> Result:
    """Call ``operation()`` until it does not raise Transient; the last one becomes a Refusal."""
    wait = FIRST_WAIT
    for remaining in range(tries - 1, -1, -1):
        try:
            return operation()
        except Transient as failure:
            if not remaining:
                step = "run again then" if failure.wait else "check the network and run again"
                raise Refusal("%s, %d times: %s" % (failure, tries, step)) from None
            time.sleep(wait if failure.wait is None else max(failure.wait, FIRST_WAIT))
            wait *= 2
    raise AssertionError("unreachable")
