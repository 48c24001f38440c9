# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Sources of bytes: an HTTP server or a file of this node. Private to the collection.

A source is resolved once (redirects followed, size and validator learnt) and then read in ranges, from several threads.
Every request has If-Range, else a file that was replaced would be spliced; an expired signed URL is resolved again.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import re
import threading
import time
from collections.abc import Iterator
from email.message import Message
from typing import Callable, Union
from urllib.parse import unquote, urlsplit

from .._text import Refusal, exact, printable
from .errors import Transient
from .http import REDIRECTS, Client, attempts, discard, get_following, network_failure, status_failure, worthwhile
from .urls import authorization, clean_url, content_url, public_url, url_name

_MAX_RENEWALS = 2  # of a signed URL for one request; if fresh ones are refused, the transfer waits
_CONTENT_RANGE = re.compile(r"^bytes ([0-9]{1,18})-([0-9]{1,18})/([0-9]{1,18})\Z")


def _validator(headers: Message) -> str | None:
    """A value for If-Range: a strong ETag, else the date of the last change, else None."""
    etag = headers.get("ETag")
    found = etag if etag and not etag.startswith("W/") else headers.get("Last-Modified")
    return found if found and found.isprintable() and len(found) <= 200 else None


def _content_range(headers: Message) -> tuple[int, int, int] | None:
    """(first, last, size of the file) of a partial response."""
    match = _CONTENT_RANGE.match(headers.get("Content-Range", ""))
    return (int(match.group(1)), int(match.group(2)), int(match.group(3))) if match else None


