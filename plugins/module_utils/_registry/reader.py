# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads the endpoints of a registry. Private to the collection.

A user who may write the share must not be able to redirect prompts. So a file counts only if root or a listed user owns
it, only its owner may write it, and it names a machine of a list, which has the address.

Clocks of two machines differ. So the age of a file is the time, by this machine's clock, for which its mtime has not
changed while the share responded. At the first look the newest mtime stands for the file server's clock: older files
are left out at once.
"""

from __future__ import annotations

import errno
import itertools
import json
import os
import stat
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Callable, NamedTuple

from .._text import Refusal, duration
from . import files

# Seconds between two looks, of which an endpoint that drains gets requests meanwhile; for a look; that a file ages at
# most between two looks.
LOOK, DEADLINE, AGES = 0.25, 3.0, 2.0
MOST_FILES = 1000
MOST_NAMES = 20_000
O_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
Sighting = dict[str, Any]


def look(folder: str, uids: Sequence[int], known: Collection[str] = ()) -> dict[str, Any]:
    """{device, folder: its fault or an empty text, files: {name: {mtime, text or refused}}}. known: names that counted
    the last time, looked at first: files of other users cannot hide them. It may hang. Errors: OSError."""
    here = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        found: dict[str, Sighting] = {}
        refused: dict[str, Sighting] = {}
        names, more = _names(here)
        # Refused files do not take the place of good ones.
        for name in (*known, *sorted(names.difference(known))):
            seen = _read(here, name, uids)
            into = found if seen and "text" in seen else refused
            if seen and len(into) < MOST_FILES:
                into[name] = seen
        own = os.fstat(here)
        # In a directory that other users may write, without the sticky bit, they could remove endpoints.
        fault = _unsafe(folder, own, uids, not own.st_mode & stat.S_ISVTX)
        if more and not fault:
            fault = f"{folder}: more than {MOST_NAMES} files seen, that is the limit: find who made them, remove them"
        return {"device": own.st_dev, "folder": fault, "files": {**found, **refused}}
    finally:
        os.close(here)


def _names(here: int) -> tuple[set[str], bool]:
    """The names of endpoints among the first MOST_NAMES of a directory, and whether it has more."""
    with os.scandir(here) as entries:
        names = {entry.name for entry in itertools.islice(entries, MOST_NAMES)}
        return {name for name in names if files.NAME.match(name)}, next(entries, None) is not None


def _unsafe(name: str, seen: os.stat_result, uids: Sequence[int], mode: object = True) -> str:
    """The fault of a file or a directory, or an empty text. mode: whether its mode is checked."""
    if seen.st_uid and seen.st_uid not in uids:
        words = "0 or one of gateway_registry_uids is needed: look at who made it, then remove it or add the user"
        return f"{name}: user id {seen.st_uid} seen as its owner, {words}"
    if mode and seen.st_mode & 0o022:
        words = "one that only its owner may write is needed: chmod go-w"
        return f"{name}: mode {stat.S_IMODE(seen.st_mode):04o} seen, {words}"
    return ""


def _refused(name: str, seen: os.stat_result, uids: Sequence[int]) -> str:
    """Why a file does not count, or an empty text."""
    if stat.S_ISLNK(seen.st_mode):
        return f"{name}: a link seen, a readable file is needed: remove it"
    if not stat.S_ISREG(seen.st_mode) or seen.st_nlink > 1:
        return f"{name}: no file with one name seen, one is needed: look at who made it, then remove it"
    return _unsafe(name, seen, uids)


def _read(here: int, name: str, uids: Sequence[int]) -> Sighting | None:
    """Reads one file; None if it does not exist. A file of another user is not opened: it may be one of very many."""
    for again in (True, False):
        try:
            seen = os.stat(name, dir_fd=here, follow_symlinks=False)
            refused = _refused(name, seen, uids)
            if refused:
                return {"mtime": seen.st_mtime_ns, "refused": refused}
            with os.fdopen(os.open(name, O_FILE, dir_fd=here), "rb") as stream:
                seen = os.fstat(stream.fileno())
                text = stream.read(files.MOST_BYTES + 1)
        except OSError as error:
            # NFS: the file has just been replaced.
            if again and error.errno in (errno.ENOENT, errno.ESTALE):
                continue
            if error.errno == errno.ENOENT:
                return None
            return {"mtime": 0, "refused": f"{name}: {error.strerror} seen, a readable file is needed: remove it"}
        # It may have been exchanged since.
        refused = _refused(name, seen, uids)
        if not refused and len(text) > files.MOST_BYTES:
            refused = f"{name}: more than {files.MOST_BYTES} bytes seen, that is the limit: {files.NEXT_STEP}"
        judged = {"refused": refused} if refused else {"text": text.decode("latin-1")}
        return {"mtime": seen.st_mtime_ns, **judged}
    return None


class Known(NamedTuple):
    """The last good content of a file. since: when its mtime changed last, in seconds of the reader's count."""

    endpoint: files.Endpoint
    mtime: int
    since: float


