# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Writes an endpoint's file in a registry, and observes its llama-server. Private to the collection."""

import contextlib
import json
import os
import socket
import time
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from .._llama.api import LlamaApi
from .._text import Refusal
from . import files

# Seconds between two probes of the server, and for its answer.
LOOK, ANSWER = 2.0, 1.0
# Seconds for a write.
DEADLINE = 5.0


class Settings(NamedTuple):
    """suffix: of the file's name; url: of the llama-server; record: constant fields of its file."""

    directory: str
    suffix: str
    url: str
    record: dict[str, Any]


def settings_of(text: str) -> Settings:
    """The program's configuration. Errors: Refusal."""
    try:
        given = json.loads(text)
        return Settings(str(given["directory"]), str(given["suffix"]), str(given["url"]), dict(given["record"]))
    except (ValueError, KeyError, TypeError) as error:
        raise Refusal(files.unusable(error, "head,router")) from None


def full(record: Mapping[str, Any], job_id: int, state: str, started: float = 0.0) -> dict[str, Any]:
    """The record with its changing fields."""
    moment = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(started))
    changing = {
        "version": files.VERSION,
        "job_id": job_id,
        "state": state,
        "started_at": moment,
        "heartbeat": files.HEARTBEAT,
    }
    return dict(record, **changing)


def write(folder: str, name: str, data: bytes) -> None:
    """Replaces the file. It may hang. Errors: OSError.

    A write that hung finds its partial file removed when it continues, so it replaces no newer file.
    """
    here = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        partial = ".%s.%d.partial" % (name, os.getpid())
        _remove_partials(here, name)
        descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644, dir_fd=here)
        with os.fdopen(descriptor, "wb") as stream:
            os.fchmod(descriptor, 0o644)
            stream.write(data)
        os.rename(partial, name, src_dir_fd=here, dst_dir_fd=here)
    finally:
        os.close(here)


def remove(folder: str, name: str) -> None:
    """It may hang. Errors: OSError."""
    here = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        _remove_partials(here, name)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=here)
    finally:
        os.close(here)


def _remove_partials(here: int, name: str) -> None:
    for one in os.listdir(here):
        if one.startswith(f".{name}.") and one.endswith(".partial"):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(one, dir_fd=here)


class Server:
    """Observes whether a llama-server is loading or ready. A ready server only gets connections, which its journal does
    not show."""

    def __init__(self, url: str) -> None:
        self._api = LlamaApi(url)
        place = urlsplit(url)
        self._place = (place.hostname or "", place.port or 80)
        self.state = files.LOADING

    def look(self) -> str:
        try:
            if self.state == files.READY:
                socket.create_connection(self._place, timeout=ANSWER).close()
            else:
                good = self._api.get("/health", ANSWER)[0] == 200
                self.state = files.READY if good else files.LOADING
        except (OSError, Refusal):
            self.state = files.LOADING
        return self.state
