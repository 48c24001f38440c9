# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ranges of bytes from where models are kept: http, https and file URLs behind one interface.

A source is resolved once (redirects followed, size and validator learnt) and then read in ranges, from several threads.
What the web does to large files decides the rules: never HEAD (signed URLs are for GET), never a whole body where ranges
work (CDNs refuse more than 50 GB), If-Range on every request (else a replaced file is spliced silently), no Authorization
beyond the origin the operator named (a signed URL with a bearer token is refused, and the token would leak) and none over plain
http, a signed URL that has expired is resolved again, a connection that only drips is given up like one that is silent.
"""

import base64
import contextlib
import hashlib
import http.client
import io
import math
import os
import re
import socket
import ssl
import threading
import time
from email.utils import parsedate_to_datetime
from urllib.parse import parse_qsl, quote, unquote, urljoin, urlsplit, urlunsplit
from urllib.request import getproxies, proxy_bypass

from ._bytes import exact
from ._text import printable

USER_AGENT = "thefermisea.llama_cluster"
_REDIRECTS = (301, 302, 303, 307, 308)
_MAX_REDIRECTS = 8
_MAX_RENEWALS = 2  # of a signed URL for one request; a server that refuses fresh ones is waited for
FIRST_WAIT = 0.5  # seconds before the second attempt, doubled with each
_MAX_WAIT = 600.0  # seconds; hubs count their rate limits over five minutes
_LOWEST = 4096  # bytes per second: a connection that is slower for _LOWEST_OVER seconds is given up
_LOWEST_OVER = 30.0
_MAX_HEAD = 1 << 20  # bytes of status line and header fields
_CONTENT_RANGE = re.compile(r"^bytes ([0-9]{1,18})-([0-9]{1,18})/([0-9]{1,18})\Z")
_LENGTH = re.compile(r"^[0-9]{1,18}\Z")
_LOOPBACK = re.compile(r"^127(\.[0-9]{1,3}){3}\Z")
_HOST = re.compile(r"^([A-Za-z0-9._-]*|[0-9A-Fa-f:.]+(%[A-Za-z0-9._-]+)?)\Z")
_UNQUOTED = "/%:@!$&'()*+,;=~"  # what stays as it is in a path; "?" too in a query
# Parameters that grant access and do not choose the content. Those of Azure have common names: they count beside "sig" only.
_GRANTS = re.compile(
    r"^(x-(amz|goog|oss|cos)-.*|.*(signature|token|key|secret|password|credential|auth|policy).*|expires|googleaccessid|key-pair-id|hdnts|sig)$", re.IGNORECASE
)
_AZURE = ("sv", "ss", "srt", "sp", "se", "st", "spr", "sip", "sr", "si", "skoid", "sktid", "skt", "ske", "sks", "skv", "sdd")


class FetchError(Exception):
    """One sentence for the operator: the source, what it answered, what is needed, the next step."""


class Transient(Exception):
    """A failure that a later attempt may not meet. wait: seconds the server asked for, or None."""

    def __init__(self, text, wait=None):
        super(Transient, self).__init__(text)
        self.wait = wait


class _TooSlow(socket.timeout):
    """A connection gave less than _LOWEST bytes per second."""


def public_url(url):
    """The URL without what may be secret: user, password, query (signatures) and fragment."""
    try:
        parts = urlsplit(url)
        _port = parts.port  # a password with a "/" in it leaves a port that is none
        return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))
    except ValueError:
        scheme, _slashes, rest = re.split("[?#]", url)[0].rpartition("://")
        return "%s://%s" % (scheme, rest.rpartition("@")[2])


def content_url(url):
    """What a URL's content is known by: without secrets, with a hash of those parts of the query that choose the content."""
    try:
        pairs = parse_qsl(urlsplit(url).query, keep_blank_values=True)
    except ValueError:
        pairs = []
    azure = _AZURE if any(name.lower() == "sig" for name, _value in pairs) else ()
    chosen = [pair for pair in pairs if not _GRANTS.match(pair[0]) and pair[0].lower() not in azure]
    if not chosen:
        return public_url(url)
    return "%s?sha256=%s" % (public_url(url), hashlib.sha256(repr(chosen).encode("utf-8", "replace")).hexdigest()[:16])


