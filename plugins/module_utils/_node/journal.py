# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The journal of this node: reading it, and the lines that an operator wants to see. Private to the collection."""

from __future__ import annotations

import glob
import json
import os
import re
import subprocess
import tempfile
import threading
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from .._text import Refusal, printable
from . import paths
from .units import service_of

Entry = dict[str, Any]
Line = dict[str, Any]
# Filtered by unit, which journald sets; a sender chooses its identifier.
WATCHDOG = "llama-watchdog.service"
GATEWAY = "llama-gateway.service"
# Lines of the servers are not events; lines of the programs that run before and after them are.
SERVERS = ("llama-server", "ggml-rpc-server", "rpc-server", "stdbuf")
# nft prints the rules before a worker starts.
WORDY = (*SERVERS, "nft")
NAME = re.compile(r"^llama-[\w@.:-]+\.service\Z")
OF_SERVICE = re.compile(r"^llama-[a-z]+-(.+)\.service\Z")
# Prefix of a line since b8000: minutes, seconds, milliseconds and microseconds, and the level.
GRAVE = re.compile(r"^(?:\d+\.\d\d\.\d{3}\.\d{3} )?(?P<level>[DIWE]) ")
TROUBLE = re.compile(
    r"error|fail|abort|assert|fatal|exception|out of memory|cannot|unable|denied|refused|terminate|signal",
    re.IGNORECASE,
)
MILESTONE = re.compile(r"model loaded|listening on|cleaning up before exit")
FIELDS = ("MESSAGE", "UNIT", "_PID", "_COMM", "_SYSTEMD_UNIT", "_SOURCE_REALTIME_TIMESTAMP")
# Limits of a message, of a line (journalctl has messages of up to 4096 bytes in JSON), and of all that is read.
MOST_LETTERS = 500
MOST_LINE = 65536
MOST_READ = 32 * 1024 * 1024


def entry_time(entry: Entry) -> float:
    """Seconds since 1970 to the microsecond: the sender's clock, because a busy journald is late."""
    return int(entry.get("_SOURCE_REALTIME_TIMESTAMP") or entry["__REALTIME_TIMESTAMP"]) / 1e6


def matches(units: Sequence[str]) -> list[str]:
    """Matches for journalctl: lines of systemd about units, of the units and of the watchdog."""
    return (
        ["_PID=1"]
        + ["UNIT=" + unit for unit in units]
        + ["+"]
        + ["_SYSTEMD_UNIT=" + unit for unit in dict.fromkeys([WATCHDOG] + list(units))]
    )


def ask(arguments: Sequence[str], letters: int = MOST_LINE, seconds: float | None = None) -> Iterator[str]:
    """Lines of journalctl, cut to so many letters, until MOST_READ: ask for the newest first if older ones may be left
    out. seconds: a deadline. Errors: Refusal."""
    command = ["journalctl", "--quiet", "--no-pager"] + list(arguments)
    with tempfile.TemporaryFile() as errors:
        try:
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, env=dict(os.environ, LC_ALL="C"))
        except OSError as error:
            raise Refusal(
                "journalctl cannot be run (%s): the journal is read on nodes with systemd only"
                % os.strerror(error.errno or 0)
            ) from None
        watch = threading.Timer(seconds or 0, process.kill)
        if seconds:
            watch.start()
        try:
            for line in _lines(process.stdout):
                yield line.decode("utf-8", "replace")[:letters]
            if process.stdout is None or process.stdout.closed:
                return
            if process.wait() and seconds and not watch.is_alive():
                raise Refusal(f"journalctl gave no answer in {seconds:g} s: run it on the node")
            if process.returncode:
                errors.seek(0)
                said = errors.read(4096).decode("utf-8", "replace").strip().split("\n")[0]
                raise Refusal(
                    "journalctl answered %r: is systemd-journald running on this node?" % (said or process.returncode)
                )
        finally:
            watch.cancel()
            if process.stdout:
                process.stdout.close()
            if process.poll() is None:
                process.kill()
                process.wait()


def _lines(stream: Any) -> Iterator[bytes]:
    """Not decoded: a stream of text would be of the locale, and end a line at \r too."""
    read, whole = 0, True
    while read < MOST_READ + MOST_LINE:
        piece = stream.readline(MOST_LINE)
        if not piece:
            return
        read += len(piece)
        # The rest of a long line is skipped.
        if whole:
            yield piece
        whole = piece.endswith(b"\n")
    stream.close()


def entries(lines: Iterable[str]) -> Iterator[Entry]:
    """`journalctl -o json` -> its objects; other lines, such as cut ones, are skipped."""
    for line in lines:
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(entry, dict):
            yield entry


def known_units(unit_dir: str = paths.UNITS) -> list[str]:
    """Names of the collection's units that are installed or have lines in the journal."""
    installed = [os.path.basename(path) for path in glob.glob(os.path.join(unit_dir, "llama-*.service"))]
    spoke = [line.strip() for line in ask(["--field=_SYSTEMD_UNIT"])]
    return sorted({name for name in installed + spoke if NAME.match(name)})