class _Body:
    """``length`` bytes of a response; readinto raises Transient when the connection ends early."""

    def __init__(self, client: Client, url: str, response: http.client.HTTPResponse, length: int) -> None:
        self.client, self.url, self.length = client, url, length
        self.response: http.client.HTTPResponse | None = response

    def readinto(self, view: memoryview) -> int:
        try:
            count = self.response.readinto(view[: self.length]) if self.response else 0
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

    size: bytes, known after resolve() or given by the hub; validator: strong ETag or Last-Modified, or None; pinned:
    the URL names immutable content (a hub's commit), so that a CDN's changing ETag means nothing.
    """

    def __init__(self, url: str, token: str | None = None, size: int | None = None, pinned: bool = False) -> None:
        self.url, self.token, self.size, self.pinned = clean_url(url), token, size, pinned
        self.name = url_name(self.url)
        self.public, self.identity = public_url(self.url), content_url(self.url)
        self.validator: str | None = None
        self._final: str | None = None
        self._generation = 0
        self._lock = threading.Lock()

    def resolve(self, client: Client) -> None:
        """Follow redirects, learn size and validator, by a GET of the first byte."""
        response, final = get_following(client, self.url, {"Range": "bytes=0-0"}, self.token)
        discard(client, final, response, 1)
        found = _content_range(response.headers)
        if response.status == 416:
            raise Refusal(f"{self.public}: empty, a GGUF file is needed: check the address")
        if response.status not in (200, 206):
            raise status_failure(self.url, response)
        if response.status == 200 and "html" in response.headers.get("Content-Type", ""):
            raise Refusal(f"{self.public}: a web page, not a model: check the address, or log in with a token")
        if response.status == 200 or not found:
            raise Refusal(f"{self.public}: this server does not send ranges of bytes: use another source")
        validator = _validator(response.headers)
        if self.size not in (None, found[2]) or self._final and not self.pinned and validator != self.validator:
            raise self._changed(f"{validator}, {exact(found[2])}")
        self.size, self.validator, self._final = found[2], validator, final

    def _changed(self, seen: str) -> Refusal:
        return Refusal(
            f"{self.public}: changed on the server ({seen} seen, {self.validator}, {exact(self.size or 0)} known): run "
            "again to fetch the new file"
        )

    def open(self, client: Client, offset: int, length: int) -> _Body:
        """A body of ``length`` bytes from ``offset``, or fewer when the server gives fewer; needs resolve() before.
        Raises Transient, Refusal."""
        renewals = 0
        while True:
            with self._lock:
                final, generation = self._final or self.url, self._generation
            headers = {"Range": f"bytes={offset}-{offset + length - 1}"}
            if self.validator:
                headers["If-Range"] = self.validator
            headers.update(authorization(final, self.token, self.url))
            response = client.get(final, headers)
            if response.status in (200, 206):
                return self._body(client, final, response, offset, length)
            discard(client, final, response)
            if response.status in (412, 416):
                raise self._changed(f"status {response.status}")
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
        validator, found = _validator(response.headers), _content_range(response.headers)
        encoding = printable(response.headers.get("Content-Encoding", "identity"))
        problem: None | Refusal | Transient = None
        if encoding != "identity":
            problem = Refusal(
                f"{self.public}: sends Content-Encoding {encoding} although none was accepted: use another source"
            )
        elif self.validator and validator and validator != self.validator and not self.pinned:
            problem = self._changed(validator)
        elif response.status == 200 or not found or found[0] != offset or found[1] < offset:
            shown = printable(response.headers.get("Content-Range"))
            problem = Transient(f"{self.public}: answered {shown} to bytes={offset}-{offset + length - 1}")
        elif found[2] != self.size:
            problem = self._changed(exact(found[2]))
        if problem or not found:
            client.drop(final)
            raise problem or AssertionError("unreachable")
        return _Body(client, final, response, min(length, found[1] - offset + 1))


@contextlib.contextmanager
def _reading(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise Refusal(f"{path}: cannot be read: {error.strerror}") from None


class _FileBody:
    def __init__(self, source: FileSource, offset: int, length: int) -> None:
        self.source, self.length = source, length
        with _reading(source.path):
            self.stream = open(source.path, "rb", buffering=0)  # noqa: SIM115 - close() closes it
        self.stream.seek(offset)

    def readinto(self, view: memoryview) -> int:
        with _reading(self.source.path):
            count = self.stream.readinto(view[: self.length])
        self.length -= count
        if not count or self.source.state(os.fstat(self.stream.fileno())) != self.source.validator:
            raise Refusal(f"{self.source.path}: changed while it was read: run again to fetch the new file")
        return count

    def close(self) -> None:
        self.stream.close()


class FileSource:
    """A file of this node (or a mounted share) with the interface of HttpSource; token and client are not used."""

    pinned = False

    def __init__(self, path: str, size: int | None = None) -> None:
        self.path, self.size = path, size
        self.validator: str | None = None
        self.name = os.path.basename(path)
        self.public = self.identity = path

    def resolve(self, client: Client | None) -> None:
        if not os.path.isfile(self.path):
            raise Refusal(f"{self.path} on {os.uname().nodename}: no such regular file: check the path there")
        with _reading(self.path):
            status = os.stat(self.path)
        if self.size not in (None, status.st_size):
            raise Refusal(
                f"{self.path}: has {exact(status.st_size)}, {exact(self.size or 0)} needed: another file is there"
            )
        self.size, self.validator = status.st_size, self.state(status)

    @staticmethod
    def state(status: os.stat_result) -> str:
        return f"{status.st_ino}-{status.st_size}-{status.st_mtime_ns}"

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
    with contextlib.suppress(ValueError):  # HttpSource refuses what cannot be read
        parts = urlsplit(url)
        if parts.scheme == "file" and parts.netloc in ("", "localhost"):
            return FileSource(unquote(parts.path))
        if parts.scheme not in ("http", "https"):
            raise Refusal(f"{printable(public_url(url))}: an http, https or file URL is needed")
    return HttpSource(url, token)


def read_range(source: Source, client: Client, offset: int, length: int) -> bytes:
    """Bytes of a resolved source, fewer only at its end. Errors as of copy_range()."""
    data = bytearray()
    copy_range(source, client, offset, length, data.extend)
    return bytes(data)


def copy_range(source: Source, client: Client, offset: int, length: int, write: Callable[[memoryview], object]) -> None:
    """write() the bytes of a resolved source in order, fewer only at its end.

    A connection that breaks is continued; Refusal after several attempts in a row that gained next to nothing.
    """
    end = min(offset + length, size_of(source))
    buffer = memoryview(bytearray(min(max(1, end - offset), 1 << 20)))
    done = 0

    def some() -> bool:
        """Read until the connection breaks; True if it has gained enough before."""
        nonlocal done
        before, begun = done, time.monotonic()
        try:
            while offset + done < end:
                with contextlib.closing(source.open(client, offset + done, end - offset - done)) as body:
                    while body.length:
                        count = body.readinto(buffer[: body.length])
                        write(buffer[:count])
                        done += count
        except Transient:
            if not worthwhile(done - before, time.monotonic() - begun):
                raise
            return True
        return False

    while attempts(some):
        pass