def clean_url(url):
    """The URL as it goes over the wire: ASCII, the rest quoted. Raises FetchError for one that no server can be asked for."""
    try:
        parts = urlsplit(url.strip())
        host, port = (parts.hostname or "").encode("idna").decode("ascii"), parts.port
        path, query = (quote(text, safe=_UNQUOTED + more, errors="surrogateescape") for text, more in ((parts.path, ""), (parts.query, "?")))
        if not _HOST.match(host):
            raise ValueError(host)
    except ValueError:
        raise FetchError("%s: its host or port cannot be read: correct the address" % printable(public_url(url))) from None
    if parts.scheme not in ("http", "https") or not host:
        raise FetchError("%s: an http or https URL is needed" % printable(public_url(url)))
    if "@" in parts.netloc:
        raise FetchError("%s: has a user or password in it, which are never sent: leave them out, a token belongs into model_token_file" % public_url(url))
    netloc = "[%s]" % host if ":" in host else host
    return urlunsplit((parts.scheme, netloc if port is None else "%s:%d" % (netloc, port), path or "/", query, ""))


def following_url(current, location):
    """Where the header field ``location`` of an answer from ``current`` leads: a redirect, a next page. Raises FetchError."""
    try:
        # http.client takes header fields for Latin-1; what servers send is UTF-8.
        url = urljoin(current, location.encode("latin-1").decode("utf-8", "surrogateescape"))
        scheme = urlsplit(url).scheme
    except ValueError:
        raise FetchError("%s: redirects to an address that cannot be read: use another source" % public_url(current)) from None
    shown = printable(public_url(url))
    if scheme not in ("http", "https"):
        raise FetchError("%s: redirects to %s, http or https is needed" % (public_url(current), shown))
    if urlsplit(current).scheme == "https" and scheme == "http":
        raise FetchError("%s: redirects from https to %s, which is not encrypted: use another source" % (public_url(current), shown))
    return clean_url(url)


def url_name(url):
    """The file name a URL ends in."""
    return unquote(urlsplit(url).path).rstrip("/").rpartition("/")[2]


def _origin(url):
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port or (443 if parts.scheme == "https" else 80)


def same_origin(url, other):
    """Whether two clean URLs have scheme, host and port in common."""
    return _origin(url) == _origin(other)


def _is_loopback(host):
    return host in ("localhost", "::1") or _LOOPBACK.match(host) is not None


def authorization(url, token, home):
    """The header fields that prove access. The token goes to the origin of ``home`` alone, over plain http only within this machine."""
    if not token or not same_origin(url, home):
        return {}
    parts = urlsplit(url)
    if parts.scheme == "http" and not _is_loopback(parts.hostname):
        raise FetchError("%s: a token is not sent over http, https is needed: correct the address or leave the token out" % public_url(url))
    return {"Authorization": "Bearer " + token}


def worthwhile(count, seconds):
    """Whether an attempt that gained ``count`` bytes got on. One that did not counts as failed, else a server that gives a byte at a time is never given up."""
    return count > 0 and count >= _LOWEST * seconds


def _retry_after(headers):
    value = headers.get("Retry-After")
    if not value:
        return None
    try:
        wait = float(value)
    except ValueError:
        try:
            wait = parsedate_to_datetime(value).timestamp() - time.time()
        except (TypeError, ValueError, OverflowError):
            return None
    return None if math.isnan(wait) else min(max(wait, 0.0), _MAX_WAIT)


def _validator(headers):
    """What If-Range accepts: a strong ETag, else the date of the last change, else None."""
    etag = headers.get("ETag")
    found = etag if etag and not etag.startswith("W/") else headers.get("Last-Modified")
    return found if found and found.isprintable() and len(found) <= 200 else None


