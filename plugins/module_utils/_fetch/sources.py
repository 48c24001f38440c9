# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where bytes come from: an HTTP server or a file of this node. Private to the collection."""

from __future__ import annotations

import contextlib
import http.client
import os
import re
import threading
import time
from email.message import Message
from io import FileIO
from typing import Union
from urllib.parse import unquote, urlsplit

from .._text import Refusal, exact, printable
from .errors import Transient
from .http import (
    FIRST_WAIT,
    REDIRECTS,
    Client,
    attempts,
    discard,
    get_following,
    hint,
    network_failure,
    status_failure,
    worthwhile,
)
from .urls import authorization, clean_url, content_url, public_url, url_name

_MAX_RENEWALS = 2  # of a signed URL for one request; a server that refuses fresh ones is waited for
_CONTENT_RANGE = re.compile(r"^bytes ([0-9]{1,18})-([0-9]{1,18})/([0-9]{1,18})\Z")
_LENGTH = re.compile(r"^[0-9]{1,18}\Z")


def _validator(headers: Message) -> str | None:
    """What If-Range accepts: a strong ETag, else the date of the last change, else None."""
    etag = headers.get("ETag")
    found = etag if etag and not etag.startswith("W/") else headers.get("Last-Modified")
    return found if found and found.isprintable() and len(found) <= 200 else None


class _Body:
    """``length`` bytes of a response; readinto raises Transient when the connection ends early."""

    def __init__(self, client: Client, url: str, response: http.client.HTTPResponse, length: int) -> None:
        self.client, self.url, self.length = client, url, length
        self.response: http.client.HTTPResponse | None = response

    def readinto(self, view: memoryview) -> int:
        view = view[: self.length]
        try:
            count = self.response.readinto(view) if self.response else 0
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise network_failure(self.url, error) from None
        if not count:
            self.close()
            raise Transient(f"{public_url(self.url)}: the connection ended {exact(self.length)} early")
        self.length -= count
        if not self.length:
            self.close()
        return count

    def close(self) -> None:
        # isclosed(): http.client has read the response to its end, the connection is free for the next request.
        if self.response is not None and not self.response.isclosed():
            self.client.drop(self.url)
        self.response = None


class HttpSource:
    """A file at an http(s) URL.

    size: bytes, known after resolve() or given by the hub; ranges: whether parts of it can be asked for; validator:
    strong ETag or Last-Modified, or None; pinned: the URL names immutable content (a hub's commit), so that a CDN's
    changing ETag means nothing.
    """

    def __init__(self, url: str, token: str | None = None, size: int | None = None, pinned: bool = False) -> None:
        self.url, self.token, self.size, self.pinned = clean_url(url), token, size, pinned
        self.name = url_name(self.url)
        self.public = public_url(self.url)
        self.identity = content_url(self.url)
        self.ranges = True
        self.validator: str | None = None
        self._final: str | None = None
        self._generation = 0
        self._lock = threading.Lock()

    def resolve(self, client: Client) -> None:
        """Follow redirects, learn size, validator and whether ranges work, by a GET of the first byte."""
        response, final = get_following(client, self.url, {"Range": "bytes=0-0"}, self.token)
        headers, size, problem = response.headers, self.size, None
        if response.status == 206:
            match = _CONTENT_RANGE.match(headers.get("Content-Range", ""))
            size = int(match.group(3)) if match else None
            shown = printable(headers.get("Content-Range"))
            problem = None if match else f"answers ranges with Content-Range {shown}: use another source"
        elif response.status == 200:
            length = headers.get("Content-Length")
            size = int(length) if length and _LENGTH.match(length) else size
            problem = None if size is not None else "gives neither its length nor ranges: use another source"
        elif response.status == 416:
            problem = "empty, a GGUF file is needed: check the address"
        else:
            discard(client, final, response)
            raise status_failure(self.url, response, hint(response, self.size))
        discard(client, final, response, 1)
        if not problem and "html" in headers.get("Content-Type", ""):
            problem = (
                f"a web page with status {response.status}, not a model: check the address, or log in with a token"
            )
        if not problem and self._final is None and self.size not in (None, size):
            problem = f"has {exact(size or 0)}, {exact(self.size or 0)} needed: another file is there"
        if problem:
            raise Refusal(f"{self.public}: {problem}")
        validator = _validator(headers)
        if self._final is not None and (size != self.size or not self.pinned and validator != self.validator):
            raise self._changed(validator)
        self.size, self.ranges, self.validator, self._final = size, response.status == 206, validator, final

    def _changed(self, validator: str | None) -> Refusal:
        seen = f"{validator}, was {self.validator}"
        return Refusal(
            f"{self.public}: changed on the server while it was fetched ({seen}): run again to fetch the new file"
        )

    def open(self, client: Client, offset: int, length: int) -> _Body:
        """A body of ``length`` bytes from ``offset``, or fewer when the server gives fewer; needs resolve() before.

        Without ranges only offset 0 is possible. Raises Transient, Refusal.
        """
        renewals = 0
        while True:
            with self._lock:
                final, generation = self._final or self.url, self._generation
            headers = {}
            if self.ranges:
                headers["Range"] = "bytes=%d-%d" % (offset, offset + length - 1)
                if self.validator:
                    headers["If-Range"] = self.validator
            headers.update(authorization(final, self.token, self.url))
            response = client.get(final, headers)
            if response.status in (200, 206):
                return self._body(client, final, response, offset, length)
            discard(client, final, response)
            if response.status in (412, 416):
                raise self._changed("status %d" % response.status)
            failure = status_failure(self.url, response)
            moved = response.status in REDIRECTS or (final != self.url and isinstance(failure, Refusal))
            if not moved:
                raise failure
            if renewals == _MAX_RENEWALS:
                raise Transient(str(failure))
            # A signed URL has expired: the first thread to see it resolves again, for all threads.
            renewals += 1
            with self._lock:
                if generation == self._generation:
                    self.resolve(client)
                    self._generation += 1

    def _body(self, client: Client, final: str, response: http.client.HTTPResponse, offset: int, length: int) -> _Body:
        validator = _validator(response.headers)
        problem: None | Refusal | Transient = None
        encoding = printable(response.headers.get("Content-Encoding", "identity"))
        match = _CONTENT_RANGE.match(response.headers.get("Content-Range", ""))
        first, last, total = (int(number) for number in match.groups()) if match else (-1, -1, -1)
        if encoding != "identity":
            text = f"sends Content-Encoding {encoding} although none was accepted: use another source"
            problem = Refusal(f"{self.public}: {text}")
        elif self.validator and validator and validator != self.validator and not self.pinned:
            problem = self._changed(validator)
        elif response.status == 200 and self.ranges:
            problem = Transient(f"{self.public}: answered the whole file to a range")
        elif response.status == 206 and (first != offset or last < first):
            shown = printable(response.headers.get("Content-Range"))
            problem = Transient(f"{self.public}: answered {shown} to bytes={offset}-{offset + length - 1}")
        elif response.status == 206 and total != self.size:
            problem = self._changed(exact(total))
        if problem:
            client.drop(final)
            raise problem
        return _Body(client, final, response, min(length, last - first + 1) if response.status == 206 else length)