def recent(since: float, service: str | None, lines: int, everything: bool, units: Sequence[str]) -> dict[str, Any]:
    """-> {lines: the newest lines of units since a time, in order; more: whether older lines were left out}. Errors:
    Refusal.

    A line: {at, unit, text, folded}. Routine lines of a server are folded into one with their number, unless everything
    is wanted.
    """
    # journalctl knows no time before 1970.
    arguments = ["--output=json", "--reverse", "--since=@%d" % max(0, since), "--output-fields=" + ",".join(FIELDS)]
    found: list[Line] = []
    folds: dict[str, Line] = {}
    read = shown = 0
    for text in ask(arguments + matches(units)):
        read += len(text.encode("utf-8", "replace"))
        if read > MOST_READ:
            return {"lines": _in_order(found), "more": True}
        entry = next(entries([text]), None)
        line = entry and _line(entry, service, everything, units)
        if not line or line["at"] < since:
            continue
        if line["folded"]:
            fold = folds.setdefault(line["unit"], line)
            if fold is line:
                found.append(line)
            else:
                fold["folded"] += 1
            continue
        if shown == lines:
            return {"lines": _in_order(found), "more": True}
        shown += 1
        folds.pop(line["unit"], None)
        found.append(line)
    return {"lines": _in_order(found), "more": False}


def _in_order(newest_first: list[Line]) -> list[Line]:
    newest_first.reverse()
    return sorted(newest_first, key=lambda line: line["at"])


def _line(entry: Entry, service: str | None, everything: bool, units: Sequence[str]) -> Line | None:
    """The line for an entry; None if it does not match."""
    unit = entry.get("UNIT") if entry.get("_PID") == "1" else entry.get("_SYSTEMD_UNIT")
    if not isinstance(unit, str) or unit not in (WATCHDOG, *units):
        return None
    message = _text(entry.get("MESSAGE"))
    request = _request(message) if unit == GATEWAY and entry.get("_PID") != "1" else None
    if service is not None and not _is_about(service, unit, message, request):
        return None
    chatter = not everything and (
        _is_of_no_service(request) if request is not None else entry.get("_COMM") in WORDY and is_chatter(message)
    )
    text = _request_line(request) if request is not None else printable(message, MOST_LETTERS)
    return {"at": entry_time(entry), "unit": unit, "text": "" if chatter else text, "folded": 1 if chatter else 0}


def _text(message: Any) -> str:
    """The text of a message: journalctl prints binary ones as lists of bytes, and none of more than 4096 bytes."""
    if isinstance(message, str):
        return message
    if isinstance(message, list) and all(isinstance(one, int) and 0 <= one < 256 for one in message):
        return bytes(message).decode("utf-8", "replace")
    return "(a message that is too long to be shown)"


def _request(message: str) -> Entry | None:
    """A line of the gateway's access log; None for other lines of its engine."""
    if not message.startswith("{"):
        return None
    try:
        found = json.loads(message)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) and "key_seen" in found else None


def _is_about(service: str, unit: str, message: str, request: Entry | None) -> bool:
    if request is not None:
        return request.get("service") == service
    if unit in (WATCHDOG, GATEWAY):
        return re.search(rf"(?<![\w.-]){re.escape(service)}(?![\w-])", message) is not None
    found = OF_SERVICE.match(unit)
    return (found.group(1) if found else service_of(unit)) == service


def is_chatter(message: str) -> bool:
    """Whether a server's line is routine."""
    if MILESTONE.search(message):
        return False
    grave = GRAVE.match(message)
    return grave.group("level") in "DI" if grave else not TROUBLE.search(message)


def _is_of_no_service(request: Entry) -> bool:
    """Whether a request got a page of the gateway itself, as Prometheus's do."""
    status = request.get("status")
    return not request.get("service") and isinstance(status, int) and status < 400


def _request_line(request: Entry) -> str:
    """The fields of a request that an operator needs, no others."""
    words = {name: printable(request.get(name) or "-", 80) for name in ("service", "model", "key", "status")}
    seconds = {name: _seconds(request.get(name)) for name in ("ttfb", "seconds")}
    parts = [f"{words['service']}: {words['status']}"]
    parts += [f"model {words['model']}", f"key {words['key']}"]
    parts += [f"first byte {seconds['ttfb']}", seconds["seconds"]]
    if _seconds(request.get("queued")) not in ("-", "0.00 s"):
        parts.append(f"queue {_seconds(request['queued'])}")
    for words_of, count, took in (
        ("prompt of %s tokens %s", "prompt_tokens", "prompt_seconds"),
        ("answer of %s tokens %s", "tokens", "generation_seconds"),
    ):
        number = request.get(count)
        if isinstance(number, int) and not isinstance(number, bool):
            parts.append(words_of % (number, _seconds(request.get(took))))
    return ", ".join(parts)


def _seconds(value: Any) -> str:
    return f"{value:.2f} s" if isinstance(value, (int, float)) and not isinstance(value, bool) else "-"