class _Pace(io.RawIOBase):
    """What one answer receives: raises _TooSlow when it drips. Only time spent waiting counts, not what the caller does in between."""

    def __init__(self, raw):
        super(_Pace, self).__init__()
        self._raw = raw
        self._received, self._waited = 0, 0.0
        self.head = _MAX_HEAD  # bytes that may come before the header fields have ended; None after that

    def readable(self):
        return True

    def readinto(self, view):
        begun = time.monotonic()
        count = self._raw.readinto(view)
        self._waited += time.monotonic() - begun
        self._received += count
        if self.head is not None and self._received > self.head:
            raise http.client.HTTPException("more than %s of header fields" % exact(self.head))
        if self._waited >= _LOWEST_OVER:
            if self._received < _LOWEST * self._waited:
                raise _TooSlow("slower than %s per second for %d seconds" % (exact(_LOWEST), self._waited))
            self._received, self._waited = 0, 0.0
        return count

    def close(self):
        self._raw.close()
        super(_Pace, self).close()


class _Response(http.client.HTTPResponse):
    def __init__(self, *args, **options):
        super(_Response, self).__init__(*args, **options)
        self._pace = _Pace(self.fp.detach())
        self.fp = io.BufferedReader(self._pace)

    def begin(self):
        super(_Response, self).begin()
        self._pace.head = None


class Client(object):
    """HTTP connections of one thread, kept alive, one per origin. Honours http_proxy, https_proxy (with user and password) and no_proxy."""

    _tls = None  # loading the CA bundle takes 10 ms or more: once per process
    _tls_lock = threading.Lock()

    def __init__(self, timeout=30.0):
        self.timeout = timeout
        self._open = {}
        self._aborts = 0

    def get(self, url, headers):
        """One GET of a clean URL, redirects not followed. -> http.client.HTTPResponse; raises Transient, FetchError."""
        parts = urlsplit(url)
        origin = _origin(url)
        target = urlunsplit(("", "", parts.path, parts.query, ""))
        sent = dict(headers, **{"User-Agent": USER_AGENT, "Accept-Encoding": "identity"})
        aborts = self._aborts
        for attempt in (1, 2):
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
                # A server may close an idle connection at the moment it is used again; that says nothing about the server.
                if kept_alive and attempt == 1 and aborts == self._aborts and not isinstance(error, socket.timeout):
                    continue
                raise _network_failure(url, error) from None
        raise AssertionError("unreachable")

    def _connect(self, origin):
        scheme, host, port = origin
        proxy = getproxies().get(scheme)
        # What is on this machine is not asked of another one.
        via = None if not proxy or _is_loopback(host) or proxy_bypass(host) else _proxy(scheme, proxy)
        at = via[:2] if via else (host, port)
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
    def _context(cls):
        with cls._tls_lock:
            if cls._tls is None:
                cls._tls = ssl.create_default_context()
            return cls._tls

    def drop(self, url):
        """Close the connection to the origin of ``url``, as after a body that was not read to its end."""
        connection = self._open.pop(_origin(url), None)
        if connection is not None:
            connection.close()

    def abort(self):
        """From another thread: wake this client out of a blocking read; it will fail with Transient."""
        self._aborts += 1
        for connection in list(self._open.values()):
            sock = connection.sock
            if sock is not None:
                with contextlib.suppress(OSError):
                    sock.shutdown(socket.SHUT_RDWR)

    def close(self):
        for connection in self._open.values():
            connection.close()
        self._open.clear()


def _proxy(scheme, proxy):
    """-> (host, port, header fields with user and password where the setting has them). Raises FetchError."""
    try:
        via = urlsplit(proxy if "//" in proxy else "//" + proxy)
        port = via.port or 3128
        if via.scheme not in ("", "http") or not via.hostname:
            raise ValueError(via.scheme)
    except ValueError:
        raise FetchError("%s_proxy: %s given, http://HOST:PORT is needed: correct the environment" % (scheme, printable(public_url(proxy)))) from None
    if via.username is None:
        return via.hostname, port, {}
    pair = "%s:%s" % (unquote(via.username), unquote(via.password or ""))
    return via.hostname, port, {"Proxy-Authorization": "Basic " + base64.b64encode(pair.encode("utf-8")).decode("ascii")}