class _FileBody:
    def __init__(self, source: FileSource, offset: int, length: int) -> None:
        self.source, self.length = source, length
        self.stream = source.open_checked()
        self.stream.seek(offset)

    def readinto(self, view: memoryview) -> int:
        try:
            count = self.stream.readinto(view[: self.length])
        except OSError as error:
            self.close()
            raise Refusal(f"{self.source.public}: cannot be read: {error.strerror}") from None
        self.length -= count
        if not count or not self.length:
            self.close()
        if not count:
            raise Refusal(
                f"{self.source.public}: ends {exact(self.length)} early: changed while it was read, run again"
            )
        return count

    def close(self) -> None:
        self.stream.close()


class FileSource:
    """A file of this node (or a mounted share) with the interface of HttpSource; token and client are not used."""

    ranges, pinned = True, False

    def __init__(self, path: str, size: int | None = None) -> None:
        self.path, self.size = path, size
        self.validator: str | None = None
        self.name = os.path.basename(path)
        self.public = self.identity = path

    def resolve(self, client: Client | None) -> None:
        try:
            status = os.stat(self.path)
        except OSError as error:
            text = "%s on %s: %s: check the path there"
            raise Refusal(text % (self.path, os.uname().nodename, error.strerror)) from None
        if not os.path.isfile(self.path):
            raise Refusal(f"{self.path} on {os.uname().nodename}: not a regular file: check the path there")
        if self.size is not None and status.st_size != self.size:
            raise Refusal(f"{self.path}: has {exact(status.st_size)}, {exact(self.size)} needed: another file is there")
        self.size, self.validator = status.st_size, self._validator(status)

    @staticmethod
    def _validator(status: os.stat_result) -> str:
        return "%d-%d-%d" % (status.st_ino, status.st_size, status.st_mtime_ns)

    def open_checked(self) -> FileIO:
        try:
            stream = open(self.path, "rb", buffering=0)  # noqa: SIM115 - the body closes it
        except OSError as error:
            raise Refusal(f"{self.path}: {error.strerror}") from None
        if self._validator(os.fstat(stream.fileno())) != self.validator:
            stream.close()
            raise Refusal(f"{self.path}: changed while it was fetched: run again to fetch the new file")
        return stream

    def open(self, client: Client | None, offset: int, length: int) -> _FileBody:
        return _FileBody(self, offset, length)


Source = Union[HttpSource, FileSource]
Body = Union[_Body, _FileBody]


def size_of(source: Source) -> int:
    """Bytes of a resolved source."""
    return source.size or 0


def make_source(url: str, token: str | None = None) -> Source:
    """HttpSource or FileSource for a URL; an absolute path is a file too. Raises Refusal for anything else."""
    if url.startswith("/"):
        return FileSource(url)
    with contextlib.suppress(ValueError):  # HttpSource says what cannot be read
        parts = urlsplit(url)
        if parts.scheme == "file" and parts.netloc in ("", "localhost"):
            return FileSource(unquote(parts.path))
        if parts.scheme not in ("http", "https"):
            raise Refusal(f"{printable(public_url(url))}: an http, https or file URL is needed")
    return HttpSource(url, token)


def read_range(source: Source, client: Client, offset: int, length: int) -> bytes:
    """Bytes of a resolved source, fewer only at its end. Without ranges it reads from the start, so keep offset small.

    A connection that breaks is continued; Refusal after several attempts in a row that gained next to nothing.
    """
    begin = offset if source.ranges else 0
    end = min(offset + length, size_of(source))
    data = bytearray()

    def some() -> bool:
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