class Registry:
    """The endpoints of a share. report(sentence): called once for each fault. device: of the share when the last run of
    the program found endpoints there."""

    def __init__(self, hosts: Mapping[str, str], report: Callable[[str], None], device: int | None = None) -> None:
        self._hosts, self._report = hosts, report
        self._known: dict[str, Known] = {}
        self._complaints: dict[str, str] = {}
        self.device = device
        # Seconds for which the share has responded: while it hangs, no file ages.
        self._answered = 0.0
        self.seen: float | None = None  # when the share responded last

    def looked(self, seen: Mapping[str, Any], now: float) -> bool:
        """Takes the result of look(). False if the share is not mounted, which changes nothing."""
        if not seen["files"] and self.device is not None and seen["device"] != self.device:
            # The directory below an unmounted share.
            return False
        self._answered += min(now - self.seen, AGES) if self.seen is not None else 0.0
        self.seen = now
        complaints: dict[str, str] = {"": seen["folder"]} if seen["folder"] else {}
        good: dict[str, tuple[files.Endpoint, int]] = {}
        for name, one in seen["files"].items():
            try:
                if "refused" in one:
                    raise Refusal(one["refused"])
                good[name] = (files.parse(name, one["text"].encode("latin-1"), self._hosts), one["mtime"])
            except Refusal as refusal:
                # It may be half-written: its last good content counts until its time to live ends.
                complaints[name] = str(refusal)
        newest = max((mtime for _endpoint, mtime in good.values()), default=0)
        known = {name: before for name, before in self._known.items() if name in seen["files"]}
        for name, (endpoint, mtime) in good.items():
            before = known.get(name)
            if before is None:
                known[name] = Known(endpoint, mtime, self._answered - (newest - mtime) / 1e9)
            elif (before.endpoint, before.mtime) != (endpoint, mtime):
                known[name] = Known(endpoint, mtime, self._answered)
        self._known = known
        # An empty share may be an unmounted one.
        self.device = seen["device"] if known else None
        for name in sorted(name for name in known if not self._young(known[name])):
            beat = known[name].endpoint.heartbeat
            words = f"no new one for {duration(files.BEATS * beat)}, one each {duration(beat)} is needed"
            complaints.setdefault(name, f"{name}: {words}: start what writes it again, or remove it")
        for name, text in complaints.items():
            if self._complaints.get(name) != text:
                self._report(text)
        self._complaints = complaints
        return True

    @property
    def names(self) -> list[str]:
        """The files whose last content was good."""
        return sorted(self._known)

    def _young(self, one: Known) -> bool:
        return self._answered - one.since <= files.BEATS * one.endpoint.heartbeat

    def endpoints(self) -> list[dict[str, Any]]:
        """Endpoints with a young file. Of two files for one address the newer one counts; a server and the word of what
        it waits for, or of what will take its place, are two."""
        by_place: dict[tuple[str, int, bool], files.Endpoint] = {}
        for one in sorted(self._known.values(), key=lambda known: known.mtime):
            if self._young(one):
                there = one.endpoint
                by_place[there.address, there.port, there.state == files.WAITING] = there
        return [endpoint.as_dict() for _place, endpoint in sorted(by_place.items())]


def as_json(endpoints: list[dict[str, Any]], device: int | None) -> bytes:
    """The content of registry.json. device: for the next run of the program."""
    content = {"version": files.VERSION, "endpoints": endpoints, "device": device}
    return (json.dumps(content, sort_keys=True) + "\n").encode("ascii")


def device_of(text: str) -> int | None:
    """The device in registry.json, recorded by the last run; None without it."""
    try:
        return int(json.loads(text)["device"])
    except (ValueError, KeyError, TypeError):
        return None


def settings_of(text: str) -> tuple[str, dict[str, str], list[int]]:
    """Directory, hosts and uids of the program's configuration. Errors: Refusal."""
    try:
        given = json.loads(text)
        return str(given["directory"]), dict(given["hosts"]), [int(uid) for uid in given["uids"]]
    except (ValueError, KeyError, TypeError) as error:
        raise Refusal(files.unusable(error, "gateway")) from None