def _network_failure(url, error):
    """A socket or protocol error as Transient, a certificate that does not verify as FetchError."""
    if isinstance(error, ssl.SSLError) and "CERTIFICATE_VERIFY_FAILED" in str(error) or isinstance(error, ssl.CertificateError):
        return FetchError("%s: its certificate does not verify (%s): install the CA on this node or set SSL_CERT_FILE" % (public_url(url), error))
    reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return Transient("%s: %s" % (public_url(url), printable(reason.strip())))


def get_following(client, url, headers, token=None):
    """GET and follow redirects. The token goes to the origin of ``url`` and nowhere else.

    -> (response, final URL). Raises Transient, FetchError; any final status is returned.
    """
    start = current = clean_url(url)
    for _hop in range(_MAX_REDIRECTS):
        response = client.get(current, dict(headers, **authorization(current, token, start)))
        location = response.headers.get("Location")
        if response.status not in _REDIRECTS or not location:
            return response, current
        _discard(client, current, response)
        current = following_url(current, location)
    raise FetchError("%s: more than %d redirects: check the address" % (public_url(url), _MAX_REDIRECTS))


def _discard(client, url, response, most=65536):
    """Read a small body so that the connection can be used again, or close it."""
    try:
        response.read(most)
        if response.isclosed():
            return
    except (OSError, http.client.HTTPException):
        pass
    client.drop(url)


def status_failure(url, response, hint=""):
    """What a status other than the wanted one means: Transient or FetchError."""
    text = "%s: answered %d %s" % (public_url(url), response.status, printable(response.reason, 60))
    if response.status in (408, 425, 429) or response.status >= 500:
        return Transient(text, _retry_after(response.headers))
    return FetchError(text + (": " + hint if hint else ""))


def _hint(response):
    if response.headers.get("X-Error-Code") == "GatedRepo":
        return "the repository is gated, accept its terms there and set model_token_file"
    if response.status == 407:
        return "the proxy needs user and password, as http://USER:PASSWORD@HOST:PORT in the environment"
    return "check the address" if response.status in (404, 410) else "a token with access is needed, see model_token_file"


def attempts(operation, tries=4):
    """Call ``operation()`` until it does not raise Transient; the last one becomes a FetchError."""
    wait = FIRST_WAIT
    for remaining in range(tries - 1, -1, -1):
        try:
            return operation()
        except Transient as failure:
            if not remaining:
                raise FetchError("%s, %d times: check the network and run again" % (failure, tries)) from None
            time.sleep(wait if failure.wait is None else failure.wait)
            wait *= 2
    raise AssertionError("unreachable")


class _Body(object):
    """``length`` bytes of a response; readinto raises Transient when the connection ends early."""

    def __init__(self, client, url, response, length):
        self.client, self.url, self.response, self.length = client, url, response, length

    def readinto(self, view):
        view = view[: self.length]
        try:
            count = self.response.readinto(view)
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise _network_failure(self.url, error) from None
        if not count:
            self.close()
            raise Transient("%s: the connection ended %s early" % (public_url(self.url), exact(self.length)))
        self.length -= count
        if not self.length:
            self.close()
        return count

    def close(self):
        # isclosed(): http.client has read the response to its end, the connection is free for the next request.
        if self.response is not None and not self.response.isclosed():
            self.client.drop(self.url)
        self.response = None


class HttpSource(object):
    """A file at an http(s) URL.

    size: bytes, known after resolve() or given by the hub; ranges: whether parts of it can be asked for; validator: strong
    ETag or Last-Modified, or None; pinned: the URL names immutable content (a hub's commit), so that a CDN's changing
    ETag means nothing.
    """

    def __init__(self, url, token=None, size=None, pinned=False):
        self.url, self.token, self.size, self.pinned = clean_url(url), token, size, pinned
        self.name = url_name(self.url)
        self.public = public_url(self.url)
        self.identity = content_url(self.url)
        self.ranges, self.validator = True, None
        self._final = None
        self._generation = 0
        self._lock = threading.Lock()

    def resolve(self, client):
        """Follow redirects, learn size, validator and whether ranges work, by a GET of the first byte."""
        response, final = get_following(client, self.url, {"Range": "bytes=0-0"}, self.token)
        if response.status == 206:
            match = _CONTENT_RANGE.match(response.headers.get("Content-Range", ""))
            if not match:
                _discard(client, final, response)
                raise FetchError(
                    "%s: answers ranges with Content-Range %s: use another source" % (self.public, printable(response.headers.get("Content-Range")))
                )
            size, ranges = int(match.group(3)), True
        elif response.status == 200:
            length = response.headers.get("Content-Length")
            size, ranges = (int(length) if length and _LENGTH.match(length) else self.size), False
        elif response.status == 416:
            _discard(client, final, response)
            raise FetchError("%s: empty, a GGUF file is needed: check the address" % self.public)
        else:
            _discard(client, final, response)
            raise status_failure(self.url, response, _hint(response))
        _discard(client, final, response, 1)
        if size is None:
            raise FetchError("%s: says neither how long it is nor answers ranges: use another source" % self.public)
        validator = _validator(response.headers)
        if "html" in response.headers.get("Content-Type", ""):
            raise FetchError("%s: a web page with status %d, not a model: check the address, or log in with a token" % (self.public, response.status))
        if self._final is None:
            if self.size not in (None, size):
                raise FetchError("%s: has %s, %s needed: another file is there" % (self.public, exact(size), exact(self.size)))
        elif size != self.size or not self.pinned and validator != self.validator:
            raise self._changed(validator)
        self.size, self.ranges, self.validator, self._final = size, ranges, validator, final

    def _changed(self, validator):
        seen = "%s, was %s" % (validator, self.validator)
        return FetchError("%s: changed on the server while it was fetched (%s): run again to fetch the new file" % (self.public, seen))

    def open(self, client, offset, length):
        """A body of ``length`` bytes from ``offset``, or fewer when the server gives fewer; needs resolve() before.

        Without ranges only offset 0 is possible. Raises Transient, FetchError.
        """
        renewals = 0
        while True:
            with self._lock:
                final, generation = self._final, self._generation
            headers = {}
            if self.ranges:
                headers["Range"] = "bytes=%d-%d" % (offset, offset + length - 1)
                if self.validator:
                    headers["If-Range"] = self.validator
            headers.update(authorization(final, self.token, self.url))
            response = client.get(final, headers)
            if response.status in (200, 206):
                return self._body(client, final, response, offset, length)
            _discard(client, final, response)
            if response.status in (412, 416):
                raise self._changed("status %d" % response.status)
            failure = status_failure(self.url, response)
            moved = response.status in _REDIRECTS or (final != self.url and isinstance(failure, FetchError))
            if not moved:
                raise failure
            if renewals == _MAX_RENEWALS:
                raise Transient(str(failure))
            # A signed URL has expired: whoever sees it first resolves again, for all threads.
            renewals += 1
            with self._lock:
                if generation == self._generation:
                    self.resolve(client)
                    self._generation += 1

    def _body(self, client, final, response, offset, length):
        validator = _validator(response.headers)
        problem = None
        encoding = response.headers.get("Content-Encoding", "identity")
        if encoding != "identity":
            problem = FetchError("%s: sends Content-Encoding %s although none was accepted: use another source" % (self.public, printable(encoding)))
        elif self.validator and validator and validator != self.validator and not self.pinned:
            problem = self._changed(validator)
        elif response.status == 200:
            if self.ranges:
                problem = Transient("%s: answered the whole file to a range" % self.public)
        else:
            match = _CONTENT_RANGE.match(response.headers.get("Content-Range", ""))
            first, last, total = (int(match.group(n)) for n in (1, 2, 3)) if match else (None, None, None)
            if first != offset or last < first:
                answered = printable(response.headers.get("Content-Range"))
                problem = Transient("%s: answered %s to bytes=%d-%d" % (self.public, answered, offset, offset + length - 1))
            elif total != self.size:
                problem = self._changed(exact(total))
            else:
                length = min(length, last - first + 1)
        if problem:
            client.drop(final)
            raise problem
        return _Body(client, final, response, length)


class _FileBody(object):
    def __init__(self, source, offset, length):
        self.source, self.length = source, length
        self.stream = source.open_checked()
        self.stream.seek(offset)

    def readinto(self, view):
        try:
            count = self.stream.readinto(view[: self.length])
        except OSError as error:
            self.close()
            raise FetchError("%s: cannot be read: %s" % (self.source.public, error.strerror)) from None
        self.length -= count
        if not count or not self.length:
            self.close()
        if not count:
            raise FetchError("%s: ends %s early: changed while it was read, run again" % (self.source.public, exact(self.length)))
        return count

    def close(self):
        self.stream.close()


class FileSource(object):
    """A file of this node (or a mounted share) with the interface of HttpSource; token and client are not used."""

    ranges, pinned = True, False

    def __init__(self, path, size=None):
        self.path, self.size, self.validator = path, size, None
        self.name = os.path.basename(path)
        self.public = self.identity = path

    def resolve(self, client):
        try:
            status = os.stat(self.path)
        except OSError as error:
            raise FetchError("%s: %s: check the path on this node" % (self.path, error.strerror)) from None
        if not os.path.isfile(self.path):
            raise FetchError("%s: not a regular file: check the path on this node" % self.path)
        if self.size is not None and status.st_size != self.size:
            raise FetchError("%s: has %s, %s needed: another file is there" % (self.path, exact(status.st_size), exact(self.size)))
        self.size, self.validator = status.st_size, self._validator(status)

    @staticmethod
    def _validator(status):
        return "%d-%d-%d" % (status.st_ino, status.st_size, status.st_mtime_ns)

    def open_checked(self):
        try:
            stream = open(self.path, "rb", buffering=0)  # noqa: SIM115 - the body closes it
        except OSError as error:
            raise FetchError("%s: %s" % (self.path, error.strerror)) from None
        if self._validator(os.fstat(stream.fileno())) != self.validator:
            stream.close()
            raise FetchError("%s: changed while it was fetched: run again to fetch the new file" % self.path)
        return stream

    def open(self, client, offset, length):
        return _FileBody(self, offset, length)


def make_source(url, token=None):
    """HttpSource or FileSource for a URL; an absolute path is a file too. Raises FetchError for anything else."""
    if url.startswith("/"):
        return FileSource(url)
    with contextlib.suppress(ValueError):  # HttpSource says what cannot be read
        parts = urlsplit(url)
        if parts.scheme == "file" and parts.netloc in ("", "localhost"):
            return FileSource(unquote(parts.path))
        if parts.scheme not in ("http", "https"):
            raise FetchError("%s: an http, https or file URL is needed" % printable(public_url(url)))
    return HttpSource(url, token)


def read_range(source, client, offset, length):
    """Bytes of a resolved source, fewer only at its end. Without ranges it reads from the start, so keep offset small.

    A connection that breaks is continued; FetchError after several attempts in a row that gained next to nothing.
    """
    begin = offset if source.ranges else 0
    end = min(offset + length, source.size)
    data = bytearray()

    def some():
        """Read until the connection breaks; True when it had got on before."""
        if not source.ranges:
            data.clear()
        before, begun = len(data), time.monotonic()
        try:
            while begin + len(data) < end:
                body = source.open(client, begin + len(data), end - begin - len(data))
                try:
                    while body.length:
                        piece = bytearray(min(body.length, 1 << 20))
                        count = body.readinto(memoryview(piece))
                        data.extend(memoryview(piece)[:count])
                finally:
                    body.close()
        except Transient:
            if not source.ranges or not worthwhile(len(data) - before, time.monotonic() - begun + FIRST_WAIT):
                raise
            return True
        return False

    while attempts(some):
        pass
    return bytes(memoryview(data)[offset - begin :])
